use spandrel_health::{HealthStatus, OperationalStatus, Status};
use spandrel_shared::VolumeId;

use super::*;
use crate::admin::api::{Export, Traffic};
use crate::table::WIDTH_MAX;

/// A volume with names as long as they may be.
pub(crate) fn long_volume() -> VolumeStatus {
    let export = |number: u32| Export {
        node: format!("n{number}"),
        is_up: number != 2,
        uri: format!("nbd+unix:///v?socket=/x/n{number}/nbd.sock"),
    };
    let leg = |number: u32| LegStatus {
        drive: format!("n{number}/d1"),
        node: format!("n{number}"),
        state: "in-sync".to_owned(),
        slabs: 7,
        resync: (number == 3).then_some(Progress { done: 1, total: 4 }),
    };
    VolumeStatus {
        name: "v".repeat(63),
        id: VolumeId::from_random(1, 2),
        size_bytes: 1 << 40,
        grows_to_bytes: None,
        copies: 3,
        status: Status {
            health: HealthStatus::Unknown,
            operational: vec![
                OperationalStatus::DetachedIncomplete,
                OperationalStatus::Degraded,
                OperationalStatus::Incomplete,
                OperationalStatus::InService,
            ],
        },
        owner: Some("n3".to_owned()),
        epoch: 4,
        is_serving: true,
        writer: None,
        stored_bytes: 3 << 40,
        write_amplification: Some(3.0512),
        legs: (1..=3).map(leg).collect(),
        exports: (1..=3).map(export).collect(),
        traffic: Traffic { reads: 1_234_567, writes: 2, read_bytes: 4096, write_bytes: 8192 },
        resynced_bytes: 0,
        iops_limit: None,
        is_pinned: false,
        created_unix_ms: 0,
        scrub: None,
    }
}

#[test]
fn the_list_fits_however_long_names_are() {
    let text = render_list(&[VolumeStatus { is_pinned: true, ..long_volume() }]);
    assert!(text.contains(", pinned"), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH_MAX, "{line}");
    }
    assert!(text.contains("25 %"), "the resync shows: {text}");
}

#[test]
fn a_volume_shows_where_it_is_and_how_to_use_it() {
    let volume = VolumeStatus { name: "v".to_owned(), ..long_volume() };
    let text = render(&volume);
    for part in [
        "owner          n3 (epoch 4)\n",
        "write ampl.    3.051 bytes on drives for each byte written\n",
        "1,234,567 reads (4 KiB), 2 writes (8 KiB) since n3 took it",
        "n2  nbd+unix:///v?socket=/x/n2/nbd.sock  (down)\n",
        "nbdcopy 'nbd+unix:///v?socket=/x/n3/nbd.sock' v.img\n",
        "--uri='nbd+unix:///v?socket=/x/n3/nbd.sock'",
        "file='nbd+unix:///v?socket=/x/n3/nbd.sock',format=raw",
        "nbdfuse v.raw 'nbd+unix:///v?socket=/x/n3/nbd.sock'",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn without_an_owner_any_node_that_runs_is_advised() {
    let volume = VolumeStatus { owner: None, is_serving: false, ..long_volume() };
    let text = render(&volume);
    assert!(text.contains("owner          none\n"), "{text}");
    assert!(text.contains("nbdcopy 'nbd+unix:///v?socket=/x/n1/nbd.sock'"), "{text}");
    let down = |export: &Export| Export { is_up: false, ..export.clone() };
    let all_down = VolumeStatus { exports: volume.exports.iter().map(down).collect(), ..volume };
    assert!(!render(&all_down).contains("ready to paste"), "nothing can be used");
}

fn resized(former_bytes: u64, size_bytes: u64, slabs: u64) -> VolumeResized {
    let copies = (1..=3).map(|number| api::DriveCopies { drive: format!("n{number}/d1"), slabs }).collect();
    let volume = VolumeStatus { name: "v".to_owned(), ..long_volume() };
    VolumeResized { volume, former_bytes, size_bytes, slabs, copies, warnings: Vec::new() }
}

#[test]
fn what_became_of_a_size_is_told() {
    let grown = render_resized(&resized(1 << 30, 3 << 30, 8), false);
    for part in ["v has grown from 1 GiB to 3 GiB", "8 slabs came, in 3 copies each", "n3/d1", "connect anew"]
    {
        assert!(grown.contains(part), "{part}: {grown}");
    }
    let would = render_resized(&resized(1 << 30, 3 << 30, 8), true);
    assert!(would.contains("would grow") && would.contains("8 slabs would come"), "{would}");
    assert!(!would.contains("connect anew"), "{would}");
    // Within the last slab, or after another owner had begun, there is nothing to list.
    assert!(!render_resized(&resized(1 << 30, 3 << 30, 0), false).contains("DRIVE"));
    assert_eq!(render_resized(&resized(1 << 30, 1 << 30, 0), false), "volume v has 1 GiB already\n");
}

#[test]
fn a_volume_that_grows_says_so() {
    let growing = VolumeStatus { grows_to_bytes: Some(2 << 40), ..long_volume() };
    assert!(render(&growing).contains("1 TiB in 3 copies, growing to 2 TiB"), "{}", render(&growing));
}
