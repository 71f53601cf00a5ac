use super::*;

#[test]
fn a_run_s_folder_is_named_by_its_profile_and_when_it_began() {
    let path = default_folder("micron-sata-4k", 1_795_303_226_000);
    assert_eq!(path, Path::new("fleet-micron-sata-4k-2026-11-21-232026"));
}
