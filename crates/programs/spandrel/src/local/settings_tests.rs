use clap::Parser;

use super::*;
use crate::arguments::{Arguments, Command};

fn arguments(options: &str) -> UpArguments {
    let line = format!("spandrel up {options}");
    match Arguments::try_parse_from(line.split_whitespace()).expect("it is well-formed").command {
        Command::Up(arguments) => arguments,
        other => panic!("{other:?} is not up"),
    }
}

pub fn settings(options: &str) -> Result<Settings, Error> {
    let mut counter = 0;
    let random = || {
        counter += 1;
        counter
    };
    Settings::from_arguments(&arguments(options), random)
}

#[test]
fn the_defaults_are_four_nodes_with_two_drives() {
    let settings = settings("").expect("the defaults are good");
    let names: Vec<&str> = settings.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["n1", "n2", "n3", "n4"]);
    assert_eq!(settings.drives().map(|drive| drive.name).collect::<Vec<_>>(), ["d1", "d2"]);
    assert_eq!(settings.drives_bytes(), 32 << 30);
    assert_eq!(settings.slab_size_bytes.slab_bytes(), 64 << 20);
    let identities: std::collections::BTreeSet<_> = settings.nodes.iter().map(|node| node.id).collect();
    assert_eq!(identities.len(), 4);
}

#[test]
fn a_cache_drive_has_room_for_the_journals_and_as_much_beside_them() {
    // Two drives of 4 GiB behind each, or one.
    for (cache_drives, less, least) in [(1, "255", "256"), (2, "127", "128")] {
        let options = |mib: &str| format!("--cache-drives {cache_drives} --cache-drive-size {mib}M");
        for too_small in ["64", less] {
            let error = settings(&options(too_small)).expect_err("it is too small");
            assert!(error.next.contains(&format!("at least {least} MiB")), "{error}");
        }
        let settings = settings(&options(least)).expect("it is large enough");
        let layout = Layout::for_drive(4 << 30, 4096, settings.slab_size_bytes).expect("it fits");
        let cache = CacheLayout::for_drive(settings.cache_drive_size_bytes, 4096).expect("it fits");
        let area_blocks = cache.chunk_count / (2 / cache_drives) * cache.chunk_blocks;
        let bound = layout.with_area(area_blocks.into(), 4096).expect("each drive can be bound to it");
        assert!(bound.area_blocks > bound.journal_blocks * 3 / 2, "{bound:?}");
    }
}

#[test]
fn drives_in_memory_leave_most_of_it() {
    let gib = 1 << 30;
    assert_eq!(memory_drive_bytes(24 * gib, 8, None), 768 << 20);
    assert_eq!(memory_drive_bytes(1024 * gib, 8, None), 4 * gib, "as other drives");
    assert_eq!(memory_drive_bytes(gib, 8, None), 256 << 20, "smaller ones are of no use");
    assert!(memory_drive_bytes(gib, 8, Some(256 << 20)) > 256 << 20, "room for a slab, and for a journal");
    assert!(settings("--memory --slab-size 256M --nodes 16 --drives 24").is_ok());
    let own = settings("--memory").expect("the defaults are good");
    assert!(own.drives_bytes() <= (memory_of_this_server() / 4).max(8 * MEMORY_DRIVE_BYTES_MIN));
    assert_eq!(settings("--memory --drive-size 1G").expect("it is good").drives_bytes(), 8 * gib);
}

#[test]
fn slabs_suit_the_drives() {
    let slab_of = |options| settings(options).expect("it is good").slab_size_bytes.slab_bytes() >> 20;
    assert_eq!(slab_of("--drive-size 1T"), 256);
    assert_eq!(slab_of("--drive-size 8G"), 128);
    assert_eq!(slab_of("--drive-size 64M"), 4);
    assert_eq!(slab_of("--drive-size 1T --slab-size 8M"), 8);
}

