use super::*;

#[test]
fn sizes_are_read_in_binary_units() {
    let good =
        [("0", 0), ("512", 512), ("4k", 4096), ("4 KiB", 4096), ("1G", 1 << 30), ("2TB", 2 << 40), ("7b", 7)];
    for (text, bytes) in good {
        assert_eq!(parse_size(text), Some(bytes), "{text}");
    }
    for text in ["", "G", "-1", "1.5G", "1x", "1 ib", "99999999999P", "1GiBs"] {
        assert_eq!(parse_size(text), None, "{text}");
    }
}

#[test]
fn sizes_are_written_with_their_unit() {
    let expected = [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1 << 30, "1 GiB"),
        ((1 << 30) * 13 / 4, "3.25 GiB"),
        (u64::MAX, "16 EiB"),
    ];
    for (bytes, text) in expected {
        assert_eq!(format_size(bytes), text);
    }
}
