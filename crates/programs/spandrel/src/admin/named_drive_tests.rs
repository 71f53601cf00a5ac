use super::*;

#[test]
fn a_name_means_one_drive_or_none() {
    let id = |number| DriveId::from_bytes([number; 16]);
    let known = |(name, number): (&str, u8)| (name.to_owned(), Some(id(number)), number);
    let drives = || [("n1/a", 1), ("n1/b", 2), ("n1/b", 3)].map(known);
    assert_eq!(named_drive(drives(), "n1/a"), Ok(1));
    assert_eq!(named_drive(drives(), &id(3).to_string()), Ok(3), "its identity is its own");
    let ambiguous = named_drive(drives(), "n1/b").expect_err("two are called so");
    assert_eq!(ambiguous.code, "DRIVE_NAME_AMBIGUOUS");
    assert!([id(2), id(3)].iter().all(|id| ambiguous.why.contains(&id.to_string())), "{ambiguous}");
    let unknown = named_drive(drives(), "n2/a").expect_err("there is none");
    assert_eq!((&unknown.code[..], &unknown.why[..]), ("DRIVE_NOT_FOUND", "the drives are n1/a, n1/b, n1/b"));
    let strangers = || [("n1/a".to_owned(), None, 4), ("n1/c".to_owned(), None, 5)];
    assert_eq!(named_drive(drives().into_iter().chain(strangers()), "n1/a"), Ok(1));
    assert_eq!(named_drive(drives().into_iter().chain(strangers()), "n1/c"), Ok(5));
    let unknown = named_drive([] as [(String, Option<DriveId>, u8); 0], "n1/a").expect_err("there is none");
    assert_eq!(unknown.why, "the cluster has no drives");
}
