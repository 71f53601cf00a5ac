use super::*;

/// The bytes that `text` writes in hexadecimal digits.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

#[test]
fn a_request_is_read_field_by_field() {
    let bytes = hex("25609513 0011 0006 0102030405060708 0000010000000200 00001000 ffff");
    let header = RequestHeader::parse(&bytes).unwrap();
    let expected = RequestHeader {
        flags: command_flags::FUA | command_flags::FAST_ZERO,
        command: Command::WriteZeroes,
        cookie: 0x0102_0304_0506_0708,
        offset: 0x0100_0000_0200,
        length: 4096,
    };
    assert_eq!(header, expected);
    assert_eq!(RequestHeader::BYTES, 28);
}

#[test]
fn a_request_without_the_magic_number_is_told() {
    let mut bytes = hex("25609513 0000 0000 0000000000000000 0000000000000000 00000000");
    bytes[3] = 0x14;
    assert_eq!(RequestHeader::parse(&bytes), Err(0x2560_9514));
}

#[test]
fn every_command_has_its_number() {
    let commands = [
        (0, Command::Read),
        (1, Command::Write),
        (2, Command::Disconnect),
        (3, Command::Flush),
        (4, Command::Trim),
        (5, Command::Unknown(5)),
        (6, Command::WriteZeroes),
        (7, Command::BlockStatus),
        (8, Command::Unknown(8)),
        (u16::MAX, Command::Unknown(u16::MAX)),
    ];
    for (number, command) in commands {
        assert_eq!(Command::from_number(number), command);
    }
    let changes: Vec<u16> = (0..100).filter(|number| Command::from_number(*number).is_change()).collect();
    assert_eq!(changes, [1, 4, 6]);
}

#[test]
fn replies_have_the_bytes_that_the_protocol_gives_them() {
    let cookie = 0x1112_1314_1516_1718;
    let expected = hex("67446698 00000000 1112131415161718");
    assert_eq!(simple_reply(cookie, None)[..], expected);
    let expected = hex("67446698 0000001c 1112131415161718");
    assert_eq!(simple_reply(cookie, Some(ErrorNumber::NoSpace))[..], expected);
    let expected = hex("668e33ef 0001 0000 1112131415161718 00000000");
    assert_eq!(none_chunk(cookie)[..], expected);
    let expected = hex("668e33ef 0001 0001 1112131415161718 00000208 0000000000010000");
    assert_eq!(data_chunk(cookie, true, 65536, 512)[..], expected);
    let expected = hex("668e33ef 0000 0002 1112131415161718 0000000c 0000000000010000 00000200");
    assert_eq!(hole_chunk(cookie, false, 65536, 512)[..], expected);
    let expected = hex("668e33ef 0001 8001 1112131415161718 00000008 00000016 0002 6869");
    assert_eq!(error_chunk(cookie, ErrorNumber::Invalid, "hi"), expected);
    let expected =
        hex("668e33ef 0001 0005 1112131415161718 00000014 00000001 00001000 00000000 00000200 00000003");
    assert_eq!(status_chunk(cookie, &[(4096, 0), (512, STATE_HOLE | STATE_ZERO)]), expected);
}

#[test]
fn errors_have_the_numbers_of_linux() {
    use ErrorNumber::*;
    let numbers = [NotPermitted, InputOutput, Invalid, NoSpace, Overflow, NotSupported];
    assert_eq!(numbers.map(|number| number as u32), [1, 5, 22, 28, 75, 95]);
}

#[test]
fn a_long_text_is_cut_between_characters() {
    let text = format!("{}ä and more", "x".repeat(4095));
    let chunk = error_chunk(1, ErrorNumber::InputOutput, &text);
    assert_eq!(chunk.len(), 20 + 6 + 4095);
    assert!(chunk.ends_with(b"xx"));
    assert_eq!(chunk[24..26], 4095_u16.to_be_bytes());
}
