# What a newcomer needs. Everything else is cargo's, see CONTRIBUTING.md.

.PHONY: help test

help:
	@echo "make test   run everything that a change must pass (installs Debian packages if root)"

test:
	cargo xtask packages
	cargo xtask ci
