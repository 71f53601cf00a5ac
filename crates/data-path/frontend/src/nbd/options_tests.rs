use proptest::prelude::*;

use super::*;
use crate::testing::negotiate;

#[test]
fn an_option_header_is_read_or_refused() {
    let bytes = negotiate::option(7, b"data");
    assert_eq!(OptionHeader::parse(&bytes), Some(OptionHeader { option: 7, length: 4 }));
    for index in 0..8 {
        let mut bytes = bytes.clone();
        bytes[index] ^= 1;
        assert_eq!(OptionHeader::parse(&bytes), None);
    }
}

#[test]
fn the_greeting_says_fixed_newstyle() {
    assert_eq!(&greeting(), b"NBDMAGICIHAVEOPT\x00\x03");
}

#[test]
fn an_information_request_must_fill_its_data_exactly() {
    let data = negotiate::information("vm-01", &[1, 9, 3]);
    let expected = InformationRequest { export: "vm-01", name: true, description: false };
    assert_eq!(InformationRequest::parse(&data), Some(expected));
    for end in 0..data.len() {
        assert_eq!(InformationRequest::parse(&data[..end]), None, "{end} bytes");
    }
    assert_eq!(InformationRequest::parse(&[&data[..], b"x"].concat()), None);
    let empty = InformationRequest { export: "", name: false, description: true };
    assert_eq!(InformationRequest::parse(&negotiate::information("", &[2])), Some(empty));
}

#[test]
fn a_context_request_must_fill_its_data_exactly() {
    let data = negotiate::contexts("vm-01", &["base:", "x-other:thing", ""]);
    let request = ContextRequest::parse(&data).unwrap();
    assert_eq!(request.export, "vm-01");
    assert!(request.has_queries());
    assert_eq!(request.queries().collect::<Vec<_>>(), ["base:", "x-other:thing", ""]);
    for end in 0..data.len() {
        assert_eq!(ContextRequest::parse(&data[..end]), None, "{end} bytes");
    }
    assert_eq!(ContextRequest::parse(&[&data[..], b"x"].concat()), None);
    let none = negotiate::contexts("vm-01", &[]);
    assert!(!ContextRequest::parse(&none).unwrap().has_queries());
}

#[test]
fn a_false_count_of_queries_ends_early() {
    let mut data = negotiate::text("vm-01");
    data.extend(u32::MAX.to_be_bytes());
    assert_eq!(ContextRequest::parse(&data), None);
}

#[test]
fn texts_are_utf8_without_nul_and_not_too_long() {
    assert_eq!(parse_text("größe".as_bytes()), Some("größe"));
    assert_eq!(parse_text(b"a\0b"), None);
    assert_eq!(parse_text(b"\xff"), None);
    assert!(parse_text(&[b'x'; 4096]).is_some());
    assert_eq!(parse_text(&[b'x'; 4097]), None);
}

#[test]
fn replies_have_the_bytes_that_the_protocol_gives_them() {
    let mut replies = Vec::new();
    push_server(&mut replies, 3, "ab");
    let expected = b"\x00\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x03\0\0\0\x02\0\0\0\x06\0\0\0\x02ab";
    assert_eq!(replies, expected);

    let mut replies = Vec::new();
    push_export_information(&mut replies, 7, 0x0102, 0x0305);
    assert_eq!(replies[12..], *b"\0\0\0\x03\0\0\0\x0c\0\0\0\0\0\0\0\0\x01\x02\x03\x05");

    let mut replies = Vec::new();
    push_block_sizes(&mut replies, 7, [512, 4096, 1 << 25]);
    assert_eq!(replies[12..], *b"\0\0\0\x03\0\0\0\x0e\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0\0");

    let mut replies = Vec::new();
    push_export_name_answer(&mut replies, 4096, 1, true);
    assert_eq!(replies.len(), 8 + 2 + 124);
    assert!(replies[10..].iter().all(|byte| *byte == 0));
}

proptest! {
    #[test]
    fn parsing_survives_any_bytes(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = InformationRequest::parse(&data);
        if let Some(request) = ContextRequest::parse(&data) {
            prop_assert_eq!(request.queries().count(), request.query_count as usize);
        }
    }
}
