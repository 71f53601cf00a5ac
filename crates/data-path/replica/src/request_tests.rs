use super::*;

fn version(counter: u64) -> Version {
    Version::new(Epoch(2), counter)
}

fn mark(counter: u64, exceptions: &[u64]) -> Mark {
    Mark {
        version: version(counter),
        exceptions: exceptions.iter().map(|counter| version(*counter)).collect(),
    }
}

#[test]
fn a_mark_covers_what_is_not_above_it_and_no_exception() {
    let mark = mark(9, &[4, 7]);
    let covered: Vec<u64> = (1..12).filter(|counter| mark.covers(version(*counter))).collect();
    assert_eq!(covered, [1, 2, 3, 5, 6, 8, 9]);
}

#[test]
fn all_is_complete_up_to_the_first_exception() {
    assert_eq!(mark(9, &[]).complete_up_to(), version(9));
    assert_eq!(mark(9, &[4, 7]).complete_up_to(), version(3));
    assert_eq!(mark(9, &[0]).complete_up_to(), version(0), "the first of an epoch");
}

#[test]
fn of_two_marks_the_one_that_says_more_counts() {
    assert_eq!(mark(9, &[]).newest(mark(8, &[])), mark(9, &[]));
    assert_eq!(mark(8, &[]).newest(mark(9, &[4])), mark(9, &[4]));
    assert_eq!(mark(9, &[4, 7]).newest(mark(9, &[7])), mark(9, &[7]));
    assert_eq!(mark(9, &[7]).newest(mark(9, &[4, 7])), mark(9, &[7]));
}

#[test]
fn an_error_says_what_it_is_about() {
    assert!(ReplicaError::Fenced { epoch: Epoch(7) }.to_string().contains('7'));
    assert!(ReplicaError::DriveFailed("EIO".to_owned()).to_string().contains("EIO"));
}
