//! What many operations at once cost, and what goes on when nobody asks for anything: counted for each drive and
//! each node, under the names that the model has for it.
//!
//! Writes that share a group of a drive's journal share its write and its flush. Where all messages take the same
//! time, writers that begin together stay in step, and share every group.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use spandrel_bus::{BusStatistics, RequestKind};
use spandrel_drive::StoreStatistics;
use spandrel_platform::Platform;
use spandrel_platform_simulated::{DriveCounters, RunEnd};
use spandrel_volume::BlockDevice;

use super::{Action, BLOCK, Counts, KIB, Laboratory, MIB, Place, SLAB_BYTES, perform};
use crate::checkers::performance::Letters;

/// The journal of a laboratory's drive.
const JOURNAL_BYTES: u64 = MIB;

/// Writers that begin together.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The node that they are on.
    pub client: usize,
    /// How many there are.
    pub writers: u64,
    /// How many blocks each of them writes, one after the other.
    pub writes_each: u64,
    /// The longest pause that a writer makes after a write.
    pub pause_max: Duration,
}

/// What was counted over some time, by its name in the model.
#[derive(Clone, Debug)]
pub struct Counted {
    /// What.
    pub what: &'static str,
    /// What the letters of the bound stand for.
    pub letters: Letters,
    /// How many.
    pub count: u64,
}

/// What is counted, where the bound has no letters.
fn plain(what: &'static str, count: u64) -> Counted {
    Counted { what, letters: Letters::new(), count }
}

/// What is counted for one node.
#[derive(Clone, Copy)]
struct NodeCounts {
    bus: BusStatistics,
    store: StoreStatistics,
    drive: DriveCounters,
}

impl Laboratory {
    /// Waits for `seconds` in which nobody asks for anything.
    ///
    /// # Errors
    ///
    /// A node is not up.
    pub fn idle(&self, seconds: u64) -> Result<Vec<Counted>, String> {
        self.settle()?;
        let (before, nodes_before) = (self.counts(), self.node_counts()?);
        let revision = self.state_revision();
        self.run_for(Duration::from_secs(seconds))?;
        let (now, nodes_now) = (self.counts(), self.node_counts()?);
        let drives = |counts: &Counts| counts.drives.reads + counts.drives.writes + counts.drives.flushes;
        let mut counted = self.heartbeats(&nodes_before, &nodes_now, seconds);
        counted.push(plain("other messages in an idle cluster", now.messages - before.messages));
        counted.push(plain("drive operations in an idle cluster", drives(&now) - drives(&before)));
        counted.push(plain("changes of the cluster's state", self.state_revision() - revision));
        Ok(counted)
    }

    /// Has a load done at a place that all nodes hold a copy of.
    ///
    /// # Errors
    ///
    /// A write fails, or a node is not up.
    pub fn load(&self, place: &Place, load: Load) -> Result<Vec<Counted>, String> {
        let device = self.open(load.client, &place.volume)?;
        self.settle()?;
        let (begun, revision) = (self.nodes.world.now(), self.state_revision());
        let before = self.node_counts()?;
        let longest = self.write_all(&device, load)?;
        self.settle()?;
        let now = self.node_counts()?;
        let seconds = (self.nodes.world.now() - begun).as_secs() + 1;
        let mut counted = self.heartbeats(&before, &now, seconds);
        counted.push(plain("changes of the cluster's state", self.state_revision() - revision));
        counted.push(plain("groups that a write waits for", self.groups_within(longest, place, load)));
        for (before, now) in before.iter().zip(&now) {
            counted.extend(self.of_drive(before, now, place, load, seconds));
        }
        Ok(counted)
    }

    /// Has all writes done. Returns the longest time that one took.
    fn write_all(&self, device: &impl BlockDevice, load: Load) -> Result<Duration, String> {
        let (_, process) = self.up(load.client)?;
        let blocks = device.limits().size_bytes / BLOCK;
        let longest = Rc::new(Cell::new(Duration::ZERO));
        let left = Rc::new(Cell::new(load.writers));
        let failure = Rc::new(RefCell::new(None));
        for writer in 0..load.writers {
            let (device, platform) = (device.clone(), process.platform());
            let (longest, left, failure) = (Rc::clone(&longest), Rc::clone(&left), Rc::clone(&failure));
            process.spawn(async move {
                for turn in 0..load.writes_each {
                    // Here and there, and no two writers in one block.
                    let block = (writer + turn * load.writers) * 37 % blocks;
                    let begun = platform.now();
                    let write = perform(&device, &platform, Action::Write, block * BLOCK, BLOCK);
                    if let Err(error) = write.await {
                        *failure.borrow_mut() = Some(error.to_string());
                    }
                    longest.set(longest.get().max(platform.now().since(begun)));
                    if load.pause_max > Duration::ZERO {
                        let pause_max_ns = load.pause_max.as_nanos() as u64;
                        platform.sleep(Duration::from_nanos(platform.random_u64() % pause_max_ns)).await;
                    }
                }
                left.set(left.get() - 1);
            });
        }
        let end = self.nodes.world.run_until(|| left.get() == 0);
        match failure.take() {
            None if end == RunEnd::ConditionMet => Ok(longest.get()),
            failure => Err(format!("the load ended: {end:?}, {failure:?}")),
        }
    }

