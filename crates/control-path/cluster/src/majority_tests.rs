use super::*;

fn node(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

fn nodes(numbers: &[u8]) -> BTreeSet<NodeId> {
    numbers.iter().map(|number| node(*number)).collect()
}

/// A cluster that has been running for long, in which everybody alive was seen.
fn judge(own: u8, alive: &[u8], reachable: &[u8], holder: u8) -> Verdict {
    let (alive, reachable) = (nodes(alive), nodes(reachable));
    let surroundings = Surroundings {
        own: node(own),
        alive: &alive,
        reachable: &reachable,
        seen: &alive,
        running_for: Duration::from_secs(3600),
    };
    may_mark(&surroundings, node(holder))
}

#[test]
fn most_of_the_living_are_needed_itself_counted() {
    let most = |reached, alive| Verdict::Allowed(Reason::ReachesMost { reached, alive });
    assert_eq!(judge(1, &[1, 2, 3], &[2], 3), most(2, 3));
    assert_eq!(judge(1, &[1, 2, 3, 4], &[2, 3], 4), most(3, 4));
    assert_eq!(judge(1, &[1, 2, 3, 4, 5], &[1, 2, 3], 4), most(3, 5), "itself is not counted twice");
    assert_eq!(judge(1, &[1], &[], 2), most(1, 1), "the others' entries have expired");
    assert_eq!(judge(1, &[1, 2], &[2], 2), most(2, 2), "a drive of a node that answers");
    assert_eq!(judge(1, &[1, 2, 3], &[2, 3], 1), most(3, 3), "a drive of its own");
    let too_few = |reached, alive, silent: &[u8]| {
        let silent = silent.iter().map(|number| node(*number)).collect();
        Verdict::Wait(Reason::ReachesTooFew { reached, alive, silent })
    };
    assert_eq!(judge(1, &[1, 2, 3], &[], 2), too_few(1, 3, &[2, 3]));
    assert_eq!(judge(1, &[1, 2, 3, 4], &[2], 3), too_few(2, 4, &[3, 4]), "half is not most");
    assert_eq!(judge(1, &[1, 2, 3], &[7, 8, 9], 2), too_few(1, 3, &[2, 3]), "the dead do not count");
}

#[test]
fn of_two_nodes_the_transaction_decides() {
    let expected = Verdict::Allowed(Reason::TransactionDecides { other: node(2) });
    assert_eq!(judge(1, &[1, 2], &[], 2), expected);
}

#[test]
fn a_node_whose_entry_expired_marks_nobody() {
    assert_eq!(judge(1, &[2, 3], &[2, 3], 2), Verdict::Wait(Reason::OwnEntryExpired));
    assert_eq!(judge(1, &[], &[], 2), Verdict::Wait(Reason::OwnEntryExpired));
}

#[test]
fn who_was_not_seen_since_the_start_gets_a_grace() {
    let (alive, seen) = (nodes(&[1]), nodes(&[1, 2]));
    let after = |running_for, holder| {
        let reachable = &BTreeSet::new();
        may_mark(
            &Surroundings { own: node(1), alive: &alive, reachable, seen: &seen, running_for },
            node(holder),
        )
    };
    let start = Duration::from_secs(1);
    assert!(after(start, 2).is_allowed(), "seen, and gone since");
    let waits = Verdict::Wait(Reason::NotYetSeen { node: node(3), remaining: START_GRACE - start });
    assert_eq!(after(start, 3), waits);
    assert!(!after(START_GRACE - Duration::from_nanos(1), 3).is_allowed());
    assert!(after(START_GRACE, 3).is_allowed());
}

#[test]
fn reasons_are_sentences_with_the_numbers() {
    let text = judge(1, &[1, 2, 3, 4], &[2], 3).reason().to_string();
    assert!(text.contains("reaches 2 of 4 living nodes, itself counted, and needs 3"), "{text}");
    assert!(text.ends_with(&format!("of: {} {}", node(3), node(4))), "{text}");
    let waiting = Reason::NotYetSeen { node: node(3), remaining: Duration::from_millis(1001) };
    assert!(waiting.to_string().ends_with("2 s longer"), "{waiting}");
}

/// All ways in which up to five living nodes can reach each other, with links that break in both
/// directions: sides that do not reach each other at all never both mark, two nodes excepted.
#[test]
fn of_separate_sides_at_most_one_marks() {
    let mut marking_sides = 0;
    for count in 1..=5_u8 {
        let alive: Vec<u8> = (1..=count).collect();
        // Each node is put on one of three sides.
        for sides in 0..3_u32.pow(u32::from(count)) {
            let side_of = |number: u8| sides / 3_u32.pow(u32::from(number - 1)) % 3;
            let marks = |own: u8| {
                let reachable: Vec<u8> =
                    alive.iter().copied().filter(|other| side_of(*other) == side_of(own)).collect();
                judge(own, &alive, &reachable, own).is_allowed()
            };
            let marking: BTreeSet<u32> =
                alive.iter().copied().filter(|own| marks(*own)).map(side_of).collect();
            assert!(marking.len() <= 1 || count == 2, "{count} nodes, sides {sides}: {marking:?}");
            marking_sides += marking.len();
        }
    }
    assert!(marking_sides > 100);
}
