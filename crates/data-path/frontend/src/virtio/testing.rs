//! A guest with some memory and one queue, whose driver does just what it is told.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use spandrel_platform::sync::Signal;
use virtio_bindings::bindings::virtio_ring::{VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::chain::Table;
use super::{GuestSide, QueueSetup};
use crate::testing::{MemoryDisk, TestPlatform};

pub(super) type Memory = GuestMemoryMmap<()>;

/// The places of the queue.
pub(super) const SIZE: u16 = 64;

pub(super) const READ: u32 = 0;
pub(super) const WRITE: u32 = 1;
pub(super) const FLUSH: u32 = 4;
pub(super) const SERIAL: u32 = 8;
pub(super) const DISCARD: u32 = 11;
pub(super) const ZEROES: u32 = 13;

const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x3000;
const USED: u64 = 0x4000;
const DATA: u64 = 0x1_0000;
pub(super) const MEMORY_BYTES: usize = 16 << 20;

/// What was noted of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    Begun(u16),
    Ending(u16),
    Ended(u16, u16),
}

/// The guest as its queue's server sees it. Clones are the same.
#[derive(Clone)]
pub(super) struct TestGuest {
    pub(super) memory: Arc<Memory>,
    is_kicked: Rc<Cell<bool>>,
    kicked: Rc<Signal>,
    pub(super) interrupts: Rc<Cell<usize>>,
    pub(super) noted: Rc<RefCell<Vec<Noted>>>,
}

impl TestGuest {
    pub(super) fn new() -> Self {
        let memory = Memory::from_ranges(&[(GuestAddress(0), MEMORY_BYTES)]).unwrap();
        Self {
            memory: Arc::new(memory),
            is_kicked: Rc::default(),
            kicked: Rc::new(Signal::new()),
            interrupts: Rc::default(),
            noted: Rc::default(),
        }
    }

    pub(super) fn kick(&self) {
        self.is_kicked.set(true);
        self.kicked.notify_all();
    }

    /// How its queue lies in its memory, nothing of which was served.
    pub(super) fn setup() -> QueueSetup {
        QueueSetup {
            size: SIZE,
            descriptors: GuestAddress(DESCRIPTORS),
            available: GuestAddress(AVAILABLE),
            used: GuestAddress(USED),
            next_available: 0,
            event_index: false,
            unanswered: Vec::new(),
            serial: *b"a disk with a name\0\0",
        }
    }

    pub(super) fn table() -> Table {
        Table { address: GuestAddress(DESCRIPTORS), size: SIZE }
    }
}

impl GuestSide for TestGuest {
    type Memory = Memory;

    fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory)
    }

    fn kicked(&self) -> impl Future<Output = ()> {
        self.kicked.wait_until(|| self.is_kicked.replace(false))
    }

    fn interrupt(&self) {
        self.interrupts.set(self.interrupts.get() + 1);
    }

    fn begun(&self, head: u16) {
        self.noted.borrow_mut().push(Noted::Begun(head));
    }

    fn ending(&self, head: u16) {
        self.noted.borrow_mut().push(Noted::Ending(head));
    }

    fn ended(&self, head: u16, used: u16) {
        self.noted.borrow_mut().push(Noted::Ended(head, used));
    }
}

/// What a driver asks for: at which place of the table, and where it is told what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) head: u16,
    told: u64,
    told_bytes: u64,
}

/// The guest's driver.
pub(super) struct Driver {
    guest: TestGuest,
    next_place: u16,
    next_data: u64,
    available: u16,
}

impl Driver {
    pub(super) fn new(guest: &TestGuest) -> Self {
        Self { guest: guest.clone(), next_place: 0, next_data: DATA, available: 0 }
    }

    /// Room in the guest's memory.
    pub(super) fn room(&mut self, bytes: u64) -> u64 {
        let address = self.next_data;
        self.next_data += bytes.next_multiple_of(16);
        assert!(self.next_data <= MEMORY_BYTES as u64);
        address
    }

    pub(super) fn descriptor(&self, place: u16, address: u64, bytes: u64, flags: u32, next: u16) {
        let descriptor = Descriptor::new(address, bytes as u32, flags as u16, next);
        self.guest.memory.write_obj(descriptor, GuestAddress(DESCRIPTORS + u64::from(place) * 16)).unwrap();
    }

