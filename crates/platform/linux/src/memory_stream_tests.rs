use std::task::Waker;
use std::thread;

use super::*;
use crate::test_support::Numbers;

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Waits on this thread, and does nothing else.
fn await_on_thread(mut poll: impl FnMut(&Context<'_>) -> Poll<()>) {
    struct Unpark(thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    while poll(&Context::from_waker(&waker)).is_pending() {
        thread::park();
    }
}

/// Sends `bytes` in pieces of many lengths.
fn send_all(stream: &MemoryStream, bytes: &[u8], numbers: &mut Numbers) {
    let mut left = bytes;
    while !left.is_empty() {
        let length = (1 + numbers.below(3 * RING_BYTES / 2)).min(left.len());
        let (one, other) = left[..length].split_at(length / 3);
        match stream.send(&[IoSlice::new(one), IoSlice::new(other)]) {
            Ok(count) => left = &left[count..],
            Err(Errno::AGAIN) => await_on_thread(|context| stream.poll_room(context)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Receives until the end, in pieces of many lengths.
fn receive_all(stream: &MemoryStream, numbers: &mut Numbers) -> Vec<u8> {
    let (mut received, mut into) = (Vec::new(), vec![0; RING_BYTES]);
    loop {
        await_on_thread(|context| stream.poll_receivable(context));
        let room = 1 + numbers.below(RING_BYTES - 1);
        match stream.receive(&mut into[..room]).unwrap() {
            0 => return received,
            count => received.extend_from_slice(&into[..count]),
        }
    }
}

#[test]
fn one_thread_receives_what_another_sends_all_of_it_in_order_and_none_waits_for_ever() {
    for seed in 0..12 {
        let (one, other) = MemoryStream::pair();
        // Both directions are alike.
        let (from, to) = if seed % 2 == 0 { (one, other) } else { (other, one) };
        let length = Numbers::new(seed).below(4 << 20);
        let bytes = Numbers::new(seed).bytes(length);
        let sent = bytes.clone();
        let sender = thread::spawn(move || send_all(&from, &sent, &mut Numbers::new(100 + seed)));
        let received = receive_all(&to, &mut Numbers::new(200 + seed));
        sender.join().unwrap();
        assert!(received == bytes, "seed {seed}");
    }
}

#[test]
fn takes_as_much_as_there_is_room_for() {
    let (one, other) = MemoryStream::pair();
    let bytes = vec![7; RING_BYTES];
    let slices = [IoSlice::new(&bytes[..1000]), IoSlice::new(&bytes)];
    assert_eq!(one.send(&slices), Ok(RING_BYTES));
    assert_eq!(one.send(&slices), Err(Errno::AGAIN));
    assert!(one.poll_room(&context()).is_pending());
    assert_eq!(other.receive(&mut [0; 10]), Ok(10));
    assert!(one.poll_room(&context()).is_ready());
    assert_eq!(one.send(&slices), Ok(10));
}

#[test]
fn the_end_comes_behind_all_that_was_sent() {
    let (one, other) = MemoryStream::pair();
    assert!(other.poll_receivable(&context()).is_pending());
    assert_eq!(other.receive(&mut [0; 10]), Err(Errno::AGAIN));
    assert_eq!(one.send(&[IoSlice::new(b"last words")]), Ok(10));
    drop(one);
    assert!(other.poll_receivable(&context()).is_ready());
    assert_eq!(other.receive(&mut [0; 4]), Ok(4));
    assert_eq!(other.receive(&mut [0; 10]), Ok(6));
    assert_eq!(other.receive(&mut [0; 10]), Ok(0));
    assert_eq!(other.send(&[IoSlice::new(b"too late")]), Err(Errno::PIPE));
}

#[test]
fn whoever_waits_for_room_learns_that_an_end_has_closed() {
    for own in [true, false] {
        let (one, other) = MemoryStream::pair();
        while one.send(&[IoSlice::new(&[0; 4096])]).is_ok() {}
        assert!(one.poll_room(&context()).is_pending());
        if own { &one } else { &other }.close();
        assert!(one.poll_room(&context()).is_ready());
    }
}
