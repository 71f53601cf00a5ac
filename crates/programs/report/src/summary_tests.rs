use super::*;
use crate::block::blocks;
use crate::testing::run;

fn sentences_of(runs: &[MeasuredRun]) -> Vec<String> {
    blocks(runs).iter().flat_map(sentences).collect()
}

#[test]
fn the_most_the_knee_and_what_was_busy_are_told() {
    let told = sentences_of(&[run("one", 1000.0)]);
    assert_eq!(
        told,
        [
            "100 % reads: up to 3,270 IOPS, with 8 outstanding and a mean latency of 39.14 ms; from 4 outstanding to 8 it \
             changes by +0.9 %; the processors were 40.0 % busy, with 1.50 operations under way at a drive.",
            "100 % writes: up to 818 IOPS, with 8 outstanding and a mean latency of 156.57 ms; from 4 outstanding to 8 it \
             changes by +0.9 %; the processors were 40.0 % busy, with 1.50 operations under way at a drive.",
        ]
    );
}

#[test]
fn what_still_grows_is_not_called_a_knee() {
    let mut one = run("one", 1000.0);
    one.cells.retain(|cell| cell.load.write_percent == 0 && cell.load.outstanding <= 4);
    one.cells[2].measurements[0].cpu_percent = Some(97.0);
    let told = sentences_of(&[one]);
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("still grows") && told[0].contains("97.0 % busy, nearly all"), "{told:?}");
}

#[test]
fn doubts_are_told_by_run_and_place() {
    let mut other = run("other", 1000.0);
    other.cells[6].measurements[0].littles_law_percent = Some(-25.0);
    other.cells[0].measurements[0].nodes[0].iops *= 2.0;
    other.cells[3].measurements[0].failures = 7;
    other.cells[3].measurements[0].generator_percent = Some(97.0);
    let told = sentences_of(&[run("one", 1000.0), other]);
    let doubts: Vec<&String> = told.iter().filter(|text| !text.contains("up to")).collect();
    assert_eq!(doubts.len(), 4, "{told:?}");
    assert!(
        doubts[0].starts_with("other: by Little's law") && doubts[0].contains("-25 % at 100 % writes with 4"),
        "{doubts:?}"
    );
    assert!(doubts[1].contains("33 % of the mean at 100 % reads with 1 outstanding"), "{doubts:?}");
    assert!(doubts[2].contains("generator's thread was 97 % busy"), "{doubts:?}");
    assert!(doubts[3].contains("7 I/Os failed"), "{doubts:?}");
}
