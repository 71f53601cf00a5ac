use super::*;

#[test]
fn progress_is_read_as_it_is_told() {
    let mut seen = Vec::new();
    follow(&b"    (0.00/100%)\r    (12.50/100%)\r    (x/100%)\r    (100.00/100%)\r\n"[..], |percent| {
        seen.push(percent)
    });
    assert_eq!(seen, [0.0, 12.5, 100.0]);
}

#[test]
fn the_socket_of_an_export_is_in_its_uri() {
    assert_eq!(socket_of("nbd+unix:///disk1?socket=/clusters/n1/nbd.sock"), Some("/clusters/n1/nbd.sock"));
    assert_eq!(socket_of("nbd://10.0.0.1/disk1"), None);
}

#[test]
fn what_is_no_image_is_refused_with_what_is_wrong() {
    let error = look_at(Path::new("/no/such/image")).err().expect("there is none");
    assert_eq!(error.code, "IMAGE_UNREADABLE");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("disk.raw");
    std::fs::write(&file, vec![0; 1 << 20]).expect("it can be written");
    let info = look_at(&file).expect("anything is a raw image");
    assert_eq!((info.format.as_str(), info.virtual_size), ("raw", 1 << 20));
    for no_disk in [&b""[..], b"a text\n", &[0; 513]] {
        std::fs::write(&file, no_disk).expect("it can be written");
        let error = look_at(&file).err().expect("no disk has this size");
        assert!(error.why.contains(&format!("a disk of {} bytes", no_disk.len())), "{error:?}");
    }
}
