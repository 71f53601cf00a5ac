//! Virtual machines: what they are to be and to do. Nodes see that in the cluster's state, and do it.

use std::collections::{BTreeMap, BTreeSet};

use spandrel_cluster::{PlacementReason, Stored, VmGoal, VmHost, VmRecord};
use spandrel_node::{VmCondition, VmReport};
use spandrel_shared::size::format_size;
use spandrel_shared::{Error, NodeId, VmId, VolumeId};

use super::administration::{Administration, state_error, unix_ms, unless_conflict, volume_not_found};
use super::api::{VmCreate, VmHostStatus, VmMigrate, VmState, VmStatus, VmStop};
use super::nodes::Duplex;
use crate::random::random;

/// What to do where no node that is alive runs virtual machines.
pub const WHERE_NONE_RUNS_VMS: &str = "install QEMU on the servers (Debian: `apt-get install qemu-system-x86`) and start the \
                                       nodes anew; one that has just started needs some seconds until it is known";

/// What is known of all virtual machines.
struct VmFacts {
    vms: BTreeMap<VmId, Stored<VmRecord>>,
    volumes: BTreeMap<VolumeId, String>,
    nodes: BTreeMap<NodeId, String>,
    /// Those that are in maintenance, and take none.
    in_maintenance: BTreeSet<NodeId>,
    /// What nodes have for virtual machines that are alive.
    hosts: BTreeMap<NodeId, VmHost>,
    /// What those say that could be asked.
    reports: BTreeMap<NodeId, Vec<VmReport>>,
}

impl Administration {
    /// All virtual machines, by their names.
    pub async fn vms(&self) -> Result<Vec<VmStatus>, Error> {
        let facts = self.vm_facts().await?;
        let mut vms: Vec<VmStatus> =
            facts.vms.iter().map(|(vm, stored)| facts.status(*vm, &stored.record)).collect();
        vms.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(vms)
    }

    /// The nodes that run virtual machines, by their names.
    pub async fn vm_hosts(&self) -> Result<Vec<VmHostStatus>, Error> {
        let facts = self.vm_facts().await?;
        let mut hosts: Vec<VmHostStatus> = facts.hosts.keys().map(|node| facts.host_status(*node)).collect();
        hosts.sort_by(|one, other| one.node.cmp(&other.node));
        Ok(hosts)
    }

    /// A virtual machine.
    ///
    /// Errors: `VM_NOT_FOUND`.
    pub async fn vm(&self, name: &str) -> Result<VmStatus, Error> {
        self.vms().await?.into_iter().find(|vm| vm.name == name).ok_or_else(|| vm_not_found(name))
    }

    /// Makes a virtual machine, which is off.
    ///
    /// Errors: `NAME_INVALID`, `VM_INVALID`, `VM_EXISTS`, `VOLUME_NOT_FOUND`, `VOLUME_OF_VM`.
    pub async fn create_vm(&self, create: VmCreate) -> Result<VmStatus, Error> {
        let volume = self.state().volume_by_name(&create.volume).await.map_err(state_error)?;
        let record = VmRecord {
            name: create.name.clone(),
            volume: volume.ok_or_else(|| volume_not_found(&create.volume))?,
            processors: create.processors,
            memory_bytes: create.memory_bytes,
            boot: create.boot,
            disk_bus: create.disk_bus,
            priority: create.priority,
            goal: VmGoal::Off,
            placement: None,
            migration: None,
            waits_because: None,
            last_run: 0,
            created_unix_ms: unix_ms(),
        };
        let id = VmId::from_random(random(), random());
        unless_conflict(|| self.state().create_vm(id, &record)).await?;
        self.vm(&create.name).await
    }

    /// Has a virtual machine run.
    ///
    /// Errors: `VM_NOT_FOUND`, `VM_WITHOUT_HOST` if no node could run it, even if it ran no others.
    pub async fn start_vm(&self, name: &str) -> Result<VmStatus, Error> {
        let facts = self.vm_facts().await?;
        let record = facts.vms.values().find(|stored| stored.record.name == name);
        let record = &record.ok_or_else(|| vm_not_found(name))?.record;
        facts.check_host(record)?;
        self.set_goal(name, VmGoal::Running).await
    }

