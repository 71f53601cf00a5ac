use std::collections::BTreeSet;

use super::*;

#[test]
fn every_bit_and_every_length_changes_the_digest() {
    let mut seen = BTreeSet::new();
    for length in 0..200 {
        let mut bytes = vec![0; length];
        assert!(seen.insert(digest(&bytes)), "length {length}");
        for bit in 0..length * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(digest(&bytes)), "length {length}, bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn the_order_of_folded_words_matters() {
    assert_ne!(fold(fold(0, 1), 2), fold(fold(0, 2), 1));
    assert_ne!(fold(0, 0), 0, "a run of zeros must not stand still");
}
