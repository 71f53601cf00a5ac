use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const MEMORY_BYTES: usize = 64 << 10;

#[derive(Clone, Debug)]
enum Action {
    /// Makes room for so much in all, and fills so many thousandths of it.
    Receive(usize, usize),
    /// Takes so many thousandths of what is held, at most so much, to be kept.
    Take(usize, usize),
    /// Consumes them.
    Consume(usize),
    /// Lets what was kept first go.
    LetGo,
}

fn action() -> impl Strategy<Value = Action> {
    let room = prop_oneof![1_usize..100, 1_usize..MEMORY_BYTES, 1_usize..4 * MEMORY_BYTES];
    prop_oneof![
        3 => (room, 0_usize..=1000).prop_map(|(room, part)| Action::Receive(room, part)),
        3 => (1_usize..=1000, prop_oneof![1_usize..5000, Just(BLOCK_BYTES)])
            .prop_map(|(part, most)| Action::Take(part, most)),
        2 => (0_usize..=1000).prop_map(Action::Consume),
        1 => Just(Action::LetGo),
    ]
}

proptest! {
    #[test]
    fn what_is_received_comes_out_once_and_what_is_kept_stays(
        actions in proptest::collection::vec(action(), 1..200),
    ) {
        let mut buffer = ReceiveBuffer::new(&BufferPool::default(), MEMORY_BYTES);
        let mut held = VecDeque::new();
        let mut kept: VecDeque<(Buffer, Vec<u8>)> = VecDeque::new();
        let mut next = 0_u32;
        for action in actions {
            match action {
                Action::Receive(room, part) => {
                    let count = held.len() + room;
                    let bytes = buffer.room(count);
                    prop_assert!(bytes.len() >= room);
                    let received = bytes.len() * part / 1000;
                    for byte in &mut bytes[..received] {
                        next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        *byte = (next >> 24) as u8;
                        held.push_back(*byte);
                    }
                    buffer.received(received);
                }
                Action::Take(part, most) => {
                    let count = (held.len() * part / 1000).min(most);
                    let (first, filled) = (buffer.held().as_ptr(), buffer.end);
                    let taken = buffer.take(count);
                    let is_shared = count > 0 && taken.as_ptr() == first;
                    prop_assert!(!is_shared || filled * HELD_TIMES_MAX >= buffer.memory_bytes());
                    kept.push_back((taken, held.drain(..count).collect()));
                }
                Action::Consume(part) => {
                    let count = held.len() * part / 1000;
                    prop_assert!(buffer.consume(count).iter().copied().eq(held.drain(..count)));
                }
                Action::LetGo => drop(kept.pop_front()),
            }
            prop_assert!(buffer.held().iter().eq(&held));
            for (buffer, content) in &kept {
                prop_assert!(buffer[..] == content[..], "what is kept has changed");
            }
        }
    }
}

/// Receives so many bytes where they fit.
fn receive(buffer: &mut ReceiveBuffer, count: usize) {
    assert!(buffer.room(count).len() >= count);
    buffer.received(count);
}

#[test]
fn much_is_kept_where_it_was_received_and_little_is_copied() {
    let pool = BufferPool::default();
    let mut buffer = ReceiveBuffer::new(&pool, MEMORY_BYTES);
    receive(&mut buffer, 2 * BLOCK_BYTES);
    let little = buffer.held().as_ptr();
    assert_ne!(buffer.take(BLOCK_BYTES).as_ptr(), little, "most of the memory would be held for nothing");
    receive(&mut buffer, MEMORY_BYTES / HELD_TIMES_MAX);
    let first = buffer.held().as_ptr();
    let kept = buffer.take(BLOCK_BYTES);
    assert_eq!(kept.as_ptr(), first);
    let rest = buffer.held().len();
    assert_ne!(
        buffer.room(rest + 1).as_ptr(),
        first.wrapping_add(BLOCK_BYTES + rest),
        "what is shown is not written to"
    );
    drop(kept);
    assert_eq!(buffer.held().len(), rest);
}

#[test]
fn memory_is_received_into_again_when_nothing_shows_it() {
    let mut buffer = ReceiveBuffer::new(&BufferPool::default(), MEMORY_BYTES);
    receive(&mut buffer, MEMORY_BYTES);
    let memory = buffer.held().as_ptr();
    drop(buffer.take(MEMORY_BYTES));
    assert_eq!(buffer.room(1).as_ptr().addr(), memory.addr());
}

#[test]
fn what_needed_more_memory_is_not_shared_with_little() {
    let mut buffer = ReceiveBuffer::new(&BufferPool::default(), MEMORY_BYTES);
    receive(&mut buffer, 8 * MEMORY_BYTES);
    assert_eq!(buffer.memory_bytes(), 8 * MEMORY_BYTES);
    let first = buffer.held().as_ptr();
    assert_ne!(buffer.take(BLOCK_BYTES).as_ptr(), first);
    let rest = buffer.held().len();
    buffer.consume(rest);
    buffer.room(1);
    assert_eq!(buffer.memory_bytes(), MEMORY_BYTES, "it is given back");
}
