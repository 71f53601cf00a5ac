//! `spandrel fleet agent`: what runs in the virtual machines of `spandrel fleet run --guest`.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use spandrel_fleet::{AgentArguments, GuestAgent};
use spandrel_qemu::command_line::LOAD_PORT;
use spandrel_shared::Error;

use crate::failure::{EXIT_OK, Outcome};

/// Where the kernel tells of serial ports.
const PORTS: &str = "/sys/class/virtio-ports";

/// How long the kernel may take to find them.
const PORT_TIME_MAX: Duration = Duration::from_secs(30);

/// How often something is tried that nobody tells of.
const PAUSE: Duration = Duration::from_millis(20);

/// Does what the fleet says until the virtual machine ends.
pub fn run(arguments: &AgentArguments) -> Outcome {
    let orders = open_port()?;
    let answers = orders.try_clone().map_err(|error| no_port(&error.to_string()))?;
    // A port without a listener on the other side has nothing to read, and says so at once.
    let wait = || {
        pause();
        true
    };
    GuestAgent::new(arguments.drive.clone(), answers).serve(orders, wait);
    Ok(EXIT_OK)
}

fn open_port() -> Result<File, Error> {
    let begun = Instant::now();
    loop {
        if let Some(path) = find_port(Path::new(PORTS)) {
            let opened = OpenOptions::new().read(true).write(true).open(&path);
            return opened.map_err(|error| no_port(&format!("{}: {error}", path.display())));
        }
        if begun.elapsed() > PORT_TIME_MAX {
            return Err(no_port(&format!("none in {PORTS} has that name")));
        }
        pause();
    }
}

/// The device of the port by which the load generator is reached.
fn find_port(ports: &Path) -> Option<PathBuf> {
    let mut ports = std::fs::read_dir(ports).ok()?.flatten();
    let is_it = |port: &std::fs::DirEntry| {
        std::fs::read_to_string(port.path().join("name")).is_ok_and(|name| name.trim() == LOAD_PORT)
    };
    ports.find(is_it).map(|port| Path::new("/dev").join(port.file_name()))
}

fn pause() {
    // tidy-allow(sleep): the kernel tells nobody of a port that is found, or that somebody has connected to it.
    std::thread::sleep(PAUSE);
}

fn no_port(why: &str) -> Error {
    Error::new(
        "FLEET_NO_PORT",
        format!("the fleet is not heard: the serial port {LOAD_PORT} cannot be used"),
        why,
        "run this in a virtual machine of `spandrel fleet run --guest`",
    )
}

#[cfg(test)]
#[path = "fleet_agent_tests.rs"]
mod tests;
