//! Knows what a store may show: what was answered must be there, what was not yet answered may be
//! there or not, block by block, and nothing else may.
//!
//! Naive on purpose: sets of blocks and of facts, no logs, no maps of places.

use std::collections::{BTreeMap, BTreeSet};

use spandrel_shared::{CopyId, Epoch, PAGE_BLOCKS, Version, VolumeId};

use super::observation::{Content, Observation, Seen, SlabObservation, VolumeObservation};
use super::{SlabKey, small_slabs};
use crate::{ListedWrite, PageDescription};

/// A change that a store was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Write { slab: SlabKey, first: u32, version: Version, contents: Vec<Content> },
    Trim { slab: SlabKey, first: u32, count: u32, version: Version },
    Heal { slab: SlabKey, block: u32 },
    SetPage { slab: SlabKey, page: u32, version: Version, whole: bool },
    Fence { volume: VolumeId, epoch: Epoch },
    Add { slab: SlabKey, copy: CopyId },
    Remove { slab: SlabKey },
}

impl Operation {
    /// The blocks it changes, if it changes blocks.
    pub fn blocks(&self) -> Option<(SlabKey, std::ops::Range<u32>)> {
        match self {
            Operation::Write { slab, first, contents, .. } => {
                Some((*slab, *first..*first + contents.len() as u32))
            }
            Operation::Trim { slab, first, count, .. } => Some((*slab, *first..*first + *count)),
            Operation::Heal { slab, block } => Some((*slab, *block..*block + 1)),
            _ => None,
        }
    }

    fn version(&self) -> Option<Version> {
        match self {
            Operation::Write { version, .. } | Operation::Trim { version, .. } => Some(*version),
            _ => None,
        }
    }

    /// Whether a caller must not have both under way.
    fn conflicts_with(&self, other: &Operation) -> bool {
        match (self, other) {
            (Operation::Fence { .. }, _) | (_, Operation::Fence { .. }) => false,
            (Operation::Add { slab, .. } | Operation::Remove { slab }, _) => other.touches(*slab, None),
            (_, Operation::Add { slab, .. } | Operation::Remove { slab }) => self.touches(*slab, None),
            (Operation::SetPage { slab, page, .. }, _) => other.touches(*slab, Some(*page)),
            (_, Operation::SetPage { slab, page, .. }) => self.touches(*slab, Some(*page)),
            _ => match (self.blocks(), other.blocks()) {
                (Some((one, a)), Some((two, b))) => one == two && a.start < b.end && b.start < a.end,
                _ => false,
            },
        }
    }

    fn touches(&self, key: SlabKey, page: Option<u32>) -> bool {
        match self {
            Operation::Add { slab, .. } | Operation::Remove { slab } => *slab == key,
            Operation::SetPage { slab, page: own, .. } => {
                *slab == key && page.is_none_or(|page| page == *own)
            }
            _ => self.blocks().is_some_and(|(slab, range)| {
                slab == key && page.is_none_or(|page| pages_of(&range).contains(&page))
            }),
        }
    }
}

fn pages_of(range: &std::ops::Range<u32>) -> std::ops::RangeInclusive<u32> {
    range.start / PAGE_BLOCKS..=(range.end - 1) / PAGE_BLOCKS
}

/// A write or trim that took place, as far as it did.
#[derive(Clone, Debug)]
struct Fact {
    version: Version,
    slab: SlabKey,
    copy: CopyId,
    blocks: BTreeSet<u32>,
}

#[derive(Clone, Debug)]
struct OracleSlab {
    copy: CopyId,
    /// Holes are absent.
    blocks: BTreeMap<u32, Content>,
    damaged: BTreeSet<u32>,
    pages: Vec<(Version, bool)>,
}

impl OracleSlab {
    fn new(copy: CopyId) -> Self {
        let pages = vec![(Version::ZERO, false); small_slabs().slab_pages() as usize];
        Self { copy, blocks: BTreeMap::new(), damaged: BTreeSet::new(), pages }
    }

    fn raise(&mut self, range: &std::ops::Range<u32>, version: Version) {
        for page in pages_of(range) {
            let entry = &mut self.pages[page as usize];
            entry.0 = entry.0.max(version);
        }
    }
}

/// A mark that the store was told, and its exceptions.
type Mark = (Version, Vec<Version>);