    /// Has a virtual machine end.
    ///
    /// Errors: `VM_NOT_FOUND`.
    pub async fn stop_vm(&self, name: &str, stop: VmStop) -> Result<VmStatus, Error> {
        self.set_goal(name, if stop.at_once { VmGoal::OffAtOnce } else { VmGoal::Off }).await
    }

    async fn set_goal(&self, name: &str, goal: VmGoal) -> Result<VmStatus, Error> {
        let state = self.state();
        unless_conflict(async || {
            let (vm, stored) = state.vm_by_name(name).await?.ok_or_else(|| vm_not_found(name))?;
            // One that has no node is off as soon as it is to be.
            let goal = match (goal, &stored.record.placement) {
                (VmGoal::OffAtOnce, None) => VmGoal::Off,
                (goal, _) => goal,
            };
            if stored.record.goal == goal {
                return Ok(());
            }
            let waits_because = stored.record.waits_because.clone().filter(|_| goal == VmGoal::Running);
            let changed = VmRecord { goal, waits_because, ..stored.record.clone() };
            state.change_vm(vm, &stored, changed).await.map(drop)
        })
        .await?;
        self.vm(name).await
    }

    /// Has a virtual machine move to another node while it runs.
    ///
    /// Errors: `VM_NOT_FOUND`, `NODE_NOT_FOUND`, `VM_NOT_MOVED` if it does not run, or the node cannot take it.
    pub async fn migrate_vm(&self, name: &str, migrate: VmMigrate) -> Result<VmStatus, Error> {
        let to = match &migrate.to {
            Some(to) => Some(self.entry(to).await?.id),
            None => None,
        };
        let facts = self.vm_facts().await?;
        let (vm, stored) = facts
            .vms
            .iter()
            .find(|(_, stored)| stored.record.name == name)
            .ok_or_else(|| vm_not_found(name))?;
        if let Some(to) = facts.destination(*vm, &stored.record, to)? {
            let moved = self.state().change_vm(*vm, stored, stored.record.moving(to, unix_ms())).await;
            moved.map_err(state_error)?;
        }
        self.vm(name).await
    }

    /// Deletes a virtual machine that is off. Its disk stays.
    ///
    /// Errors: `VM_NOT_FOUND`, `VM_NOT_OFF`.
    pub async fn delete_vm(&self, name: &str) -> Result<(), Error> {
        let state = self.state();
        unless_conflict(async || {
            let (vm, stored) = state.vm_by_name(name).await?.ok_or_else(|| vm_not_found(name))?;
            state.delete_vm(vm, &stored).await
        })
        .await
    }

    /// The console of a virtual machine.
    ///
    /// Errors: `VM_NOT_FOUND`, `VM_NOT_RUNNING`, `VM_CONSOLE_IN_USE`.
    pub async fn open_console(&self, name: &str) -> Result<Box<dyn Duplex>, Error> {
        let found = self.state().vm_by_name(name).await.map_err(state_error)?;
        let (vm, stored) = found.ok_or_else(|| vm_not_found(name))?;
        let access = match &stored.record.placement {
            Some(placement) => self.access_to(placement.node).await?,
            None => None,
        };
        match access {
            // Whoever is asked there knows it by its identity.
            Some(access) => access.open_console(vm).await.map_err(|error| Error {
                what: format!("the console of virtual machine {name} cannot be opened"),
                ..error
            }),
            None => Err(Error::new(
                "VM_NOT_RUNNING",
                format!("the console of virtual machine {name} cannot be opened"),
                "it does not run",
                format!("start it with `spandrel vm start {name}`"),
            )),
        }
    }

    /// The names of virtual machines that run on a node in maintenance and are to move away: another node has room for each.
    pub(super) async fn vms_to_move(&self, node: NodeId) -> Result<Vec<String>, Error> {
        Ok(self.vm_facts().await?.to_move_from(node))
    }

