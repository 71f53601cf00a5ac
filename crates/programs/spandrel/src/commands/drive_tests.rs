use super::*;
use crate::admin::testing::{cache_id, cached_facts};

#[test]
fn a_file_is_no_disk_wherever_it_lies() {
    for file in ["/srv/d1.drive", "/dev/shm/d1.drive"] {
        assert!(is_file(file), "{file}");
    }
    for device in ["/dev/sdb", "/dev/disk/by-id/nvme-1", "memory-n1-d1"] {
        assert!(!is_file(device), "{device}");
    }
}

#[tokio::test]
async fn cache_drives_are_listed_with_how_they_are_and_for_whom_they_cache() {
    let caches = cached_facts().await.cache_drives();
    let list = render_caches(&caches);
    for words in ["CACHE DRIVE", "n1/c1", "Healthy", "40 KiB", "n1/d1"] {
        assert!(list.contains(words), "{list}");
    }
    assert_eq!(render_caches(&[]), "");
    let one = render_cache(&caches[0]);
    for words in ["caches for", "n1/d1", "/x/n1/c1.drive", "there alone"] {
        assert!(one.contains(words), "{one}");
    }
}

#[tokio::test]
async fn what_is_not_known_of_a_cache_drive_is_not_told_as_nothing() {
    let mut facts = cached_facts().await;
    facts.nodes[0].report = None;
    let caches = facts.cache_drives();
    let list = render_caches(&caches);
    assert!(list.contains("unknown") && !list.contains(" 0 B"), "{list}");
    let one = render_cache(&caches[0]);
    assert!(one.contains("there alone    unknown") && one.contains("may cache for  n1/d1"), "{one}");
}

#[test]
fn it_is_said_who_leaves_a_cache_drive() {
    let mut retired = DriveRetired {
        id: cache_id(),
        name: "n1/c1".to_owned(),
        role: DriveRole::Cache,
        copies_to_move: 0,
        slab_bytes: 0,
        warning: Some("it is the only one".to_owned()),
        leaving: vec!["n1/d1".to_owned()],
        dirty_bytes: Some(8192),
        at_stake: Vec::new(),
        was_retired: false,
        works: true,
    };
    let said = |retired: &DriveRetired, undo, dry_run| render_retired(retired, DriveRetire { undo, dry_run });
    let text = said(&retired, false, true);
    assert!(text.contains("can be retired: it is left by n1/d1, and 8 KiB"), "{text}");
    assert!(text.contains("warning: it is the only one"), "{text}");
    retired.leaving.clear();
    assert!(said(&retired, false, false).contains("is retired, and caches for no drive"));
    retired.at_stake.push("n1/d2".to_owned());
    let text = said(&retired, false, false);
    assert!(
        text.contains("is retired: nobody says whether something stands there alone for n1/d2"),
        "{text}"
    );
}

#[test]
fn only_what_was_retired_and_works_is_said_to_be_used_again() {
    let mut retired = DriveRetired {
        id: cache_id(),
        name: "n1/c1".to_owned(),
        role: DriveRole::Cache,
        copies_to_move: 0,
        slab_bytes: 0,
        warning: None,
        leaving: Vec::new(),
        dirty_bytes: None,
        at_stake: Vec::new(),
        was_retired: true,
        works: true,
    };
    let said = |retired: &DriveRetired| render_retired(retired, DriveRetire { undo: true, dry_run: false });
    assert_eq!(said(&retired), "drive n1/c1 is used again\n");
    retired.works = false;
    assert_eq!(said(&retired), "drive n1/c1 is not retired any more, and is used again once it works\n");
    retired.was_retired = false;
    assert!(said(&retired).contains("was not retired, and does not work"), "{}", said(&retired));
    retired.works = true;
    assert_eq!(said(&retired), "drive n1/c1 was not retired: nothing changes\n");
}

#[tokio::test]
async fn a_program_is_told_of_the_drives_of_both_roles() {
    let facts = cached_facts().await;
    let (drives, caches) = (facts.drives(), facts.cache_drives());
    let told: serde_json::Value = serde_json::from_str(&json(&all_named(&drives, &caches))).expect("JSON");
    let role = |name: &str| {
        let drive = told.as_array().expect("a list").iter().find(|drive| drive["name"] == name);
        drive.expect("it is there")["role"].clone()
    };
    assert_eq!((role("n1/d1"), role("n1/c1")), ("capacity".into(), "cache".into()));
}

#[tokio::test]
async fn why_a_drive_is_not_used_names_its_cache_drive_and_is_not_cut() {
    let mut facts = cached_facts().await;
    let report = facts.nodes[0].report.as_mut().expect("it runs");
    let why = |cache: &str| {
        format!(
            "what it holds is only whole together with the cache drive {cache}, which is not used: {0}",
            "why ".repeat(20)
        )
    };
    report.drives[0].failure = Some(why(&cache_id().to_string()));
    let drives = facts.drives();
    let line = format!("n1/d1 is not used: {}\n", why("n1/c1"));
    assert!(render_one(&drives[0]).ends_with(&line), "{}", render_one(&drives[0]));
    assert!(render_list(&drives).contains(&line), "{}", render_list(&drives));
}
