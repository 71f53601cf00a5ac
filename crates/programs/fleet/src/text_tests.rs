use super::*;

#[test]
fn one_is_not_many() {
    assert_eq!([0, 1, 2].map(|count| counted(count, "client")), ["0 clients", "1 client", "2 clients"]);
}

#[test]
fn columns_are_set_to_the_side_that_suits_them() {
    let lines =
        [vec!["a".to_owned(), "1".to_owned(), "x".to_owned()], vec!["größe".to_owned(), "1,000".to_owned()]];
    assert_eq!(aligned(&lines, &[0, 2]), "a          1  x\ngröße  1,000\n");
    assert_eq!(aligned(&[], &[]), "");
}
