use super::*;

#[test]
fn known_marks_are_named_and_unknown_data_are_seen() {
    assert_eq!(recognize_head(&[0; HEAD_BYTES]), None);
    for signature in &SIGNATURES {
        let mut head = vec![0; HEAD_BYTES];
        head[signature.offset..signature.offset + signature.bytes.len()].copy_from_slice(signature.bytes);
        assert_eq!(recognize_head(&head).as_deref(), Some(signature.name));
    }
    let mut head = vec![0; HEAD_BYTES];
    head[777_777] = 1;
    assert_eq!(recognize_head(&head).unwrap(), "unknown data (the first at byte 777777)");
    // A bootable disk with a file system is named by the file system.
    head[0x438..0x43A].copy_from_slice(&[0x53, 0xEF]);
    head[0x1FE..0x200].copy_from_slice(&[0x55, 0xAA]);
    assert!(recognize_head(&head).unwrap().contains("ext4"));
}