    async fn vm_facts(&self) -> Result<VmFacts, Error> {
        let state = self.state();
        let vms = state.vms().await.map_err(state_error)?;
        let volumes = state.volumes().await.map_err(state_error)?;
        let nodes = state.nodes().await.map_err(state_error)?;
        let alive = state.alive().await.map_err(state_error)?;
        let hosts =
            alive.into_iter().filter_map(|(shard, stored)| Some((shard.node, stored.record.vm_host?)));
        Ok(VmFacts {
            reports: self.vm_reports(&vms).await?,
            vms,
            volumes: volumes.into_iter().map(|(volume, stored)| (volume, stored.record.name)).collect(),
            in_maintenance: nodes
                .iter()
                .filter(|(_, stored)| stored.record.maintenance_since_unix_ms.is_some())
                .map(|(node, _)| *node)
                .collect(),
            nodes: nodes.into_iter().map(|(node, stored)| (node, stored.record.name)).collect(),
            hosts: hosts.collect(),
        })
    }

    /// What the nodes say that have claimed virtual machines, or could not start some.
    async fn vm_reports(
        &self,
        vms: &BTreeMap<VmId, Stored<VmRecord>>,
    ) -> Result<BTreeMap<NodeId, Vec<VmReport>>, Error> {
        let entries = self.node_entries().await?;
        let nodes_of = |stored: &Stored<VmRecord>| {
            let VmRecord { placement, waits_because, .. } = &stored.record;
            let reason = waits_because.as_ref().or(placement.as_ref().map(|placement| &placement.reason));
            let failed = match reason {
                Some(PlacementReason::StartFailed { node }) => Some(*node),
                _ => None,
            };
            placement.as_ref().map(|placement| placement.node).into_iter().chain(failed)
        };
        let nodes: BTreeSet<NodeId> = vms.values().flat_map(nodes_of).collect();
        let asked = entries.into_iter().filter(|entry| nodes.contains(&entry.id));
        let answers = asked.filter_map(|entry| {
            let access = entry.access?;
            Some(async move { Some((entry.id, self.report(access).await?.vms)) })
        });
        Ok(futures_util::future::join_all(answers).await.into_iter().flatten().collect())
    }
}

impl VmFacts {
    fn node_name(&self, node: NodeId) -> String {
        self.nodes.get(&node).cloned().unwrap_or_else(|| node.to_string())
    }

    /// The names of those that are to move away from a node: another one has room for each.
    fn to_move_from(&self, node: NodeId) -> Vec<String> {
        let others = self.hosts.keys().filter(|other| **other != node);
        let left_most = others.filter_map(|other| self.memory_left(*other)).max().unwrap_or_default();
        // While it moves it stands still for a moment, too.
        let is_to_move = |vm: VmId, record: &VmRecord| {
            record.migration.is_some() || record.memory_bytes <= left_most && self.can_move(vm, record)
        };
        let is_left = |(vm, stored): &(&VmId, &Stored<VmRecord>)| {
            let record = &stored.record;
            record.is_on(node) && record.goal == VmGoal::Running && is_to_move(**vm, record)
        };
        self.vms.iter().filter(is_left).map(|(_, stored)| stored.record.name.clone()).collect()
    }

    /// Whether one runs or may soon, as far as its node says: what stands still or does not start stays where it is.
    fn can_move(&self, vm: VmId, record: &VmRecord) -> bool {
        self.report(vm, record).is_none_or(|report| match report.condition {
            VmCondition::Running | VmCondition::ShutDown | VmCondition::Arriving => true,
            VmCondition::Starting => report.failure.is_none(),
            VmCondition::Paused(_) | VmCondition::Failed(_) => false,
        })
    }

    /// What the node says of one that has claimed it; none if it could not be asked.
    fn report(&self, vm: VmId, record: &VmRecord) -> Option<&VmReport> {
        self.report_of(record.placement.as_ref()?.node, vm)
    }

    /// What a node says of one, if anything.
    fn report_of(&self, node: NodeId, vm: VmId) -> Option<&VmReport> {
        self.reports.get(&node)?.iter().find(|report| report.vm == vm)
    }

    /// Refuses to have one run that no node could run.
    fn check_host(&self, record: &VmRecord) -> Result<(), Error> {
        let refuse = |why: String, next: &str| {
            let what = format!("the virtual machine {} is not started", record.name);
            Err(Error::new("VM_WITHOUT_HOST", what, why, next))
        };
        let Some(most_bytes) = self.hosts.values().map(|host| host.memory_bytes).max() else {
            return refuse("no node that is alive runs virtual machines".to_owned(), WHERE_NONE_RUNS_VMS);
        };
        if record.memory_bytes <= most_bytes {
            return Ok(());
        }
        refuse(
            format!(
                "it has {} of memory, and no node has more than {} for virtual machines",
                format_size(record.memory_bytes),
                format_size(most_bytes)
            ),
            "give nodes more with --vm-memory, or the virtual machine less",
        )
    }

