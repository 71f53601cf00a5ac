//! Virtual machines on the nodes of this process: what they need of this machine, which is found out once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt as _;
use spandrel_qemu::{Emulator, Outgoing, Qemu, QemuOptions};
use spandrel_shared::size::format_size;
use spandrel_shared::{Error, NodeId, VmId};

use crate::admin::nodes::Nodes;
use crate::admin::pool::memory_of_this_server;
use crate::arguments::VmHostArguments;
use crate::running_node::NodeHandle;
use crate::shared_disk::shared_disks;

/// QEMU's program.
const PROGRAM: &str = "qemu-system-x86_64";

/// The part of the machine's memory that is for virtual machines if nobody says otherwise.
const MEMORY_PART: u64 = 2;

/// How nodes of this process run virtual machines.
#[derive(Debug)]
pub struct VmHosting {
    program: PathBuf,
    /// For each node, in bytes.
    memory_bytes: u64,
    emulator: OnceLock<Emulator>,
}

impl VmHosting {
    /// As the command line says, for so many nodes. None if they are to run none.
    pub fn new(arguments: &VmHostArguments, nodes: usize) -> Option<Self> {
        let nodes = u64::try_from(nodes).unwrap_or(u64::MAX).max(1);
        let memory_bytes =
            arguments.vm_memory.unwrap_or_else(|| memory_of_this_server() / MEMORY_PART / nodes);
        // In the unit in which virtual machines have memory.
        let memory_bytes = memory_bytes >> 20 << 20;
        (memory_bytes > 0).then(|| Self { program: PROGRAM.into(), memory_bytes, emulator: OnceLock::new() })
    }

    /// Finds out what runs virtual machines here, which takes some seconds where hardware virtualization does not work.
    /// Whether anything does. `folder` is written to meanwhile.
    pub async fn probe(&self, folder: &Path) -> bool {
        match spandrel_qemu::probe::probe(&self.program, folder).await {
            Some(emulator) => {
                let memory = format_size(self.memory_bytes);
                tracing::info!(
                    "virtual machines run by {}, with {memory} for each node",
                    emulator.accelerator.qemu_name()
                );
                // Whoever else has found it out has found the same.
                let _ = self.emulator.set(emulator);
                true
            }
            None => {
                tracing::info!("no virtual machines run here: {} does not work", self.program.display());
                false
            }
        }
    }

    /// Has a node look after virtual machines, if that was found to work. Their folder may hold what a former run has left.
    /// They move among `nodes`.
    ///
    /// # Errors
    /// `VM_FOLDER_UNUSABLE`, `NODE_STOPPED`.
    pub async fn begin(
        &self,
        node: &NodeHandle,
        folder: PathBuf,
        nbd_socket: PathBuf,
        nodes: Arc<dyn Nodes>,
    ) -> Result<(), Error> {
        let Some(emulator) = self.emulator.get().copied() else { return Ok(()) };
        let options = QemuOptions {
            program: self.program.clone(),
            emulator,
            folder,
            nbd_socket,
            serve_disk: shared_disks(node.shards()),
            memory_bytes: self.memory_bytes,
        };
        let qemu = Qemu::open(options).await?;
        node.run_vms(qemu, Arc::new(move |to, vm| open_incoming(Arc::clone(&nodes), to, vm).boxed())).await
    }
}

/// Opens a stream to another node, behind which a virtual machine is awaited.
async fn open_incoming(nodes: Arc<dyn Nodes>, to: NodeId, vm: VmId) -> Result<Outgoing, Error> {
    let access = nodes.list().await?.into_iter().find(|node| node.id == to).and_then(|node| node.access);
    let access = access.ok_or_else(|| {
        let what = format!("virtual machine {vm} does not move");
        Error::new(
            "NODE_NOT_RUNNING",
            what,
            "the node that it was to move to does not run",
            "choose another one",
        )
    })?;
    Ok(Box::new(access.open_incoming(vm).await?))
}
