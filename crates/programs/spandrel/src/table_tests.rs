use super::*;

fn texts<const N: usize>(cells: [&str; N]) -> [String; N] {
    cells.map(str::to_owned)
}

#[test]
fn columns_are_aligned() {
    let mut table = Table::new(&["NAME", ">SIZE", "STATE"]);
    table.row(texts(["a", "1 GiB", "OK"]));
    table.row(texts(["longer", "10 MiB", ""]));
    assert_eq!(
        table.render(),
        "NAME      SIZE  STATE\n\
         a        1 GiB  OK\n\
         longer  10 MiB  -\n"
    );
}

#[test]
fn a_table_of_no_rows_has_its_heads() {
    let table = Table::new(&["NAME", ">SIZE"]);
    assert_eq!(table.render(), "NAME  SIZE\n");
}

#[test]
fn what_is_too_wide_is_cut_in_the_widest_column() {
    let mut table = Table::new(&["A", "B", "C"]);
    table.row(["x".repeat(80), "y".repeat(30), "z".repeat(10)]);
    let text = table.render();
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH_MAX, "{line}");
    }
    let row = text.lines().nth(1).expect("there is a row");
    assert_eq!(row.chars().count(), WIDTH_MAX);
    assert!(row.contains(&"y".repeat(30)) && row.contains(&"z".repeat(10)), "only the widest is cut: {row}");
    assert!(row.contains("x…"), "the cut shows: {row}");
}

#[test]
fn characters_count_and_not_bytes() {
    let mut table = Table::new(&["A", "B"]);
    table.row(texts(["äöü", "x"]));
    table.row(texts(["abc", "y"]));
    assert_eq!(table.render(), "A    B\näöü  x\nabc  y\n");
}

#[test]
fn thousands_are_set_apart() {
    assert_eq!(count_text(0), "0");
    assert_eq!(count_text(999), "999");
    assert_eq!(count_text(1000), "1,000");
    assert_eq!(count_text(1_234_567), "1,234,567");
}
