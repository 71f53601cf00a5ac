use proptest::prelude::*;
use spandrel_platform_simulated::Random;

use super::*;

fn write(value: u64, start: Moment, end: Moment) -> Operation {
    Operation { value, is_write: true, start, end: Some(end) }
}

fn unanswered_write(value: u64, start: Moment) -> Operation {
    Operation { value, is_write: true, start, end: None }
}

fn read(value: u64, start: Moment, end: Moment) -> Operation {
    Operation { value, is_write: false, start, end: Some(end) }
}

/// Tries all orders: the definition of linearizability, for a handful of operations.
fn is_linearizable(operations: &[Operation]) -> bool {
    /// `done` is the set of the operations that come first, `refused` what was tried in vain.
    fn search(
        operations: &[Operation],
        done: usize,
        current: u64,
        refused: &mut BTreeSet<(usize, u64)>,
    ) -> bool {
        let left = || operations.iter().enumerate().filter(|(index, _)| done & (1 << index) == 0);
        if left().all(|(_, operation)| operation.end.is_none()) {
            return true;
        }
        // Who began after another one had ended must come later than that.
        let first_end = left().filter_map(|(_, operation)| operation.end).min().unwrap_or(Moment::MAX);
        let found = !refused.contains(&(done, current))
            && left().any(|(index, operation)| {
                let possible =
                    operation.start < first_end && (operation.is_write || operation.value == current);
                possible && search(operations, done | (1 << index), operation.value, refused)
            });
        if !found {
            refused.insert((done, current));
        }
        found
    }
    let counts = |operation: &&Operation| operation.is_write || operation.end.is_some();
    let operations: Vec<Operation> = operations.iter().filter(counts).copied().collect();
    search(&operations, 0, 0, &mut BTreeSet::new())
}

/// What had begun before the moment, with the answers until then.
fn until(operations: &[Operation], moment: Moment) -> Vec<Operation> {
    let begun = operations.iter().filter(|operation| operation.start < moment);
    begun
        .map(|operation| Operation { end: operation.end.filter(|end| *end < moment), ..*operation })
        .collect()
}

/// Compares with trying all orders, and what is said of a violation as well.
fn compare(operations: &[Operation]) -> Result<bool, TestCaseError> {
    let verdict = check(operations);
    prop_assert_eq!(verdict.is_ok(), is_linearizable(operations), "{:?}, {:?}", verdict, operations);
    let Err(violation) = verdict else { return Ok(true) };
    let (Violation::FromNowhere { read } | Violation::Conflict { read, .. }) = violation;
    let end = read.end.expect("only what was answered can be wrong");
    let before = until(operations, end);
    prop_assert!(is_linearizable(&before), "something before {:?} is wrong in {:?}", read, operations);
    let can_see = |value| {
        let mut operations = before.clone();
        operations.push(Operation { value, ..read });
        is_linearizable(&operations)
    };
    prop_assert!(!can_see(read.value), "{:?} is possible in {:?}", read, operations);
    let is_written = before.iter().any(|other| other.is_write && other.value == read.value);
    let Violation::Conflict { possible, .. } = violation else {
        prop_assert!(!is_written && read.value != 0, "{:?} was written in {:?}", read, operations);
        return Ok(false);
    };
    prop_assert!(is_written || read.value == 0, "nobody wrote for {:?} in {:?}", read, operations);
    let mut expected: BTreeSet<u64> =
        before.iter().map(|other| other.value).filter(|value| can_see(*value)).collect();
    expected.extend(Some(0).filter(|value| can_see(*value)));
    for value in &possible {
        let explains = |other: &Operation| {
            let is_write = other.is_write && other.start < end && other.end.is_some();
            other.value == *value && (is_write || other.end.is_some_and(|other| other < end))
        };
        prop_assert!(
            operations.iter().any(explains),
            "{} is listed for {:?} in {:?}",
            value,
            read,
            operations
        );
        prop_assert!(expected.remove(value), "{} is not possible for {:?} in {:?}", value, read, operations);
    }
    for value in expected {
        let is_unanswered = |other: &Operation| other.is_write && other.end.is_none() && other.start < end;
        let is_by_chance = operations.iter().any(|other| other.value == value && is_unanswered(other));
        let was_seen =
            before.iter().any(|other| other.value == value && !other.is_write && other.end.is_some());
        prop_assert!(is_by_chance && !was_seen, "{} is possible for {:?} in {:?}", value, read, operations);
    }
    Ok(false)
}

