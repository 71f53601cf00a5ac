use tempfile::TempDir;

use super::*;

#[test]
fn what_was_imported_is_read_again() {
    let place = TempDir::new().expect("there is room");
    let (xml, to) = (place.path().join("one.xml"), place.path().join("imported.json"));
    fs::write(&xml, include_str!("diskspd_sample.xml")).expect("there is room");
    let run = import("theirs", &[&xml]).expect("it is DISKSPD's");
    write_run(&to, &run).expect("there is room");
    assert_eq!(read_run(&to.display().to_string()), Ok(run));
    let code = |name: &Path| read_run(&name.display().to_string()).expect_err("it is none").code;
    assert_eq!(code(&xml), "FLEET_RESULTS_BROKEN", "it is to be imported first");
    assert_eq!(code(&place.path().join("nothing")), "FLEET_RESULTS_NOT_FOUND");
    let text = fs::read_to_string(&to).expect("it is there").replacen("\"format\":1", "\"format\":2", 1);
    fs::write(&to, text).expect("there is room");
    assert_eq!(code(&to), "FLEET_RESULTS_NEWER");
    assert_eq!(import("x", &[place.path()]).expect_err("it is a folder").code, "FLEET_IMPORT_BROKEN");
}

/// As PowerShell's `>` leaves it.
#[test]
fn a_text_in_utf_16_is_read() {
    let place = TempDir::new().expect("there is room");
    let text = include_str!("diskspd_sample.xml");
    let plain = place.path().join("plain.xml");
    fs::write(&plain, format!("\u{feff}{text}")).expect("there is room");
    let run = import("theirs", &[&plain]).expect("it is DISKSPD's");
    for (name, bytes_of) in [("le", u16::to_le_bytes as fn(u16) -> [u8; 2]), ("be", u16::to_be_bytes)] {
        let wide = place.path().join(name);
        let units = format!("\u{feff}{text}").encode_utf16().flat_map(bytes_of).collect::<Vec<u8>>();
        fs::write(&wide, units).expect("there is room");
        assert_eq!(import("theirs", &[&wide]), Ok(run.clone()), "{name}");
    }
    let without_mark = text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let cut = [&[0xff, 0xfe], &without_mark[..without_mark.len() - 1]].concat();
    for broken in [vec![0x80, 0x81], without_mark, cut] {
        fs::write(&plain, broken).expect("there is room");
        let error = import("x", &[&plain]).expect_err("it is no text");
        assert!(error.code == "FLEET_IMPORT_BROKEN" && error.why == "it is no text", "{error}");
    }
}

#[test]
fn published_results_are_there_by_their_names() {
    let run = read_run("published:micron-sata").expect("it is shipped");
    assert_eq!((run.vms, run.drives), (Some(320), Some(32)));
    let error = read_run("published:nobody").expect_err("there is none");
    assert_eq!(error.code, "FLEET_RESULTS_NOT_FOUND");
    assert!(error.why.contains("micron-sata"), "{error}");
}
