use std::process::Command;

use super::*;

/// Set in the process whose limit is raised: the limit is that of a whole process, and others are tested in this one.
const INNER: &str = "SPANDREL_TEST_OPEN_FILES";

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    if std::env::var_os(INNER).is_some() {
        assert_eq!(getrlimit(Resource::Nofile).current, Some(64), "as it was started");
        raise();
        let limit = getrlimit(Resource::Nofile);
        assert!(limit.current == limit.maximum && limit.current != Some(64), "{limit:?}");
        return;
    }
    let own = std::env::current_exe().expect("this program has a name");
    let name = "open_files::tests::the_soft_limit_is_raised_to_the_hard_one";
    let lowered = Command::new("sh")
        .args(["-c", r#"ulimit -Sn 64 && exec "$0" "$@""#])
        .arg(own)
        .args(["--exact", name])
        .env(INNER, "1")
        .output()
        .expect("a shell is there");
    let told = String::from_utf8_lossy(&lowered.stdout);
    assert!(lowered.status.success() && told.contains("1 passed"), "{told}");
}
