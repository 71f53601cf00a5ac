use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::FutureExt;
use rustix::fd::{AsFd, OwnedFd};
use spandrel_platform::BufferPool;
use spandrel_platform::sync::oneshot;

use super::*;
use crate::drive::locked_file::LockedFile;
use crate::mailbox::WakeFd;
use crate::reactor::Reactor;

/// A completion that came while the loop was awake ends its next sleep.
#[test]
fn completions_are_events_until_they_are_taken() {
    let Ok(mut ring) = Ring::new(4, None) else { return };
    let reactor = Reactor::new(WakeFd::new().unwrap().as_fd()).unwrap();
    reactor.add_ring(ring.as_fd()).unwrap();
    assert!(!reactor.poll());

    let file = tempfile::tempfile().unwrap();
    file.set_len(8192).unwrap();
    let (reply, answer) = oneshot();
    let file = Arc::new(LockedFile::lock(file).unwrap());
    let work = Work::Read(BufferPool::default().copy_of(&[1; 8192]));
    ring.start(Operation::new(Rc::new(file), 0, work, reply));
    assert_eq!(ring.submit(), 1);
    while !ring.has_completions() {
        std::thread::yield_now();
    }
    assert!(reactor.poll() && reactor.poll());
    let mut finished = Vec::new();
    ring.take_completions(&mut finished);
    assert!(!reactor.poll() && !ring.has_completions());

    let (operation, result) = finished.pop().unwrap();
    operation.finish(result);
    let buffer = answer.now_or_never().flatten().unwrap().unwrap().unwrap();
    assert!(buffer.iter().all(|byte| *byte == 0));
}

/// Memory that the kernel still uses is not let go.
#[test]
fn dropping_waits_for_what_is_under_way() {
    let Ok(mut ring) = Ring::new(4, None) else { return };
    // A read of a pipe that has nothing to give, until it is written to.
    let (reader, mut writer) = std::io::pipe().unwrap();
    let file = Arc::new(LockedFile::lock(OwnedFd::from(reader).into()).unwrap());
    let held = Arc::downgrade(&file);
    let (reply, answer) = oneshot();
    ring.start(Operation::new(Rc::new(file), 0, Work::Read(BufferPool::default().take(4096)), reply));
    assert_eq!(ring.submit(), 1);

    let (begins, begun) = std::sync::mpsc::channel();
    let still_held = held.clone();
    let feeder = std::thread::spawn(move || {
        begun.recv().unwrap();
        // Enough for a drop that does not wait to be over.
        (0..1000).for_each(|_| std::thread::yield_now());
        let holders = still_held.strong_count();
        writer.write_all(&[9; 4096]).unwrap();
        holders
    });
    begins.send(()).unwrap();
    drop(ring);
    assert_eq!(feeder.join().unwrap(), 1, "the operation was let go while it was under way");
    assert_eq!(held.strong_count(), 0);
    assert!(answer.now_or_never().is_some_and(|answer| answer.is_none()), "nobody is answered any more");
}
