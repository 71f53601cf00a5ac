use super::*;

/// When healing begins if it is asked for at each full second from `since_s` on, and never heals all.
fn begins_s(lost: &mut LostPages, since_s: u64, legs_promoted: u64, count: usize) -> Vec<u64> {
    let mut begins = Vec::new();
    for second in since_s.. {
        let now = Instant::from_nanoseconds(second * 1_000_000_000);
        if lost.is_begun(now, legs_promoted) {
            assert!(!lost.is_begun(now, legs_promoted + 1), "one at a time");
            lost.end(now, true);
            begins.push(second - since_s);
        }
        if begins.len() == count {
            break;
        }
    }
    begins
}

#[test]
fn what_cannot_be_healed_is_tried_more_and_more_rarely_until_another_leg_is_in_sync() {
    let mut lost = LostPages::default();
    assert!(!lost.is_begun(Instant::from_nanoseconds(0), 0), "nothing is lost");
    lost.pages.insert((SlabIndex(0), 7));
    assert_eq!(begins_s(&mut lost, 0, 0, 11), [0, 2, 6, 14, 30, 62, 126, 254, 510, 810, 1110]);
    assert_eq!(begins_s(&mut lost, 1111, 1, 4), [0, 2, 6, 14]);
}

#[test]
fn what_no_leg_in_sync_has_waits_for_another_one() {
    let mut lost = LostPages::default();
    lost.pages.insert((SlabIndex(0), 7));
    let at = |second: u64| Instant::from_nanoseconds(second * 1_000_000_000);
    assert!(lost.is_begun(at(0), 0));
    lost.end(at(0), false);
    assert!(!lost.is_begun(at(10_000), 0));
    assert!(lost.is_begun(at(10_000), 1));
}

#[test]
fn the_worst_loss_of_several_blocks_counts() {
    let (hole, data, lost) = (BlockState::Hole, BlockState::Data(5), BlockState::Lost);
    assert!(Loss::of(Some(&[vec![hole, data], vec![hole, data]])) == Loss::Nothing);
    assert!(Loss::of(Some(&[vec![hole, lost], vec![hole, lost]])) == Loss::Everywhere);
    assert!(Loss::of(Some(&[vec![lost, lost], vec![hole, lost]])) == Loss::OnSome);
    assert!(Loss::of(None) == Loss::Unknown);
}
