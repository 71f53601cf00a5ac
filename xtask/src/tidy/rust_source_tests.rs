use super::*;

fn parse(text: &str) -> RustSource {
    RustSource::parse(text).unwrap_or_else(|(line, error)| panic!("line {line}: {error}\n{text}"))
}

fn named(uses: &[Use]) -> Vec<(usize, String)> {
    uses.iter()
        .map(|found| {
            let text = match &found.named {
                Named::Path(path) => path.clone(),
                Named::Method(name) => format!(".{name}()"),
                Named::Macro(name) => format!("{name}!"),
                Named::Unsafe => "unsafe".to_owned(),
            };
            (found.line, text)
        })
        .collect()
}

fn names(text: &str) -> Vec<String> {
    named(&parse(text).uses).into_iter().map(|(_, name)| name).collect()
}

#[test]
fn imports_are_flattened() {
    let text = "use std::{fs, net::{TcpStream, UdpSocket as Socket}, time::{self, *}};\nuse tokio;\n";
    let found = names(text);
    for expected in
        ["std::fs", "std::net::TcpStream", "std::net::UdpSocket", "std::time", "std::time::*", "tokio"]
    {
        assert!(found.iter().any(|name| name == expected), "{expected} in {found:?}");
    }
}

#[test]
fn paths_are_resolved_through_imports() {
    let found = named(&parse("use std::time as clock;\nuse std::fs;\nfn f() {\n    clock::Instant::now();\n    fs::read(\"x\");\n}\n").uses);
    assert!(found.contains(&(4, "std::time::Instant::now".to_owned())), "{found:?}");
    assert!(found.contains(&(5, "std::fs::read".to_owned())), "{found:?}");
}

#[test]
fn what_stands_in_macros_counts_and_what_stands_in_text_does_not() {
    let text = r#"
/// std::fs::read
fn f() {
    // std::fs::write
    let _ = "std::net::TcpStream, x.unwrap(), unsafe";
    assert!(value.unwrap() == rand::random());
}
"#;
    assert_eq!(names(text), ["rand::random", ".unwrap()", "assert!"]);
}

#[test]
fn methods_macros_and_unsafe_are_seen() {
    let text = "fn f() {\n    a.unwrap();\n    a.unwrap_or(1);\n    a.field;\n    std::println!(\"x\");\n    if a != b {}\n    unsafe { g() }\n    for x in 0..unwrap() {}\n}\n";
    assert_eq!(
        named(&parse(text).uses),
        [(2, ".unwrap()"), (5, "std::println"), (5, "println!"), (7, "unsafe")]
            .map(|(line, name)| (line, name.to_owned()))
    );
}

#[test]
fn test_only_items_are_kept_apart() {
    let text = "use a::b;\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n#[cfg(all(test, unix))]\nuse c::d;\n#[cfg(not(test))]\nuse e::f;\n";
    let source = parse(text);
    assert_eq!(named(&source.uses), [(1, "a::b".to_owned()), (9, "e::f".to_owned())]);
    assert_eq!(named(&source.uses_in_tests), [(4, "std::fs".to_owned()), (7, "c::d".to_owned())]);
}

#[test]
fn modules_know_their_place_and_condition() {
    let text = "mod a;\n#[path = \"b_tests.rs\"]\n#[cfg(test)]\nmod tests;\nmod inline { mod c; }\n";
    let modules: Vec<_> = parse(text)
        .modules
        .into_iter()
        .map(|module| (module.inside.join("::"), module.name, module.path, module.test_only))
        .collect();
    assert_eq!(
        modules,
        [
            (String::new(), "a".to_owned(), None, false),
            (String::new(), "tests".to_owned(), Some("b_tests.rs".to_owned()), true),
            ("inline".to_owned(), "c".to_owned(), None, false),
        ]
    );
    assert_eq!(parse("include!(\"table.rs\");").included, ["table.rs"]);
}

#[test]
fn functions_are_named_and_measured() {
    let text = "\
fn free() {
    fn inner() {}
}
impl<T> Store<T> {
    /// Documentation does not count.
    #[inline]
    pub async fn write(&self) {
        x();
    }
}
impl Drive for Store<u8> { fn flush(&self) { fn inside() {} } }
trait Drive { fn flush(&self); fn name(&self) -> u8 { 1 } }
";
    let source = parse(text);
    for name in ["free", "inner", "inside", "Store::write", "Store::flush", "Drive::flush", "Drive::name"] {
        assert!(source.defines(name), "{name}");
    }
    for name in ["write", "Store::read", "Store::inside", "Drive::write"] {
        assert!(!source.defines(name), "{name}");
    }
    let write = source.functions.iter().find(|function| function.name == "Store::write").unwrap();
    assert_eq!((write.line, write.lines), (7, 3));
    // Declared without a body, a trait's function is defined by its implementations alone.
    assert!(!parse("trait Drive { fn flush(&self); }").defines("Drive::flush"));
}

#[test]
fn permits_are_comments_with_a_reason() {
    let text = "fn f() {\n    g(); // tidy-allow(sleep): paces a benchmark\n    // tidy-allow( clock )\n    h(\"é // tidy-allow(files): in a string\");\n}\n";
    let permit =
        |line, rule: &str, reason: &str| Permit { line, rule: rule.to_owned(), reason: reason.to_owned() };
    assert_eq!(parse(text).permits, [permit(2, "sleep", "paces a benchmark"), permit(3, "clock", "")]);
}

#[test]
fn what_is_not_rust_is_reported_with_its_line() {
    let (line, _) = RustSource::parse("fn f() {}\nfn g( {}\n").err().unwrap();
    assert_eq!(line, 2);
}
