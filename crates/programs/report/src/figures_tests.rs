use super::*;
use crate::block::blocks;
use crate::testing::run;

fn figures_of(runs: &[MeasuredRun], economics: Economics) -> Vec<Figure> {
    blocks(runs).iter().enumerate().flat_map(|(number, block)| figures(block, number, &economics)).collect()
}

fn series<'option>(figure: &'option Figure, name: &str) -> &'option Value {
    let all = figure.option["series"].as_array().expect("there are some");
    all.iter().find(|series| series["name"] == name).expect(name)
}

#[test]
fn every_figure_that_the_data_allow_is_there_with_named_axes() {
    let economics = Economics { drive_endurance_tbw: Some(3500.0), ..Economics::default() };
    let figures = figures_of(&[run("one", 1000.0)], economics);
    let axes: Vec<&str> =
        figures.iter().filter_map(|figure| figure.option["yAxis"][0]["name"].as_str()).collect();
    let expected = [
        "IOPS",
        "latency (ms)",
        "CPU (%)",
        "operations under way at a drive",
        "write amplification",
        "writes of a drive (MiB/s)",
        "IOPS",
    ];
    assert_eq!(axes, expected);
    let mut ids: Vec<&str> = figures.iter().map(|figure| figure.id.as_str()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), figures.len());
    for figure in &figures {
        let categories = figure.option["xAxis"]["data"].as_array().expect("it has some").len();
        for series in figure.option["series"].as_array().expect("it has some") {
            assert_eq!(series["data"].as_array().map(Vec::len), Some(categories), "{}", figure.caption);
        }
    }
}

#[test]
fn values_are_those_that_were_measured_and_absent_where_nothing_was() {
    let mut one = run("one", 1000.0);
    one.cells.remove(1);
    let figures = figures_of(&[one], Economics::default());
    let data = &series(&figures[0], "IOPS")["data"];
    assert_eq!((&data[0], &data[1], &data[2]), (&json!(1000.0), &Value::Null, &json!(3240.0)));
    assert_eq!(
        (&data[4], &data[5]),
        (&Value::Null, &json!(250.0)),
        "between reads and writes there is a gap"
    );
    let categories = &figures[0].option["xAxis"]["data"];
    assert_eq!((&categories[1], &categories[2]), (&json!("2\n100 %\nreads"), &json!("4")));
    assert_eq!(series(&figures[0], "mean latency")["yAxisIndex"], 1);
    let queue = figures.iter().find(|figure| figure.caption.contains("under way")).expect("it was measured");
    assert_eq!(series(queue, "all I/Os by drives")["data"][0], 2.0, "16 clients of 1 on 8 drives");
    assert!(figures.iter().all(|figure| !figure.caption.contains("warranty")), "no endurance was given");
}

#[test]
fn runs_stand_side_by_side_under_their_names() {
    let figures = figures_of(&[run("one", 1000.0), run("other", 2000.0)], Economics::default());
    assert_eq!(series(&figures[0], "other: IOPS")["data"][0], 2000.0);
    assert_eq!(series(&figures[0], "one: IOPS")["data"][0], 1000.0);
}