    /// How many groups, one after the other, a write has waited for that took `latency`; none in doubt.
    fn groups_within(&self, latency: Duration, place: &Place, load: Load) -> u64 {
        let one_ways = 2 * (1 + u32::from(load.client != place.owner));
        let at_drives = latency.saturating_sub(self.times.one_way.max * one_ways);
        let flush = if self.volatile_caches { self.times.flush } else { Duration::ZERO };
        let groups = at_drives.as_nanos().div_ceil((self.times.write + flush).as_nanos());
        u64::try_from(groups).expect("a write takes seconds at most")
    }

    /// What the load has cost one drive and its node.
    fn of_drive(
        &self,
        before: &NodeCounts,
        now: &NodeCounts,
        place: &Place,
        load: Load,
        seconds: u64,
    ) -> Vec<Counted> {
        let groups = now.store.groups - before.store.groups;
        let checkpoints = now.store.checkpoints - before.store.checkpoints;
        let journal_bytes = now.store.journal_bytes - before.store.journal_bytes;
        let data_bytes = now.store.data_bytes - before.store.data_bytes;
        let written_bytes = now.drive.written_bytes - before.drive.written_bytes;
        // Whatever is neither the one nor the other.
        let map_bytes = written_bytes - data_bytes - journal_bytes;
        let listed_max = 64 + 4 * load.writers;
        let between_checkpoints = (JOURNAL_BYTES - 528 * KIB - 128 * listed_max) * 3 / 4;
        let letters = Letters::from([
            ('s', seconds),
            ('w', load.writers * load.writes_each),
            ('b', load.writes_each),
            ('g', groups),
            ('p', checkpoints),
            ('m', place.slabs * (1 + SLAB_BYTES / (2 * MIB))),
            ('t', (128 + 64 + 128 * place.slabs).next_multiple_of(BLOCK)),
            ('u', journal_bytes / between_checkpoints),
        ]);
        let counted = |what, count| Counted { what, letters: letters.clone(), count };
        let served = |kind| now.bus.requests_served.of(kind) - before.bus.requests_served.of(kind);
        let flushes = now.drive.flushes - before.drive.flushes;
        let mut all = vec![
            counted("writes to a drive", now.drive.writes - before.drive.writes),
            counted("bytes of data on a drive", data_bytes),
            counted("bytes of a drive's journal", journal_bytes),
            counted("checkpoints of a drive", checkpoints),
            counted(
                "bytes of map for each checkpoint",
                map_bytes.checked_div(checkpoints).unwrap_or(map_bytes),
            ),
            counted("reads of a drive", now.drive.reads - before.drive.reads),
            counted("NoteMark that a node is sent", served(RequestKind::NoteMark)),
        ];
        if self.volatile_caches {
            all.push(counted("flushes of a drive", flushes));
        }
        // Where all messages take the same time, writers that do not pause go on together.
        if self.times.one_way.min == self.times.one_way.max && load.pause_max == Duration::ZERO {
            all.push(counted("groups of a drive, writers in step", groups));
        }
        all
    }

    fn heartbeats(&self, before: &[NodeCounts], now: &[NodeCounts], seconds: u64) -> Vec<Counted> {
        let others = self.nodes.count() as u64 - 1;
        let sent = |counts: &NodeCounts| counts.bus.requests_sent.of(RequestKind::Heartbeat);
        let each = before.iter().zip(now).map(|(before, now)| (sent(now) - sent(before)).div_ceil(others));
        let letters = Letters::from([('s', seconds)]);
        let counted =
            |count| Counted { what: "heartbeats from a node to another", letters: letters.clone(), count };
        each.map(counted).collect()
    }

    fn node_counts(&self) -> Result<Vec<NodeCounts>, String> {
        let of_node = |index: usize| {
            let (node, _) = self.up(index)?;
            let stores = node.replica().drives();
            let store = stores.first().ok_or_else(|| format!("n{} uses no drive", index + 1))?;
            let drive = self.nodes.drive(index).counters();
            Ok(NodeCounts { bus: node.bus_statistics(), store: store.statistics(), drive })
        };
        (0..self.nodes.count()).map(of_node).collect()
    }

    fn state_revision(&self) -> u64 {
        self.nodes.state.inspect(&[]).revision.0
    }
}
