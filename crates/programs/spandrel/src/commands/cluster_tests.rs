use super::*;

#[test]
fn a_program_is_found_again_from_any_directory() {
    let path = |text: &str| program_path(Path::new(text)).expect("it is a path");
    assert_eq!(path("etcd"), Path::new("etcd"), "it is looked for in PATH");
    assert_eq!(path("/opt/etcd/etcd"), Path::new("/opt/etcd/etcd"));
    for relative in ["./etcd", "bin/etcd", "../etcd"] {
        assert!(path(relative).is_absolute(), "{relative}");
    }
}

#[test]
fn a_token_comes_from_a_file_too() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("token");
    let text = format!("sj1.{}.127.0.0.1:7441", "A".repeat(86));
    std::fs::write(&path, format!("{text}\n")).expect("it can be written");
    let server = ServerArguments { node_name: None, listen: Vec::new(), etcd: "etcd".into() };
    let arguments = JoinArguments { token: None, token_file: Some(path), server: server.clone() };
    let from_file = read_token(&arguments).expect("it is one");
    let given = JoinArguments { token: Some(text), token_file: None, server: server.clone() };
    assert_eq!(from_file, read_token(&given).expect("it is one"));
    let missing = JoinArguments { token: None, token_file: Some("/nowhere/token".into()), server };
    assert_eq!(read_token(&missing).expect_err("there is none").code, "TOKEN_UNREADABLE");
}

#[test]
fn tokens_are_listed_with_the_time_that_is_left() {
    let token = JoinTokenStatus {
        id: "0123abcd".to_owned(),
        created_unix_ms: 0,
        expires_unix_ms: (26 * 3600 + 5) * 1000,
    };
    let text = render_tokens(&[token], 1000);
    assert!(text.contains("0123abcd") && text.contains("1 d 2 h"), "{text}");
    assert_eq!(render_tokens(&[], 0), "none is valid\n");
}
