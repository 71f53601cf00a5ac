//! A small world to test front-ends in: a platform whose time stands still until nothing else
//! can happen, connections of any fragmentation, disks in memory, and an NBD client.

mod client;
mod disk;
mod fixture;
mod platform;

pub(crate) use client::{Chunk, Client, Reply, Request, negotiate};
pub(crate) use disk::{MemoryDisk, MemoryExports};
pub(crate) use fixture::{EXPORT, Fixture};
pub(crate) use platform::{TestConnection, TestPlatform};
