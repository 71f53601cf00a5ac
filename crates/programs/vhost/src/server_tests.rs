use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use rustix::fs::{MemfdFlags, SealFlags};
use spandrel_platform::{Buffer, BufferPool, Platform as _};
use spandrel_platform_linux::{Runtime, RuntimeConfig};
use spandrel_volume::{DeviceError, DeviceLimits, Extent};
use tempfile::TempDir;
use vhost::VhostBackend as _;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserInflight, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostUserMemoryRegionInfo, VringConfigData};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes as _, GuestAddress};
use vmm_sys_util::eventfd::EventFd;

use super::*;
use crate::memory::GuestTable;

const DISK_BYTES: usize = 1 << 20;
const MEMORY_BYTES: u64 = 1 << 20;
/// Where the machine has the guest's memory, by its own addresses.
const MACHINE_BASE: u64 = 0x7f00_0000_0000;
const SIZE: u16 = 32;
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
const DATA: u64 = 0x1_0000;
const NEXT: u16 = 1;
const TOLD: u16 = 2;

/// A disk in memory that outlives the threads that serve it. While it is held, nothing is answered.
#[derive(Clone, Default)]
struct TestDisk(Arc<DiskState>);

#[derive(Default)]
struct DiskState {
    content: Mutex<Vec<u8>>,
    held: Mutex<bool>,
    arrived: AtomicUsize,
    /// Why it cannot be opened, if it cannot.
    closed: Mutex<Option<String>>,
    opens: AtomicUsize,
}

impl TestDisk {
    fn new() -> Self {
        let disk = Self::default();
        disk.0.content.lock().unwrap().resize(DISK_BYTES, 0);
        disk
    }

    fn open(&self) -> Result<Self, String> {
        self.0.opens.fetch_add(1, Ordering::SeqCst);
        match &*self.0.closed.lock().unwrap() {
            None => Ok(self.clone()),
            Some(why) => Err(why.clone()),
        }
    }

    fn hold(&self, held: bool) {
        *self.0.held.lock().unwrap() = held;
    }

    async fn pass(&self) {
        self.0.arrived.fetch_add(1, Ordering::SeqCst);
        if *self.0.held.lock().unwrap() {
            std::future::pending::<()>().await;
        }
    }
}

impl BlockDevice for TestDisk {
    fn limits(&self) -> DeviceLimits {
        DeviceLimits {
            size_bytes: DISK_BYTES as u64,
            request_bytes_min: 512,
            request_bytes_preferred: 4096,
            request_bytes_max: 1 << 20,
            read_only: false,
        }
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Vec<Buffer>, DeviceError> {
        self.pass().await;
        let content = self.0.content.lock().unwrap();
        let part = &content[offset as usize..][..length as usize];
        Ok(vec![BufferPool::default().copy_of(part).freeze()])
    }

    async fn write(&self, offset: u64, data: Buffer) -> Result<(), DeviceError> {
        self.pass().await;
        self.0.content.lock().unwrap()[offset as usize..][..data.len()].copy_from_slice(&data);
        Ok(())
    }

    async fn write_zeroes(&self, _: u64, _: u64, _: bool) -> Result<(), DeviceError> {
        unreachable!("no test asks for it")
    }

    async fn trim(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        unreachable!("no test asks for it")
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn extents(&self, _: u64, _: u64) -> Result<Vec<Extent>, DeviceError> {
        unreachable!("no test asks for it")
    }
}

/// A shard's thread, and what serves a disk on it.
struct Node {
    server: Option<DiskServer>,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    fn start(disk: &TestDisk, path: &Path) -> Self {
        let (sender, remote) = sync_channel(1);
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut runtime = Runtime::new(RuntimeConfig::default()).unwrap();
            let remote = runtime.remote();
            let (sent, ended) = futures_channel::oneshot::channel::<()>();
            std::thread::spawn(move || {
                let _ = ends.recv();
                let _ = sent.send(());
            });
            sender.send(remote).unwrap();
            let _ = runtime.block_on(ended);
        });
        let (disk, shard) = (disk.clone(), remote.recv().unwrap());
        let open: OpenDisk<TestDisk> = Arc::new(move |task| {
            let opened = disk.open();
            let begin = move |platform: LinuxPlatform| {
                let task = task(platform.clone(), opened);
                platform.spawn(task);
            };
            shard.spawn(Box::new(begin));
        });
        let server = DiskServer::start(path, *b"a disk with a name\0\0", open).unwrap();
        Self { server: Some(server), end: Some(end), thread: Some(thread) }
    }

