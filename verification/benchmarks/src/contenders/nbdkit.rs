//! nbdkit on a plain file: the way through NBD with next to nothing behind it.

use std::fs::File;

use crate::contender::{Contender, Known, Server, Setup, accepts, nbd};

pub(super) const NBDKIT: Known =
    Known { name: "nbdkit", what: "a plain file, 1 copy", needs: &[("nbdkit", "nbdkit")], start };

struct Nbdkit {
    _server: Server,
    reach: Vec<String>,
}

impl Contender for Nbdkit {
    fn reach(&self) -> Vec<String> {
        self.reach.clone()
    }
}

fn start(setup: &Setup) -> Result<Box<dyn Contender>, String> {
    let (file, socket) = (setup.folder.join("file"), setup.folder.join("nbd.sock"));
    File::create(&file)
        .and_then(|file| file.set_len(setup.size_bytes))
        .map_err(|error| format!("{} cannot be made: {error}", file.display()))?;
    let mut command = setup.mark.command("nbdkit");
    command.args(["--foreground", "--unix"]).arg(&socket).arg("file").arg(&file);
    let mut server = Server::start(&mut command, &setup.folder, "nbdkit")?;
    server.await_that("it serves", |_| accepts(&socket))?;
    Ok(Box::new(Nbdkit { _server: server, reach: nbd("", &socket) }))
}
