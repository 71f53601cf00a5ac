//! The disks of virtual machines that share their guests' memory with the node: each is served by the shard that has the clients of its
//! volume.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use spandrel_node::NodeDevice;
use spandrel_platform_linux::LinuxPlatform;
use spandrel_platform_tls::TlsPlatform;
use spandrel_qemu::{ServeDisk, ServedDisk};
use spandrel_vhost::{DiskServer, DiskTask, OpenDisk};
use spandrel_vm::disk::DiskName;
use spandrel_volume::OpenError;

use crate::node_state::NodeState;
use crate::shard_thread::ShardHandle;

const _: () = assert!(
    spandrel_qemu::command_line::QUEUES_MAX <= spandrel_vhost::QUEUES_MAX,
    "QEMU starts no machine with more queues than its disk has"
);

/// A disk as a client on Linux has it.
type LinuxDevice = NodeDevice<TlsPlatform<LinuxPlatform>, NodeState>;

/// Serves disks by these shards, which are all of a node.
pub fn shared_disks(shards: &[ShardHandle]) -> ServeDisk {
    let shards: Arc<[ShardHandle]> = shards.into();
    Arc::new(move |disk, socket| {
        let shards = Arc::clone(&shards);
        let open: OpenDisk<LinuxDevice> = Arc::new(move |task| open_at(Arc::clone(&shards), 0, disk, task));
        let server = DiskServer::start(socket, serial(disk), open)?;
        Ok(Box::new(Served(server)))
    })
}

struct Served(DiskServer);

impl ServedDisk for Served {
    fn opened(&mut self) -> BoxFuture<'_, Result<(), String>> {
        self.0.opened().boxed()
    }
}

/// Opens a disk by a shard, or by the one that this one names.
fn open_at(shards: Arc<[ShardHandle]>, number: usize, disk: DiskName, task: DiskTask<LinuxDevice>) {
    // Dropped, the task tells that there is no such shard.
    let Some(asked) = shards.get(number).cloned() else { return };
    asked.tell(move |shard| async move {
        let opened = match shard.open(&disk.to_string()).await {
            Err(OpenError::Elsewhere(other)) if other != number => return open_at(shards, other, disk, task),
            opened => opened.map_err(|error| error.to_string()),
        };
        task(shard.platform().below().clone(), opened).await;
    });
}

/// By what a guest that asks knows its disk: the beginning of its virtual machine's identity.
fn serial<const LENGTH: usize>(disk: DiskName) -> [u8; LENGTH] {
    let digits = disk.vm.to_string().into_bytes();
    let mut digits = digits.into_iter().filter(u8::is_ascii_hexdigit);
    std::array::from_fn(|_| digits.next().unwrap_or(0))
}
