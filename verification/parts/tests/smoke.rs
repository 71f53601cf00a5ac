//! Every part is done once, so that none of them rots.

use std::process::Command;

#[test]
fn every_part_can_be_done() {
    let output = Command::new(env!("CARGO_BIN_EXE_spandrel-parts")).arg("--test").output();
    let output = output.expect("it was built for this test");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for part in ["checksum", "journal", "map", "bus", "nbd"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}
