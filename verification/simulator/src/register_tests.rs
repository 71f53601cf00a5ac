use proptest::prelude::*;

use super::*;

/// Tries all orders: the definition of linearizability, for a handful of operations.
fn check_by_trying(operations: &[Operation]) -> bool {
    fn search(left: &mut Vec<Operation>, current: u64) -> bool {
        if left.iter().all(|operation| operation.end.is_none()) {
            return true;
        }
        for index in 0..left.len() {
            let operation = left[index];
            // Another one that ended before this began must come first.
            let must_wait = left.iter().any(|other| other.end.is_some_and(|end| end < operation.start));
            if must_wait || (!operation.is_write && operation.value != current) {
                continue;
            }
            left.remove(index);
            let next = if operation.is_write { operation.value } else { current };
            let found = search(left, next);
            left.insert(index, operation);
            if found {
                return true;
            }
        }
        false
    }
    let relevant = operations.iter().filter(|operation| operation.is_write || operation.end.is_some());
    search(&mut relevant.copied().collect(), 0)
}

fn operation() -> impl Strategy<Value = (bool, u64, u64, Option<u64>)> {
    (any::<bool>(), 0u64..4, 1u64..16, prop::option::weighted(0.85, 0u64..8))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn agrees_with_trying_all_orders(shapes in prop::collection::vec(operation(), 1..7)) {
        let mut operations = Vec::new();
        let mut next_value = 1;
        for (is_write, value, start, length) in shapes {
            // Moments are made distinct, as they are in a world with one clock.
            let start = start * 16 + operations.len() as u64;
            let end = length.map(|length| start + length * 16 + 8);
            let value = if is_write { next_value } else { value };
            next_value += u64::from(is_write);
            operations.push(Operation { value, is_write, start, end });
        }
        let expected = check_by_trying(&operations);
        prop_assert_eq!(check(&operations).is_ok(), expected, "{:?}", operations);
    }
}

#[test]
fn a_lost_write_and_a_flickering_one_are_seen() {
    let write = |value, start, end| Operation { value, is_write: true, start, end };
    let read = |value, start, end| Operation { value, is_write: false, start, end: Some(end) };
    assert!(check(&[write(1, 1, Some(2)), read(0, 3, 4)]).is_err(), "an answered write is lost");
    assert!(check(&[write(1, 1, None), read(0, 3, 4), read(1, 5, 6)]).is_ok(), "an open one may come late");
    assert!(check(&[write(1, 1, None), read(1, 3, 4), read(0, 5, 6)]).is_err(), "it may not go again");
    assert_eq!(check(&[read(7, 1, 2)]), Err(Violation::FromNowhere { value: 7 }));
}
