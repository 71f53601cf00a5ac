use super::*;

fn paths(repository: &Repository) -> Vec<&str> {
    repository.files().map(|(path, _)| path).collect()
}

#[test]
fn reads_all_but_git_and_what_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, contents: &[u8]| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    };
    write(".gitignore", b"/target\n# a comment\n\n*.swp\n");
    write(".git/HEAD", b"x");
    write("target/debug/a", b"x");
    write("docs/target/kept.md", b"text\n");
    write("docs/.kept.md.swp", b"x");
    write("image.png", b"\x89PNG\0");
    write("large.bin", &vec![b'x'; usize::try_from(FILE_BYTES_MAX).unwrap() + 1]);
    write("largest-allowed.txt", &vec![b'x'; usize::try_from(FILE_BYTES_MAX).unwrap()]);
    std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();

    let repository = Repository::read(folder.path()).unwrap();
    assert_eq!(
        paths(&repository),
        [".gitignore", "docs/target/kept.md", "image.png", "large.bin", "largest-allowed.txt", "link"]
    );
    assert_eq!(repository.text("docs/target/kept.md"), Some("text\n"));
    assert_eq!(repository.files["image.png"], Contents::Other);
    assert_eq!(repository.files["link"], Contents::Other);
    assert_eq!(repository.files["large.bin"], Contents::TooLarge { bytes: FILE_BYTES_MAX + 1 });
    assert!(matches!(repository.files["largest-allowed.txt"], Contents::Text(_)));
}

#[test]
fn a_pattern_of_unknown_form_is_refused() {
    for pattern in ["target", "/a/b", "!*.md", "*.[ch]"] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".gitignore"), format!("/target\n{pattern}\n")).unwrap();
        let error = Repository::read(folder.path()).err().unwrap();
        assert!(error.to_string().contains(pattern), "{error}");
    }
}

#[test]
fn folders_are_known_by_their_files() {
    let repository = Repository::of(&[("a/b/c.rs", ""), ("a/b.rs", ""), ("a/bc/d.rs", "")]);
    for present in ["", "a", "a/b", "a/b/c.rs", "a/b.rs", "a/bc"] {
        assert!(repository.has_path(present), "{present}");
    }
    for absent in ["b", "a/b/c", "a/b/", "a/d"] {
        assert!(!repository.has_path(absent), "{absent}");
    }
    assert_eq!(repository.files_below("a/b").collect::<Vec<_>>(), ["a/b/c.rs"]);
}

#[test]
fn relative_paths_resolve() {
    assert_eq!(resolve("docs/guide", "../internals/./x.md").as_deref(), Some("docs/internals/x.md"));
    assert_eq!(resolve("", "README.md").as_deref(), Some("README.md"));
    assert_eq!(resolve("docs", "..").as_deref(), Some(""));
    assert_eq!(resolve("docs", "../../elsewhere"), None);
    assert_eq!(folder_of("docs/guide/x.md"), "docs/guide");
    assert_eq!(folder_of("README.md"), "");
}
