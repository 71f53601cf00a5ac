//! A node that runs in this process: its shards, each on a thread of its own, and how they are reached as one.
//!
//! What is asked of a node goes to all of its shards, to the one that has what it is about, or to the first one where any can do
//! it.

use std::future::Future;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use futures_util::future::join_all;
use spandrel_cluster::DriveRole;
use spandrel_node::{
    DriveAdded, DriveHomes, DrivePlace, LetGo, NodeConfig, NodeLoad, NodeReport, ScrubProgress, Siblings,
    VolumeCreated, VolumeCreation, VolumeGrown, VolumeGrowth, by_turns, start_shards,
};
use spandrel_platform::Address;
use spandrel_platform_linux::RuntimeConfig;
use spandrel_platform_tls::TlsSettings;
use spandrel_qemu::folder::{CONSOLE_LOG, INCOMING_SOCKET};
use spandrel_qemu::{OpenOutgoing, Qemu, QemuOfNode, VmConsole};
use spandrel_shared::{DriveId, Error, NodeId, VmId, VolumeId};
use spandrel_volume::ScrubReport;
use tokio::net::UnixStream;

use crate::node_state::NodeState;
use crate::shard_thread::{LinuxShard, ShardHandle, ShardStart, ShardThread};

/// A node that runs.
pub struct RunningNode {
    shards: Vec<ShardThread>,
    homes: DriveHomes,
    /// What runs its virtual machines, once something does.
    qemu: Arc<OnceLock<Arc<Qemu>>>,
}

/// Reaches a node from any thread. Cheap to clone; the node may be gone.
#[derive(Clone)]
pub struct NodeHandle {
    /// The first one, and those behind it.
    shards: Vec<ShardHandle>,
    homes: DriveHomes,
    qemu: Arc<OnceLock<Arc<Qemu>>>,
}

/// What a node is started from.
#[derive(Clone)]
pub struct NodeStart {
    /// What it is, as its first shard, with all drives.
    pub config: NodeConfig,
    /// Where its further shards listen for other nodes: as many as there are of these.
    pub further_bus_addresses: Vec<Vec<Address>>,
    /// The event loops of its threads, with all cores.
    pub runtime: RuntimeConfig,
    /// The cluster's state.
    pub store: NodeState,
    /// How it speaks with other machines; without it, it speaks to this one alone.
    pub tls: Option<TlsSettings>,
}

impl NodeStart {
    /// How many shards the node has.
    fn count(&self) -> u8 {
        u8::try_from(self.further_bus_addresses.len() + 1).expect("the number of shards is limited")
    }

    /// What each shard is started from: cores and drives are shared out, and only the first one listens for clients.
    fn shards(self) -> Vec<ShardStart> {
        let count = self.count();
        let bus_addresses =
            std::iter::once(self.config.bus_addresses.clone()).chain(self.further_bus_addresses.clone());
        let shard = |(number, (bus_addresses, siblings)): (u8, _)| ShardStart {
            config: NodeConfig {
                shard: number,
                shards: count,
                bus_addresses,
                nbd_addresses: if number == 0 { self.config.nbd_addresses.clone() } else { Vec::new() },
                drives: by_turns(self.config.drives.clone(), number, count).collect(),
                ..self.config.clone()
            },
            runtime: RuntimeConfig {
                cores: self.runtime.cores.as_ref().map(|cores| cores.share(number.into(), count.into())),
                ..self.runtime.clone()
            },
            store: self.store.clone(),
            tls: self.tls.clone(),
            siblings,
        };
        (0..count).zip(bus_addresses.zip(Siblings::among(count))).map(shard).collect()
    }
}

/// Refuses cache drives where a node has several shards: a drive and the cache drive that it is bound to have one shard, and they
/// are not shared out like that.
///
/// # Errors
///
/// `CACHE_WITH_SHARDS`, with the drive's name.
pub fn check_roles<'d>(
    drives: impl IntoIterator<Item = (&'d str, DriveRole)>,
    shards: u8,
) -> Result<(), Error> {
    let cache = drives.into_iter().find(|(_, role)| *role == DriveRole::Cache);
    let Some((cache, _)) = cache.filter(|_| shards > 1) else { return Ok(()) };
    Err(Error::new(
        "CACHE_WITH_SHARDS",
        format!("{cache} cannot be the cache drive of a node with {shards} shards"),
        "a cache drive belongs to one thread together with all drives that it caches for, and shards are threads",
        "run the node without --shards, or without cache drives; a drive becomes no cache drive with \
         `spandrel drive add --role capacity`",
    ))
}

impl RunningNode {
    /// Starts a node, and waits until all of it takes part.
    ///
    /// # Errors
    ///
    /// Those of [`Node::start`](spandrel_node::Node::start), by whichever shard; then none runs.
    pub async fn start(start: NodeStart) -> Result<Self, Error> {
        let stop = |shard: ShardThread| async move {
            shard.begin_stop(false);
            // Waiting for a thread blocks.
            let _ = tokio::task::spawn_blocking(move || drop(shard)).await;
        };
        let starts = start.shards();
        let homes = starts[0].siblings.homes().clone();
        Ok(Self {
            shards: start_shards(starts, ShardThread::start, stop).await?,
            homes,
            qemu: Arc::default(),
        })
    }

