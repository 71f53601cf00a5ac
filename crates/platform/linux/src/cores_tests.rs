use super::Cores;
use crate::{Runtime, RuntimeConfig};

fn cores(text: &str) -> Cores {
    text.parse().expect("cores")
}

#[test]
fn lists_are_read_and_written() {
    for (text, written) in
        [("0", "0"), ("3,1", "1,3"), ("0,2-4", "0,2-4"), ("2-2,1,0", "0-2"), ("5-6,7", "5-7")]
    {
        assert_eq!(cores(text).to_string(), written, "{text}");
    }
}

#[test]
fn what_is_no_list_is_refused() {
    for text in ["", "a", "1,", "-1", "1-", "3-2", "0 1", "+1", "0-+2", "1024", "99999999999999999999"] {
        let error = text.parse::<Cores>().expect_err(text);
        assert!(error.contains("write for example 0 or 0,2-3"), "{error}");
    }
}

#[test]
fn threads_have_parts_that_differ_by_one_at_most_or_share_a_core() {
    let parts = |text: &str, threads: usize| {
        let all = cores(text);
        (0..threads).map(|index| all.share(index, threads).to_string()).collect::<Vec<_>>()
    };
    assert_eq!(parts("0-3", 1), ["0-3"]);
    assert_eq!(parts("0-3", 2), ["0-1", "2-3"]);
    assert_eq!(parts("4-5", 4), ["4", "5", "4", "5"]);
    assert_eq!(parts("7", 3), ["7", "7", "7"]);
    assert_eq!(parts("0-2", 2), ["0", "1-2"]);
}

#[test]
fn the_first_are_as_many_as_are_asked_for_if_there_are() {
    for (count, first) in [(0, "1"), (1, "1"), (2, "1,3"), (4, "1,3-4")] {
        assert_eq!(cores("1,3-4").first(count).to_string(), first);
    }
}

#[test]
fn some_are_among_others() {
    assert!(cores("1").are_among(&cores("0-1")));
    assert!(!cores("1-2").are_among(&cores("0-1")));
}

#[test]
fn a_runtime_and_the_threads_that_it_starts_stay_on_the_cores_that_it_is_given() {
    // On a thread of its own, which the test's thread does not follow.
    let checked = std::thread::spawn(|| {
        let all = Cores::available().expect("the kernel says it");
        let first = all.first(1);
        let config = RuntimeConfig { cores: Some(first.clone()), ..RuntimeConfig::default() };
        let runtime = Runtime::new(config).expect("a runtime");
        let started = std::thread::spawn(|| Cores::available().expect("the kernel says it"));
        drop(runtime);
        (first, Cores::available().expect("the kernel says it"), started.join().expect("it does not panic"))
    });
    let (given, own, started) = checked.join().expect("it does not panic");
    assert_eq!((&own, &started), (&given, &given));
}

#[test]
fn a_runtime_is_not_made_for_cores_that_are_not_there() {
    let config = RuntimeConfig { cores: Some(cores("1023")), ..RuntimeConfig::default() };
    let error = Runtime::new(config).err().expect("no machine that runs tests has so many").to_string();
    assert!(error.contains("stay on cores 1023"), "{error}");
}
