use super::*;

#[test]
fn versions_are_read() {
    let text = "etcd Version: 3.4.23\nGit SHA: Not provided\nGo Version: go1.19.8\n";
    assert_eq!(version_of(text), Some((3, 4)));
    assert_eq!(version_of("etcd Version: 3.10.0-rc.1"), Some((3, 10)));
    for nonsense in ["", "etcd", "etcd Version: ", "etcd Version: 3", "etcd Version: three.four"] {
        assert_eq!(version_of(nonsense), None, "{nonsense:?}");
    }
}

#[test]
fn a_program_that_will_not_do_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let error = check_program(&program).unwrap_err();
    assert_eq!((&*error.code, error.next.contains("etcd-server")), ("STATE_PROGRAM_MISSING", true));
    let refusal = |output: &str| {
        // Another process writes it: one that this process has had open for writing cannot be run as long as some
        // other test's child still has it.
        let write = r#"printf '#!/bin/sh\necho %s\n' "$1" > "$2"; chmod +x "$2""#;
        let mut shell = Command::new("sh");
        shell.args(["-c", write, "sh", &format!("{output:?}")]).arg(&program);
        assert!(shell.status().unwrap().success());
        check_program(&program).err().map(|error| (error.code.to_string(), error.why))
    };
    assert_eq!(refusal("etcd Version: 3.5.9"), None);
    assert_eq!(
        refusal("etcd Version: 3.3.25"),
        Some(("STATE_PROGRAM_TOO_OLD".to_owned(), "it is etcd 3.3".to_owned()))
    );
    assert_eq!(refusal("hello").unwrap().0, "STATE_PROGRAM_MISSING");
}

#[test]
fn the_last_line_of_a_log_is_found_however_long_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    assert_eq!(last_line(&path), None);
    for (log, expected) in [
        (String::new(), None),
        ("one\n".to_owned(), Some("one".to_owned())),
        (format!("{}\nlast\n\n", "x".repeat(10_000)), Some("last".to_owned())),
        ("x".repeat(10_000), Some("x".repeat(4096))),
    ] {
        std::fs::write(&path, log).unwrap();
        assert_eq!(last_line(&path), expected);
    }
}
