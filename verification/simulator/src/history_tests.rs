use super::*;

/// A write of whole sectors that was answered.
fn written(history: &History, sectors: Range<u64>, value: u64) {
    let number = history.begin_write(sectors, value);
    history.end_write(number);
}

/// The bytes of sectors that hold these values.
fn bytes(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes().repeat(SECTOR_BYTES / 8)).collect()
}

/// A read that saw these values, one for each sector from `first` on.
fn seen(history: &History, first: u64, values: &[u64]) {
    let number = history.begin_read(first..first + values.len() as u64);
    history.end_read(number, [&bytes(values)[..]]).expect("no sector is torn");
}

fn sector_of(history: &History) -> u64 {
    history.check().expect_err("the history is impossible").sector
}

#[test]
fn what_was_written_is_read_wherever_a_request_ends() {
    let history = History::default();
    seen(&history, 0, &[0; 24]);
    written(&history, 0..16, 1);
    written(&history, 8..24, 2);
    seen(&history, 0, &[1; 8]);
    seen(&history, 4, &[1, 1, 1, 1, 2, 2, 2, 2]);
    seen(&history, 15, &[2; 9]);
    assert_eq!(history.check(), Ok(()));
    assert_eq!((history.count(), history.answered()), (6, 6));
}

#[test]
fn an_answered_write_that_is_lost_is_found() {
    let history = History::default();
    written(&history, 0..24, 1);
    written(&history, 0..24, 2);
    seen(&history, 0, &[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(sector_of(&history), 16, "the third block");
}

#[test]
fn a_torn_sector_is_found() {
    let mut torn = bytes(&[5]);
    torn[256..].copy_from_slice(&bytes(&[6])[256..]);
    let what = value_of(&torn).expect_err("two values in one sector");
    assert!(what.contains("value 5") && what.contains("6") && what.contains("byte 256"), "{what}");
    assert_eq!(value_of(&bytes(&[5, 5])), Ok(5));
    let history = History::default();
    let number = history.begin_read(0..1);
    assert!(history.end_read(number, [&torn[..]]).is_err());
    let mut one_bit = bytes(&[5]);
    one_bit[511] ^= 1;
    assert!(value_of(&one_bit).is_err());
}

#[test]
fn a_read_of_another_length_is_found() {
    let history = History::default();
    let number = history.begin_read(0..2);
    assert!(history.end_read(number, [&bytes(&[0])[..]]).is_err());
}

/// Each sector for itself saw one of two writes at the same time: only the block shows it.
#[test]
fn a_torn_block_is_found() {
    let history = History::default();
    let (one, two) = (history.begin_write(0..8, 1), history.begin_write(0..8, 2));
    history.end_write(one);
    history.end_write(two);
    seen(&history, 0, &[1, 1, 1, 1, 1, 2, 2, 2]);
    let found = history.check().expect_err("it is torn");
    assert!(found.what.contains("torn"), "{found}");
}

#[test]
fn two_blocks_of_one_write_may_come_apart() {
    let history = History::default();
    let (one, two) = (history.begin_write(0..16, 1), history.begin_write(0..16, 2));
    history.end_write(one);
    history.end_write(two);
    seen(&history, 0, &[1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!(history.check(), Ok(()));
}

#[test]
fn a_write_of_a_part_changes_that_part_alone() {
    let history = History::default();
    written(&history, 0..8, 1);
    written(&history, 2..4, 2);
    seen(&history, 0, &[1, 1, 2, 2, 1, 1, 1, 1]);
    assert_eq!(history.check(), Ok(()));
    seen(&history, 0, &[1, 1, 2, 2, 2, 1, 1, 1]);
    assert_eq!(sector_of(&history), 4, "it was never written there");
}

#[test]
fn a_write_of_a_part_that_is_lost_is_found() {
    let history = History::default();
    written(&history, 0..8, 1);
    written(&history, 2..4, 2);
    seen(&history, 0, &[1; 8]);
    assert_eq!(sector_of(&history), 2);
}

/// Reading, changing and writing the block must not bring a neighbour's older content back.
#[test]
fn a_write_of_a_part_that_takes_its_neighbour_back_is_found() {
    let history = History::default();
    written(&history, 0..8, 1);
    written(&history, 0..1, 2);
    written(&history, 1..2, 3);
    seen(&history, 0, &[1, 3, 1, 1, 1, 1, 1, 1]);
    assert_eq!(sector_of(&history), 0);
}

#[test]
fn a_part_over_a_write_at_the_same_time_is_not_torn() {
    let history = History::default();
    let (whole, part) = (history.begin_write(0..8, 1), history.begin_write(2..4, 2));
    history.end_write(whole);
    history.end_write(part);
    seen(&history, 0, &[1, 1, 2, 2, 1, 1, 1, 1]);
    assert_eq!(history.check(), Ok(()));
    // The part is there, so the whole came before it: its sectors cannot show what the part replaced.
    seen(&history, 0, &[1, 1, 2, 1, 1, 1, 1, 1]);
    assert!(history.check().is_err());
}

#[test]
fn the_value_of_a_refused_write_is_never_seen() {
    let history = History::default();
    let number = history.begin_write(0..8, 1);
    history.refuse(number);
    seen(&history, 0, &[0; 8]);
    assert_eq!(history.check(), Ok(()));
    seen(&history, 0, &[1; 8]);
    assert_eq!(sector_of(&history), 0);
}

#[test]
fn an_unanswered_write_may_take_effect_once() {
    let history = History::default();
    history.begin_write(0..8, 1);
    seen(&history, 0, &[0; 8]);
    seen(&history, 0, &[1; 8]);
    assert_eq!(history.check(), Ok(()));
    seen(&history, 0, &[0; 8]);
    assert_eq!(sector_of(&history), 0, "it does not go away again");
}

#[test]
fn a_repeated_write_may_take_effect_until_it_is_answered() {
    let history = History::default();
    let repeated = history.begin_write(0..8, 1);
    written(&history, 0..8, 2);
    history.repeat_write(repeated);
    seen(&history, 0, &[2; 8]);
    history.end_write(repeated);
    seen(&history, 0, &[1; 8]);
    assert_eq!(history.check(), Ok(()));
    assert_eq!((history.count(), history.answered(), history.repeated()), (4, 4, 1));
}

#[test]
fn a_repeated_write_may_replace_what_replaced_it() {
    let history = History::default();
    let repeated = history.begin_write(0..8, 1);
    seen(&history, 0, &[1; 8]);
    written(&history, 0..8, 2);
    seen(&history, 0, &[2; 8]);
    history.repeat_write(repeated);
    seen(&history, 0, &[1; 8]);
    history.end_write(repeated);
    assert_eq!(history.check(), Ok(()));
}

#[test]
fn a_repeated_write_that_nobody_sees_may_have_been_done_once() {
    let history = History::default();
    let repeated = history.begin_write(0..8, 1);
    history.repeat_write(repeated);
    history.repeat_write(repeated);
    written(&history, 0..8, 2);
    history.end_write(repeated);
    seen(&history, 0, &[2; 8]);
    assert_eq!(history.check(), Ok(()));
}

/// The first node was held up, and carries the write out when its repetition was answered by another one.
#[test]
fn a_repeated_write_that_comes_late_is_found() {
    let history = History::default();
    let repeated = history.begin_write(0..8, 1);
    history.repeat_write(repeated);
    history.end_write(repeated);
    written(&history, 0..8, 2);
    seen(&history, 0, &[2; 8]);
    seen(&history, 0, &[1; 8]);
    assert_eq!(sector_of(&history), 0);
}

#[test]
fn a_repeated_write_that_was_answered_is_there() {
    let history = History::default();
    let repeated = history.begin_write(0..8, 1);
    history.repeat_write(repeated);
    history.end_write(repeated);
    seen(&history, 0, &[0; 8]);
    assert_eq!(sector_of(&history), 0);
}

#[test]
fn what_was_trimmed_stays_away() {
    let history = History::default();
    written(&history, 0..16, 1);
    written(&history, 8..16, 0);
    seen(&history, 0, &[1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(history.check(), Ok(()));
    seen(&history, 8, &[1; 8]);
    assert_eq!(sector_of(&history), 8);
}

#[test]
fn a_trim_that_nobody_asked_for_is_found() {
    let history = History::default();
    written(&history, 0..8, 1);
    seen(&history, 0, &[0; 8]);
    assert_eq!(sector_of(&history), 0);
}

#[test]
fn an_unanswered_trim_may_take_effect_later() {
    let history = History::default();
    written(&history, 0..8, 1);
    history.begin_write(0..8, 0);
    seen(&history, 0, &[1; 8]);
    seen(&history, 0, &[0; 8]);
    assert_eq!(history.check(), Ok(()));
    seen(&history, 0, &[1; 8]);
    assert_eq!(sector_of(&history), 0);
}

#[test]
fn what_was_touched_is_listed_once() {
    let history = History::default();
    written(&history, 16..24, 1);
    written(&history, 0..8, 2);
    history.begin_read(4..12);
    history.begin_write(24..25, 3);
    assert_eq!(history.touched(), [0..12, 16..25]);
}

#[test]
fn values_are_never_given_out_twice() {
    let history = History::default();
    let (one, two) = (history.value(), history.value());
    assert!(one > 0 && two > one);
    assert_eq!(history.newest_value(), two);
}
