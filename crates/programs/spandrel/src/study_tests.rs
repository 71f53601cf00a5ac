use clap::Parser as _;
use spandrel_fleet::{CapacityMedia, SimulatedMedia};

use super::*;
use crate::arguments::{Arguments, Command};
use crate::local::settings::Settings;

#[test]
fn up_takes_what_a_study_asks_for() {
    let like = |capacity_media| Some(SimulatedMedia { capacity_media, scale: 0.02 });
    for (media, cache_drive_size_bytes) in [
        (like(CapacityMedia::Ssd), Some(64 << 20)),
        (like(CapacityMedia::Hdd), Some(64 << 20)),
        (like(CapacityMedia::Hdd), None),
        (None, Some(64 << 20)),
        (None, None),
    ] {
        let spec = StudyClusterSpec {
            nodes: 4,
            drives: 2,
            drive_size_bytes: 512 << 20,
            cache_drive_size_bytes,
            media,
        };
        let words = ["spandrel".to_owned(), "up".to_owned()].into_iter().chain(options(&spec));
        let Command::Up(up) = Arguments::try_parse_from(words).expect("it is understood").command else {
            panic!("it is another command");
        };
        let settings = Settings::from_arguments(&up, || 7).expect("it can be made");
        assert!(settings.memory);
        assert_eq!((settings.nodes.len(), settings.drives_per_node), (4, 2));
        assert_eq!(settings.drive_size_bytes, 512 << 20);
        let caches = (settings.cache_drives_per_node, settings.cache_drive_size_bytes);
        assert_eq!(caches, cache_drive_size_bytes.map_or((0, 0), |bytes| (1, bytes)));
    }
}

#[test]
fn a_machine_without_memory_is_refused() {
    let error = check_memory("MemTotal: 9000000 kB\nMemAvailable:    1048576 kB\n").unwrap_err();
    assert_eq!(error.code, "MEMORY_LACKING");
    assert!(error.why.contains("up to 4 GiB") && error.why.contains("1 GiB are available"), "{}", error.why);
    for enough in ["MemAvailable:    4194304 kB\n", "", "MemAvailable: much\n"] {
        assert!(check_memory(enough).is_ok(), "{enough:?}");
    }
}
