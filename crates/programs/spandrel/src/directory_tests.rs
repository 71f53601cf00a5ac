use super::*;

#[test]
fn paths_lie_within() {
    let directory = Directory::choose(Some(Path::new("/x/y"))).expect("it is a good path");
    assert_eq!(directory.admin_socket(), Path::new("/x/y/admin.sock"));
    assert_eq!(directory.nbd_socket("n2"), Path::new("/x/y/n2/nbd.sock"));
    assert_eq!(directory.drive_file("n2", "d1"), Path::new("/x/y/n2/d1.drive"));
}

#[test]
fn a_relative_path_is_made_absolute() {
    let directory = Directory::choose(Some(Path::new("here"))).expect("it is a good path");
    assert!(directory.path().is_absolute() && directory.path().ends_with("here"));
}

#[test]
fn the_longest_name_that_fits_is_told_truly() {
    let of_length = |length: usize| format!("/{}", "x".repeat(length - 1));
    let choose = |length| Directory::choose(Some(Path::new(&of_length(length)))).expect("it is a path");
    let error = choose(100).check_socket_lengths("n16").expect_err("100 and 13 bytes do not fit");
    assert_eq!(error.code, "DIR_PATH_TOO_LONG");
    assert!(error.next.contains("at most 94 bytes"), "{}", error.next);
    assert!(choose(94).check_socket_lengths("n16").is_ok());
    assert!(choose(95).check_socket_lengths("n16").is_err());
}

#[test]
fn names_that_cannot_be_written_are_refused() {
    let error = Directory::choose(Some(Path::new("/x\ny"))).expect_err("a line break is no name");
    assert_eq!(error.code, "DIR_INVALID");
}
