use super::*;

fn drive(number: u8) -> DriveId {
    DriveId::from_bytes([number; 16])
}

/// With room for all drives, or for none.
fn cache(number: u8, share: u32, has_room: bool, drives: &[(u8, u32)]) -> Bound {
    let drives = drives.iter().map(|(number, chunks)| (drive(*number), *chunks)).collect();
    let all: BTreeSet<DriveId> = (0..10).map(drive).collect();
    let has_room_for = if has_room { all.clone() } else { BTreeSet::new() };
    Bound { cache: drive(number), share, drives, has_room_for, has_share_for: all }
}

fn to(number: u8, target: u8) -> (DriveId, Option<DriveId>) {
    (drive(number), Some(drive(target)))
}

fn gives_way(number: u8) -> (DriveId, Option<DriveId>) {
    (drive(number), None)
}

#[test]
fn what_is_even_stays() {
    assert_eq!(next(&[], &[drive(1)]), [], "there is no cache drive");
    assert_eq!(next(&[cache(9, 50, false, &[(1, 50), (2, 50)])], &[]), []);
    let caches = [cache(8, 50, false, &[(1, 50), (2, 50)]), cache(9, 50, true, &[(3, 50)])];
    assert_eq!(next(&caches, &[]), [], "three drives on two cache drives are never more even");
}

#[test]
fn drives_that_are_bound_to_none_get_what_is_free() {
    let caches = [cache(9, 50, true, &[(1, 50)])];
    assert_eq!(next(&caches, &[drive(2), drive(3)]), [to(2, 9), to(3, 9)], "each of them alone is a step");
}

#[test]
fn who_has_more_than_his_share_gives_way_to_who_has_none() {
    assert_eq!(next(&[cache(9, 50, false, &[(1, 100)])], &[drive(2)]), [gives_way(1)]);
    let caches = [cache(9, 33, false, &[(1, 40), (2, 60)])];
    assert_eq!(next(&caches, &[drive(3)]), [gives_way(2), gives_way(1)], "the largest first");
    assert_eq!(
        next(&[cache(9, 50, false, &[(1, 50), (2, 50)])], &[drive(3)]),
        [],
        "all have no more than that"
    );
}

#[test]
fn a_new_cache_drive_takes_drives_over() {
    let caches = [cache(8, 50, false, &[(1, 25), (2, 25), (3, 25), (4, 25)]), cache(9, 50, true, &[])];
    assert_eq!(next(&caches, &[]), [to(4, 9), to(3, 9), to(2, 9), to(1, 9)]);
}

/// A share is too little for its journal.
#[test]
fn a_drive_that_is_too_large_keeps_nothing_from_others_and_takes_nothing_from_them() {
    let too_large = drive(3);
    let full =
        Bound { has_share_for: [1, 2, 4].map(drive).into(), ..cache(9, 33, false, &[(1, 50), (2, 50)]) };
    assert_eq!(next(std::slice::from_ref(&full), &[too_large]), []);
    assert_eq!(next(std::slice::from_ref(&full), &[too_large, drive(4)]), [gives_way(1), gives_way(2)]);
    let free = Bound { has_room_for: [1, 2, 4].map(drive).into(), ..full.clone() };
    assert_eq!(next(&[free], &[too_large, drive(4)]), [to(4, 9)]);
    let alone = Bound { has_share_for: [2, 3].map(drive).into(), ..full };
    assert_eq!(next(&[alone], &[too_large]), [gives_way(2)], "the other one would have none then");
}
