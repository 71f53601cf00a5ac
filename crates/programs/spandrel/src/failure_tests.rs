use super::*;

#[test]
fn an_error_has_its_four_parts_on_lines_of_their_own() {
    let error = Error::new("CODE", "what", "why\nand more", "next");
    assert_eq!(render(&error), "error[CODE]: what\n  why:   why\n         and more\n  next:  next\n");
}
