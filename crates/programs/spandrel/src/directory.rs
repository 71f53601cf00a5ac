//! The directory of a cluster on this machine.
//!
//! ```text
//! DIR/format.json      the format's number and what the cluster consists of, see `settings`
//! DIR/lock             locked by the process that runs the cluster
//! DIR/admin.sock       where the other commands reach it
//! DIR/state.redb       the cluster's state
//! DIR/log/             logs
//! DIR/n1/              a node: nbd.sock, bus.sock, and its drives d1.drive, d2.drive
//! DIR/n1/vms/          the virtual machines that run there, or did
//! ```

use std::path::{Path, PathBuf};

use spandrel_shared::Error;

/// The longest path of a unix socket, in bytes: the kernel's bound.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A cluster's directory, which may not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The directory that was named, or the usual one.
    pub fn choose(named: Option<&Path>) -> Result<Self, Error> {
        let path = match named {
            Some(path) => path.to_owned(),
            None => usual_directory()?,
        };
        let absolute = std::path::absolute(&path).map_err(|error| {
            Error::new(
                "DIR_INVALID",
                format!("{} cannot be the cluster's directory", path.display()),
                error.to_string(),
                "name another one with --dir or SPANDREL_DIR",
            )
        })?;
        if absolute.to_str().is_none_or(|text| text.contains(|letter: char| letter.is_control())) {
            return Err(Error::new(
                "DIR_INVALID",
                format!("{} cannot be the cluster's directory", absolute.display()),
                "its name is not plain text, and it stands in the addresses of sockets",
                "name another one with --dir or SPANDREL_DIR",
            ));
        }
        Ok(Self { path: absolute })
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file or directory within it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where the admin API is served.
    pub fn admin_socket(&self) -> PathBuf {
        self.join("admin.sock")
    }

    /// The cluster's state.
    pub fn state_file(&self) -> PathBuf {
        self.join("state.redb")
    }

    /// The log.
    pub fn log_directory(&self) -> PathBuf {
        self.join("log")
    }

    /// A node's own directory.
    pub fn node(&self, node: &str) -> PathBuf {
        self.join(node)
    }

    /// The virtual machines of a node.
    pub fn vms(&self, node: &str) -> PathBuf {
        self.node(node).join("vms")
    }

    /// Where a node serves NBD.
    pub fn nbd_socket(&self, node: &str) -> PathBuf {
        self.node(node).join("nbd.sock")
    }

    /// Where a shard of a node listens to others.
    pub fn bus_socket(&self, node: &str, shard: u8) -> PathBuf {
        // None is longer than the first one's, as the length of such paths is limited.
        self.node(node).join(if shard == 0 { "bus.sock".to_owned() } else { format!("b{shard}.sock") })
    }

    /// A node's drive file.
    pub fn drive_file(&self, node: &str, drive: &str) -> PathBuf {
        self.node(node).join(format!("{drive}.drive"))
    }

    /// Refuses a directory whose name is too long for the sockets within it, the longest of which
    /// are those of the node called `longest_node`.
    pub fn check_socket_lengths(&self, longest_node: &str) -> Result<(), Error> {
        let longest = [self.admin_socket(), self.nbd_socket(longest_node), self.bus_socket(longest_node, 0)]
            .into_iter()
            .max_by_key(|path| path.as_os_str().len())
            .expect("there are three");
        let length = longest.as_os_str().len();
        if length <= SOCKET_PATH_BYTES_MAX {
            return Ok(());
        }
        let within = length - self.path.as_os_str().len();
        Err(Error::new(
            "DIR_PATH_TOO_LONG",
            format!("{} cannot be the cluster's directory", self.path.display()),
            format!(
                "the unix socket {} would have a path of {length} bytes, and the kernel allows {SOCKET_PATH_BYTES_MAX}",
                longest.display()
            ),
            format!(
                "name a directory of at most {} bytes with --dir or SPANDREL_DIR (a symbolic link will do)",
                SOCKET_PATH_BYTES_MAX - within
            ),
        ))
    }
}

fn usual_directory() -> Result<PathBuf, Error> {
    let from =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = from("XDG_DATA_HOME").or_else(|| from("HOME").map(|home| home.join(".local/share")));
    data.map(|data| data.join("spandrel")).ok_or_else(|| {
        Error::new(
            "DIR_UNKNOWN",
            "the cluster's directory is not known",
            "neither --dir nor SPANDREL_DIR names it, and there is no home directory",
            "name it with --dir or SPANDREL_DIR",
        )
    })
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