    /// The node that one moves to that is to move; none if it is there already.
    fn destination(&self, vm: VmId, record: &VmRecord, to: Option<NodeId>) -> Result<Option<NodeId>, Error> {
        let refuse = |why: String, next: &str| {
            Err(Error::new(
                "VM_NOT_MOVED",
                format!("the virtual machine {} does not move", record.name),
                why,
                next,
            ))
        };
        let Some(placement) = &record.placement else {
            return refuse("it does not run".to_owned(), "start it: it runs on whichever node has room then");
        };
        if to == Some(placement.node) {
            return Ok(None);
        }
        if let Some(migration) = &record.migration {
            let why = format!("it moves to node {} already", self.node_name(migration.to));
            return refuse(why, "wait until it is there");
        }
        if self.report(vm, record).is_none_or(|report| report.condition != VmCondition::Running) {
            return refuse("its guest does not run".to_owned(), "see how it is with `spandrel vm get`");
        }
        let left = |node: &NodeId| self.memory_left(*node).unwrap_or_default();
        let takes_it = |node: &&NodeId| **node != placement.node && self.memory_left(**node).is_some();
        let others = self.hosts.keys().filter(takes_it);
        let Some(to) = to.or_else(|| others.max_by_key(|node| left(node)).copied()) else {
            return refuse("no other node takes virtual machines".to_owned(), "install QEMU there");
        };
        let name = self.node_name(to);
        match self.memory_left(to) {
            None if self.in_maintenance.contains(&to) => {
                refuse(format!("node {name} is in maintenance"), "choose another node")
            }
            None => refuse(format!("node {name} runs no virtual machines"), "choose another node"),
            Some(left) if left < record.memory_bytes => refuse(
                format!(
                    "it has {} of memory, and node {name} has {} left",
                    format_size(record.memory_bytes),
                    format_size(left)
                ),
                "choose another node, or move others away from there first",
            ),
            Some(_) => Ok(Some(to)),
        }
    }

    /// Memory that a node has left for virtual machines, in bytes; none if it takes none.
    fn memory_left(&self, node: NodeId) -> Option<u64> {
        (!self.in_maintenance.contains(&node)).then(|| self.memory_unused(node))?
    }

    /// Memory for virtual machines that none has, in bytes; none if the node runs none.
    fn memory_unused(&self, node: NodeId) -> Option<u64> {
        let records = self.vms.values().map(|stored| &stored.record);
        let there = records.filter(|record| record.takes_memory_of(node));
        let used: u64 = there.map(|record| record.memory_bytes).sum();
        Some(self.hosts.get(&node)?.memory_bytes.saturating_sub(used))
    }

    fn host_status(&self, node: NodeId) -> VmHostStatus {
        let host = &self.hosts[&node];
        let records = self.vms.values().map(|stored| &stored.record);
        let there = records.filter(|record| record.is_on(node));
        let mut vms: Vec<String> = there.map(|record| record.name.clone()).collect();
        vms.sort();
        VmHostStatus {
            node: self.node_name(node),
            accelerator: host.accelerator.clone(),
            memory_bytes: host.memory_bytes,
            memory_left_bytes: self.memory_unused(node).unwrap_or_default(),
            is_in_maintenance: self.in_maintenance.contains(&node),
            vms,
        }
    }

    fn status(&self, vm: VmId, record: &VmRecord) -> VmStatus {
        let placement = record.placement.as_ref();
        let (state, why) = self.state_of(vm, record, self.report(vm, record));
        VmStatus {
            name: record.name.clone(),
            id: vm,
            volume: self.volumes.get(&record.volume).cloned().unwrap_or_else(|| record.volume.to_string()),
            processors: record.processors,
            memory_bytes: record.memory_bytes,
            boot: record.boot.clone(),
            disk_bus: record.disk_bus,
            priority: record.priority,
            goal: record.goal,
            state,
            why,
            node: placement.map(|placement| self.node_name(placement.node)),
            node_because: placement.map(|placement| self.reason_text(&placement.reason)),
            node_since_unix_ms: placement.map(|placement| placement.since_unix_ms),
            moves_to: record.migration.as_ref().map(|migration| self.node_name(migration.to)),
            runs: record.last_run,
            accelerator: placement
                .and_then(|placement| Some(self.hosts.get(&placement.node)?.accelerator.clone())),
        }
    }

