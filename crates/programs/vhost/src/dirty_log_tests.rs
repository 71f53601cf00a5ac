use rustix::fs::MemfdFlags;
use vm_memory::{Bytes as _, GuestAddress};

use super::*;
use crate::memory::GuestTable;

const REGION_BYTES: u64 = 1 << 20;
/// Where the guest has its second stretch of memory.
const SECOND: u64 = 1 << 24;

fn file(bytes: u64, seals: SealFlags) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("pages", flags).expect("files in memory can be made");
    rustix::fs::ftruncate(&file, bytes).expect("there is room");
    rustix::fs::fcntl_add_seals(&file, seals).expect("it can be sealed");
    file.into()
}

/// A bitmap of `bytes`, and the machine's own view of it.
fn bitmap(bytes: u64) -> (DirtyBitmap, File) {
    let file = file(bytes, SealFlags::SHRINK);
    let own = file.try_clone().expect("files can be opened");
    (DirtyBitmap::open(&VhostUserLog::new(bytes, 0), file).expect("it is as it should be"), own)
}

/// The pages that are marked.
fn marked(file: &File) -> Vec<u64> {
    let mut bytes = vec![0; file.metadata().expect("it is there").len() as usize];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, 0).expect("it can be read");
    let bits = bytes.iter().enumerate().flat_map(|(at, byte)| {
        (0..8).filter(move |bit| byte & 1 << bit != 0).map(move |bit| at as u64 * 8 + bit)
    });
    bits.collect()
}

fn guest(log: &Arc<DirtyLog>) -> GuestTable {
    let region =
        |guest: u64| vhost::vhost_user::message::VhostUserMemoryRegion::new(guest, REGION_BYTES, guest, 0);
    let files = [0, 1].map(|_| file(REGION_BYTES, SealFlags::SHRINK));
    GuestTable::map(&[region(0), region(SECOND)], files.into(), log).expect("it is as it should be")
}

#[test]
fn pages_are_marked_where_something_was_written_while_the_machine_wants_it() {
    let log = Arc::new(DirtyLog::default());
    let memory = guest(&log).memory;
    memory.write_slice(&[1; 10], GuestAddress(0)).expect("there is memory");
    let (first, seen) = bitmap((SECOND + REGION_BYTES) / PAGE_BYTES / 8);
    log.set(Some(first));
    assert_eq!(marked(&seen), [] as [u64; 0], "what was written before is not told");
    memory.write_slice(&[1; 10], GuestAddress(3 * PAGE_BYTES - 5)).expect("there is memory");
    memory.store(1_u16, GuestAddress(SECOND + 9 * PAGE_BYTES), Ordering::SeqCst).expect("there is memory");
    memory.read_slice(&mut [0; 10], GuestAddress(5 * PAGE_BYTES)).expect("there is memory");
    assert_eq!(marked(&seen), [2, 3, SECOND / PAGE_BYTES + 9]);
    let (next, seen_next) = bitmap((SECOND + REGION_BYTES) / PAGE_BYTES / 8);
    log.set(Some(next));
    memory.write_slice(&[1; 4 * PAGE_BYTES as usize], GuestAddress(7 * PAGE_BYTES)).expect("there is memory");
    assert_eq!(marked(&seen).len(), 3, "the former one is not touched any more");
    assert_eq!(marked(&seen_next), [7, 8, 9, 10]);
    log.set(None);
    memory.write_obj(1_u64, GuestAddress(100 * PAGE_BYTES)).expect("there is memory");
    assert_eq!(marked(&seen_next).len(), 4);
}

#[test]
fn what_lies_beyond_the_bitmap_is_nothing_to_the_machine() {
    let log = Arc::new(DirtyLog::default());
    let memory = guest(&log).memory;
    let (short, seen) = bitmap(1);
    log.set(Some(short));
    memory.write_slice(&[1; 10], GuestAddress(8 * PAGE_BYTES - 5)).expect("there is memory");
    assert_eq!(marked(&seen), [7]);
}

#[test]
fn a_bitmap_that_is_too_short_or_could_become_so_is_refused() {
    let open = |said: u64, file: File| DirtyBitmap::open(&VhostUserLog::new(said, 0), file);
    assert!(open(4096, file(4096, SealFlags::empty())).is_err());
    assert!(open(4097, file(4096, SealFlags::SHRINK)).is_err());
    assert!(open(u64::MAX, file(4096, SealFlags::SHRINK)).is_err());
    assert!(open(4096, file(4096, SealFlags::SHRINK)).is_ok());
}
