use super::*;
use crate::cell::{CELLS, Medium};

fn cell(name: &str) -> Cell {
    *CELLS.iter().find(|cell| cell.name == name).unwrap()
}

fn sample(cell: &str, contender: &str, round: u32, iops: f64, latency_mean_us: f64) -> Sample {
    let measurement = Measurement { iops, busy_cores: 2.0, latency_mean_us, latency_p99_us: 0.0 };
    Sample { cell: cell.to_owned(), contender: contender.to_owned(), round, measurement }
}

fn results(samples: Vec<Sample>) -> Results {
    Results { cores: 2, size_bytes: 1, measured_seconds: 1.0, samples }
}

#[test]
fn ratios_are_taken_within_a_round() {
    // The machine is three times as fast in the second round.
    let read = "read-4k-qd32";
    let results = results(vec![
        sample(read, "spandrel", 0, 130.0, 1.0),
        sample(read, "nbdkit", 0, 100.0, 1.0),
        sample(read, "nbdkit", 1, 300.0, 1.0),
        sample(read, "spandrel", 1, 360.0, 1.0),
        sample(read, "spandrel", 2, 125.0, 1.0),
        sample(read, "nbdkit", 2, 100.0, 1.0),
    ]);
    let judgement = results.judge(&cell(read)).unwrap();
    assert_eq!(judgement.ratio, Median { value: 1.25, least: 1.2, most: 1.3 });
    assert!(judgement.holds);
    assert_eq!(results.figure(&cell(read), "spandrel").unwrap().value, 65.0, "for each of two busy cores");
    assert_eq!(results.reaches_goal(&cell(read)), Some(false));
}

#[test]
fn of_latencies_less_is_better() {
    let name = "write-4k-qd1";
    let judge = |own: f64| {
        let results =
            results(vec![sample(name, "spandrel", 0, 1.0, own), sample(name, "nbdkit", 0, 1.0, 30.0)]);
        (results.judge(&cell(name)).unwrap().holds, results.reaches_goal(&cell(name)))
    };
    assert_eq!(judge(75.0), (true, Some(true)));
    assert_eq!(judge(76.0), (false, Some(true)));
    assert_eq!(judge(81.0), (false, Some(false)));
}

#[test]
fn what_was_not_measured_is_not_judged() {
    let results = results(vec![sample("read-4k-qd32", "spandrel", 0, 1e9, 1.0)]);
    assert_eq!(results.judge(&cell("read-4k-qd32")), None, "the other one was not");
    assert_eq!(results.reaches_goal(&cell("read-4k-qd1")), None);
    assert_eq!(Median::of([]), None);
    assert_eq!(Median::of([4.0, 1.0, 2.0, 3.0]).unwrap().value, 2.5);
}

#[test]
fn each_floor_names_a_contender_and_each_cell_is_named_once() {
    for (at, cell) in CELLS.iter().enumerate() {
        assert!(CELLS[..at].iter().all(|other| other.name != cell.name), "{}", cell.name);
        let known = |name: &str| crate::contenders::CONTENDERS.iter().any(|known| known.name == name);
        assert!(cell.floor.is_none_or(|(contender, _)| known(contender)), "{}", cell.name);
        assert!(cell.medium == Medium::Memory || cell.floor.is_some());
    }
}