#[derive(Clone, Debug, Default)]
struct OracleVolume {
    fence: Epoch,
    /// Every mark that was noted since the volume came, oldest first, after the zero one.
    marks: Vec<Mark>,
    /// A mark that is durable for certain.
    durable_mark: Version,
    /// The volume had slabs here before, and lost the last one. The drive may remember that.
    former: Option<Box<OracleVolume>>,
}

impl OracleVolume {
    fn new() -> Self {
        Self { marks: vec![(Version::ZERO, Vec::new())], ..Self::default() }
    }

    fn newest_mark(&self) -> &Mark {
        self.marks.last().expect("the zero mark is there")
    }

    fn formers(&self) -> impl Iterator<Item = &OracleVolume> {
        std::iter::successors(Some(self), |volume| volume.former.as_deref())
    }
}

/// What a store may show.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    volumes: BTreeMap<VolumeId, OracleVolume>,
    slabs: BTreeMap<SlabKey, OracleSlab>,
    pending: BTreeMap<u64, Operation>,
    facts: Vec<Fact>,
    /// Blocks of writes that recoveries found in doubt.
    doubts: Vec<Fact>,
    clocks: BTreeMap<VolumeId, Version>,
    /// Volumes whose last slab was removed.
    gone: BTreeMap<VolumeId, OracleVolume>,
    next: u64,
    attach_number: u64,
}

/// What of an operation that was under way is there.
#[derive(Default)]
struct Kept {
    /// Blocks that show it.
    blocks: BTreeSet<u32>,
    /// It may be there or not: what it would change was so before.
    unknown: bool,
}

impl Oracle {
    /// The version for the next write of a volume, in the epoch of its newest fence.
    pub fn next_version(&mut self, volume: VolumeId) -> Version {
        let fences = self.pending.values().filter_map(|operation| match operation {
            Operation::Fence { volume: of, epoch } if *of == volume => Some(*epoch),
            _ => None,
        });
        let answered = self.volumes.get(&volume).map_or(Epoch::ZERO, |volume| volume.fence);
        let epoch = fences.max().unwrap_or_default().max(answered).max(Epoch(1));
        let clock = self.clocks.entry(volume).or_default();
        let epoch = epoch.max(clock.epoch);
        let counter = if epoch == clock.epoch { clock.counter + 1 } else { 1 };
        *clock = Version::new(epoch, counter);
        *clock
    }

    /// An epoch above all that the volume has seen.
    pub fn next_epoch(&mut self, volume: VolumeId) -> Epoch {
        let clock = self.clocks.entry(volume).or_default();
        *clock = Version::new(clock.epoch.next(), 0);
        clock.epoch
    }

    /// A content that no block has ever had.
    pub fn next_content(&mut self) -> Content {
        self.next += 1;
        self.next << 8 | 1
    }

    /// A copy that has never been.
    pub fn next_copy(&mut self) -> CopyId {
        self.next += 1;
        super::copy(self.next)
    }

    /// Whether `operation` must wait for one that is under way.
    pub fn must_wait(&self, operation: &Operation) -> bool {
        self.pending.values().any(|other| operation.conflicts_with(other))
    }

    /// The store is asked for `operation`. Returns its number.
    pub fn begin(&mut self, operation: Operation) -> u64 {
        assert!(!self.must_wait(&operation), "{operation:?} overlaps another one");
        self.next += 1;
        self.pending.insert(self.next, operation);
        self.next
    }

    /// The store has done it.
    pub fn answered(&mut self, number: u64) {
        let operation = self.pending.remove(&number).expect("an operation is answered once");
        let blocks = operation.blocks().map(|(_, range)| range.collect()).unwrap_or_default();
        self.apply(&operation, &blocks);
    }

    /// The store has refused it: nothing changed.
    pub fn refused(&mut self, number: u64) {
        self.pending.remove(&number).expect("an operation is answered once");
    }

    /// Whether anything is under way.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Changes that were answered or found kept, writes and trims alone.
    pub fn fact_count(&self) -> usize {
        self.facts.len()
    }

    /// The drive has damaged a block.
    pub fn damage(&mut self, slab: SlabKey, block: u32) {
        self.slabs.get_mut(&slab).expect("a slab that is there").damaged.insert(block);
    }

