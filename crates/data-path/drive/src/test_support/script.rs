//! Workloads: a list of steps, and who carries them out on a store while an oracle looks on.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use spandrel_platform::sync::Signal;
use spandrel_platform::{Buffer, Platform};
use spandrel_platform_simulated::{Room, SimulatedDrive, SimulatedPlatform};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::{BLOCK_BYTES, CacheMode, VolumeId};

use super::observation::{check_map_memory, content_of, fill};
use super::oracle::{Operation, Oracle};
use super::{SlabKey, Store, next_map_memory};
use crate::layout::Layout;
use crate::{ReadPart, SlabLayout, StoreError};

/// A step of a workload. All but the waits begin something and do not wait for its end.
#[derive(Clone, Debug)]
pub enum Step {
    Write(SlabKey, u32, u32),
    Trim(SlabKey, u32, u32),
    /// Damages a block on the drive, finds that with a scrub, and heals it.
    Heal(SlabKey, u32),
    /// Sets a page to a new version, and says whether it is whole.
    SetPage(SlabKey, u32, bool),
    Fence(VolumeId),
    /// Notes a truthful mark that is so many writes behind.
    Mark(VolumeId, usize),
    Add(SlabKey),
    Remove(SlabKey),
    /// Makes a checkpoint, beside all that goes on.
    Checkpoint,
    /// From now on what is in the area of the cache drive leaves it, or does so no more.
    Drain(bool),
    /// The capacity drive counts as a spinning disk from now on, or does so no more.
    Spinning(bool),
    /// Uses the cache drive for something else from now on.
    Mode(CacheMode),
    /// Reads so many blocks, and checks those that nothing changes meanwhile.
    Read(SlabKey, u32, u32),
    /// From now on the file system under the drive has so much room.
    Room(Room),
    /// Waits until nothing is under way.
    Join,
}

/// Where it is varied how much of the maps is in memory, that changes after so many steps.
const STEPS_OF_MAP_MEMORY: u32 = 5;

/// Carries out steps on a store. Cheap to clone.
#[derive(Clone)]
pub struct Runner {
    pub platform: SimulatedPlatform,
    pub store: Store,
    pub drive: SimulatedDrive,
    pub oracle: Rc<RefCell<Oracle>>,
    shared: Rc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Notified when something has ended.
    ended: Signal,
    tasks: RefCell<usize>,
    steps: Cell<u32>,
    /// What went wrong. The first of it is what a test wants to know.
    failure: RefCell<Option<StoreError>>,
    refusals: RefCell<usize>,
}

impl Runner {
    pub fn new(platform: SimulatedPlatform, store: Store, drive: SimulatedDrive, oracle: Oracle) -> Self {
        Self { platform, store, drive, oracle: Rc::new(RefCell::new(oracle)), shared: Rc::default() }
    }

    /// Why the store stopped, if it did. What was under way then is open.
    pub fn failure(&self) -> Option<StoreError> {
        self.shared.failure.borrow().clone()
    }

    /// Changes that were refused for lack of room.
    pub fn refusals(&self) -> usize {
        *self.shared.refusals.borrow()
    }

    /// Carries out all steps and waits for their ends. Ends early if the store fails.
    pub async fn run(&self, steps: &[Step]) {
        for step in steps {
            if self.failure().is_some() {
                break;
            }
            self.take(step).await;
        }
        self.join().await;
    }

    /// Waits until nothing is under way.
    pub async fn join(&self) {
        self.shared.ended.wait_until(|| *self.shared.tasks.borrow() == 0).await;
    }

    async fn take(&self, step: &Step) {
        check_map_memory(&self.store);
        self.shared.steps.set(self.shared.steps.get() + 1);
        if self.shared.steps.get().is_multiple_of(STEPS_OF_MAP_MEMORY)
            && let Some(bytes_max) = next_map_memory()
        {
            self.store.allow_map_memory(bytes_max);
        }
        match step.clone() {
            Step::Join => self.join().await,
            Step::Mark(volume, behind) => {
                let mark = self.oracle.borrow().next_mark(volume, behind);
                if let Some(mark) = mark {
                    self.oracle.borrow_mut().note_mark(volume, &mark);
                    self.store.note_mark(volume, mark.0, &mark.1);
                }
            }
            Step::Checkpoint => {
                let marks = self.oracle.borrow().marks();
                let runner = self.clone();
                self.spawn(async move {
                    match runner.store.checkpoint().await {
                        Ok(()) => runner.oracle.borrow_mut().marks_are_durable(marks),
                        Err(StoreError::NoRoom) => {}
                        Err(error) => runner.note(error),
                    }
                });
            }
            Step::Drain(drains) => {
                self.store.inner.cache.set_draining(drains);
                self.store.inner.progress.notify_all();
            }
            Step::Spinning(spins) => self.store.set_spinning(spins),
            Step::Mode(mode) => self.store.set_cache_mode(mode),
            Step::Read(slab, first, count) => self.begin_read(slab, first, count),
            Step::Room(room) => self.drive.set_room(room),
            Step::Heal(slab, block) => {
                // What the last group brought is judged anew after a crash, and damage in it is
                // taken for a write that did not happen. So something else is last.
                self.begin_fence(slab.0);
                self.join().await;
                self.damage_and_heal(slab, block).await;
            }
            Step::Fence(volume) => self.begin_fence(volume),
            other => self.begin(&other).await,
        }
    }

