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
        dirty_bytes: 8192,
    };
    let said = |retired: &DriveRetired, undo, dry_run| render_retired(retired, DriveRetire { undo, dry_run });
    let text = said(&retired, false, true);
    assert!(text.contains("can be retired: it is left by n1/d1, and 8 KiB"), "{text}");
    assert!(text.contains("warning: it is the only one"), "{text}");
    retired.leaving.clear();
    assert!(said(&retired, false, false).contains("is retired, and caches for no drive"));
    assert!(said(&retired, true, false).contains("is used again"));
}
