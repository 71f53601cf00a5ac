use spandrel_results::Load;

use super::*;
use crate::table::WIDTH_MAX;

#[test]
fn a_line_for_each_cell_that_was_measured() {
    let load = |outstanding| Load {
        block_size_bytes: 131_072,
        pattern: "random".to_owned(),
        threads: 1,
        write_percent: 30,
        outstanding,
    };
    let measured = |iops| Measurement { iops: Some(iops), cpu_percent: Some(99.9), ..Measurement::default() };
    let run = MeasuredRun {
        remarks: vec!["1 of 2 measurements were made".to_owned()],
        cells: vec![
            MeasuredCell { load: load(4), measurements: vec![measured(1_234_567.0), measured(1_234_569.0)] },
            MeasuredCell { load: load(8), measurements: Vec::new() },
        ],
        ..MeasuredRun::default()
    };
    let text = render_cells(&run);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[1].contains("128 KiB") && lines[1].contains("1,234,568") && lines[1].contains("99.9"),
        "{text}"
    );
    assert!(lines.iter().all(|line| line.chars().count() <= WIDTH_MAX), "{text}");
    assert!(lines[2].starts_with("note: 1 of 2"), "{text}");
}