/// An operation before its moments are made distinct, as they are in a world with one clock.
#[derive(Clone, Debug)]
struct Shape {
    is_write: bool,
    value: u64,
    start: u64,
    length: u64,
    is_answered: bool,
    /// When it takes effect, in sixteenths of its length; an unanswered one also much later, or never.
    effect: u64,
}

impl Shape {
    fn operation(&self, index: u64) -> Operation {
        let start = self.start * 16 + index + 1;
        let end = Some(start + self.length * 16 + 8).filter(|_| self.is_answered);
        Operation { value: self.value, is_write: self.is_write, start, end }
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let what = (prop::bool::weighted(0.5), 0u64..4, prop::bool::weighted(0.8));
    (what, 0u64..16, 0u64..10, 0u64..16).prop_map(
        |((is_write, value, is_answered), start, length, effect)| Shape {
            is_write,
            value,
            start,
            length,
            is_answered,
            effect,
        },
    )
}

fn arbitrary_history() -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(shape(), 1..8)
        .prop_map(|shapes| shapes.iter().zip(0..).map(|(shape, index)| shape.operation(index)).collect())
}

/// What a register has seen.
fn true_history() -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(shape(), 2..9).prop_map(|shapes| {
        let mut operations: Vec<Operation> =
            shapes.iter().zip(0..).map(|(shape, index)| shape.operation(index)).collect();
        let mut effects: Vec<(u64, usize)> = Vec::new();
        for (index, (shape, operation)) in shapes.iter().zip(&operations).enumerate() {
            // The start and all that can happen in sixteen steps until the end, or in a longer time.
            let length = operation.end.map_or(400, |end| end - operation.start);
            if shape.is_answered || shape.effect < 12 {
                effects.push(((operation.start * 16) + length * shape.effect, index));
            }
        }
        effects.sort_unstable();
        let mut current = 0;
        for (_, index) in effects {
            if operations[index].is_write {
                current = operations[index].value;
            } else {
                operations[index].value = current;
            }
        }
        operations
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn agrees_with_trying_all_orders(operations in arbitrary_history()) {
        compare(&operations)?;
    }

    #[test]
    fn accepts_what_a_register_did_and_judges_one_wrong_read(
        mut operations in true_history(),
        index in any::<prop::sample::Index>(),
        wrong in 0u64..4,
    ) {
        prop_assert!(compare(&operations)?, "{:?}", operations);
        let reads: Vec<usize> = (0..operations.len()).filter(|index| !operations[*index].is_write).collect();
        if !reads.is_empty() {
            operations[reads[index.index(reads.len())]].value = wrong;
            compare(&operations)?;
        }
    }
}

#[test]
fn a_lost_write_is_seen() {
    let lost = read(0, 3, 4);
    let conflict = Violation::Conflict { read: lost, possible: vec![1] };
    assert_eq!(check(&[write(1, 1, 2), lost]), Err(conflict), "an answered write is lost");
    assert_eq!(check(&[write(1, 1, 2), read(1, 3, 4)]), Ok(()));
    assert_eq!(check(&[unanswered_write(1, 1), lost, read(1, 5, 6)]), Ok(()), "it may come late");
}

#[test]
fn a_read_that_flickers_is_seen() {
    let back = read(0, 5, 6);
    let conflict = Err(Violation::Conflict { read: back, possible: vec![1] });
    assert_eq!(check(&[unanswered_write(1, 1), read(1, 3, 4), back]), conflict, "it may not go again");
    assert_eq!(check(&[write(1, 1, 9), read(1, 3, 4), back]), conflict);
    // While the first read lasts both values are current, one after the other.
    assert_eq!(check(&[write(1, 1, 9), read(1, 3, 8), back]), Ok(()));
}

#[test]
fn a_value_from_nowhere_is_seen() {
    let foreign = read(7, 1, 2);
    assert_eq!(check(&[foreign]), Err(Violation::FromNowhere { read: foreign }));
    assert_eq!(check(&[foreign, write(7, 3, 4)]), Err(Violation::FromNowhere { read: foreign }));
    assert_eq!(check(&[read(7, 1, 4), write(7, 3, 5)]), Ok(()));
}

#[test]
fn an_unanswered_trim_takes_effect_late_but_once() {
    let trim = unanswered_write(0, 3);
    let history = [write(1, 1, 2), trim, write(2, 4, 5), read(2, 6, 7), read(0, 8, 9), write(3, 10, 11)];
    assert_eq!(check(&history), Ok(()));
    let again = read(0, 12, 13);
    let mut twice = history.to_vec();
    twice.push(again);
    assert_eq!(check(&twice), Err(Violation::Conflict { read: again, possible: vec![3] }));
    twice.push(unanswered_write(0, 1000));
    assert!(check(&twice).is_err(), "it began after the read");
    twice.push(unanswered_write(0, 0));
    assert_eq!(check(&twice), Ok(()), "there are two of them");
}

#[test]
fn equal_writes_are_used_in_the_order_of_their_ends() {
    // The one that ends first was seen first; the other must be left for the second read.
    let zeros = [write(0, 2, 20), write(0, 3, 9)];
    let others = [write(1, 1, 4), read(0, 5, 6), write(2, 7, 10), read(2, 11, 12), read(0, 13, 14)];
    assert_eq!(check(&[zeros.as_slice(), &others].concat()), Ok(()));
    assert!(check(&[&zeros[1..], &others].concat()).is_err());
}

/// What `count` operations of eight clients did to a register. Half of the writes write zero, and
/// one of ten is not answered: it took effect, will at some time, or never does.
fn long_history(random: &Random, count: usize) -> Vec<Operation> {
    #[derive(Clone, Copy)]
    struct Client {
        index: usize,
        is_done: bool,
    }
    let mut operations: Vec<Operation> = Vec::with_capacity(count);
    let mut clients: [Option<Client>; 8] = [None; 8];
    let mut adrift: Vec<u64> = Vec::new();
    let mut current = 0;
    for moment in 1.. {
        if !adrift.is_empty() && random.chance(20) {
            current = adrift.swap_remove(random.index(adrift.len()));
        }
        let client = &mut clients[random.index(8)];
        match client {
            None if operations.len() == count => break,
            None => {
                let is_write = random.chance(500);
                let value = if is_write && random.chance(500) { moment } else { 0 };
                *client = Some(Client { index: operations.len(), is_done: false });
                operations.push(Operation { value, is_write, start: moment, end: None });
            }
            Some(Client { index, is_done }) => {
                let operation = &mut operations[*index];
                let is_lost = operation.is_write && random.chance(50);
                if *is_done {
                    operation.end = Some(moment).filter(|_| !is_lost);
                    *client = None;
                } else if is_lost {
                    adrift.extend(Some(operation.value).filter(|_| random.chance(500)));
                    *client = None;
                } else if operation.is_write {
                    current = operation.value;
                    *is_done = true;
                } else {
                    operation.value = current;
                    *is_done = true;
                }
            }
        }
    }
    operations
}

#[test]
fn a_long_history_is_accepted_and_one_read_of_an_older_value_is_not() {
    for seed in 0..4 {
        let random = Random::new(seed);
        let mut operations = long_history(&random, 10_000);
        let is_lost_zero = |write: &&Operation| write.is_write && write.value == 0 && write.end.is_none();
        assert!(operations.iter().filter(is_lost_zero).count() > 100, "seed {seed}");
        assert_eq!(check(&operations), Ok(()), "seed {seed}");

        // The first value was overwritten long before a late read began.
        let is_first = |write: &&Operation| write.is_write && write.value != 0 && write.end.is_some();
        let old = operations.iter().find(is_first).unwrap().value;
        let late = 9_000 + random.index(500);
        let is_late = |other: &&mut Operation| !other.is_write && other.end.is_some();
        let wrong = operations[late..].iter_mut().find(is_late).unwrap();
        wrong.value = old;
        let wrong = *wrong;
        let Err(Violation::Conflict { read, .. }) = check(&operations) else {
            panic!("seed {seed}: an old value is accepted, or from nowhere");
        };
        assert_eq!(read, wrong, "seed {seed}");
    }
}
