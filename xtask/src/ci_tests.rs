use super::*;

fn results(outcomes: Vec<Outcome>) -> Vec<(&'static str, Outcome, Duration)> {
    ["format", "lints", "tests"]
        .into_iter()
        .zip(outcomes)
        .map(|(name, outcome)| (name, outcome, Duration::from_millis(1500)))
        .collect()
}

#[test]
fn the_summary_says_what_passed_and_what_could_not_be_checked() {
    let results =
        results(vec![Outcome::Passed, Outcome::PassedExcept("no network".to_owned()), Outcome::Passed]);
    let expected = "  passed  format                   1.5 s
  passed  lints                    1.5 s  (no network)
  passed  tests                    1.5 s
ci: all steps passed, 4.5 s
";
    assert_eq!(summary(&results, 3, Duration::from_millis(4500)), expected);
}

#[test]
fn the_summary_says_what_failed_and_what_was_not_run() {
    let results = results(vec![Outcome::Passed, Outcome::Failed]);
    let text = summary(&results, 5, Duration::from_secs(3));
    assert!(text.contains("FAILED  lints"), "{text}");
    assert!(text.ends_with("ci: 1 failed, 3 not run, 3.0 s\n"), "{text}");
}

/// Steps that leave a file when they run, in a folder of their own.
const PLANTED: [Step; 4] = [
    ("passes", Work::Run(|context| leave(context, "passes", Ok(Outcome::Passed)))),
    (
        "in part",
        Work::Run(|context| leave(context, "in-part", Ok(Outcome::PassedExcept("a reason".to_owned())))),
    ),
    ("fails", Work::Run(|context| leave(context, "fails", Ok(Outcome::Failed)))),
    ("cannot run", Work::Run(|context| leave(context, "cannot-run", Err("no such program".to_owned())))),
];

fn leave(context: &Context<'_>, name: &str, result: Result<Outcome, String>) -> Result<Outcome, String> {
    std::fs::write(context.root.join(name), "").unwrap();
    result
}

/// Whether `steps` passed, and which of the planted steps ran.
fn run_planted(steps: &[Step], keep_going: bool) -> (bool, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let context = Context { root: folder.path(), on_build_machine: false, install: false };
    let passed = run_steps(steps, keep_going, &context);
    let entries = std::fs::read_dir(folder.path()).unwrap();
    let mut ran: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    ran.sort();
    (passed, ran)
}

#[test]
fn a_program_is_kept_although_the_former_one_is_another_name_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let (built, kept) = (folder.path().join("built"), folder.path().join("kept"));
    std::fs::write(&built, "a program").unwrap();
    std::fs::hard_link(&built, &kept).unwrap();
    keep(&built, &kept).unwrap();
    std::fs::write(&built, "another one").unwrap();
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "a program");
}

#[test]
fn the_first_failure_ends_the_run_unless_told_otherwise() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(run_planted(&PLANTED[..2], false), (true, names(&["in-part", "passes"])));
    assert_eq!(run_planted(&PLANTED, false), (false, names(&["fails", "in-part", "passes"])));
    assert_eq!(run_planted(&PLANTED, true), (false, names(&["cannot-run", "fails", "in-part", "passes"])));
    assert_eq!(run_planted(&PLANTED[3..], false), (false, names(&["cannot-run"])));
}

/// Begins a shell that ends as it is told, but not before the step behind it has left its file.
fn begin_shell(context: &Context<'_>, exit: &str) -> Result<Begun, String> {
    let script = format!("until [ -e passes ]; do sleep 0.01; done; {exit}");
    let log = context.root.join("log");
    let program = commands::begin(command("sh").current_dir(context.root).args(["-c", &script]), &log)?;
    Ok(Begun { program, log })
}

#[test]
fn a_step_that_was_begun_runs_beside_the_next_one_and_counts() {
    let passes = || ("passes", Work::Run(|context| leave(context, "passes", Ok(Outcome::Passed))));
    let ran = vec!["log".to_owned(), "passes".to_owned()];
    let succeeds = ("begun", Work::Begin(|context| begin_shell(context, "exit 0")));
    assert_eq!(run_planted(&[succeeds, passes()], false), (true, ran.clone()));
    let fails = ("begun", Work::Begin(|context| begin_shell(context, "exit 1")));
    assert_eq!(run_planted(&[fails, passes()], false), (false, ran));
    let cannot = ("begun", Work::Begin(|_| Err("no such program".to_owned())));
    assert_eq!(run_planted(&[cannot, passes()], false), (false, vec!["passes".to_owned()]));
}
