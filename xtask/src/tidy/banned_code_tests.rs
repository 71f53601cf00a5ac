use super::*;

/// The line and the rule of each finding for `text` as a file of `crates/<folder>`.
fn broken_in(folder: &str, file: &str, text: &str) -> Vec<(usize, String)> {
    let manifest = format!("crates/{folder}/Cargo.toml");
    let root = format!("crates/{folder}/src/lib.rs");
    let path = format!("crates/{folder}/{file}");
    let mut files = vec![(manifest.as_str(), "[package]\nname = \"a\"\n"), (path.as_str(), text)];
    if path != root {
        files.push((root.as_str(), ""));
    }
    check(&Survey::of(&files))
        .into_iter()
        .map(|found| {
            assert_eq!(found.path, path);
            let rule = found.what.rsplit_once('(').map_or(found.what.as_str(), |(_, rule)| rule);
            (found.line, rule.trim_end_matches(" rule)").to_owned())
        })
        .collect()
}

fn rules(text: &str) -> Vec<String> {
    broken_in("data-path/drive", "src/lib.rs", text).into_iter().map(|(_, rule)| rule).collect()
}

#[test]
fn every_ban_is_found_in_the_data_path() {
    let planted = [
        ("use std::time::{Duration, Instant};", "clock"),
        ("fn f() { std::time::SystemTime::now(); }", "clock"),
        ("use std::time; fn f() -> time::Instant { g() }", "clock"),
        ("use std::time::*;", "clock"),
        ("use std::{fs, io};", "files"),
        ("fn f() { std::fs::read(\"x\"); }", "files"),
        ("use std::net::TcpListener;", "sockets"),
        ("use std::os::unix::net::UnixStream;", "sockets"),
        ("fn f() { std::thread::spawn(g); }", "threads"),
        ("use tokio::sync::oneshot;", "runtime"),
        ("extern crate tokio;", "runtime"),
        ("fn f() { select! { _ = tokio::time::sleep(x) => {} } }", "runtime"),
        ("fn f() -> u8 { rand::random() }", "randomness"),
        ("use uuid::Uuid; fn f() { Uuid::new_v4(); }", "randomness"),
        ("use std::collections::{BTreeMap, HashMap};", "random-order"),
        ("struct S { s: std::collections::HashSet<u8> }", "random-order"),
        ("fn f() { std::env::var(\"X\"); }", "environment"),
        ("fn f() { g().unwrap(); }", "unwrap"),
        ("fn f() { x.map(Option::unwrap); }", "unwrap"),
        ("fn f() { todo!() }", "unfinished"),
        ("fn f() { unimplemented!(\"later\") }", "unfinished"),
        ("fn f() { println!(\"x\"); }", "printing"),
        ("fn f() { std::eprintln!(\"x\"); }", "printing"),
        ("fn f() { unsafe { g() } }", "unsafe"),
        ("unsafe impl Send for S {}", "unsafe"),
    ];
    for (text, rule) in planted {
        assert_eq!(rules(text), [rule], "{text}");
    }
    // A sleep is a use of threads as well.
    assert_eq!(rules("use std::thread; fn f() { thread::sleep(x); }"), ["threads", "sleep"]);
}

#[test]
fn what_is_harmless_is_not_found() {
    let harmless = [
        "use std::time::Duration; use std::net::SocketAddr; use std::collections::{BTreeMap, VecDeque};",
        "use rustc_hash::FxHashMap; use std::collections::hash_map::Entry;",
        "use spandrel_platform::Instant; fn f(now: Instant) { Instant::from_nanoseconds(1); }",
        "fn f() { g().unwrap_or_default(); g().expect(\"it is there\"); }",
        "// std::fs::read, unsafe, todo!()\nconst TEXT: &str = \"println!() tokio::spawn\";",
        "fn f() { random::u64(); self.rand.next(); strand::x(); }",
        "#[cfg(test)]\nmod tests { use std::collections::HashMap; fn f() { g().unwrap(); } }",
    ];
    for text in harmless {
        assert_eq!(rules(text), [] as [&str; 0], "{text}");
    }
}

#[test]
fn bans_hold_where_the_simulator_runs_and_not_elsewhere() {
    let text = "use std::fs;\nfn f() { println!(); }\n";
    let expected = [(1, "files".to_owned()), (2, "printing".to_owned())];
    for folder in ["data-path/volume", "control-path/pool", "shared", "platform/simulated", "programs/node"] {
        assert_eq!(broken_in(folder, "src/lib.rs", text), expected, "{folder}");
    }
    for folder in ["platform/linux", "programs/spandrel"] {
        assert_eq!(broken_in(folder, "src/lib.rs", text), [], "{folder}");
    }
}

#[test]
fn sleeping_and_unfinished_code_are_found_in_programs_and_tests_too() {
    let text = "fn f() {\n    std::thread::sleep(x);\n    todo!();\n    std::fs::read(y).unwrap();\n}\n";
    let expected = [(2, "sleep".to_owned()), (3, "unfinished".to_owned())];
    assert_eq!(broken_in("programs/spandrel", "src/lib.rs", text), expected);
    assert_eq!(broken_in("data-path/drive", "src/drive_tests.rs", text), expected);
    assert_eq!(broken_in("data-path/drive", "tests/whole.rs", text), expected);
    let inline = format!("#[cfg(test)] mod tests {{\n{text}}}");
    assert_eq!(broken_in("data-path/drive", "src/lib.rs", &inline).len(), 2);
}

#[test]
fn unsafe_stands_in_the_platform_alone() {
    let text = "fn f() {\n    // tidy-allow(unsafe): no permit helps\n    unsafe { g() }\n}\n";
    for folder in ["platform/interface", "platform/linux"] {
        assert_eq!(broken_in(folder, "src/lib.rs", "fn f() { unsafe { g() } }"), []);
    }
    for (folder, file) in [
        ("shared", "src/lib.rs"),
        ("data-path/drive", "src/x_tests.rs"),
        ("platform/simulated", "src/lib.rs"),
    ] {
        let found = broken_in(folder, file, text);
        assert!(found.contains(&(3, "unsafe".to_owned())), "{found:?}");
    }
}

#[test]
fn a_permit_covers_its_line_and_the_next_and_must_be_of_use() {
    let permitted = "// tidy-allow(files): reads the machine's own name\nuse std::fs;\nuse std::env; // tidy-allow(environment): the same\n";
    assert_eq!(rules(permitted), [] as [&str; 0]);
    assert_eq!(
        rules("// tidy-allow(files): too far away\n\nuse std::fs;\n"),
        ["files", "the permit for `files` permits nothing"]
    );
    assert_eq!(
        rules("// tidy-allow(clock): the wrong rule\nuse std::fs;\n"),
        ["files", "the permit for `clock` permits nothing"]
    );
    assert_eq!(rules("use std::fs; // tidy-allow(files)\n"), ["the permit for `files` gives no reason"]);
}
