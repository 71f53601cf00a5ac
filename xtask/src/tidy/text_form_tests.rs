use super::*;

fn wrong(text: &str) -> Vec<(usize, String)> {
    check(&Survey::of(&[("a.txt", text)])).into_iter().map(|found| (found.line, found.what)).collect()
}

#[test]
fn well_formed_text_has_no_findings() {
    for text in ["", "one\n", "one\n\n  two\n"] {
        assert_eq!(wrong(text), [], "{text:?}");
    }
}

#[test]
fn each_fault_of_form_is_found() {
    let blanks = "the line ends in blanks".to_owned();
    assert_eq!(wrong("one \ntwo\n\t\nthree\n"), [(1, blanks.clone()), (3, blanks)]);
    assert_eq!(wrong("one\r\ntwo\n"), [(1, "the line ends in a carriage return".to_owned())]);
    assert_eq!(wrong("one\ntwo"), [(2, "the last line has no line end".to_owned())]);
    assert_eq!(wrong("one\n\n"), [(2, "the file ends in empty lines".to_owned())]);
    assert_eq!(wrong("\n"), [(1, "the file ends in empty lines".to_owned())]);
}

#[test]
fn a_file_that_is_too_large_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = usize::try_from(FILE_BYTES_MAX).unwrap();
    std::fs::write(folder.path().join("large"), vec![b'\n'; bytes + 1]).unwrap();
    std::fs::write(folder.path().join("binary"), b"\0 \n\n").unwrap();
    let repository = super::super::repository::Repository::read(folder.path()).unwrap();
    let (survey, _) = Survey::new(repository);
    let found: Vec<_> = check(&survey).into_iter().map(|found| (found.path, found.what)).collect();
    assert_eq!(
        found,
        [("large".to_owned(), format!("the file has {} bytes, the limit is {bytes}", bytes + 1))]
    );
}
