use super::*;

fn key(number: usize) -> Key {
    Key::new(&format!("key/{number:04}"))
}

#[test]
fn the_limits_are_counted_as_etcd_counts_them() {
    let mut transaction = Transaction::new();
    for number in 0..TRANSACTION_OPERATIONS_MAX {
        transaction = transaction.expect(&key(number), Expected::Absent).put(&key(number), *b"x");
    }
    assert_eq!(transaction.validate(), Ok(()), "as many conditions as changes are allowed");
    let too_many = transaction.clone().delete(&key(5000));
    assert_eq!(too_many.validate().unwrap_err().kind, StoreErrorKind::Invalid);

    let room = TRANSACTION_BYTES_MAX - "key/0000".len();
    let full = Transaction::new().put(&key(0), vec![0; room]);
    assert_eq!(full.bytes(), TRANSACTION_BYTES_MAX);
    assert_eq!(full.validate(), Ok(()));
    let over = Transaction::new().put(&key(0), vec![0; room + 1]);
    assert_eq!(over.validate().unwrap_err().kind, StoreErrorKind::Invalid);
}

#[test]
fn a_key_is_changed_once_and_has_a_name() {
    let twice = Transaction::new().put(&key(1), *b"a").put(&key(2), *b"b").delete(&key(1));
    assert!(twice.validate().unwrap_err().detail.contains("twice"));
    let nameless = Transaction::new().delete(&Key::new(""));
    assert_eq!(nameless.validate().unwrap_err().kind, StoreErrorKind::Invalid);
    let long = Transaction::new().expect(&Key::new(&"k".repeat(KEY_BYTES_MAX + 1)), Expected::Absent);
    assert_eq!(long.validate().unwrap_err().kind, StoreErrorKind::Invalid);
}
