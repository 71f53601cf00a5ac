use std::process::Stdio;

use super::*;

#[test]
fn what_children_use_is_counted_and_what_others_use_is_not() {
    let (ours, others) = (Mark::new("ours"), Mark::new("others"));
    // A shell whose child computes, and one of another contender that does so too.
    let start = |mark: &Mark| {
        let busy = "sh -c 'while :; do :; done'";
        mark.command("sh").args(["-c", busy]).stdin(Stdio::null()).spawn().expect("there is a shell")
    };
    let mut children = [start(&ours), start(&others)];
    let before = Reading::take(&ours);
    let is_seen = |task: u32| Reading::take(&ours).used.contains_key(&task);
    let (own, other) = (children[0].id(), children[1].id());
    while Reading::take(&ours).busy_cores_since(&before) == 0.0 || !is_seen(own) {
        std::thread::yield_now();
    }
    assert!(!is_seen(other), "it bears another mark");
    [ours, others].iter().for_each(Mark::end_all);
    for child in &mut children {
        child.wait().expect("it is a child");
    }
}

#[test]
fn only_threads_of_the_kernel_are_taken_for_such() {
    assert!(!is_kernel_thread(Path::new("/proc/self")));
    assert!(is_of_kernel_thread("9 (a) b) I 2 0 0 0 -1 69238880 0 0 0 0 0 0 0"), "a name may hold anything");
    assert!(
        !is_of_kernel_thread("9 (sh) R 1 9 9 0 -1 4194304 0 0 0 0 0 0 0"),
        "even if it has no command line yet"
    );
    assert!(!is_of_kernel_thread(""));
}

#[test]
fn a_process_without_an_environment_is_between_two_programs_unless_it_has_ended() {
    let stat = |state: &str, flags: u32, environment_end: &str| {
        let words = "0 ".repeat(41);
        format!("9 (a) b) {state} 1 9 9 0 -1 {flags} {words}{environment_end} 0\n")
    };
    assert!(is_between_programs(&stat("R", 4_194_304, "0")));
    assert!(!is_between_programs(&stat("R", 4_194_304, "140722")), "it has been given an empty one");
    assert!(!is_between_programs(&stat("Z", 4_194_304, "0")));
    assert!(!is_between_programs(&stat("I", 0x0020_0000, "0")), "threads of the kernel have none");
    assert!(!is_between_programs(""), "it is gone");
    let own = fs::read_to_string("/proc/self/stat").unwrap();
    assert_ne!(word_of(&own, 51).unwrap(), "0");
}

#[test]
fn the_kernels_account_is_read() {
    assert_eq!(used_of("1234567 890 12\n"), Some(Duration::from_nanos(1_234_567)));
    assert_eq!(used_of(""), None);
    assert_eq!(used_of("many 1 2"), None);
}

#[test]
fn a_process_that_is_being_started_while_all_are_ended_is_ended_too() {
    for _ in 0..100 {
        let mark = Mark::new("ended");
        let start = "sh -c 'sh -c \"while :; do :; done\" & while :; do :; done' & wait";
        let mut child = mark.command("sh").args(["-c", start]).stdin(Stdio::null()).spawn().unwrap();
        let shells =
            || process_folders().filter(|(_, folder)| mark.is_borne_by(folder) == Some(true)).count();
        while shells() < 2 {
            std::thread::yield_now();
        }
        mark.end_all();
        child.wait().unwrap();
        assert_eq!(shells(), 0);
    }
}