    fn begin_read(&self, key: SlabKey, first: u32, count: u32) {
        let Some(slab) = self.store.find_slab(key.0, key.1) else { return };
        let contents = || {
            let oracle = self.oracle.borrow();
            (first..first + count).map(|block| oracle.content(key, block)).collect::<Vec<_>>()
        };
        let before = contents();
        let runner = self.clone();
        self.spawn(async move {
            let parts = match runner.store.read(slab.slot, first, count).await {
                Ok(parts) => parts,
                Err(StoreError::NotFound) => return,
                Err(error) => return runner.note(error),
            };
            let seen = parts.into_iter().flat_map(|part| match part {
                ReadPart::Hole { count } => vec![None; count as usize],
                ReadPart::Data { data, .. } => data.chunks_exact(BLOCK_BYTES).map(content_of).collect(),
                ReadPart::Damaged(damaged) => panic!("{damaged:?}"),
            });
            for ((block, seen), before) in (first..).zip(seen).zip(before) {
                // Whatever is not settled may be there or not.
                if before.is_some() && runner.oracle.borrow().content(key, block) == before {
                    assert_eq!(seen, before, "block {block} of {key:?}");
                }
            }
        });
    }

    fn begin_fence(&self, volume: VolumeId) {
        if !self.oracle.borrow().slabs().iter().any(|(of, _)| *of == volume) {
            return;
        }
        let epoch = self.oracle.borrow_mut().next_epoch(volume);
        self.carry_out(Operation::Fence { volume, epoch }, Vec::new());
    }

    /// Begins what changes a slab, once nothing that is under way is in its way. Steps that make
    /// no sense (a write to a slab that is not there) are left out.
    async fn begin(&self, step: &Step) {
        if !self.make_sense(step) {
            return;
        }
        // Its version and contents do not matter for that.
        let probe = self.operation(step, &mut Oracle::default());
        let may_begin = || !self.oracle.borrow().must_wait(&probe) || self.failure().is_some();
        self.shared.ended.wait_until(may_begin).await;
        if !self.make_sense(step) || self.failure().is_some() {
            return;
        }
        let operation = self.operation(step, &mut self.oracle.borrow_mut());
        let mut data = Vec::new();
        if let Operation::Write { contents, .. } = &operation {
            data = vec![0; contents.len() * BLOCK_BYTES];
            for (content, block) in contents.iter().zip(data.chunks_exact_mut(BLOCK_BYTES)) {
                fill(*content, block);
            }
        }
        self.carry_out(operation, data);
    }

    fn make_sense(&self, step: &Step) -> bool {
        let (key, is_add) = step.slab();
        is_add || self.oracle.borrow().slabs().contains(&key)
    }

    fn operation(&self, step: &Step, oracle: &mut Oracle) -> Operation {
        match *step {
            Step::Write(slab, first, count) => Operation::Write {
                slab,
                first,
                version: oracle.next_version(slab.0),
                contents: (0..count).map(|_| oracle.next_content()).collect(),
            },
            Step::Trim(slab, first, count) => {
                Operation::Trim { slab, first, count, version: oracle.next_version(slab.0) }
            }
            Step::SetPage(slab, page, whole) => {
                Operation::SetPage { slab, page, version: oracle.next_version(slab.0), whole }
            }
            Step::Add(slab) => Operation::Add { slab, copy: oracle.next_copy() },
            Step::Remove(slab) => Operation::Remove { slab },
            _ => unreachable!("{step:?} changes no slab"),
        }
    }

    /// Asks the store for it, in a task of its own.
    fn carry_out(&self, operation: Operation, data: Vec<u8>) {
        let number = self.oracle.borrow_mut().begin(operation.clone());
        let runner = self.clone();
        self.spawn(async move {
            let result = runner.ask(&operation, data).await;
            match result {
                Ok(()) => runner.oracle.borrow_mut().answered(number),
                Err(StoreError::NoRoom) => {
                    *runner.shared.refusals.borrow_mut() += 1;
                    runner.oracle.borrow_mut().refused(number);
                }
                Err(StoreError::NotFound) => panic!("{operation:?}: not found"),
                Err(error) => runner.note(error),
            }
        });
    }

