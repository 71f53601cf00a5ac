use super::*;

const FRONTEND_LIB: (&str, &str) = ("crates/data-path/frontend/src/lib.rs", "");

fn wrong(document: &str) -> Vec<(usize, String)> {
    let code = "impl Volume { fn write(&self) {} }\nfn place() {}\n";
    let survey =
        Survey::of(&[FRONTEND_LIB, ("crates/data-path/volume/src/write.rs", code), (DOCUMENT, document)]);
    check(&survey).into_iter().map(|found| (found.line, found.what)).collect()
}

#[test]
fn a_true_document_has_no_findings() {
    let document = "\
# The path of a write

1. In `crates/data-path/volume/src/write.rs`, `Volume::write` takes the `range lock`.
2. It is placed by
   `crates/data-path/volume/src/write.rs`
   `place()`.
";
    assert_eq!(wrong(document), []);
}

#[test]
fn false_steps_are_found() {
    let document = "\
1. `crates/data-path/volume/src/write.rs` `Volume::read`
2. `crates/data-path/volume/src/gone.rs` `Volume::write`
3. the owner orders it
4. `crates/data-path/volume/src/write.rs` does it

   `Volume::write`
5. `crates/data-path/volume/src/write.rs` `write`
";
    let nameless = "this step does not name a file and a function".to_owned();
    assert_eq!(
        wrong(document),
        [
            (1, "crates/data-path/volume/src/write.rs does not define Volume::read".to_owned()),
            (2, "there is no crates/data-path/volume/src/gone.rs".to_owned()),
            (3, nameless.clone()),
            (4, nameless),
            (7, "crates/data-path/volume/src/write.rs does not define write".to_owned()),
        ]
    );
}

#[test]
fn a_document_without_steps_is_found() {
    assert_eq!(wrong("# The path of a write\n\nIt is short.\n"), [(1, "it lists no step".to_owned())]);
}

#[test]
fn the_document_is_required_once_the_front_end_has_code() {
    assert_eq!(check(&Survey::of(&[FRONTEND_LIB])), []);
    let begun = Survey::of(&[FRONTEND_LIB, ("crates/data-path/frontend/src/nbd.rs", "")]);
    assert_eq!(check(&begun)[0].what, "it is missing");
}