    /// Whether the disk could be opened at the first attempt.
    fn first_outcome(&mut self) -> Result<(), String> {
        let mut server = self.server.take().unwrap();
        let mut runtime = Runtime::new(RuntimeConfig::default()).unwrap();
        let (server, outcome) = runtime.block_on(async move {
            let outcome = server.opened().await;
            (server, outcome)
        });
        self.server = Some(server);
        outcome
    }

    /// Ends it as a kill does: what was begun is never answered by it.
    fn kill(mut self) {
        drop(self.end.take());
        self.thread.take().unwrap().join().unwrap();
        self.server.take().unwrap().stop();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A file in memory that cannot be shortened, unless it is to be bad.
fn memory_file(seals: SealFlags) -> File {
    named_memory_file("guest", seals)
}

fn named_memory_file(name: &str, seals: SealFlags) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags).unwrap();
    rustix::fs::ftruncate(&file, MEMORY_BYTES).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file.into()
}

/// Connects as soon as somebody listens there, as machines do.
fn connect(path: &Path) -> Frontend {
    loop {
        match Frontend::connect(path, 1) {
            Ok(frontend) => return frontend,
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// A machine with a guest.
struct Machine {
    frontend: Frontend,
    file: File,
    guest: GuestTable,
    kick: EventFd,
    call: EventFd,
    record: Option<(VhostUserInflight, File)>,
    available: u16,
}

impl Machine {
    fn connect(path: &Path) -> Self {
        Self::with_memory(path, memory_file(SealFlags::SHRINK)).unwrap()
    }

    fn with_memory(path: &Path, file: File) -> vhost::Result<Self> {
        let region = vhost::vhost_user::message::VhostUserMemoryRegion::new(0, MEMORY_BYTES, MACHINE_BASE, 0);
        let own = memory_file(SealFlags::SHRINK);
        let mapped = if rustix::fs::fcntl_get_seals(&file).unwrap().is_empty() {
            own
        } else {
            file.try_clone().unwrap()
        };
        let guest = GuestTable::map(&[region], vec![mapped], &Arc::default()).unwrap();
        let mut machine = Self {
            frontend: connect(path),
            file,
            guest,
            kick: EventFd::new(0).unwrap(),
            call: EventFd::new(0).unwrap(),
            record: None,
            available: 0,
        };
        machine.agree()?;
        Ok(machine)
    }

    /// Agrees on all that is before the queues.
    fn agree(&mut self) -> vhost::Result<()> {
        let frontend = &mut self.frontend;
        frontend.set_owner()?;
        let features = frontend.get_features()?;
        let wanted = 1 << 32 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        assert_eq!(features & wanted, wanted);
        let protocol = frontend.get_protocol_features()?;
        let needed = VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::LOG_SHMFD;
        assert!(protocol.contains(needed));
        frontend.set_protocol_features(protocol)?;
        frontend.set_features(wanted)?;
        frontend.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: MEMORY_BYTES,
            userspace_addr: MACHINE_BASE,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        };
        frontend.set_mem_table(&[region]).map(drop)
    }

    /// Begins its queue, with the record that was kept if there is one.
    fn begin(&mut self, base: u16) -> vhost::Result<()> {
        let frontend = &mut self.frontend;
        if self.record.is_none() {
            self.record = Some(frontend.get_inflight_fd(&VhostUserInflight::new(0, 0, 1, SIZE))?);
        }
        let (described, file) = self.record.as_ref().unwrap();
        frontend.set_inflight_fd(described, file.as_raw_fd())?;
        frontend.set_vring_num(0, SIZE)?;
        frontend.set_vring_base(0, base)?;
        let addresses = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: MACHINE_BASE + DESCRIPTORS,
            used_ring_addr: MACHINE_BASE + USED,
            avail_ring_addr: MACHINE_BASE + AVAILABLE,
            log_addr: None,
        };
        frontend.set_vring_addr(0, &addresses)?;
        frontend.set_vring_call(0, &self.call)?;
        frontend.set_vring_kick(0, &self.kick)?;
        frontend.set_vring_enable(0, true)
    }

    /// Connects anew, as the same machine with the same guest.
    fn connect_again(&mut self, path: &Path) {
        self.frontend = connect(path);
        self.agree().unwrap();
        // Whatever it believes: it cannot know.
        self.begin(0).unwrap();
    }

    /// Makes a request available of one sector, from the place `number` of the guest's data.
    fn ask(&mut self, is_write: bool, sector: u64, number: u16) {
        let (head, memory) = (number * 3, &self.guest.memory);
        let data = DATA + u64::from(number) * 0x1000;
        let mut header = [0; 16];
        header[0] = u8::from(is_write);
        header[8..].copy_from_slice(&sector.to_le_bytes());
        memory.write_slice(&header, GuestAddress(data + 0x800)).unwrap();
        memory.write_obj(0xee_u8, GuestAddress(data + 0x900)).unwrap();
        let told = if is_write { 0 } else { TOLD };
        let descriptors = [
            Descriptor::new(data + 0x800, 16, NEXT, head + 1),
            Descriptor::new(data, 512, NEXT | told, head + 2),
            Descriptor::new(data + 0x900, 1, TOLD, 0),
        ];
        for (place, descriptor) in (u64::from(head)..).zip(descriptors) {
            memory.write_obj(descriptor, GuestAddress(DESCRIPTORS + place * 16)).unwrap();
        }
        memory.write_obj(head, GuestAddress(AVAILABLE + 4 + u64::from(self.available % SIZE) * 2)).unwrap();
        self.available = self.available.wrapping_add(1);
        memory.store(self.available, GuestAddress(AVAILABLE + 2), Ordering::SeqCst).unwrap();
        self.kick.write(1).unwrap();
    }

    fn data(&self, number: u16) -> Vec<u8> {
        let mut data = vec![0; 512];
        self.guest.memory.read_slice(&mut data, GuestAddress(DATA + u64::from(number) * 0x1000)).unwrap();
        data
    }

    fn set_data(&self, number: u16, byte: u8) {
        let address = GuestAddress(DATA + u64::from(number) * 0x1000);
        self.guest.memory.write_slice(&[byte; 512], address).unwrap();
    }

    fn status(&self, number: u16) -> u8 {
        self.guest.memory.read_obj(GuestAddress(DATA + u64::from(number) * 0x1000 + 0x900)).unwrap()
    }

    fn used(&self) -> u16 {
        self.guest.memory.load(GuestAddress(USED + 2), Ordering::SeqCst).unwrap()
    }

    /// Waits until the guest was told of so many answers in all.
    fn await_used(&self, used: u16) {
        while self.used() != used {
            // Looks again only when it is woken: who is not woken waits for ever here.
            while self.call.read().is_err() {
                std::thread::yield_now();
            }
        }
    }

    /// The same, and until the shard has done all that it does of them.
    fn await_settled(&mut self, used: u16) {
        self.await_used(used);
        self.frontend.get_features().unwrap();
    }
}

fn folder() -> (TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.sock");
    (folder, path)
}

#[test]
fn a_guest_reads_what_it_has_written_and_knows_its_disk() {
    let ((_folder, path), disk) = (folder(), TestDisk::new());
    let _node = Node::start(&disk, &path);
    let mut machine = Machine::connect(&path);
    let (_, config) = machine.frontend.get_config(0, 60, VhostUserConfigFlags::empty(), &[0; 60]).unwrap();
    assert_eq!(config[..8], (DISK_BYTES as u64 / 512).to_le_bytes());
    machine.begin(0).unwrap();
    for number in 0..200_u16 {
        let (write, read) = (number * 2 % 4, number * 2 % 4 + 1);
        machine.set_data(write, number as u8);
        machine.ask(true, u64::from(number), write);
        machine.await_used(number * 2 + 1);
        machine.ask(false, u64::from(number), read);
        machine.await_used(number * 2 + 2);
        assert_eq!((machine.status(write), machine.status(read)), (0, 0));
        assert_eq!(machine.data(read), [number as u8; 512]);
    }
    assert_eq!(machine.frontend.get_vring_base(0).unwrap(), 400);
}

#[test]
fn what_a_killed_process_had_begun_the_next_one_does_once_and_to_the_end() {
    let ((_folder, path), disk) = (folder(), TestDisk::new());
    let node = Node::start(&disk, &path);
    let mut machine = Machine::connect(&path);
    machine.begin(0).unwrap();
    machine.set_data(0, 7);
    machine.ask(true, 0, 0);
    machine.await_used(1);
    disk.hold(true);
    for number in 1..4 {
        machine.set_data(number, 10 + number as u8);
        machine.ask(true, u64::from(number), number);
    }
    while disk.0.arrived.load(Ordering::SeqCst) < 4 {
        std::thread::yield_now();
    }
    node.kill();
    assert_eq!(machine.used(), 1);
    disk.hold(false);
    // While nobody serves it, the guest asks for more.
    machine.set_data(4, 14);
    machine.ask(true, 4, 4);
    let _next = Node::start(&disk, &path);
    machine.connect_again(&path);
    machine.await_used(5);
    for number in 0..5 {
        assert_eq!(machine.status(number), 0);
        let expected = if number == 0 { 7 } else { 10 + number as u8 };
        assert_eq!(disk.0.content.lock().unwrap()[usize::from(number) * 512], expected);
    }
    assert_eq!(disk.0.arrived.load(Ordering::SeqCst), 4 + 4, "three again, and one for the first time");
    machine.ask(false, 2, 5);
    machine.await_used(6);
    assert_eq!(machine.data(5), [12; 512]);
}

#[test]
fn a_queue_that_was_stopped_is_left_alone_until_it_is_begun_again() {
    let ((_folder, path), disk) = (folder(), TestDisk::new());
    let _node = Node::start(&disk, &path);
    let mut machine = Machine::connect(&path);
    machine.begin(0).unwrap();
    machine.ask(true, 0, 0);
    machine.await_used(1);
    assert_eq!(machine.frontend.get_vring_base(0).unwrap(), 1);
    machine.ask(true, 1, 1);
    // Another word is heard behind all that was done.
    assert_eq!(machine.frontend.get_queue_num().unwrap(), 8);
    assert_eq!((machine.used(), machine.status(1)), (1, 0xee));
    machine.begin(1).unwrap();
    machine.await_used(2);
}

#[test]
fn memory_that_could_be_shortened_is_refused() {
    let ((_folder, path), disk) = (folder(), TestDisk::new());
    let _node = Node::start(&disk, &path);
    assert!(Machine::with_memory(&path, memory_file(SealFlags::empty())).is_err());
    let mut machine = Machine::connect(&path);
    machine.begin(0).unwrap();
}

#[test]
fn what_cannot_be_is_refused_and_harms_nobody() {
    let ((_folder, path), disk) = (folder(), TestDisk::new());
    let _node = Node::start(&disk, &path);
    let mut stranger = loop {
        match UnixStream::connect(&path) {
            Ok(stranger) => break stranger,
            Err(_) => std::thread::yield_now(),
        }
    };
    std::io::Write::write_all(&mut stranger, &[0xff; 100]).unwrap();
    let _ = std::io::Read::read(&mut stranger, &mut [0; 1]);
    drop(stranger);
    let machine = Machine::connect(&path);
    assert!(machine.frontend.set_vring_num(0, 4096).is_err(), "a queue of impossible size");
    let mut machine = Machine::connect(&path);
    machine.begin(0).unwrap();
    machine.ask(true, 0, 0);
    machine.await_used(1);
}

#[test]
fn a_server_that_ends_lets_go_of_a_machine_that_says_nothing() {
    let ((_folder, path), disk) = (folder(), TestDisk::new());
    let node = Node::start(&disk, &path);
    let machine = Machine::connect(&path);
    drop(node);
    assert!(machine.frontend.get_features().is_err());
}

/// The bits that are set in a machine's bitmap of pages.
fn pages(bitmap: &File) -> Vec<u64> {
    let mut bytes = vec![0; bitmap.metadata().unwrap().len() as usize];
    std::os::unix::fs::FileExt::read_exact_at(bitmap, &mut bytes, 0).unwrap();
    (0..bytes.len() as u64 * 8).filter(|page| bytes[*page as usize / 8] & 1 << (page % 8) != 0).collect()
}

#[test]
fn a_machine_that_sends_its_memory_elsewhere_learns_what_changes_there() {
    let ((_folder, path), disk) = (folder(), TestDisk::new());
    let _node = Node::start(&disk, &path);
    let mut machine = Machine::connect(&path);
    machine.begin(0).unwrap();
    machine.ask(true, 0, 0);
    machine.await_used(1);
    let bitmap = memory_file(SealFlags::SHRINK);
    let log = vhost::VhostUserDirtyLogRegion {
        mmap_size: MEMORY_BYTES,
        mmap_offset: 0,
        mmap_handle: bitmap.as_raw_fd(),
    };
    machine.frontend.set_log_base(0, Some(log)).unwrap();
    machine.ask(false, 0, 1);
    machine.await_settled(2);
    // What was read, with its status; and that it was.
    let read = (DATA + 0x1000) / 4096;
    assert_eq!(pages(&bitmap), [USED / 4096, read]);
    let features = 1 << 32 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
    machine.frontend.set_features(features | VhostUserVirtioFeatures::LOG_ALL.bits()).unwrap();
    machine.ask(true, 0, 2);
    machine.await_settled(3);
    assert_eq!(pages(&bitmap), [USED / 4096, read, read + 1], "of a write its status alone is told");
    machine.frontend.set_features(features).unwrap();
    machine.ask(false, 0, 3);
    machine.await_settled(4);
    assert_eq!(pages(&bitmap), [USED / 4096, read, read + 1]);
    assert!(
        machine
            .frontend
            .set_log_base(0, Some(vhost::VhostUserDirtyLogRegion { mmap_size: u64::MAX, ..log }))
            .is_err()
    );
}

#[test]
fn a_disk_that_cannot_be_opened_has_no_socket_until_it_can() {
    let ((_folder, path), disk) = (folder(), TestDisk::new());
    *disk.0.closed.lock().unwrap() = Some("others have it".to_owned());
    let mut node = Node::start(&disk, &path);
    let first = node.first_outcome();
    assert_eq!(first, Err("others have it".to_owned()));
    assert!(!path.exists());
    *disk.0.closed.lock().unwrap() = None;
    let mut machine = Machine::connect(&path);
    machine.begin(0).unwrap();
    machine.ask(true, 0, 0);
    machine.await_used(1);
}

#[test]
fn a_machine_whose_shard_ends_is_cut_off_and_its_server_gives_up() {
    let ((_folder, path), disk) = (folder(), TestDisk::new());
    let mut node = Node::start(&disk, &path);
    let mut machine = Machine::connect(&path);
    machine.begin(0).unwrap();
    drop(node.end.take());
    node.thread.take().unwrap().join().unwrap();
    // It waits for nothing: its server does not end because of this.
    assert!(machine.frontend.get_features().is_err());
    node.server.take().unwrap().stop();
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let ((_folder, path), disk) = (folder(), TestDisk::new());
    std::fs::write(&path, "somebody's").unwrap();
    let mut node = Node::start(&disk, &path);
    let first = node.first_outcome();
    assert!(first.unwrap_err().contains("its socket cannot be made"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody's");
}

#[test]
fn a_server_that_ends_neither_opens_its_disk_again_nor_touches_its_place() {
    let ((_folder, path), disk) = (folder(), TestDisk::new());
    let mut node = Node::start(&disk, &path);
    let mut machine = Machine::connect(&path);
    machine.begin(0).unwrap();
    std::fs::remove_file(&path).unwrap();
    node.server.take().unwrap().stop();
    assert_eq!(disk.0.opens.load(Ordering::SeqCst), 1);
    assert!(!path.exists());
    // Another one is there by now, as when the same machine is started for its next run.
    let _next = Node::start(&disk, &path);
    let mut machine = Machine::connect(&path);
    machine.begin(0).unwrap();
}

#[test]
fn what_a_machine_sends_stays_with_this_process() {
    let ((_folder, path), disk) = (folder(), TestDisk::new());
    let _node = Node::start(&disk, &path);
    let memory = named_memory_file("told-from-those-of-other-tests", SealFlags::SHRINK);
    let mut machine = Machine::with_memory(&path, memory).unwrap();
    machine.begin(0).unwrap();
    machine.ask(true, 0, 0);
    machine.await_used(1);
    let inherited = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let inherited = String::from_utf8_lossy(&inherited.stdout);
    assert!(!inherited.contains("told-from-those-of-other-tests"), "{inherited}");
}
