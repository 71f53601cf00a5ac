//! All targets, and what several of them share.

mod admin;
mod bus;
mod cluster_records;
mod drive_format;
mod drive_image;
mod nbd_client;
mod nbd_server;
mod text;
mod wire;

use crate::Target;

/// Every target, in the order in which bytes come in.
pub const ALL: [Target; 12] = [
    nbd_server::TARGET,
    nbd_client::TARGET,
    bus::ACCEPTOR,
    bus::DIALLER,
    bus::MESSAGES,
    drive_format::TARGET,
    drive_image::ATTACH,
    drive_image::DAMAGE,
    drive_image::INSPECT,
    cluster_records::TARGET,
    admin::TARGET,
    text::TARGET,
];

/// The target with this name.
pub fn find(name: &str) -> Option<Target> {
    ALL.into_iter().find(|target| target.name == name)
}
