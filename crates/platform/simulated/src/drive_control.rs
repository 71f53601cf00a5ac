//! A test's hand on a simulated drive: its content, its faults, and what a crash may leave of it.

use std::fmt;
use std::ops::RangeBounds;
use std::rc::Rc;

use spandrel_platform::DriveGeometry;

use crate::drive::{DriveState, Health};
use crate::drive_faults::{DriveCounters, Extent, Repeat, Room, Stray};
use crate::host::Host;
use crate::image::DriveImage;
use crate::random::Random;
use crate::storage::{SectorChoice, UnflushedWrite};
use crate::trace::Kind;

/// When, with regard to an operation, a planned crash strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashMoment {
    /// The operation never reaches the drive.
    BeforeSubmission,
    /// The operation is in flight.
    AfterSubmission,
    /// The operation has completed, and nobody has been told.
    AfterCompletion,
}

/// What a planned crash takes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashScope {
    /// The process: the drive keeps what completed.
    Process,
    /// The power of its host: the drive may lose what was not flushed.
    Host,
}

/// A crash at a certain operation of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashPlan {
    /// Which write or flush after the plan was made, from 1 on. Reads don't count, since a crash
    /// around one leaves nothing that a crash around its neighbours does not.
    pub operation: u64,
    /// When, with regard to that operation.
    pub moment: CrashMoment,
    /// What ends.
    pub scope: CrashScope,
}

/// A simulated drive as a thing: what a test does to it. Cheap to clone.
///
/// After a crash its content is open until somebody looks: the drive decides by the seed when its
/// host has power again, or after a mere process crash when it is opened again. Until then a test
/// can ask for every content that is possible, and choose one.
#[derive(Clone)]
pub struct SimulatedDrive {
    state: Rc<DriveState>,
}

impl SimulatedDrive {
    pub(crate) fn new(state: Rc<DriveState>) -> Self {
        Self { state }
    }

    /// The name it was added under.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Its fixed properties.
    pub fn geometry(&self) -> DriveGeometry {
        self.state.geometry()
    }

    /// What it was asked, and what was done to it.
    pub fn counters(&self) -> DriveCounters {
        self.state.inner.borrow().counters
    }

    /// What reads see now.
    pub fn snapshot(&self) -> DriveImage {
        self.state.inner.borrow().storage.current().clone()
    }

    /// What is left for certain if the power goes now.
    pub fn durable_image(&self) -> DriveImage {
        self.state.inner.borrow().storage.durable().clone()
    }

    /// Puts `image` in the place of all that the drive remembers, as if an old copy of it had been
    /// restored. Writes in flight still arrive.
    pub fn restore(&self, image: DriveImage) {
        assert!(image.size_bytes() == self.state.config.size_bytes, "the image has another size");
        self.trace_fault(3, 0, || "an image is restored".to_owned());
        self.state.inner.borrow_mut().storage.restore(image);
    }

    /// Every write that a power cut now may lose, in part or whole, those in flight last.
    pub fn unflushed_writes(&self) -> Vec<UnflushedWrite> {
        self.state.inner.borrow().storage.unflushed_writes()
    }

    /// What a power cut now leaves, if of the unflushed writes it keeps what `choice` keeps. It is
    /// asked once for each sector of each write, in order. A crash of the process alone keeps all
    /// writes that have completed.
    pub fn crash_image(&self, choice: &mut SectorChoice<'_>) -> DriveImage {
        self.state.inner.borrow().storage.crash_image(choice)
    }

    /// What a power cut now may leave: all possible images if the unflushed writes have at most
    /// `exhaustive_sectors_max` sectors; otherwise `random_images` ones drawn from `random`, and
    /// the two in which all is kept and all is lost.
    pub fn crash_images(
        &self,
        exhaustive_sectors_max: u32,
        random_images: usize,
        random: &Random,
    ) -> Vec<DriveImage> {
        assert!(exhaustive_sectors_max <= 20, "2^{exhaustive_sectors_max} images are too many");
        let sectors: usize = self.unflushed_writes().iter().map(|write| write.sectors).sum();
        if sectors <= exhaustive_sectors_max as usize {
            return (0_u64..1 << sectors)
                .map(|subset| {
                    let mut left = subset;
                    self.crash_image(&mut |_, _| {
                        let keep = left & 1 == 1;
                        left >>= 1;
                        keep
                    })
                })
                .collect();
        }
        let mut images = vec![self.crash_image(&mut |_, _| false), self.crash_image(&mut |_, _| true)];
        images
            .extend((0..random_images).map(|_| self.crash_image(&mut *crate::drive::random_choice(random))));
        images
    }

    /// Decides what a crash has left, instead of the seed.
    pub fn settle(&self, choice: &mut SectorChoice<'_>) {
        let mut inner = self.state.inner.borrow_mut();
        assert!(!inner.is_busy(), "there was no crash: {} is at work", self.state.name);
        let image = inner.storage.crash_image(choice);
        self.state.settle(&mut inner, image);
    }

    /// Plans a crash, in the place of any planned before. When it strikes, the process or host
    /// ends and the world's run returns.
    pub fn crash_at(&self, plan: CrashPlan) {
        assert!(plan.operation > 0, "operations count from 1");
        let mut inner = self.state.inner.borrow_mut();
        inner.plan = Some(plan);
        inner.crashed = false;
    }

    /// Whether the planned crash has struck.
    pub fn has_crashed(&self) -> bool {
        self.state.inner.borrow().crashed
    }

    /// Takes it out of the host that it is attached to, as by a cable, and puts it into `host`.
    /// Who has it open has a dead handle.
    pub fn attach_to(&self, host: &Host) {
        self.pull_out();
        self.state.inner.borrow_mut().host = Some(Rc::clone(&host.state));
        self.plug_in();
    }