    /// The content of a block; `None` for a hole.
    pub fn content(&self, slab: SlabKey, block: u32) -> Option<Content> {
        self.slabs[&slab].blocks.get(&block).copied()
    }

    /// The slabs that are there if everything under way takes place.
    pub fn slabs(&self) -> BTreeSet<SlabKey> {
        let mut slabs: BTreeSet<SlabKey> = self.slabs.keys().copied().collect();
        for operation in self.pending.values() {
            match operation {
                Operation::Add { slab, .. } => _ = slabs.insert(*slab),
                Operation::Remove { slab } => _ = slabs.remove(slab),
                _ => {}
            }
        }
        slabs
    }

    /// The blocks of a slab that hold data.
    pub fn mapped(&self, slab: SlabKey) -> Vec<u32> {
        self.slabs.get(&slab).map_or(Vec::new(), |slab| slab.blocks.keys().copied().collect())
    }

    /// A truthful mark: all but the newest `behind` writes are complete, except those under way.
    pub fn next_mark(&self, volume: VolumeId, behind: usize) -> Option<Mark> {
        let mut versions: Vec<Version> =
            self.facts.iter().filter(|fact| fact.slab.0 == volume).map(|fact| fact.version).collect();
        versions.sort();
        let mark = *versions.len().checked_sub(1 + behind).and_then(|index| versions.get(index))?;
        let under_way = self
            .pending
            .values()
            .filter(|operation| operation.blocks().is_some_and(|((of, _), _)| of == volume));
        let mut exceptions: Vec<Version> = under_way.filter_map(Operation::version).collect();
        exceptions.retain(|version| *version < mark);
        exceptions.sort();
        Some((mark, exceptions))
    }

    /// The store is told a mark.
    pub fn note_mark(&mut self, volume: VolumeId, mark: &Mark) {
        if let Some(volume) = self.volumes.get_mut(&volume) {
            let (newest, exceptions) = volume.newest_mark();
            if mark.0 > *newest || mark.0 == *newest && mark.1.len() < exceptions.len() {
                volume.marks.push(mark.clone());
            }
        }
    }

    /// The marks that are known now; they are durable when a checkpoint that begins now has ended.
    pub fn marks(&self) -> BTreeMap<VolumeId, Version> {
        self.volumes.iter().map(|(volume, state)| (*volume, state.newest_mark().0)).collect()
    }

    /// These marks are durable.
    pub fn marks_are_durable(&mut self, marks: BTreeMap<VolumeId, Version>) {
        for (volume, mark) in marks {
            if let Some(volume) = self.volumes.get_mut(&volume) {
                volume.durable_mark = volume.durable_mark.max(mark);
            }
        }
    }

    fn apply(&mut self, operation: &Operation, blocks: &BTreeSet<u32>) {
        match operation {
            Operation::Write { slab, first, version, contents } => {
                let state = self.slabs.get_mut(slab).expect("a slab that is there");
                for block in blocks {
                    state.blocks.insert(*block, contents[(block - first) as usize]);
                    state.damaged.remove(block);
                    state.raise(&(*block..block + 1), *version);
                }
                self.note_fact(*slab, *version, blocks);
            }
            Operation::Trim { slab, version, .. } => {
                let state = self.slabs.get_mut(slab).expect("a slab that is there");
                for block in blocks {
                    state.blocks.remove(block);
                    state.damaged.remove(block);
                    state.raise(&(*block..block + 1), *version);
                }
                self.note_fact(*slab, *version, blocks);
            }
            Operation::Heal { slab, block } => {
                self.slabs.get_mut(slab).expect("a slab that is there").damaged.remove(block);
            }
            Operation::SetPage { slab, page, version, whole } => {
                self.slabs.get_mut(slab).expect("a slab that is there").pages[*page as usize] =
                    (*version, *whole);
            }
            Operation::Fence { volume, epoch } => {
                if let Some(volume) = self.volumes.get_mut(volume) {
                    volume.fence = volume.fence.max(*epoch);
                }
            }
            Operation::Add { slab, copy } => {
                self.forget_slab(*slab);
                let former = self.gone.remove(&slab.0).map(Box::new);
                let volume = self.volumes.entry(slab.0).or_insert_with(OracleVolume::new);
                volume.former = former.or(volume.former.take());
                self.slabs.insert(*slab, OracleSlab::new(*copy));
            }
            Operation::Remove { slab } => {
                self.forget_slab(*slab);
                if !self.slabs.keys().any(|(volume, _)| *volume == slab.0) {
                    let former = self.volumes.remove(&slab.0);
                    self.gone.extend(former.map(|former| (slab.0, former)));
                }
            }
        }
    }

