use super::*;

fn job(done: u64, copied_bytes: u64, elapsed_ms: u64) -> Job {
    Job {
        kind: JobKind::Repair,
        volume: "v1".to_owned(),
        drive: "n2-d1".to_owned(),
        slabs: 3,
        pages: Progress { done, total: 40 },
        copied_bytes,
        elapsed_ms,
    }
}

#[test]
fn the_pace_and_what_is_left_follow_from_what_was_done() {
    let job = job(10, 20 << 20, 2000);
    assert_eq!((job.bytes_per_second(), job.left_ms()), (Some(10 << 20), Some(6000)));
}

#[test]
fn nothing_is_said_of_what_has_hardly_begun() {
    assert_eq!((job(0, 0, 0).bytes_per_second(), job(0, 0, 0).left_ms()), (None, None));
    assert_eq!((job(0, 4096, 500).bytes_per_second(), job(0, 4096, 500).left_ms()), (Some(8192), None));
    assert_eq!(job(40, 0, 900).left_ms(), Some(0));
}
