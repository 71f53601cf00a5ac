use std::path::Path;

use super::*;

#[test]
fn names_stay_one_part_of_a_path() {
    assert_eq!(path_with("/v1/volumes/{name}/check", "a-1.b"), "/v1/volumes/a-1.b/check");
    assert_eq!(path_with("/v1/volumes/{name}", "../x y?"), "/v1/volumes/..%2Fx%20y%3F");
    assert_eq!(path_with("/v1/volumes/{name}", ".."), "/v1/volumes/%2E%2E");
    assert_eq!(path_with("/v1/volumes/{name}", "ä"), "/v1/volumes/%C3%A4");
}

#[test]
fn a_cluster_that_does_not_run_is_told_so() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let code = |path: &Path| {
        let directory = Directory::choose(Some(path)).expect("it is a good path");
        let answer = Client::new(directory).and_then(|client| client.get::<()>(crate::admin::api::STATUS));
        answer.expect_err("nobody listens").code
    };
    assert_eq!(code(parent.path()), "CLUSTER_NOT_RUNNING");
    assert_eq!(code(&parent.path().join("nothing")), "CLUSTER_NOT_RUNNING");
    let stale = std::os::unix::net::UnixListener::bind(parent.path().join("admin.sock"));
    drop(stale.expect("the path is free"));
    assert_eq!(code(parent.path()), "CLUSTER_NOT_RUNNING", "a socket that is left over");
    assert_eq!(code(Path::new(&format!("/{}", "x".repeat(120)))), "DIR_PATH_TOO_LONG");
}
