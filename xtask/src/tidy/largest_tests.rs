use super::*;

#[test]
fn the_largest_come_first_and_those_above_the_usual_are_marked() {
    let function =
        |name: &str, lines: usize| format!("fn {name}() {{\n{}}}\n", "    x();\n".repeat(lines - 2));
    let long = function("long", FUNCTION_LINES_USUAL + 1);
    let usual = function("usual", FUNCTION_LINES_USUAL);
    let file = "// filler\n".repeat(FILE_LINES_USUAL + 1);
    let survey =
        Survey::of(&[("long.rs", &long), ("usual.rs", &usual), ("file.rs", &file), ("empty.rs", "")]);
    let expected = "\
largest files in lines (1 of 4 above 800, marked *):
    801 * file.rs
     71   long.rs
largest functions in lines (1 of 2 above 70, marked *):
     71 * long.rs:1 long
     70   usual.rs:1 usual
";
    assert_eq!(report(&survey, 2), expected);
}
