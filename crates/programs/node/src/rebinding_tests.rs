use super::*;

fn drive(number: u8) -> DriveId {
    DriveId::from_bytes([number; 16])
}

fn cache(number: u8, share: u32, free_chunks: u32, drives: &[(u8, u32)]) -> Bound {
    let drives = drives.iter().map(|(number, chunks)| (drive(*number), *chunks)).collect();
    Bound { cache: drive(number), share, free_chunks, drives }
}

#[test]
fn what_is_even_stays() {
    assert_eq!(next(&[], &[drive(1)]), None, "there is no cache drive");
    assert_eq!(next(&[cache(9, 50, 0, &[(1, 50), (2, 50)])], &[]), None);
    let caches = [cache(8, 50, 0, &[(1, 50), (2, 50)]), cache(9, 50, 50, &[(3, 50)])];
    assert_eq!(next(&caches, &[]), None, "three drives on two cache drives are never more even");
}

#[test]
fn a_drive_that_is_bound_to_none_gets_what_is_free() {
    assert_eq!(next(&[cache(9, 50, 50, &[(1, 50)])], &[drive(2)]), Some((drive(2), Some(drive(9)))));
}

#[test]
fn who_has_more_than_his_share_gives_way_to_who_has_none() {
    assert_eq!(next(&[cache(9, 50, 0, &[(1, 100)])], &[drive(2)]), Some((drive(1), None)));
    let caches = [cache(9, 33, 0, &[(1, 60), (2, 40)])];
    assert_eq!(next(&caches, &[drive(3)]), Some((drive(1), None)), "the largest first");
    assert_eq!(
        next(&[cache(9, 50, 0, &[(1, 50), (2, 50)])], &[drive(3)]),
        None,
        "all have no more than that"
    );
}

#[test]
fn a_new_cache_drive_takes_drives_over() {
    let caches = [cache(8, 50, 0, &[(1, 25), (2, 25), (3, 25), (4, 25)]), cache(9, 50, 100, &[])];
    assert_eq!(next(&caches, &[]), Some((drive(4), Some(drive(9)))));
}
