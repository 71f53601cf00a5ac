use super::*;
use crate::admin::api::Damage;

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
fn the_list_says_how_long_ago() {
    let text = render_list(&[clean(), damaged(false, 0)], 1_000_000 + 600_000);
    let rows: Vec<&str> = text.lines().collect();
    assert!(rows[1].contains("10 min") && rows[1].ends_with("whole"), "{text}");
    assert!(rows[2].contains("1,500") && rows[2].ends_with("NOT WHOLE"), "{text}");
}
