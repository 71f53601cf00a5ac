use std::io::Write;
use std::sync::Arc;

use super::*;

/// What was written, by any thread.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics with the lock").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The lines that are logged while `say` runs.
fn logged(format: LogFormat, names: &[&str], say: impl FnOnce()) -> Vec<String> {
    let written = Written::default();
    let writer = written.clone();
    let lines = JsonLines { names: names.iter().map(|name| (*name).to_owned()).collect() };
    let layer = layer(move || writer.clone(), false, true, format, &lines);
    tracing::subscriber::with_default(Registry::default().with(layer), say);
    let bytes = written.0.lock().expect("nobody panics with the lock").clone();
    String::from_utf8(bytes).expect("logs are text").lines().map(str::to_owned).collect()
}

fn parsed(lines: &[String]) -> Vec<Value> {
    let parse = |line: &String| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    lines.iter().map(parse).collect()
}

#[test]
fn every_line_is_one_object_with_all_of_an_event() {
    let lines = logged(LogFormat::Json, &["n1"], || {
        let error = std::io::Error::other("broken \"pipe\"\nand more");
        tracing::info!(volume = "v\"1\"", epoch = 7, is_new = true, share = 0.5, "taking it\nover");
        tracing::warn!(%error, debugged = ?Some(1), none = f64::NAN, "{} of {}", 1, 2);
        let source: &(dyn std::error::Error + 'static) = &error;
        tracing::error!(target: "elsewhere", error = source);
    });
    let [first, second, third] = &parsed(&lines)[..] else { panic!("{lines:?}") };
    assert_eq!((&first["level"], &first["node"]), (&json!("INFO"), &json!("n1")));
    assert_eq!(first["message"], "taking it\nover");
    assert_eq!(first["fields"], json!({"volume": "v\"1\"", "epoch": 7, "is_new": true, "share": 0.5}));
    assert!(first["target"].as_str().is_some_and(|target| target.starts_with("spandrel::log")), "{first}");
    let time = first["time"].as_str().expect("a text");
    assert!(time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
    assert_eq!(second["message"], "1 of 2");
    let fields = json!({"error": "broken \"pipe\"\nand more", "debugged": "Some(1)", "none": null});
    assert_eq!(second["fields"], fields);
    assert_eq!((&third["target"], &third["message"]), (&json!("elsewhere"), &json!("")));
}

#[test]
fn of_several_nodes_each_speaks_in_its_own_name() {
    let on_thread = |name: &str| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let speak = move || tracing::dispatcher::with_default(&dispatch, || tracing::info!("here"));
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(speak);
        thread.expect("it can be started").join().expect("it has not panicked");
    };
    let lines = logged(LogFormat::Json, &["n1", "n2"], || {
        on_thread("n2");
        on_thread("worker");
        on_thread("n1/3");
    });
    let lines = parsed(&lines);
    assert_eq!((&lines[0]["node"], &lines[0]["shard"]), (&json!("n2"), &json!(0)));
    assert_eq!((lines[1].get("node"), lines[1].get("shard")), (None, None));
    assert_eq!((&lines[2]["node"], &lines[2]["shard"]), (&json!("n1"), &json!(3)));
    let lines = logged(LogFormat::Json, &["n1"], || {
        on_thread("n1/1");
        on_thread("worker");
    });
    let lines = parsed(&lines);
    assert_eq!((&lines[0]["node"], &lines[0]["shard"]), (&json!("n1"), &json!(1)));
    assert_eq!((&lines[1]["node"], lines[1].get("shard")), (&json!("n1"), None));
}

#[test]
fn text_is_what_it_was() {
    let lines = logged(LogFormat::Text, &["n1"], || tracing::warn!(volume = "v", "moved"));
    assert_eq!(lines.len(), 1);
    let (_, behind_time) = lines[0].split_once(' ').expect("a time and more");
    assert_eq!(behind_time, " WARN spandrel::log::tests: moved volume=\"v\"");
}

#[test]
fn a_person_sees_trouble_and_its_end_and_not_what_goes_well() {
    assert!(is_shown("spandrel::server", Level::WARN) && is_shown("spandrel_volume", Level::ERROR));
    assert!(is_shown(ALL_CLEAR, Level::INFO));
    assert!(!is_shown("spandrel::server", Level::INFO) && !is_shown("spandrel_bus", Level::WARN));
}
