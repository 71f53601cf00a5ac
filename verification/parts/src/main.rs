//! `make parts`: how long single parts of the data path take, on the processor alone.
//!
//! Checksums, records of the journal, messages and the map are called as they are. What needs connections or drives gets them from a
//! made-up world, whose own work is then part of what is measured: compare such a number with an earlier one, not with a disk.

mod bus;
mod checksum;
mod journal;
mod map;
mod nbd;
mod world;

/// As in the program that ships.
#[global_allocator]
static ALLOCATOR: spandrel_platform_linux::Allocator = spandrel_platform_linux::Allocator;

fn main() {
    divan::main();
}
