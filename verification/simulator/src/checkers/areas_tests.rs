use spandrel_node::{CacheDriveReport, DriveReport};
use spandrel_shared::DriveId;

use super::*;
use crate::checkers::testing::{drive_id, report};

fn cache_id() -> DriveId {
    DriveId::from_random(7, 7)
}

/// A server whose drive is bound or not to a cache drive, which has an area for it or not.
fn server(is_bound: bool, has_area: bool) -> NodeReport {
    let bound_to = is_bound.then(cache_id);
    let drives = vec![DriveReport { drive: Some(drive_id(0)), bound_to, ..DriveReport::default() }];
    let bound = if has_area { vec![drive_id(0)] } else { Vec::new() };
    let caches = vec![CacheDriveReport { drive: Some(cache_id()), bound, ..CacheDriveReport::default() }];
    NodeReport { drives, caches, ..report(0, Vec::new()) }
}

#[test]
fn areas_without_a_drive_and_drives_without_an_area_are_found() {
    for as_it_must_be in [server(true, true), server(false, false), report(0, Vec::new())] {
        assert_eq!(check(&[as_it_must_be]), Ok(()));
    }
    let whole = server(true, true);
    let found = check(&[whole.clone(), server(false, true)]).unwrap_err();
    assert!(found.contains("keeps an area"), "{found}");
    let found = check(&[whole, server(true, false)]).unwrap_err();
    assert!(found.contains("has no area"), "{found}");
}

#[test]
fn what_does_not_work_says_nothing() {
    let mut server = server(false, true);
    server.caches[0].failure = Some("it is gone".to_owned());
    assert_eq!(check(&[server.clone()]), Ok(()));
    server.caches[0].failure = None;
    assert!(check(&[server.clone()]).is_err());
    server.drives[0].failure = Some("it cannot be read".to_owned());
    assert_eq!(check(&[server]), Ok(()));
}
