use spandrel_health::{HealthStatus, OperationalStatus, Status};
use spandrel_shared::{CacheMode, RepairShare};

use super::*;
use crate::admin::api::{DriveFill, Progress};
use crate::table::WIDTH_MAX;

fn details() -> PoolDetails {
    let fill =
        |drive: &str, promised_per_mille| Some(DriveFill { drive: drive.to_owned(), promised_per_mille });
    PoolDetails {
        pool: PoolStatus {
            status: Status::new(HealthStatus::Warning, OperationalStatus::Degraded),
            slab_bytes: 256 << 20,
            total_bytes: 4 << 40,
            promised_bytes: 1 << 40,
            free_bytes: 2 << 40,
            reserve_bytes: 1 << 39,
            copies_default: 3,
            volume_bytes_max: 1 << 39,
        },
        settings: PoolSettings {
            rebuild_after_drive_s: 900,
            rebuild_after_node_s: 5400,
            balance: true,
            repair_share: RepairShare::High,
            retire_slow: true,
            scrub_period_s: 10 * 86_400,
            cache_mode_ssd: CacheMode::WriteOnly,
            cache_mode_hdd: CacheMode::ReadWrite,
            memory_cache_bytes: 0,
            map_memory_bytes: 0,
        },
        fullest: fill("n1-d2", 612),
        emptiest: fill("n4-d1", 15),
        jobs: vec![Job {
            kind: JobKind::Regeneration,
            volume: "vm-disk-with-a-long-name-0001".to_owned(),
            drive: "node-0000017-drive-3".to_owned(),
            slabs: 16,
            pages: Progress { done: 512, total: 2048 },
            copied_bytes: 1 << 30,
            elapsed_ms: 4096,
        }],
        copies_to_replace: 40,
        copies_without_place: 3,
        copies_to_spread: 120,
    }
}

#[test]
fn a_pool_is_told_in_a_screen() {
    let text = render(&details());
    for words in [
        "Warning (Degraded)",
        "1 TiB of 4 TiB promised to volumes (25 %)",
        "from n4-d1 1.5 % to n1-d2 61.2 %: 120 copies",
        "after 15 min (drives), 1 h 30 min (nodes)",
        "repair   high: 8 pieces",
        "drives that were slow three times are retired",
        "is read and compared once in 10 d",
        "40 copies of slabs (10 GiB at most) are yet to be built",
        "of these 3 wait",
        "Regeneration",
        "250 MiB",
        "13 s",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(render_jobs(&details().jobs).lines().all(|line| line.chars().count() <= WIDTH_MAX), "{text}");
}

#[test]
fn a_pool_at_rest_says_so() {
    let resting = PoolDetails {
        jobs: Vec::new(),
        copies_to_replace: 0,
        copies_without_place: 0,
        copies_to_spread: 0,
        ..details()
    };
    let text = render(&resting);
    assert!(text.contains("as even as it can be") && text.contains("nothing is being repaired"), "{text}");
    assert!(!text.contains("wait"), "{text}");
}

#[test]
fn a_pool_that_is_not_scrubbed_by_itself_says_so() {
    let settings = PoolSettings { scrub_period_s: 0, ..details().settings };
    assert!(render_settings(&settings).contains("only when asked for (`spandrel scrub`)"));
}
