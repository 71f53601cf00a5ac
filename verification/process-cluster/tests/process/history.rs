//! What judges the contents of volumes can fail.

use spandrel_process_cluster::{Content, History, Stamp, ViolationKind};
use spandrel_shared::BLOCK_BYTES;

const SEED: u64 = 11;

fn written(stamp: Stamp) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    stamp.fill(&mut bytes);
    bytes
}

fn content(block: u64, sequence: u64) -> Content {
    Content::of(&written(Stamp { seed: SEED, block, sequence }))
}

/// Block 3 with two answered writes, and a third that was not answered.
fn history() -> History {
    let mut history = History::new(SEED, 8);
    for sequence in 1..=2 {
        assert_eq!(history.issue(3).sequence, sequence);
        history.answered(3);
    }
    history.issue(3);
    history.abandoned(3);
    history
}

fn kind_of(mut history: History, block: u64, content: Content) -> ViolationKind {
    history.judge(block, content).expect_err("it breaks a promise").kind
}

#[test]
fn the_newest_answered_content_and_newer_ones_are_allowed() {
    assert_eq!(history().judge(3, content(3, 2)), Ok(()));
    assert_eq!(history().judge(3, content(3, 3)), Ok(()));
    assert_eq!(history().judge(0, Content::Zeros), Ok(()), "never written");
}

#[test]
fn old_content_is_a_lost_write() {
    assert_eq!(kind_of(history(), 3, content(3, 1)), ViolationKind::Lost { found: 1 });
    assert_eq!(kind_of(history(), 3, Content::Zeros), ViolationKind::Lost { found: 0 });
}

#[test]
fn torn_content_is_rejected_even_of_allowed_writes() {
    let (old, new) = (written(Stamp { seed: SEED, block: 3, sequence: 2 }), {
        written(Stamp { seed: SEED, block: 3, sequence: 3 })
    });
    let torn = Content::of(&[&new[..512], &old[512..]].concat());
    assert_eq!(kind_of(history(), 3, torn), ViolationKind::Broken(torn));
    let half_empty = Content::of(&[&new[..512], &vec![0; BLOCK_BYTES - 512]].concat());
    assert_eq!(kind_of(history(), 3, half_empty), ViolationKind::Broken(half_empty));
    let mut garbage = old;
    garbage[2000] ^= 1;
    assert!(matches!(kind_of(history(), 3, Content::of(&garbage)), ViolationKind::Broken(_)));
}

#[test]
fn content_of_another_block_or_volume_is_rejected() {
    let foreign = Stamp { seed: SEED, block: 4, sequence: 2 };
    assert_eq!(kind_of(history(), 3, Content::Whole(foreign)), ViolationKind::OtherBlock(foreign));
    let other_volume = Stamp { seed: SEED + 1, block: 3, sequence: 2 };
    assert_eq!(kind_of(history(), 3, Content::Whole(other_volume)), ViolationKind::OtherBlock(other_volume));
}

#[test]
fn content_that_was_never_asked_for_is_rejected() {
    assert_eq!(kind_of(history(), 3, content(3, 4)), ViolationKind::NeverWritten { found: 4 });
    assert_eq!(kind_of(history(), 0, content(0, 1)), ViolationKind::NeverWritten { found: 1 });
}

/// A read decides: the register never goes back, nor does what it had lost come again.
#[test]
fn what_a_read_found_holds() {
    let mut seen_new = history();
    seen_new.judge(3, content(3, 3)).unwrap();
    assert_eq!(kind_of(seen_new, 3, content(3, 2)), ViolationKind::Lost { found: 2 });
    let mut seen_old = history();
    seen_old.judge(3, content(3, 2)).unwrap();
    assert_eq!(kind_of(seen_old.clone(), 3, content(3, 3)), ViolationKind::NeverWritten { found: 3 });
    assert_eq!(seen_old.issue(3).sequence, 4, "no sequence is given twice");
    seen_old.abandoned(3);
    assert_eq!(kind_of(seen_old.clone(), 3, content(3, 3)), ViolationKind::NeverWritten { found: 3 });
    assert_eq!(seen_old.judge(3, content(3, 4)), Ok(()));
}

#[test]
fn an_answered_write_supersedes_those_that_failed_before() {
    let mut history = history();
    history.issue(3);
    history.answered(3);
    assert_eq!(kind_of(history.clone(), 3, content(3, 3)), ViolationKind::Lost { found: 3 });
    assert_eq!(history.judge(3, content(3, 4)), Ok(()));
    assert_eq!(history.answered_writes(), 3);
}

#[test]
#[should_panic(expected = "two writes of block 3")]
fn two_writes_of_a_block_are_never_under_way() {
    let mut history = history();
    history.issue(3);
    history.issue(3);
}

#[test]
fn violations_say_what_was_found_and_what_was_expected() {
    let text = history().judge(3, content(3, 1)).unwrap_err().to_string();
    assert_eq!(text, "block 3: write 1; write 2 was answered, [3] were asked for");
}