    /// How one is, and why.
    fn state_of(&self, vm: VmId, record: &VmRecord, report: Option<&VmReport>) -> (VmState, Option<String>) {
        let Some(placement) = &record.placement else {
            return match record.goal {
                VmGoal::Running => (VmState::Waiting, Some(self.why_it_waits(vm, record))),
                VmGoal::Off | VmGoal::OffAtOnce => (VmState::Off, None),
            };
        };
        let node = self.node_name(placement.node);
        let Some(report) = report else {
            return match self.hosts.contains_key(&placement.node) {
                true => (VmState::Unknown, Some(format!("node {node} does not say"))),
                false => (
                    VmState::Waiting,
                    Some(format!("node {node} is not alive; another one is about to claim it")),
                ),
            };
        };
        let failure =
            || report.failure.clone().or_else(|| self.failure_elsewhere(vm, Some(&placement.reason)));
        match (record.goal, &report.condition) {
            (VmGoal::Off, VmCondition::Running) => {
                (VmState::Stopping, Some("its guest was asked to shut down, and has not yet".to_owned()))
            }
            (VmGoal::Off | VmGoal::OffAtOnce, _) => (VmState::Stopping, None),
            _ if record.migration.is_some() => (VmState::Moving, None),
            (_, VmCondition::Starting | VmCondition::Arriving) => (VmState::Starting, failure()),
            (_, VmCondition::Running) => (VmState::Running, None),
            (_, VmCondition::Paused(why)) => (VmState::Paused, Some(why.clone())),
            (_, VmCondition::ShutDown) => (VmState::Stopping, Some("its guest has shut down".to_owned())),
            (_, VmCondition::Failed(why)) => (VmState::Failed, Some(why.clone())),
        }
    }

    fn why_it_waits(&self, vm: VmId, record: &VmRecord) -> String {
        let left = self.hosts.keys().filter_map(|node| self.memory_left(*node)).max();
        match left {
            None => "no node that is alive takes virtual machines".to_owned(),
            Some(left) if left < record.memory_bytes => format!(
                "it needs {} of memory, and no node has more than {} left",
                format_size(record.memory_bytes),
                format_size(left)
            ),
            Some(_) => self
                .failure_elsewhere(vm, record.waits_because.as_ref())
                .unwrap_or_else(|| "a node is about to claim it".to_owned()),
        }
    }

    /// Why the node could not start one that had it last, if that is the reason for which another one has it, or is to.
    fn failure_elsewhere(&self, vm: VmId, reason: Option<&PlacementReason>) -> Option<String> {
        let Some(PlacementReason::StartFailed { node }) = reason else { return None };
        let why = self.report_of(*node, vm)?.failure.as_ref()?;
        Some(format!("node {} could not start it: {why}", self.node_name(*node)))
    }

    fn reason_text(&self, reason: &PlacementReason) -> String {
        match reason {
            PlacementReason::Started => "it was started".to_owned(),
            PlacementReason::NodeLost { node } => format!("node {} was lost", self.node_name(*node)),
            PlacementReason::NodeStopped { node } => format!("node {} was stopped", self.node_name(*node)),
            PlacementReason::Moved { node } => {
                format!("it has moved there from node {}", self.node_name(*node))
            }
            PlacementReason::StartFailed { node } => {
                format!("it could not be started on node {}", self.node_name(*node))
            }
        }
    }
}

/// The error that there is no such virtual machine.
fn vm_not_found(name: &str) -> Error {
    Error::new(
        "VM_NOT_FOUND",
        format!("there is no virtual machine {name:?}"),
        "the cluster has none of that name",
        "list them with `spandrel vm list`",
    )
}

#[cfg(test)]
#[path = "vms_tests.rs"]
mod tests;