    fn note(&self, error: StoreError) {
        self.shared.failure.borrow_mut().get_or_insert(error);
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        *self.shared.tasks.borrow_mut() += 1;
        let shared = Rc::clone(&self.shared);
        self.platform.spawn(async move {
            task.await;
            *shared.tasks.borrow_mut() -= 1;
            shared.ended.notify_all();
        });
    }

    async fn ask(&self, operation: &Operation, data: Vec<u8>) -> Result<(), StoreError> {
        let store = &self.store;
        let slot = |key: &SlabKey| store.find_slab(key.0, key.1).expect("a slab that is there").slot;
        match operation {
            Operation::Write { slab, first, version, .. } => {
                let checksums = checksums(*slab, *first, &data);
                let data = self.buffer(&data);
                store.write(slot(slab), *first, *version, data, checksums.into()).await
            }
            Operation::Trim { slab, first, count, version } => {
                store.trim(slot(slab), *first, *count, *version).await
            }
            Operation::SetPage { slab, page, version, whole } => {
                store.set_page_version(slot(slab), *page, *version, *whole).await
            }
            Operation::Fence { volume, epoch } => match store.fence(*volume, *epoch).await {
                // Its last slab was removed before.
                Err(StoreError::NotFound) => Ok(()),
                other => other,
            },
            Operation::Add { slab, copy } => {
                let layout = SlabLayout::mirror(3, 1);
                let slot = store.add_slab(slab.0, slab.1, layout, *copy, Default::default()).await?;
                let found = store.find_slab(slab.0, slab.1).expect("it was added");
                assert_eq!((found.slot, found.copy), (slot, *copy));
                Ok(())
            }
            Operation::Remove { slab } => store.remove_slab(slot(slab)).await,
            Operation::Heal { .. } => unreachable!("healed elsewhere"),
        }
    }

    fn buffer(&self, data: &[u8]) -> Buffer {
        self.platform.buffers().copy_of(data).freeze()
    }

    async fn damage_and_heal(&self, key: SlabKey, block: u32) {
        let Some(slab) = self.store.find_slab(key.0, key.1) else { return };
        let Some(content) = self.oracle.borrow().content(key, block) else { return };
        self.store.inner.load_blocks(slab.slot, block, 1).await.unwrap();
        let mapping = self.store.inner.state.borrow().slabs.get(slab.slot.0).unwrap().mapping(block);
        let Some(physical) = mapping.physical() else { return };
        self.oracle.borrow_mut().damage(key, block);
        self.drive.flip_bit(Layout::offset_of(physical) + u64::from(block) % 4096, 3);
        let parts = match self.store.read(slab.slot, block, 1).await {
            Ok(parts) => parts,
            Err(error) => return self.note(error),
        };
        let [ReadPart::Damaged(damaged)] = parts[..] else { panic!("the damage is not seen: {parts:?}") };
        let mut data = vec![0; BLOCK_BYTES];
        fill(content, &mut data);
        let number = self.oracle.borrow_mut().begin(Operation::Heal { slab: key, block });
        let checksum = checksums(key, block, &data)[0];
        let good = Some((self.buffer(&data), checksum));
        match self.store.heal(slab.slot, damaged, good).await {
            Ok(healed) => {
                assert!(healed, "nobody else changed the block");
                self.oracle.borrow_mut().answered(number);
            }
            Err(StoreError::NoRoom) => self.oracle.borrow_mut().refused(number),
            Err(error) => self.note(error),
        }
    }
}

impl Step {
    /// The slab, and whether the step brings it.
    fn slab(&self) -> (SlabKey, bool) {
        match self {
            Step::Add(slab) => (*slab, true),
            Step::Write(slab, ..)
            | Step::Trim(slab, ..)
            | Step::SetPage(slab, ..)
            | Step::Remove(slab)
            | Step::Heal(slab, _) => (*slab, false),
            _ => unreachable!("{self:?} is about no slab"),
        }
    }
}

/// The checksums of whole blocks from `first` on.
pub fn checksums(key: SlabKey, first: u32, data: &[u8]) -> Vec<u32> {
    let checksum = BlockChecksum::new(key.0, key.1);
    (first..).zip(data.chunks_exact(BLOCK_BYTES)).map(|(block, data)| checksum.of(block, data)).collect()
}
