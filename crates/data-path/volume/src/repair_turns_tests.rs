use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use spandrel_platform::sync::oneshot;
use spandrel_platform::{Executor, Instant};
use spandrel_shared::{PIECES_WHILE_QUIET, RepairShare};

use super::{
    PIECE_BLOCKS_MAX, PIECE_BLOCKS_WHILE_QUIET_MAX, PIECES_WHILE_QUIET_MIN, QUIET_TIME, RepairTurns, Turn,
};

/// Turns that were given, in their order.
type Given = Rc<RefCell<Vec<(u32, Turn)>>>;

struct Node {
    executor: Executor,
    turns: RepairTurns,
    given: Given,
}

impl Node {
    fn new() -> Self {
        Self { executor: Executor::new(), turns: RepairTurns::default(), given: Given::default() }
    }

    /// Has somebody ask for a turn.
    fn ask(&self, who: u32, now: Instant, share: RepairShare) {
        let (turns, given) = (self.turns.clone(), Rc::clone(&self.given));
        self.executor.spawn(async move {
            let turn = turns.take(now, share).await;
            given.borrow_mut().push((who, turn));
        });
        while self.executor.run_ready() {}
    }

    fn given(&self) -> Vec<u32> {
        self.given.borrow().iter().map(|(who, _)| *who).collect()
    }

    /// Has the first of those who have a turn end.
    fn end_first(&self) {
        let first = self.given.borrow_mut().remove(0);
        drop(first);
        while self.executor.run_ready() {}
    }
}

#[test]
fn as_many_as_the_share_says_copy_at_once_and_the_others_follow_in_order() {
    for share in RepairShare::ALL {
        let node = Node::new();
        let start = Instant::from_nanoseconds(5);
        (0..20).for_each(|who| node.ask(who, start, share));
        let at_once = share.pieces_at_once() as u32;
        for first in 0..20 {
            assert_eq!(node.given(), (first..20.min(first + at_once)).collect::<Vec<_>>(), "{share}");
            node.end_first();
        }
        assert_eq!(node.turns.inner.taken.get(), 0);
    }
}

#[test]
fn more_turns_are_taken_while_clients_are_silent_and_pieces_are_quick() {
    let node = Node::new();
    let start = Instant::from_nanoseconds(5);
    node.turns.note_client();
    (0..299).for_each(|who| node.ask(who, start, RepairShare::Low));
    assert_eq!(node.given().len(), 2);
    let later = start + QUIET_TIME;
    node.ask(299, later, RepairShare::Low);
    assert_eq!(node.given().len(), PIECES_WHILE_QUIET_MIN);
    for _ in 0..300 {
        node.turns.note_piece(later, later + Duration::from_millis(10));
    }
    node.ask(300, later, RepairShare::Low);
    assert_eq!(node.given().len(), PIECES_WHILE_QUIET);
    node.turns.note_client();
    node.ask(301, later + Duration::from_millis(1), RepairShare::Low);
    for left in (2..PIECES_WHILE_QUIET).rev() {
        node.end_first();
        assert_eq!(node.given().len(), left, "what is being copied goes on, and nothing else begins");
    }
    node.end_first();
    let next = PIECES_WHILE_QUIET as u32;
    assert_eq!(node.given(), [next - 1, next], "the next in line");
}

#[test]
fn a_repair_that_begins_after_a_silence_takes_all_at_once() {
    let node = Node::new();
    let start = Instant::from_nanoseconds(5);
    node.turns.note_client();
    node.turns.look(start);
    (0..20).for_each(|who| node.ask(who, start + QUIET_TIME, RepairShare::Low));
    assert_eq!(node.given().len(), PIECES_WHILE_QUIET_MIN);
}

#[test]
fn pieces_are_larger_while_clients_are_silent() {
    let turns = RepairTurns::default();
    let start = Instant::from_nanoseconds(5);
    turns.note_client();
    assert_eq!(turns.piece_blocks_max(start), PIECE_BLOCKS_MAX);
    assert_eq!(turns.piece_blocks_max(start + QUIET_TIME), PIECE_BLOCKS_WHILE_QUIET_MAX);
    turns.note_client();
    assert_eq!(turns.piece_blocks_max(start + QUIET_TIME), PIECE_BLOCKS_MAX);
}

/// Several pieces that were slow together halve the turns once.
#[test]
fn turns_become_fewer_when_pieces_take_long() {
    let node = Node::new();
    let start = Instant::from_nanoseconds(5);
    (0..300).for_each(|_| node.turns.note_piece(start, start + Duration::from_millis(10)));
    let slow = start + Duration::from_millis(150);
    (0..9).for_each(|_| node.turns.note_piece(start, slow));
    assert_eq!(node.turns.inner.more_while_quiet.get(), (PIECES_WHILE_QUIET - PIECES_WHILE_QUIET_MIN) / 2);
    let slower = slow + Duration::from_millis(500);
    (0..9).for_each(|_| node.turns.note_piece(slow, slower));
    assert_eq!(node.turns.inner.more_while_quiet.get(), (PIECES_WHILE_QUIET - PIECES_WHILE_QUIET_MIN) / 4);
}

#[test]
fn many_that_do_not_wait_any_more_are_passed_over() {
    let node = Node::new();
    let start = Instant::from_nanoseconds(5);
    node.ask(0, start, RepairShare::VeryLow);
    for _ in 0..100_000 {
        let (sender, _) = oneshot();
        node.turns.inner.waiting.borrow_mut().push_back(sender);
    }
    node.ask(1, start, RepairShare::VeryLow);
    node.end_first();
    assert_eq!(node.given(), [1]);
}

#[test]
fn a_turn_that_nobody_waits_for_any_more_passes_on() {
    let node = Node::new();
    let start = Instant::from_nanoseconds(5);
    node.ask(0, start, RepairShare::VeryLow);
    let turns = node.turns.clone();
    let forgotten = Box::pin(async move { turns.take(start, RepairShare::VeryLow).await });
    // Polled once, it is in the queue.
    let waiting = Rc::new(RefCell::new(Some(forgotten)));
    let own = Rc::clone(&waiting);
    node.executor.spawn(async move {
        let mut future = own.borrow_mut().take().expect("it is there");
        let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending()));
        assert!(polled.await);
        own.replace(Some(future));
    });
    while node.executor.run_ready() {}
    node.ask(2, start, RepairShare::VeryLow);
    assert_eq!(node.given(), [0]);
    drop(waiting.take());
    node.end_first();
    assert_eq!(node.given(), [2]);
}
