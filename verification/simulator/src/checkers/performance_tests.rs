use super::*;

const PAGE: &str = "
Some text, and a | in it.

| operation | round trips | drive reads | drive writes | flushes |
|---|---|---|---|---|
| write | a + n | 0 | 1 | 1 |
| read | a + 2f | 3 | 0 | 0 |

| operation | requests | drive reads | drive writes | flushes | bytes written |
|---|---|---|---|---|---|
| write | a Write + r CopyWrite + CopyWrite + 2o NoteMark | 0 | 2d | c | 4608c |
| read | a Read + 2f CopyRead | 3 | 0 | 0 | 0 |

| what | bound | how much |
|---|---|---|
| flushes | exactly | g + 2p |

| what | bound | how much |
|---|---|---|
| heartbeats | at most | 4s + 1 |
";

const SITUATION: Situation = Situation {
    copies: 3,
    copies_elsewhere: 2,
    drives: 3,
    nodes_elsewhere: 2,
    client_elsewhere: true,
    volatile_caches: true,
};

fn model() -> Model {
    Model::parse(PAGE).expect("a page")
}

fn write() -> Cost {
    let requests = [("Write", 1), ("CopyWrite", 3), ("NoteMark", 4)];
    Cost {
        round_trips: 2,
        reads_in_a_row: 0,
        writes_in_a_row: 1,
        flushes_in_a_row: 1,
        requests: requests.map(|(kind, number)| (kind.to_owned(), number)).into(),
        reads: 0,
        writes: 6,
        flushes: 3,
        written_bytes: 3 * 4608,
    }
}

#[test]
fn a_cost_by_the_model_passes_and_any_other_does_not() {
    let model = model();
    assert_eq!(model.check("write", &SITUATION, &write()), Ok(()));
    let no_requests = BTreeMap::new();
    let of_another_kind: BTreeMap<_, _> =
        write().requests.into_iter().map(|(kind, number)| (kind.replace("Note", "Take"), number)).collect();
    for wrong in [
        Cost { round_trips: 1, ..write() },
        Cost { round_trips: 3, ..write() },
        Cost { reads_in_a_row: 1, ..write() },
        Cost { writes_in_a_row: 2, ..write() },
        Cost { flushes_in_a_row: 0, ..write() },
        Cost { requests: no_requests, ..write() },
        Cost { requests: of_another_kind, ..write() },
        Cost { reads: 1, ..write() },
        Cost { writes: 5, ..write() },
        Cost { flushes: 4, ..write() },
        Cost { written_bytes: 0, ..write() },
    ] {
        assert!(model.check("write", &SITUATION, &wrong).is_err(), "{wrong:?}");
    }
    assert!(model.check("trim", &SITUATION, &Cost::default()).is_err(), "the page does not have it");
}

#[test]
fn a_situation_decides_what_an_operation_costs() {
    let model = model();
    let cost = |situation| model.expected("write", &situation).expect("the page has it");
    assert_eq!(cost(SITUATION), write());
    let here = cost(Situation { client_elsewhere: false, ..SITUATION });
    assert_eq!((here.round_trips, here.requests.get("Write")), (1, None));
    let alone = Situation { copies: 1, copies_elsewhere: 0, ..SITUATION };
    assert_eq!(cost(alone).round_trips, 1);
    let unflushed = cost(Situation { volatile_caches: false, ..SITUATION });
    assert_eq!((unflushed.flushes_in_a_row, unflushed.flushes, unflushed.writes), (0, 0, 6));
    let far = Situation { copies_elsewhere: 3, ..SITUATION };
    assert_eq!(model.expected("read", &far).expect("the page has it").round_trips, 3);
    assert_eq!(model.expected("read", &SITUATION).expect("the page has it").round_trips, 1);
}

#[test]
fn bounds_hold_and_fail() {
    let model = model();
    let letters = Letters::from([('g', 5), ('p', 2), ('s', 2)]);
    for (what, count, passes) in [
        ("flushes", 9, true),
        ("flushes", 8, false),
        ("flushes", 10, false),
        ("heartbeats", 9, true),
        ("heartbeats", 0, true),
        ("heartbeats", 10, false),
        ("groups", 0, false),
    ] {
        assert_eq!(model.check_limit(what, &letters, count).is_ok(), passes, "{what} {count}");
    }
    assert!(model.check_limit("flushes", &Letters::new(), 0).is_err(), "nothing stands for the letters");
    assert_eq!(model.limits().collect::<Vec<_>>(), ["flushes", "heartbeats"]);
    assert_eq!(model.operations().collect::<Vec<_>>(), ["write", "read"]);
}

#[test]
fn a_page_that_cannot_be_understood_is_refused() {
    for (good, bad) in [
        ("a + n | 0 | 1 | 1", "a + n | 0 | 1"),
        ("a + n", "a - n"),
        ("a + n", "a +"),
        ("a + n", "ab"),
        ("a + n", ""),
        ("a + n", "2 a b"),
        ("| exactly |", "| about |"),
        ("| read | a + 2f |", "| lead | a + 2f |"),
        ("| what | bound | how much |", "| what | how much |"),
        ("| operation | requests |", "| operation | messages |"),
    ] {
        assert!(PAGE.contains(good), "{good}");
        assert!(Model::parse(&PAGE.replacen(good, bad, usize::MAX)).is_err(), "{bad}");
    }
    for (good, bad) in [("a + n", "x + n"), ("a + n", "a Write"), ("a Write + r", "a + r")] {
        let model = Model::parse(&PAGE.replacen(good, bad, 1)).expect("sums");
        assert!(model.expected("write", &SITUATION).is_err(), "{bad}");
    }
}
