# What a newcomer needs. Everything else is cargo's, see CONTRIBUTING.md.

.PHONY: help demo test

help:
	@echo "make demo   see it work: a cluster, a sweep, a node that dies under load (one or two minutes, no root)"
	@echo "make test   run everything that a change must pass (installs Debian packages if root)"

demo:
	@cargo build --locked --release --bin spandrel
	@cargo run --locked --quiet --release --bin spandrel -- demo

test:
	cargo xtask packages
	cargo xtask ci
