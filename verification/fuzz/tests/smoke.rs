//! Every target bears its seeds, the committed corpus, and what a fixed seed makes of them.

use spandrel_fuzz::{engine, targets};

/// Changed only to look for new failures; what it finds goes into the corpus.
const SEED: u64 = 20_26;

#[test]
fn every_target_bears_what_is_known_and_a_little_more() {
    // One after the other, since memory is counted for the whole process.
    for target in targets::ALL {
        if let Err(failure) = engine::smoke(&target, SEED, target.smoke_runs) {
            let path = std::env::temp_dir().join(format!("{}-failure", target.name));
            std::fs::write(&path, &failure.input).expect("the folder for temporary files can be written");
            panic!(
                "{} fails on {}; try it alone: cargo xtask fuzz {} --input {}",
                target.name,
                failure.origin,
                target.name,
                path.display()
            );
        }
    }
}

#[test]
fn every_folder_of_the_corpus_is_a_target_s() {
    let corpus = engine::corpus_folder(&targets::ALL[0]);
    let folders = std::fs::read_dir(corpus.parent().expect("it is a folder in the corpus"));
    for folder in folders.expect("there is a corpus") {
        let name = folder.expect("it can be read").file_name();
        let name = name.to_str().expect("names of targets are plain text");
        assert!(targets::find(name).is_some(), "{name} is no target: what is in there is never tried");
    }
}
