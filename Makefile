# What a newcomer needs. Everything else is cargo's, see CONTRIBUTING.md.

.PHONY: help bench curves demo generator instructions parts test

help:
	@echo "make demo   see it work: a cluster, a sweep, a node that dies under load (one or two minutes, no root)"
	@echo "make bench  measure it against others on this machine, with fio (half an hour; BENCH='--help' tells how)"
	@echo "make curves how costs go with sizes, volumes, what is mapped and more (some 10 minutes; CURVES='--help' tells how)"
	@echo "make generator  compare the fleet's load generator with fio (some 9 minutes; GENERATOR='--help' tells how)"
	@echo "make instructions  count the instructions of a write and a read, and compare (a few minutes, needs valgrind)"
	@echo "make parts  time single parts: checksums, journal, map, bus, NBD (PARTS='NAME' those with NAME in theirs)"
	@echo "make test   run everything that a change must pass (installs Debian packages if root)"

demo:
	@cargo build --locked --release --bin spandrel
	@cargo run --locked --quiet --release --bin spandrel -- demo

test:
	cargo xtask packages
	cargo xtask ci

# All that was measured is kept beside the build.
bench:
	@cargo build --locked --release --bin spandrel
	@cargo run --locked --quiet --release --package spandrel-benchmarks -- --save target/benchmark.json $(BENCH)

curves:
	@cargo build --locked --release --bin spandrel
	@cargo run --locked --quiet --release --package spandrel-benchmarks -- curves --save target/curves.json $(CURVES)

generator:
	@cargo build --locked --release --bin spandrel
	@cargo run --locked --quiet --release --package spandrel-benchmarks -- generator --save target/generator.json $(GENERATOR)

parts:
	@cargo run --locked --quiet --release --package spandrel-parts -- --bench $(PARTS)

instructions:
	@cargo run --locked --quiet --release --package spandrel-instructions -- $(INSTRUCTIONS)