#[test]
fn what_cannot_be_is_refused() {
    for options in [
        "--nodes 0",
        "--nodes 17",
        "--drives 0",
        "--drives 25",
        "--slab-size 5M",
        "--slab-size 512M",
        "--drive-size 0",
        "--drive-size 64K",
        "--drive-size 100000001",
        "--drive-size 256M --slab-size 256M",
        "--cache-media nvme",
    ] {
        let error = settings(options).expect_err(options);
        assert_eq!(error.code, "OPTION_INVALID", "{options}");
    }
}

#[test]
fn the_least_drive_that_is_advised_is_accepted() {
    let error = settings("--drive-size 4M").expect_err("no slab fits");
    assert_eq!(error.next, "make it at least 8 MiB");
    assert!(settings("--drive-size 8M").is_ok());
}

#[test]
fn what_is_written_is_read_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    assert_eq!(Settings::read(directory.path()), Ok(None));
    let media = "--cache-drives 1 --cache-media nvme --capacity-media hdd --media-scale 0.07";
    for options in ["--nodes 3", media] {
        let written = settings(options).expect("it is good");
        written.write(directory.path()).expect("it can be written");
        assert_eq!(Settings::read(directory.path()), Ok(Some(written)));
    }
}

#[test]
fn a_record_that_knows_no_media_is_of_drives_without() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let written = settings("").expect("it is good");
    let mut record = serde_json::to_value(&written).expect("it can be written");
    record.as_object_mut().expect("it is an object").remove("media").expect("it is there");
    fs::write(directory.path().join(FORMAT_FILE), record.to_string()).expect("it can be written");
    assert_eq!(Settings::read(directory.path()), Ok(Some(written)));
}

#[test]
fn drives_are_of_the_media_of_their_roles() {
    let media = |options| {
        let settings = settings(options).expect("it is good");
        settings.drives().map(|drive| (drive.name, drive.media)).collect::<Vec<_>>()
    };
    let named = |name: &str, media| (name.to_owned(), media);
    assert_eq!(media("--cache-drives 1").last(), Some(&named("c1", None)));
    assert_eq!(
        media("--drives 1 --cache-drives 1 --cache-media nvme --capacity-media ssd"),
        [named("d1", Some(MediaClass::Ssd)), named("c1", Some(MediaClass::Nvme))]
    );
}

#[test]
fn a_newer_format_and_a_damaged_record_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let write = |text: &str| fs::write(directory.path().join(FORMAT_FILE), text).expect("it can be written");
    write(r#"{"format":2,"unknown":true}"#);
    assert_eq!(Settings::read(directory.path()).expect_err("it is newer").code, "DIR_TOO_NEW");
    write(r#"{"format":1}"#);
    assert_eq!(Settings::read(directory.path()).expect_err("it lacks all").code, "DIR_DAMAGED");
    write("");
    assert_eq!(Settings::read(directory.path()).expect_err("it is empty").code, "DIR_DAMAGED");
}

#[test]
fn options_must_agree_with_what_is_there() {
    let settings = settings("--nodes 3 --drive-size 64M").expect("it is good");
    let check = |options| settings.check_arguments(Path::new("/x"), &arguments(options));
    assert_eq!(check(""), Ok(()));
    assert_eq!(check("--nodes 3 --drives 2 --drive-size 64M"), Ok(()));
    let error = check("--nodes 4 --drive-size 128M").expect_err("it has 3");
    assert_eq!(error.code, "OPTIONS_CONTRADICT");
    assert!(error.why.contains("--nodes 4, but it has 3"), "{}", error.why);
    assert!(error.why.contains("--drive-size 128 MiB, but it has 64 MiB"), "{}", error.why);
    let error = check("--capacity-media hdd").expect_err("it has none");
    assert!(error.why.contains("--capacity-media hdd, but it has none"), "{}", error.why);
    assert_eq!(check("--memory").expect_err("it has files").code, "OPTIONS_CONTRADICT");
}