    fn note_fact(&mut self, slab: SlabKey, version: Version, blocks: &BTreeSet<u32>) {
        let copy = self.slabs[&slab].copy;
        self.facts.push(Fact { version, slab, copy, blocks: blocks.clone() });
    }

    fn forget_slab(&mut self, slab: SlabKey) {
        self.slabs.remove(&slab);
        self.facts.retain(|fact| fact.slab != slab);
        self.doubts.retain(|fact| fact.slab != slab);
    }

    /// Judges what a store shows after an attach. Panics if it may not be so; otherwise returns
    /// the oracle of a store in which all that was open is decided as it was found.
    pub fn settle(&self, seen: &Observation) -> Oracle {
        let mut settled = self.clone();
        settled.pending.clear();
        assert!(seen.attach_number > self.attach_number, "the attach number is raised");
        settled.attach_number = seen.attach_number;
        settled.settle_slabs(self, seen);
        let mut kept = BTreeMap::new();
        for (key, observation) in &seen.slabs {
            settled.settle_blocks(self, *key, observation, &mut kept);
        }
        for (key, observation) in &seen.slabs {
            settled.settle_pages(self, *key, observation, &kept);
        }
        for (number, operation) in &self.pending {
            if let (Some(kept), Some(version)) = (kept.get(number), operation.version()) {
                let (slab, _) = operation.blocks().expect("it has a version");
                settled.settle_facts(slab, version, operation, kept, seen);
            }
        }
        let expected: BTreeSet<VolumeId> = settled.slabs.keys().map(|(volume, _)| *volume).collect();
        assert_eq!(seen.volumes.keys().copied().collect::<BTreeSet<_>>(), expected, "volumes with slabs");
        for (volume, observation) in &seen.volumes {
            settled.settle_volume(self, *volume, observation);
        }
        settled
    }

    /// Judges what a store shows of itself while it works, with nothing under way.
    pub fn check(&self, seen: &Observation) {
        assert!(self.is_idle());
        let mut before = self.clone();
        before.attach_number = seen.attach_number - 1;
        before.settle(seen);
    }

    fn settle_slabs(&mut self, before: &Oracle, seen: &Observation) {
        let concerned = |key: &SlabKey| {
            let key = *key;
            before.pending.values().find(move |operation| match operation {
                Operation::Add { slab, .. } | Operation::Remove { slab } => *slab == key,
                _ => false,
            })
        };
        let keys: BTreeSet<SlabKey> =
            before.slabs().into_iter().chain(before.slabs.keys().copied()).collect();
        for key in &keys {
            let observed = seen.slabs.get(key).map(|slab| slab.copy);
            let former = before.slabs.get(key).map(|slab| slab.copy);
            let took_place = match concerned(key) {
                Some(Operation::Add { copy, .. }) if observed == Some(*copy) => true,
                Some(Operation::Remove { .. }) if observed.is_none() => true,
                _ => false,
            };
            if took_place {
                let operation = concerned(key).expect("found above").clone();
                self.apply(&operation, &BTreeSet::new());
            } else {
                assert_eq!(observed, former, "slab {key:?} is there or not");
            }
        }
        let unexpected: Vec<_> = seen.slabs.keys().filter(|key| !keys.contains(key)).collect();
        assert!(unexpected.is_empty(), "slabs that nobody added: {unexpected:?}");
    }

