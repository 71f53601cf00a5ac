use super::*;

const SIZE: u16 = 8;

/// Memory that a machine keeps, and two records of it, as of one process and of the next.
fn kept() -> (VhostUserInflight, File) {
    Record::create(2, SIZE).unwrap()
}

fn open(kept: &(VhostUserInflight, File)) -> QueueRecord {
    let record = Record::open(&kept.0, kept.1.try_clone().unwrap()).unwrap();
    record.of_queue(1, SIZE).unwrap()
}

#[test]
fn what_was_begun_and_not_ended_is_found_in_the_order_in_which_it_was_begun() {
    let kept = kept();
    let record = open(&kept);
    assert_eq!(record.recover(0), Vec::<u16>::new());
    for head in [5, 1, 7, 3] {
        record.begun(head);
    }
    record.ending(1);
    record.ended(1, 1);
    drop(record);
    let next = open(&kept);
    assert_eq!(next.recover(1), [5, 7, 3]);
    // What is begun later comes behind it.
    next.begun(0);
    next.ending(7);
    next.ended(7, 2);
    assert_eq!(open(&kept).recover(2), [5, 3, 0]);
    let other = Record::open(&kept.0, kept.1.try_clone().unwrap()).unwrap().of_queue(0, SIZE).unwrap();
    assert_eq!(other.recover(0), Vec::<u16>::new(), "each queue for itself");
}

#[test]
fn an_answer_that_the_guest_has_is_not_given_again_and_one_that_it_has_not_is() {
    for is_told in [false, true] {
        let kept = kept();
        let record = open(&kept);
        record.recover(40);
        record.begun(2);
        record.begun(4);
        record.ending(2);
        // Here the process ends; the answer is with the guest or not.
        drop(record);
        let used = if is_told { 41 } else { 40 };
        let expected: &[u16] = if is_told { &[4] } else { &[2, 4] };
        assert_eq!(open(&kept).recover(used), expected);
        assert_eq!(open(&kept).recover(used), expected, "to look changes nothing");
    }
}

#[test]
fn places_that_are_none_are_not_written_to() {
    let kept = kept();
    let record = open(&kept);
    record.recover(0);
    record.begun(SIZE);
    record.ending(SIZE);
    record.ended(SIZE, 1);
    assert_eq!(open(&kept).recover(1), Vec::<u16>::new());
}

#[test]
fn memory_that_was_not_made_here_is_refused() {
    let (described, file) = kept();
    let too_large = VhostUserInflight { queue_size: SIZE + 1, ..described };
    assert!(Record::open(&too_large, file.try_clone().unwrap()).is_err());
    let beyond = VhostUserInflight { mmap_offset: 4096, ..described };
    assert!(Record::open(&beyond, file.try_clone().unwrap()).is_err());
    let around = VhostUserInflight { mmap_offset: u64::MAX, ..described };
    assert!(Record::open(&around, file.try_clone().unwrap()).is_err());
    let nothing = VhostUserInflight { num_queues: 0, ..described };
    assert!(Record::open(&nothing, file.try_clone().unwrap()).is_err());
    let unsealed = tempfile::tempfile().unwrap();
    unsealed.set_len(described.mmap_size).unwrap();
    assert!(Record::open(&described, unsealed).is_err());
    let record = Record::open(&described, file).unwrap();
    assert!(record.of_queue(2, SIZE).is_none() && record.of_queue(0, SIZE + 1).is_none());
}
