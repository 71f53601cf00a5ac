//! All that can be measured, in the order in which they are listed.

mod ceph;
mod file;
mod gluster;
mod nbdkit;
mod qemu_nbd;
mod spandrel;

use crate::contender::Known;

pub use spandrel::{COPIES, Cluster, NODES};

/// Spandrel first, then what keeps one copy, which is the limit of the way to it, then peers.
pub const CONTENDERS: [Known; 7] = [
    spandrel::SPANDREL,
    spandrel::ON_ONE_CORE,
    file::FILE,
    nbdkit::NBDKIT,
    qemu_nbd::QEMU_NBD,
    ceph::CEPH,
    gluster::GLUSTER,
];
