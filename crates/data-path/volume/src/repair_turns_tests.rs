use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use spandrel_platform::sync::oneshot;
use spandrel_platform::{Executor, Instant};
use spandrel_shared::{PIECES_WHILE_QUIET, RepairShare};

use super::{PIECES_PER_TURN_MAX, PIECES_WHILE_QUIET_MIN, QUIET_TIME, RepairTurns, Turn, Waiting};

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

    /// Has somebody ask for a turn, for one piece.
    fn ask(&self, who: u32, now: Instant, share: RepairShare) {
        self.ask_for(1, who, now, share);
    }

    /// Has somebody ask for a turn, for so many pieces.
    fn ask_for(&self, pieces: usize, who: u32, now: Instant, share: RepairShare) {
        let (turns, given) = (self.turns.clone(), Rc::clone(&self.given));
        self.executor.spawn(async move {
            let turn = turns.take(now, share, pieces).await;
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
fn more_pieces_are_copied_while_clients_are_silent_and_turns_are_quick() {
    let node = Node::new();
    let start = Instant::from_nanoseconds(5);
    node.turns.note_client();
    (0..599).for_each(|who| node.ask(who, start, RepairShare::Low));
    assert_eq!(node.given().len(), 2);
    let later = start + QUIET_TIME;
    node.ask(599, later, RepairShare::Low);
    assert_eq!(node.given().len(), PIECES_WHILE_QUIET_MIN);
    for _ in 0..600 {
        node.turns.note_turn(later, later + Duration::from_millis(10));
    }
    node.ask(600, later, RepairShare::Low);
    assert_eq!(node.given().len(), PIECES_WHILE_QUIET);
    node.turns.note_client();
    node.ask(601, later + Duration::from_millis(1), RepairShare::Low);
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

/// A drive that is slow never gets more than before: turns are for several pieces only where many are quick.
#[test]
fn a_turn_is_for_several_pieces_where_there_are_many() {
    let node = Node::new();
    let start = Instant::from_nanoseconds(5);
    let pieces = |wanted: usize, now| {
        node.ask_for(wanted, 0, now, RepairShare::VeryHigh);
        let pieces = node.given.borrow()[0].1.pieces;
        node.end_first();
        pieces
    };
    assert_eq!(pieces(32, start), 1, "clients may be there");
    let quiet = start + QUIET_TIME;
    assert_eq!(pieces(32, quiet), 1, "it is not known yet how quick they are");
    (0..16).for_each(|_| node.turns.note_turn(quiet, quiet + Duration::from_millis(1)));
    assert_eq!(pieces(32, quiet), 2);
    (0..600).for_each(|_| node.turns.note_turn(quiet, quiet + Duration::from_millis(1)));
    assert_eq!((pieces(32, quiet), pieces(3, quiet)), (PIECES_PER_TURN_MAX, 3));
    (0..100).for_each(|who| node.ask_for(32, who, quiet, RepairShare::VeryHigh));
    assert_eq!(
        node.given().len(),
        PIECES_WHILE_QUIET / PIECES_PER_TURN_MAX,
        "together no more than there are"
    );
}

#[test]
fn while_clients_are_silent_there_is_never_less_than_beside_them() {
    for share in RepairShare::ALL {
        assert!(share.pieces_at_once() <= PIECES_WHILE_QUIET_MIN, "{share}");
    }
}

/// Several turns that were slow together halve the pieces once.
#[test]
fn pieces_become_fewer_when_turns_take_long() {
    let node = Node::new();
    let start = Instant::from_nanoseconds(5);
    (0..600).for_each(|_| node.turns.note_turn(start, start + Duration::from_millis(10)));
    let slow = start + Duration::from_millis(150);
    (0..9).for_each(|_| node.turns.note_turn(start, slow));
    assert_eq!(node.turns.inner.more_while_quiet.get(), (PIECES_WHILE_QUIET - PIECES_WHILE_QUIET_MIN) / 2);
    let slower = slow + Duration::from_millis(500);
    (0..9).for_each(|_| node.turns.note_turn(slow, slower));
    assert_eq!(node.turns.inner.more_while_quiet.get(), (PIECES_WHILE_QUIET - PIECES_WHILE_QUIET_MIN) / 4);
}

#[test]
fn many_that_do_not_wait_any_more_are_passed_over() {
    let node = Node::new();
    let start = Instant::from_nanoseconds(5);
    node.ask(0, start, RepairShare::VeryLow);
    for _ in 0..100_000 {
        let (sender, _) = oneshot();
        node.turns.inner.waiting.borrow_mut().push_back(Waiting { pieces: 1, sender });
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
    let forgotten = Box::pin(async move { turns.take(start, RepairShare::VeryLow, 1).await });
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