    /// Takes it out: its power is gone, and all that is asked of it fails, for who has it open
    /// now for ever.
    pub fn pull_out(&self) {
        self.trace_fault(4, 0, || "is pulled out".to_owned());
        self.state.interrupt_all(true);
        let mut inner = self.state.inner.borrow_mut();
        inner.health = Health::Dead;
        inner.attachment += 1;
        inner.powered = false;
    }

    /// Puts it back after [`Self::pull_out`]; it has kept what a power cut leaves.
    pub fn plug_in(&self) {
        self.trace_fault(5, 0, || "is plugged in".to_owned());
        self.state.inner.borrow_mut().health = Health::Working;
        self.state.power_returned();
    }

    /// From now on it answers everything with an error; what is in flight fails too, and may have
    /// happened. It keeps its power and its content.
    pub fn die(&self) {
        self.trace_fault(6, 0, || "dies".to_owned());
        self.state.inner.borrow_mut().health = Health::Dead;
        self.state.answer_stalled();
    }

    /// From now on it answers nothing.
    pub fn fall_silent(&self) {
        self.trace_fault(7, 0, || "falls silent".to_owned());
        self.state.inner.borrow_mut().health = Health::Silent;
    }

    /// It works again, with the content that it had; what a silent drive was asked meanwhile is
    /// answered.
    pub fn revive(&self) {
        self.trace_fault(8, 0, || "works again".to_owned());
        self.state.inner.borrow_mut().health = Health::Working;
        self.state.answer_stalled();
    }

    /// From now on every operation takes `factor` times as long as usual.
    pub fn set_latency_factor(&self, factor: u32) {
        self.trace_fault(9, factor.into(), || format!("takes {factor} times as long"));
        self.state.inner.borrow_mut().latency_factor = factor;
    }

    /// From now on the file system that holds it has `room`.
    pub fn set_room(&self, room: Room) {
        self.trace_fault(10, room as u64, || format!("room: {room:?}"));
        self.state.inner.borrow_mut().room = room;
    }

    /// Inverts bit `bit` (0 to 7) of the byte at `offset`, wherever it stands now.
    pub fn flip_bit(&self, offset: u64, bit: u32) {
        self.trace_fault(11, offset << 3 | u64::from(bit), || format!("bit {bit} of byte {offset} flips"));
        let mut inner = self.state.inner.borrow_mut();
        inner.counters.bits_flipped += 1;
        inner.storage.flip_bit(offset, bit);
    }

    /// Inverts a bit of the range, which the seed picks; returns the byte's offset.
    pub fn flip_random_bit(&self, range: impl RangeBounds<u64>) -> u64 {
        let extent = Extent::of(range);
        let end = extent.end.min(self.state.config.size_bytes);
        assert!(extent.start < end, "a range with no byte of the drive");
        let offset = self.state.random.between(extent.start, end - 1);
        let place = self.state.random.below(8);
        self.flip_bit(offset, u32::try_from(place).expect("below eight"));
        offset
    }

    /// Acknowledges the next write that touches `range` without ever writing it.
    pub fn lose_next_write(&self, range: impl RangeBounds<u64>) {
        self.state.inner.borrow_mut().faults.add_stray(Extent::of(range), Stray::Lost);
    }

    /// Acknowledges the next write that touches `range` but writes it at `offset`, or at the end
    /// of the drive if it would reach beyond.
    pub fn misdirect_next_write(&self, range: impl RangeBounds<u64>, offset: u64) {
        assert!(
            offset.is_multiple_of(self.state.config.sector_bytes.into()),
            "a drive writes whole sectors, also at the wrong place"
        );
        self.state.inner.borrow_mut().faults.add_stray(Extent::of(range), Stray::To(offset));
    }

    /// Whether a write is still to be lost or misdirected, or some place cannot be read.
    pub fn endangers_content(&self) -> bool {
        self.state.inner.borrow().faults.endangers_content()
    }

    /// Fails reads that touch `range`.
    pub fn fail_reads(&self, range: impl RangeBounds<u64>, repeat: Repeat) {
        self.state.inner.borrow_mut().faults.fail_reads(Extent::of(range), repeat);
    }

    /// Fails writes that touch `range`. A failed write may have happened, in part or whole.
    pub fn fail_writes(&self, range: impl RangeBounds<u64>, repeat: Repeat) {
        assert!(repeat != Repeat::UntilWritten, "a write that fails does not end the fault");
        self.state.inner.borrow_mut().faults.fail_writes(Extent::of(range), repeat);
    }

    /// Fails flushes. What they were to cover is lost or durable from then on, each sector as the seed says: no later flush
    /// tells of it.
    pub fn fail_flushes(&self, repeat: Repeat) {
        assert!(repeat != Repeat::UntilWritten, "a flush has no place");
        self.state.inner.borrow_mut().faults.fail_flushes(repeat);
    }

    /// Disarms every fault that waits for an operation, gives room and the usual speed. Damage
    /// that was done stays, and so does death.
    pub fn clear_faults(&self) {
        let mut inner = self.state.inner.borrow_mut();
        inner.faults.clear();
        inner.room = Room::Enough;
        inner.latency_factor = 1;
    }

    fn trace_fault(&self, code: u64, place: u64, describe: impl FnOnce() -> String) {
        self.state.trace_fault(code, place, describe);
    }
}

impl DriveState {
    pub(crate) fn trace_fault(&self, code: u64, place: u64, describe: impl FnOnce() -> String) {
        self.shared.record(Kind::DriveFault, [self.number, code, place], || {
            format!("{}: {}", self.name, describe())
        });
    }
}

impl fmt::Debug for SimulatedDrive {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SimulatedDrive({})", self.state.name)
    }
}