    fn settle_blocks(
        &mut self,
        before: &Oracle,
        key: SlabKey,
        seen: &SlabObservation,
        kept: &mut BTreeMap<u64, Kept>,
    ) {
        let slab = self.slabs.get_mut(&key).expect("settled above");
        let former = before.slabs.get(&key).filter(|former| former.copy == seen.copy);
        let open: Vec<(&u64, &Operation)> = before
            .pending
            .iter()
            .filter(|(_, operation)| former.is_some() && operation.blocks().is_some_and(|(of, _)| of == key))
            .collect();
        let mut lost_trims = BTreeSet::new();
        for (number, _) in &open {
            kept.entry(**number).or_default().unknown = true;
        }
        for (block, seen) in (0..).zip(&seen.blocks) {
            let content = slab.blocks.get(&block).copied();
            let damaged = slab.damaged.contains(&block);
            let is_former = match seen {
                Seen::Hole => !damaged && content.is_none(),
                Seen::Content(seen) => !damaged && content == Some(*seen),
                Seen::Damaged(_) => damaged,
            };
            let touching = open
                .iter()
                .find(|(_, operation)| operation.blocks().is_some_and(|(_, range)| range.contains(&block)));
            let shows = touching.is_some_and(|(_, operation)| operation.is_shown(block, *seen, content));
            assert!(
                is_former || shows,
                "block {block} of {key:?}: {seen:?} instead of {content:?} or {touching:?}"
            );
            let Some((number, operation)) = touching else { continue };
            let entry = kept.entry(**number).or_default();
            match (is_former, shows) {
                (true, true) => _ = entry.blocks.insert(block),
                (false, true) => {
                    entry.unknown = false;
                    entry.blocks.insert(block);
                    match seen {
                        Seen::Content(seen) => _ = slab.blocks.insert(block, *seen),
                        _ => _ = slab.blocks.remove(&block),
                    }
                    slab.damaged.remove(&block);
                }
                _ => {
                    entry.unknown = false;
                    if matches!(operation, Operation::Trim { .. }) {
                        lost_trims.insert(**number);
                    }
                }
            }
        }
        for number in lost_trims {
            // A trim is one record: it is there as a whole, or not at all.
            let entry = kept.get_mut(&number).expect("entered above");
            let shown = entry
                .blocks
                .iter()
                .any(|block| former.is_some_and(|former| former.blocks.contains_key(block)));
            assert!(!shown, "trim {:?} took place in part", before.pending[&number]);
            entry.blocks.clear();
        }
    }

    fn settle_pages(
        &mut self,
        before: &Oracle,
        key: SlabKey,
        seen: &SlabObservation,
        kept: &BTreeMap<u64, Kept>,
    ) {
        let slab = self.slabs.get_mut(&key).expect("settled above");
        for (page, observed) in (0..).zip(&seen.pages) {
            let base = slab.pages[page as usize];
            let mut acceptable = BTreeSet::from([base]);
            for (number, operation) in &before.pending {
                match operation {
                    Operation::SetPage { slab, page: of, version, whole } if *slab == key && *of == page => {
                        acceptable.insert((*version, *whole));
                    }
                    _ => {}
                }
                let (Some(kept), Some(version)) = (kept.get(number), operation.version()) else { continue };
                let here = operation.blocks().is_some_and(|(slab, range)| {
                    slab == key && range.into_iter().any(|block| block / PAGE_BLOCKS == page)
                });
                let shown = kept.blocks.iter().any(|block| block / PAGE_BLOCKS == page);
                if !here || !(kept.unknown || shown) {
                    continue;
                }
                let raised: BTreeSet<_> =
                    acceptable.iter().map(|(former, whole)| ((*former).max(version), *whole)).collect();
                acceptable = if kept.unknown { &acceptable | &raised } else { raised };
            }
            let PageDescription { version, whole, .. } = *observed;
            assert!(
                acceptable.contains(&(version, whole)),
                "page {page} of {key:?}: version {version} whole {whole} instead of {acceptable:?}"
            );
            slab.pages[page as usize] = (version, whole);
        }
    }

    fn settle_facts(
        &mut self,
        slab: SlabKey,
        version: Version,
        operation: &Operation,
        kept: &Kept,
        seen: &Observation,
    ) {
        let Some(copy) = self.slabs.get(&slab).map(|slab| slab.copy) else { return };
        let (_, range) = operation.blocks().expect("it has a version");
        let empty = Vec::new();
        let listed = seen.volumes.get(&slab.0).map_or(&empty, |volume| &volume.listed);
        let in_doubt = blocks_listed(listed, slab, version, true);
        if kept.unknown {
            // It changed nothing that can be seen: whether it took place is known from the list.
            let blocks = blocks_listed(listed, slab, version, false);
            self.facts.push(Fact { version, slab, copy, blocks: &blocks & &kept.blocks });
        } else if !kept.blocks.is_empty() {
            self.facts.push(Fact { version, slab, copy, blocks: kept.blocks.clone() });
            let missing: BTreeSet<u32> = range.filter(|block| !kept.blocks.contains(block)).collect();
            assert!(
                missing.is_subset(&in_doubt),
                "of {operation:?} {missing:?} are neither there nor in doubt"
            );
        }
        let doubted: BTreeSet<u32> = in_doubt.difference(&kept.blocks).copied().collect();
        self.doubts.push(Fact { version, slab, copy, blocks: doubted });
    }

