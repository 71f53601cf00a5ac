use super::*;

/// The checksum of no bytes is zero: four zeros would be a structure of nothing.
#[test]
fn sealed_bytes_are_more_than_their_checksum_and_match_it() {
    for length in 0..=4 {
        assert!(!is_sealed(&vec![0; length]), "{length} bytes");
    }
    for length in 5..20 {
        let mut bytes = vec![7; length];
        assert!(!is_sealed(&bytes), "{length} bytes");
        seal(&mut bytes);
        assert!(is_sealed(&bytes), "{length} bytes");
    }
}
