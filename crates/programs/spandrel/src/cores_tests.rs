use spandrel_platform_linux::Cores;

use super::check_cores;

#[test]
fn cores_that_are_not_there_are_refused_with_those_that_are() {
    let available = Cores::available().expect("the kernel says it");
    check_cores(Some(&available)).expect("all that are there");
    check_cores(None).expect("anywhere");
    let error = check_cores(Some(&"1023".parse().expect("cores")))
        .expect_err("no machine that runs tests has so many");
    assert_eq!(error.code, "CORES_UNUSABLE");
    assert!(error.to_string().contains(&available.to_string()), "{error}");
}
