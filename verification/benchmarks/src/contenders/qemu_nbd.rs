//! QEMU's NBD server on a plain file.

use std::fs::File;

use crate::contender::{Contender, Known, Server, Setup, nbd};

pub(super) const QEMU_NBD: Known =
    Known { name: "qemu-nbd", what: "a plain file, 1 copy", needs: &[("qemu-nbd", "qemu-utils")], start };

struct QemuNbd {
    _server: Server,
    reach: Vec<String>,
}

impl Contender for QemuNbd {
    fn reach(&self) -> Vec<String> {
        self.reach.clone()
    }
}

fn start(setup: &Setup) -> Result<Box<dyn Contender>, String> {
    let (file, socket) = (setup.folder.join("file"), setup.folder.join("nbd.sock"));
    File::create(&file)
        .and_then(|file| file.set_len(setup.size_bytes))
        .map_err(|error| format!("{} cannot be made: {error}", file.display()))?;
    let mut command = setup.mark.command("qemu-nbd");
    command.args(["--persistent", "--format=raw", "--shared=8", "--socket"]).arg(&socket).arg(&file);
    let mut server = Server::start(&mut command, &setup.folder, "qemu-nbd")?;
    // Not by a connection: it would be one of those that it takes.
    server.await_that("it serves", |_| socket.exists())?;
    Ok(Box::new(QemuNbd { _server: server, reach: nbd("", &socket) }))
}
