use super::*;

#[test]
fn the_listing_s_first_words_are_the_targets() {
    let listing = "nbd-server       what an NBD client says\nbus-acceptor     what another node asks\n";
    assert_eq!(names_of(listing), ["nbd-server", "bus-acceptor"]);
}

#[test]
fn the_host_is_read_from_the_compiler_s_version() {
    let version = "rustc 1.95.0\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0\n";
    assert_eq!(host_of(version).as_deref(), Some("x86_64-unknown-linux-gnu"));
    assert_eq!(host_of("rustc 1.95.0"), None);
}

#[test]
fn a_run_keeps_what_it_finds_in_the_target_s_own_folders() {
    let root = tempfile::tempdir().expect("a folder for temporary files");
    let folders = Folders {
        working_corpus: root.path().join("corpus"),
        seeds: root.path().join("seeds"),
        failures: root.path().join("failures"),
    };
    let told = libfuzzer_arguments(3, &folders);
    let words: Vec<&str> = told.split(' ').collect();
    // The first folder is the one that libFuzzer adds to.
    assert!(words[0].ends_with("/corpus") && words[1].ends_with("/seeds"));
    assert!(words.contains(&"-max_total_time=180"));
    assert!(words.iter().any(|word| word.starts_with("-artifact_prefix=") && word.ends_with("/failures/")));
}
