//! GlusterFS: three bricks in folders of this machine, a volume that keeps a copy on each, reached through libgfapi.
//!
//! What would answer before a write is durable on all bricks, or read what may be old, is off.

use std::fs;

use crate::contender::{Contender, Known, Server, Setup, run};

pub(super) const GLUSTER: Known = Known {
    name: "gluster",
    what: "3 bricks, 3 copies",
    needs: &[("glusterd", "glusterfs-server"), ("gluster", "glusterfs-cli")],
    start,
};

const VOLUME: &str = "benchmark";
const BRICKS: u32 = 3;

/// Its own port of management, as its client library knows no other.
const PORT: u16 = 24007;

/// What is kept from answering early or reading from elsewhere.
const OFF: [&str; 6] = [
    "performance.write-behind",
    "performance.read-ahead",
    "performance.io-cache",
    "performance.quick-read",
    "performance.stat-prefetch",
    "performance.open-behind",
];

fn start(setup: &Setup) -> Result<Contender, String> {
    let folder = &setup.folder;
    let (state, socket) = (folder.join("state"), folder.join("glusterd.socket"));
    let made = fs::create_dir(&state);
    made.map_err(|error| format!("{} cannot be made: {error}", state.display()))?;
    // It refuses loopback addresses for bricks.
    let host = fs::read_to_string("/proc/sys/kernel/hostname").map_err(|error| error.to_string())?;
    let host = host.trim().to_owned();
    let description = folder.join("glusterd.vol");
    let text = format!(
        "volume management
    type mgmt/glusterd
    option working-directory {state}
    option run-directory {state}
    option transport-type socket
    option transport.socket.listen-port {PORT}
    option glusterd-sockfile {socket}
end-volume
",
        state = state.display(),
        socket = socket.display()
    );
    fs::write(&description, text).map_err(|error| error.to_string())?;
    let mut command = setup.mark.command("glusterd");
    command.arg("--no-daemon").arg("--volfile").arg(&description);
    command.arg("--log-file").arg(folder.join("glusterd.log"));
    let mut server = Server::start(&mut command, folder, "management")?;
    let gluster = |arguments: &[&str]| {
        let mut command = setup.mark.command("gluster");
        command.arg("--mode=script").arg(format!("--glusterd-sock={}", socket.display()));
        run(command.args(arguments))
    };
    server.await_that("it answers", |_| gluster(&["pool", "list"]).is_ok())?;
    let bricks: Vec<String> =
        (1..=BRICKS).map(|number| format!("{host}:{}/brick-{number}", folder.display())).collect();
    let mut create = vec!["volume", "create", VOLUME, "replica", "3"];
    create.extend(bricks.iter().map(String::as_str));
    gluster(&[&create[..], &["force"]].concat())?;
    for option in OFF {
        gluster(&["volume", "set", VOLUME, option, "off"])?;
    }
    gluster(&["volume", "start", VOLUME])?;
    let engine = ["--ioengine=gfapi_async".to_owned(), format!("--volume={VOLUME}")];
    let place = [format!("--brick={host}"), "--filename=file".to_owned()];
    let reach = engine.into_iter().chain(place).collect();
    Ok(Contender { reach: vec![reach], environment: Vec::new(), servers: vec![server] })
}
