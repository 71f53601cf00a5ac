//! nbdkit on a plain file: the way through NBD with next to nothing behind it.

use crate::contender::{Contender, Known, Server, Setup, accepts, nbd};

pub(super) const NBDKIT: Known =
    Known { name: "nbdkit", what: "a plain file, 1 copy", needs: &[("nbdkit", "nbdkit")], start };

fn start(setup: &Setup) -> Result<Contender, String> {
    let (file, socket) = (setup.make_file()?, setup.folder.join("nbd.sock"));
    let mut command = setup.mark.command("nbdkit");
    command.args(["--foreground", "--unix"]).arg(&socket).arg("file").arg(&file);
    let mut server = Server::start(&mut command, &setup.folder, "nbdkit")?;
    server.await_that("it serves", |_| accepts(&socket))?;
    Ok(Contender { reach: vec![nbd("", &socket)], environment: Vec::new(), servers: vec![server] })
}