    fn settle_volume(&mut self, before: &Oracle, volume: VolumeId, seen: &VolumeObservation) {
        let may_be_new = before.pending.values().any(|operation| match operation {
            Operation::Remove { slab } | Operation::Add { slab, .. } => slab.0 == volume,
            _ => false,
        });
        let state = self.volumes.get_mut(&volume).expect("volumes with slabs were compared");
        let states: Vec<&OracleVolume> = state
            .formers()
            .chain(before.volumes.get(&volume).into_iter().flat_map(OracleVolume::formers))
            .collect();
        let under_way = before.pending.values().filter_map(|operation| match operation {
            Operation::Fence { volume: of, epoch } if *of == volume => Some(*epoch),
            _ => None,
        });
        let mut fences: BTreeSet<Epoch> =
            states.iter().map(|state| state.fence.max(states[0].fence)).collect();
        fences.extend(under_way.map(|epoch| epoch.max(states[0].fence)));
        if may_be_new {
            fences.insert(Epoch::ZERO);
        }
        assert!(
            fences.contains(&seen.fence),
            "volume {volume:?}: fence {} instead of {fences:?}",
            seen.fence
        );
        let mut marks = states.iter().flat_map(|state| &state.marks);
        let noted = marks.any(|(mark, exceptions)| (*mark, exceptions) == (seen.mark, &seen.exceptions));
        assert!(noted, "mark {} except {:?} was never noted", seen.mark, seen.exceptions);
        let is_new = may_be_new && seen.mark == Version::ZERO;
        assert!(seen.mark >= states[0].durable_mark || is_new, "mark {} was durable", states[0].durable_mark);
        state.former = None;
        state.fence = seen.fence;
        state.marks = vec![(Version::ZERO, Vec::new()), (seen.mark, seen.exceptions.clone())];
        state.durable_mark = seen.mark;
        self.check_list(volume, seen);
    }

    /// The list holds every write above the mark or among its exceptions, and no other thing than
    /// writes that there were.
    fn check_list(&self, volume: VolumeId, seen: &VolumeObservation) {
        for fact in self.facts.iter().filter(|fact| fact.slab.0 == volume) {
            if fact.version <= seen.mark && !seen.exceptions.contains(&fact.version) {
                continue;
            }
            let listed = blocks_listed(&seen.listed, fact.slab, fact.version, false);
            assert!(fact.blocks.is_subset(&listed), "{fact:?} is above mark {} and not listed", seen.mark);
        }
        for write in &seen.listed {
            let slab = (volume, write.slab);
            let known = if write.in_doubt { &self.doubts } else { &self.facts };
            let covered = (write.first..write.first + write.count).all(|block| {
                known.iter().any(|fact| {
                    fact.slab == slab && fact.version == write.version && fact.blocks.contains(&block)
                })
            });
            assert!(covered && self.slabs.contains_key(&slab), "{write:?} is listed and was never written");
        }
    }
}

impl Operation {
    /// Whether `block` shows that this took place.
    fn is_shown(&self, block: u32, seen: Seen, content: Option<Content>) -> bool {
        match self {
            Operation::Write { first, contents, .. } => {
                seen == Seen::Content(contents[(block - first) as usize])
            }
            Operation::Trim { .. } => seen == Seen::Hole,
            Operation::Heal { .. } => match content {
                Some(content) => seen == Seen::Content(content),
                None => seen == Seen::Hole,
            },
            _ => false,
        }
    }
}

/// The blocks of a slab that the list names for a version.
fn blocks_listed(listed: &[ListedWrite], slab: SlabKey, version: Version, in_doubt: bool) -> BTreeSet<u32> {
    listed
        .iter()
        .filter(|write| write.slab == slab.1 && write.version == version && write.in_doubt == in_doubt)
        .flat_map(|write| write.first..write.first + write.count)
        .collect()
}