    /// Lays a request out, what it says and what it is told in the parts that are named by their lengths, and makes it available.
    pub(super) fn ask_in_parts(&mut self, says: &[&[u8]], told: &[u64]) -> Asked {
        let head = self.next_place;
        let parts = (says.len() + told.len()) as u16;
        self.next_place += parts;
        let told_bytes: u64 = told.iter().sum();
        let (mut place, mut place_told) = (head, self.room(told_bytes));
        let begin_told = place_told;
        let flags = |place: u16| if place + 1 == head + parts { 0 } else { VRING_DESC_F_NEXT };
        for said in says {
            let address = self.room(said.len() as u64);
            self.guest.memory.write_slice(said, GuestAddress(address)).unwrap();
            self.descriptor(place, address, said.len() as u64, flags(place), place + 1);
            place += 1;
        }
        for bytes in told {
            self.descriptor(place, place_told, *bytes, flags(place) | VRING_DESC_F_WRITE, place + 1);
            (place, place_told) = (place + 1, place_told + bytes);
        }
        let status = GuestAddress(begin_told + told_bytes.saturating_sub(1));
        if told_bytes > 0 {
            self.guest.memory.write_obj(0xee_u8, status).unwrap();
        }
        self.make_available(head);
        Asked { head, told: begin_told, told_bytes }
    }

    /// Makes a place of the table available.
    pub(super) fn make_available(&mut self, head: u16) {
        let entry = AVAILABLE + 4 + u64::from(self.available % SIZE) * 2;
        self.guest.memory.write_obj(head, GuestAddress(entry)).unwrap();
        self.available = self.available.wrapping_add(1);
        self.guest.memory.write_obj(self.available, GuestAddress(AVAILABLE + 2)).unwrap();
    }

    /// A request with all that it says, but for its header, in one part, and what it is told in one, with its status in another.
    pub(super) fn ask(&mut self, kind: u32, sector: u64, says: &[u8], told_bytes: u64) -> Asked {
        let header = header(kind, sector);
        let says: &[&[u8]] = if says.is_empty() { &[&header] } else { &[&header, says] };
        let told: &[u64] = if told_bytes == 0 { &[1] } else { &[told_bytes, 1] };
        self.ask_in_parts(says, told)
    }

    /// What a request was told, but for its status.
    pub(super) fn told(&self, asked: Asked) -> Vec<u8> {
        let mut told = vec![0; asked.told_bytes as usize - 1];
        self.guest.memory.read_slice(&mut told, GuestAddress(asked.told)).unwrap();
        told
    }

    pub(super) fn status(&self, asked: Asked) -> u8 {
        self.guest.memory.read_obj(GuestAddress(asked.told + asked.told_bytes - 1)).unwrap()
    }

    /// The requests that were given back, in order, with how much they were told.
    pub(super) fn used(&self) -> Vec<(u16, u32)> {
        let read = |address| self.guest.memory.read_obj::<u32>(GuestAddress(address)).unwrap();
        let count = self.guest.memory.read_obj::<u16>(GuestAddress(USED + 2)).unwrap();
        let entry = |number: u16| {
            let address = USED + 4 + u64::from(number % SIZE) * 8;
            (read(address) as u16, read(address + 4))
        };
        (0..count).map(entry).collect()
    }
}

/// A disk and a guest that asks for it.
pub(super) struct Bench {
    pub(super) platform: TestPlatform,
    pub(super) disk: MemoryDisk,
    pub(super) guest: TestGuest,
    pub(super) driver: Driver,
}

impl Bench {
    pub(super) fn new(disk_bytes: usize) -> Self {
        let platform = TestPlatform::new();
        let disk = MemoryDisk::new(&platform, disk_bytes);
        let guest = TestGuest::new();
        let driver = Driver::new(&guest);
        Self { platform, disk, guest, driver }
    }
}

/// With what a request begins.
pub(super) fn header(kind: u32, sector: u64) -> [u8; 16] {
    let mut header = [0; 16];
    header[..4].copy_from_slice(&kind.to_le_bytes());
    header[8..].copy_from_slice(&sector.to_le_bytes());
    header
}

/// A stretch, as a discard names it.
pub(super) fn range(sector: u64, sectors: u32, flags: u32) -> [u8; 16] {
    let mut range = [0; 16];
    range[..8].copy_from_slice(&sector.to_le_bytes());
    range[8..12].copy_from_slice(&sectors.to_le_bytes());
    range[12..].copy_from_slice(&flags.to_le_bytes());
    range
}
