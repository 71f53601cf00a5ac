use super::*;

#[test]
fn one_is_not_many() {
    assert_eq!([0, 1, 2].map(|count| counted(count, "client")), ["0 clients", "1 client", "2 clients"]);
}
