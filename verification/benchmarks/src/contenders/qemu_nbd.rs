//! QEMU's NBD server on a plain file.

use crate::contender::{Contender, Known, Server, Setup, nbd};

pub(super) const QEMU_NBD: Known =
    Known { name: "qemu-nbd", what: "a plain file, 1 copy", needs: &[("qemu-nbd", "qemu-utils")], start };

fn start(setup: &Setup) -> Result<Contender, String> {
    let (file, socket) = (setup.make_file()?, setup.folder.join("nbd.sock"));
    let mut command = setup.mark.command("qemu-nbd");
    command.args(["--persistent", "--format=raw", "--shared=8", "--socket"]).arg(&socket).arg(&file);
    let mut server = Server::start(&mut command, &setup.folder, "qemu-nbd")?;
    // Not by a connection: it would be one of those that it takes.
    server.await_that("it serves", |_| socket.exists())?;
    Ok(Contender { reach: vec![nbd("", &socket)], environment: Vec::new(), servers: vec![server] })
}
