use super::*;
use crate::block::blocks;
use crate::testing::run;

#[test]
fn a_value_for_each_load_and_run_with_its_change() {
    let runs = [run("one", 1000.0), run("other", 1100.0)];
    let blocks = blocks(&runs);
    let [block] = &blocks[..] else { panic!("all cells are of one kind") };
    let table = table(block, IOPS).expect("all have it");
    let lines: Vec<(u32, Option<usize>)> =
        table.rows.iter().map(|row| (row.outstanding, row.mix_rows)).collect();
    let half = [(1, Some(4)), (2, None), (4, None), (8, None)];
    assert_eq!(lines, [half, half].concat());
    let values: Vec<&Value> = table.rows[1].values.iter().flatten().collect();
    assert_eq!((values[0].text.as_str(), values[1].text.as_str()), ("1,800", "1,980"));
    assert_eq!(values[0].change_percent, None);
    assert!(values[1].change_percent.is_some_and(|change| (change - 10.0).abs() < 1e-9));
    assert_eq!((&values[0].detail, &values[0].deviation), (&None, &None), "it was measured once");
}

#[test]
fn the_best_quarter_of_each_share_of_writes_stands_out() {
    let runs = [run("one", 1000.0), run("other", 1100.0)];
    let blocks = blocks(&runs);
    let best = |metric: Metric| -> Vec<(u32, usize)> {
        let table = table(&blocks[0], metric).expect("all have it");
        let of_row = |row: &Row| {
            let values = row.values.iter().flatten().enumerate();
            values
                .filter(|(_, value)| value.is_among_best)
                .map(|(run, _)| (row.outstanding, run))
                .collect::<Vec<_>>()
        };
        table.rows[..4].iter().flat_map(of_row).collect()
    };
    assert_eq!(best(IOPS), [(4, 1), (8, 1)], "two of eight, both of the second run");
    assert_eq!(best(MEAN), [(1, 0), (1, 1)], "the least are the best");
    assert_eq!(best(QUEUE), [], "neither is better");
}

#[test]
fn repeats_are_told_and_a_residual_of_littles_law_is_marked() {
    let mut one = run("one", 1000.0);
    let more = crate::testing::run("one", 3000.0).cells[0].measurements[0].clone();
    one.cells[0].measurements.push(more);
    one.cells[1].measurements[0].littles_law_percent = Some(-12.0);
    let runs = [one];
    let blocks = blocks(&runs);
    let iops = table(&blocks[0], IOPS).expect("all have it");
    let value = iops.rows[0].values[0].as_ref().expect("it was measured");
    assert_eq!(value.text, "2,000");
    let detail = value.detail.as_deref().expect("there are two");
    assert_eq!(value.deviation.as_deref(), Some("1,000"));
    assert_eq!(detail, "mean 2,000 of 2, median 2,000, 1,000 to 3,000, standard deviation 1,000");
    let law = table(&blocks[0], LITTLES_LAW).expect("all have it");
    let doubtful: Vec<u32> = law
        .rows
        .iter()
        .filter(|row| row.values.iter().flatten().any(|value| value.is_doubtful))
        .map(|row| row.outstanding)
        .collect();
    assert_eq!(doubtful, [2]);
    assert!(table(&blocks[0], P99_999).is_none(), "nobody has it");
}