    /// How others reach it.
    pub fn handle(&self) -> NodeHandle {
        let shards = self.shards.iter().map(ShardThread::handle).collect();
        NodeHandle { shards, homes: self.homes.clone(), qemu: Arc::clone(&self.qemu) }
    }

    /// What runs its virtual machines, if anything does.
    pub fn qemu(&self) -> Option<Arc<Qemu>> {
        self.qemu.get().cloned()
    }

    /// Whether it, or a part of it, has ended by itself, which it never should.
    pub fn is_ended(&self) -> bool {
        self.shards.iter().any(ShardThread::is_ended)
    }

    /// Ends the node and waits until its threads have ended. This blocks the calling thread. What the
    /// node said last, when its drives were left in order; none after an abrupt end.
    pub fn stop(mut self, abrupt: bool) -> Option<NodeReport> {
        self.begin_stop(abrupt);
        // Each is waited for, whatever the others say.
        let reports: Vec<_> = self.shards.iter_mut().map(ShardThread::join).collect();
        NodeReport::of_shards(reports.into_iter().collect::<Option<Vec<_>>>()?)
    }

    /// Tells all shards, as they wait for each other.
    fn begin_stop(&self, abrupt: bool) {
        self.shards.iter().for_each(|shard| shard.begin_stop(abrupt));
    }
}

impl Drop for RunningNode {
    fn drop(&mut self) {
        self.begin_stop(true);
    }
}

/// The error that nothing of a virtual machine runs on a node.
fn not_here(what: &str, error: &std::io::Error) -> Error {
    Error::new(
        "VM_NOT_RUNNING",
        what,
        format!("nothing of it runs on the node: {error}"),
        "see where it runs with `spandrel vm list`",
    )
}

impl NodeHandle {
    /// The shards, each for itself.
    pub fn shards(&self) -> &[ShardHandle] {
        &self.shards
    }

    /// How many shards it has.
    pub fn shard_count(&self) -> u8 {
        u8::try_from(self.shards.len()).expect("the number of shards is limited")
    }

    fn first(&self) -> &ShardHandle {
        self.shards.first().expect("a node has a shard")
    }

