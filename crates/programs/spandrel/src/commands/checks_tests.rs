use super::*;
use crate::admin::api::{Damage, ScrubFound};
use crate::table::WIDTH_MAX;

fn clean() -> CheckReport {
    CheckReport {
        volume: "v1".to_owned(),
        ended_unix_ms: 1_000_000,
        seconds: 2,
        heal: false,
        blocks_checked: 3072,
        damaged: Vec::new(),
        blocks_healed: 0,
        blocks_different: 0,
        blocks_lost: 0,
        pages_lacking: 0,
        pieces_unchecked: 0,
    }
}

fn damaged(heal: bool, blocks_healed: u64) -> CheckReport {
    let damaged = vec![Damage { drive: "n2/d1".to_owned(), blocks: 1500 }];
    CheckReport { heal, damaged, blocks_healed, ..clean() }
}

#[test]
fn what_was_found_is_said() {
    assert_eq!(
        render_report(&clean()),
        "volume v1: 12 MiB of copies checked in 2 s\nall copies are whole and the same\n"
    );
    let text = render_report(&damaged(false, 0));
    assert!(text.contains("1,500 blocks damaged on n2/d1\n  nothing was healed"), "{text}");
    assert!(text.ends_with("NOT all copies are known to be whole and the same\n"), "{text}");
    let text = render_report(&damaged(true, 1500));
    assert!(text.contains("1,500 of them healed\nall copies are whole and the same now\n"), "{text}");
}

#[test]
fn the_exit_status_says_whether_all_is_whole() {
    assert_eq!(exit_status([&clean()]), EXIT_OK);
    assert_eq!(exit_status([&clean(), &damaged(true, 1500)]), EXIT_OK);
    assert_eq!(exit_status([&clean(), &damaged(true, 1499)]), EXIT_DAMAGE);
    assert_eq!(exit_status([&damaged(false, 0)]), EXIT_DAMAGE);
    assert_eq!(exit_status([&CheckReport { blocks_different: 1, ..clean() }]), EXIT_DAMAGE);
    assert_eq!(exit_status([&CheckReport { pieces_unchecked: 1, ..clean() }]), EXIT_DAMAGE);
}

#[test]
fn the_list_says_what_each_scrub_has_found() {
    let text = render_list(&[clean(), damaged(false, 0)]);
    let rows: Vec<&str> = text.lines().collect();
    assert!(rows[1].contains("2 s") && rows[1].ends_with(" whole"), "{text}");
    assert!(rows[2].contains("1,500") && rows[2].ends_with("NOT WHOLE"), "{text}");
}

const DAY_MS: u64 = 86_400_000;

fn status() -> ScrubStatus {
    ScrubStatus {
        volume: "v1".to_owned(),
        slabs: Progress { done: 1, total: 4 },
        slabs_never_read: 0,
        oldest_unix_ms: 10 * DAY_MS,
        newest_unix_ms: Some(29 * DAY_MS),
        pass_began_unix_ms: 28 * DAY_MS,
        passes: 3,
        period_s: 28 * 86_400,
        is_late: false,
        bytes_per_second: 3 << 20,
        found: ScrubFound::default(),
        blocks_different_now: 0,
        blocks_lost_now: 0,
    }
}

#[test]
fn the_status_of_scrubs_tells_dates_pass_pace_and_findings() {
    let found = ScrubFound { blocks_damaged: 1500, blocks_healed: 1499, ..ScrubFound::default() };
    let never = ScrubStatus { newest_unix_ms: None, period_s: 0, ..status() };
    let late = ScrubStatus { volume: "v".repeat(63), is_late: true, found, ..status() };
    let differs = ScrubStatus { blocks_different_now: 1, is_late: true, ..status() };
    let text = render_scrubs(&[status(), never, late, differs], 30 * DAY_MS);
    let rows: Vec<&str> = text.lines().collect();
    for words in ["20 d", "24 h", "25 %", "3 MiB/s", "whole"] {
        assert!(rows[1].contains(words), "{words}: {text}");
    }
    assert!(rows[2].contains("never") && rows[2].contains("off"), "{text}");
    assert!(rows[3].contains("1,500") && rows[3].contains("1,499") && rows[3].ends_with("LATE"), "{text}");
    assert!(rows[4].ends_with("NOT WHOLE"), "{text}");
    assert!(rows.iter().all(|row| row.chars().count() <= WIDTH_MAX), "{text}");
}

#[test]
fn the_scrub_of_a_volume_is_told_in_a_line() {
    let text = scrub_text(&status(), 30 * DAY_MS);
    assert_eq!(text, "all was read within 20 d, this pass 25 %; nothing found for 30 d");
    let found =
        ScrubFound { blocks_damaged: 2, blocks_healed: 1, since_unix_ms: DAY_MS, ..ScrubFound::default() };
    let text =
        scrub_text(&ScrubStatus { slabs_never_read: 1, is_late: true, found, ..status() }, 30 * DAY_MS);
    assert!(text.starts_with("1 slab never read, LATE, this pass"), "{text}");
    assert!(text.ends_with("found 2 blocks damaged (1 healed), 0 different, 0 lost for 29 d"), "{text}");
    let never = ScrubStatus { newest_unix_ms: None, slabs_never_read: 4, ..status() };
    assert!(scrub_text(&never, 30 * DAY_MS).starts_with("nothing was read yet, this pass"));
}
