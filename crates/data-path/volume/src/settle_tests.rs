use spandrel_shared::NodeId;

use super::*;

fn drive(number: u8) -> DriveId {
    DriveId::from_bytes([number; 16])
}

fn comparison(newest: &[(u8, u32)], differences: &[(u8, u8, &str)]) -> Comparison {
    let difference = |text: &str| Difference {
        first_is_newer: text.contains('1'),
        second_is_newer: text.contains('2'),
        same_version: text.contains('='),
        may_differ: text.contains('?'),
    };
    Comparison {
        newest: newest.iter().map(|(one, epoch)| (drive(*one), Epoch(*epoch))).collect(),
        differences: differences
            .iter()
            .map(|(one, other, text)| ((drive(*one), drive(*other)), difference(text)))
            .collect(),
    }
}

#[test]
fn the_later_ownership_is_right_then_the_newer_page() {
    let losers = |newest: &[(u8, u32)], differences: &[(u8, u8, &str)]| {
        let losers = comparison(newest, differences).losers();
        losers.map(|losers| losers.iter().map(|drive| drive.to_bytes()[0]).collect::<Vec<_>>()).ok()
    };
    assert_eq!(losers(&[(1, 5), (2, 5)], &[]), Some(vec![]));
    assert_eq!(losers(&[(1, 5), (2, 5)], &[(1, 2, "1")]), Some(vec![2]));
    assert_eq!(losers(&[(1, 5), (2, 5)], &[(1, 2, "2")]), Some(vec![1]));
    assert_eq!(losers(&[(1, 5), (2, 6)], &[(1, 2, "1")]), Some(vec![1]), "a write that was never answered");
    assert_eq!(losers(&[(1, 6), (2, 5)], &[(1, 2, "12=")]), Some(vec![2]));
    assert_eq!(losers(&[(1, 5), (2, 5)], &[(1, 2, "1?")]), Some(vec![2]));
    // A write that was never answered may be all that the later ownership has done.
    assert_eq!(losers(&[(1, 5), (2, 6)], &[(1, 2, "?")]), None);
    for unclear in ["12", "=", "1=", "2=", "?"] {
        assert_eq!(losers(&[(1, 5), (2, 5)], &[(1, 2, unclear)]), None, "{unclear}");
    }
    // A third one that is newer than both decides what the two cannot.
    assert_eq!(
        losers(&[(1, 5), (2, 5), (3, 6)], &[(1, 2, "12"), (1, 3, "2"), (2, 3, "2")]),
        Some(vec![1, 2])
    );
    assert_eq!(losers(&[(1, 5), (2, 5), (3, 6)], &[(1, 2, "12"), (1, 3, "2")]), Some(vec![1]));
}

#[test]
fn what_one_copy_has_lost_or_the_take_over_makes_the_same_is_no_difference() {
    let member = |number: u8| Member {
        shard: ShardId::first(NodeId::from_bytes([number; 16])),
        drive: drive(number),
        copy: spandrel_shared::CopyId::from_bytes([number; 16]),
        part: number,
        is_building: false,
    };
    let members = [member(2), member(1)];
    let [newer, older] = [Version::new(Epoch(1), 7), Version::new(Epoch(1), 6)];
    let at = |versions: [Version; 2],
              first: [BlockState; 2],
              second: [BlockState; 2],
              in_question: Option<usize>| {
        let mut comparison = Comparison::default();
        let states = [first.to_vec(), second.to_vec()];
        note_differences(&members, &versions, &states, |block| Some(block) != in_question, &mut comparison);
        comparison.differences
    };
    let of = |first, second, in_question| at([newer, older], first, second, in_question);
    let (hole, data, other, lost) =
        (BlockState::Hole, BlockState::Data(5), BlockState::Data(6), BlockState::Lost);
    assert!(of([hole, data], [hole, data], None).is_empty());
    assert!(at([newer, newer], [hole, data], [hole, lost], None).is_empty());
    assert!(of([hole, data], [hole, other], Some(1)).is_empty());
    let found = of([hole, data], [hole, other], Some(0));
    // In the order of the drives, whatever that of the members is.
    let expected = Difference { second_is_newer: true, ..Difference::default() };
    assert_eq!(found, BTreeMap::from([((drive(1), drive(2)), expected)]));

    // What was there on the older one may be what the lost block took the place of.
    assert_eq!(of([hole, lost], [hole, data], None), found);
    assert_eq!(of([hole, data], [hole, lost], None), found);
    assert!(of([hole, lost], [hole, lost], None).is_empty());
    let may_differ = Difference { may_differ: true, ..Difference::default() };
    for in_question in [0, 1] {
        let of_both = of([hole, lost], [hole, data], Some(in_question));
        assert_eq!(of_both, BTreeMap::from([((drive(1), drive(2)), may_differ)]));
    }
}