    /// Asks each shard, in the order of their numbers.
    async fn ask_all<T, F>(
        &self,
        question: impl Fn(LinuxShard) -> F + Clone + Send + 'static,
    ) -> Result<Vec<T>, Error>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let answers = join_all(self.shards.iter().map(|shard| shard.ask(question.clone()))).await;
        answers.into_iter().collect()
    }

    /// The shard that `has` something, or the first one if none has: it says why that cannot be.
    async fn shard_with(
        &self,
        has: impl Fn(&LinuxShard) -> bool + Clone + Send + 'static,
    ) -> Result<&ShardHandle, Error> {
        if let [only] = &self.shards[..] {
            return Ok(only);
        }
        let found = self.ask_all(move |shard| std::future::ready(has(&shard))).await?;
        Ok(found.iter().position(|has| *has).map_or(self.first(), |index| &self.shards[index]))
    }

    async fn owner(&self, volume: VolumeId) -> Result<&ShardHandle, Error> {
        self.shard_with(move |shard| shard.owns(volume)).await
    }

    /// What the node says of itself.
    pub async fn report(&self) -> Result<NodeReport, Error> {
        let reports = self.ask_all(|shard| async move { shard.report() }).await?;
        Ok(NodeReport::of_shards(reports).expect("a node has a shard"))
    }

    /// How busy the node is.
    pub async fn load(&self) -> Result<NodeLoad, Error> {
        // On each shard's own thread, which does all that the shard does.
        let load =
            |shard: LinuxShard| async move { NodeLoad { cpu_us: Some(thread_cpu_us()), ..shard.load() } };
        Ok(NodeLoad::of_shards(self.ask_all(load).await?).expect("a node has a shard"))
    }

    /// Has the node look after virtual machines, with `qemu`, from now on. To be called once. They move to other nodes by
    /// what `open_outgoing` opens.
    pub async fn run_vms(&self, qemu: Arc<Qemu>, open_outgoing: OpenOutgoing) -> Result<(), Error> {
        let runtime = tokio::runtime::Handle::current();
        let for_node = QemuOfNode::new(Arc::clone(&qemu), runtime, open_outgoing);
        // Known before the node acts, so that whoever stops the node abruptly ends them.
        let is_first = self.qemu.set(qemu).is_ok();
        assert!(is_first, "a node looks after virtual machines once");
        self.first().ask(move |shard| async move { shard.run_vms(Rc::new(for_node)) }).await
    }

    /// Has virtual machines go on when the node stops: its process begins anew.
    pub async fn leave_vms_running(&self) -> Result<(), Error> {
        self.first().ask(|shard| async move { shard.leave_vms_running() }).await
    }

    /// Ends the virtual machines of a node that is about to stop, while all that their disks need still runs.
    pub async fn end_vms(&self) -> Result<(), Error> {
        self.first().ask(|shard| async move { shard.end_vms().await }).await
    }

    /// The console of a virtual machine on the node, with what was written there before.
    ///
    /// # Errors
    /// `VM_NOT_RUNNING`, `VM_CONSOLE_IN_USE`.
    pub async fn open_console(&self, vm: VmId) -> Result<VmConsole, Error> {
        let what = format!("the console of virtual machine {vm} cannot be opened");
        let Some(qemu) = self.qemu.get() else { return Err(not_here(&what, &ErrorKind::NotFound.into())) };
        let folder = qemu.folder_of(vm);
        VmConsole::open(&folder).await.map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => {
                let log = folder.join(CONSOLE_LOG);
                Error::new(
                    "VM_CONSOLE_IN_USE",
                    what,
                    "somebody uses it, and there is one at a time",
                    format!(
                        "have them leave it (Ctrl-] does), or read what was written there, on its node: {}",
                        log.display()
                    ),
                )
            }
            _ => not_here(&what, &error),
        })
    }

    /// Where a virtual machine is awaited on the node, which moves there.
    ///
    /// # Errors
    /// `VM_NOT_RUNNING`.
    pub async fn open_incoming(&self, vm: VmId) -> Result<UnixStream, Error> {
        let opened = match self.qemu.get() {
            Some(qemu) => qemu.folder_of(vm).connect(INCOMING_SOCKET).await,
            None => Err(ErrorKind::NotFound.into()),
        };
        opened.map_err(|error| not_here("the virtual machine cannot move there", &error))
    }

    /// Has the node make a volume.
    pub async fn create_volume(&self, creation: VolumeCreation) -> Result<VolumeCreated, Error> {
        self.first().ask(|shard| async move { shard.create_volume(&creation).await }).await?
    }

    /// Has the node delete a volume.
    pub async fn delete_volume(&self, name: String) -> Result<(), Error> {
        self.first().ask(|shard| async move { shard.delete_volume(&name).await }).await?
    }

    /// Has the volume's owner hand it over to another node.
    pub async fn hand_over(&self, volume: VolumeId, to: NodeId) -> Result<(), Error> {
        self.owner(volume).await?.ask(move |shard| async move { shard.hand_over(volume, to).await }).await?
    }

    /// Has the volume's owner make it larger.
    pub async fn grow_volume(&self, growth: VolumeGrowth) -> Result<VolumeGrown, Error> {
        let owner = self.owner(growth.volume).await?;
        owner.ask(move |shard| async move { shard.grow_volume(&growth).await }).await?
    }

    /// Has the volume's owner check it.
    pub async fn scrub_volume(
        &self,
        volume: VolumeId,
        heal: bool,
        tell: impl Fn(ScrubProgress) + Send + 'static,
    ) -> Result<ScrubReport, Error> {
        let owner = self.owner(volume).await?;
        owner.ask(move |shard| async move { shard.scrub_volume(volume, heal, tell).await }).await?
    }

    /// Has the node take one more drive into use, which is the drive `known` if that is known: at the shard that has it already,
    /// or had it, or else at the one with the fewest drives.
    pub async fn add_drive(&self, place: DrivePlace, known: Option<DriveId>) -> Result<DriveAdded, Error> {
        let location = place.location.clone();
        let seen = move |shard: LinuxShard| {
            let drives = shard.report().drives;
            std::future::ready(DrivesSeen {
                is_here: drives.iter().any(|drive| drive.location == location),
                count: drives.len(),
            })
        };
        let seen = self.ask_all(seen).await?;
        let shard = shard_for_drive(known.and_then(|drive| self.homes.of(drive)), &seen);
        self.shards[shard].ask(|shard| async move { shard.add_drive(place).await }).await?
    }

    /// Has the node let go of a drive.
    pub async fn let_go_drive(&self, drive: DriveId) -> Result<LetGo, Error> {
        let answers = self.ask_all(move |shard| async move { shard.let_go_drive(drive).await }).await?;
        let done = answers.into_iter().find(|answer| !matches!(answer, LetGo::NotThere));
        Ok(done.unwrap_or(LetGo::NotThere))
    }
}

/// The drives of a shard, to one that is to be added.
#[derive(Clone, Copy, Debug)]
struct DrivesSeen {
    /// Whether one is where that one is.
    is_here: bool,
    count: usize,
}

/// The shard that is to have a drive, by what the shards have: first of all its `home`, if it has one.
fn shard_for_drive(home: Option<u8>, seen: &[DrivesSeen]) -> usize {
    let is_home = |index: usize| home.is_some_and(|home| usize::from(home) == index);
    let rank = |index: &usize| (!is_home(*index), !seen[*index].is_here, seen[*index].count);
    (0..seen.len()).min_by_key(rank).expect("a node has a shard")
}

/// The processor time of this thread, in microseconds.
fn thread_cpu_us() -> u64 {
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(cpu.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(cpu.tv_nsec / 1000).unwrap_or(0)
}

#[cfg(test)]
#[path = "running_node_tests.rs"]
mod tests;
