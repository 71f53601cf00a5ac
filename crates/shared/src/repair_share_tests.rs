//! Tests of the names and steps of the repair share.

use super::RepairShare;

#[test]
fn each_step_doubles_and_is_read_as_it_is_written() {
    let pieces: Vec<usize> = RepairShare::ALL.iter().map(|share| share.pieces_at_once()).collect();
    assert_eq!(pieces, [1, 2, 4, 8, 16]);
    for share in RepairShare::ALL {
        assert_eq!(share.to_string().parse(), Ok(share));
    }
    assert_eq!(RepairShare::default(), RepairShare::Medium);
    assert!("highest".parse::<RepairShare>().unwrap_err().contains("very-low, low, medium, high, very-high"));
}
