use super::*;

const ROOT: &str = "\
[workspace]
members = [\"crates/a\"]

[workspace.dependencies]
lean = { package = \"lean-fat\", version = \"1\" }
plain = \"1\"
";

fn read(manifest: &str) -> (Manifests, Vec<Finding>) {
    let mut findings = Vec::new();
    let repository = Repository::of(&[("Cargo.toml", ROOT), ("crates/a/Cargo.toml", manifest)]);
    (Manifests::read(&repository, &mut findings), findings)
}

#[test]
fn every_kind_and_form_of_dependency_is_read() {
    let (manifests, findings) = read(
        "\
[package]
name = \"a\"
[lints]
workspace = true
[dependencies]
lean.workspace = true
here = { package = \"there\", version = \"1\" }
[build-dependencies]
plain = { workspace = true }
[dev-dependencies]
tests = \"1\"
[target.'cfg(unix)'.dependencies]
unix = \"1\"
",
    );
    assert_eq!(findings, []);
    assert_eq!(manifests.members, ["crates/a"]);
    let manifest = &manifests.crates[0];
    assert_eq!((manifest.name.as_str(), manifest.folder(), manifest.inherits_lints), ("a", "crates/a", true));
    let dependencies: Vec<_> = manifest
        .dependencies
        .iter()
        .map(|found| (found.line, found.package.as_str(), found.kind, found.from_workspace))
        .collect();
    assert_eq!(
        dependencies,
        [
            (6, "lean-fat", DependencyKind::Normal, true),
            (7, "there", DependencyKind::Normal, false),
            (9, "plain", DependencyKind::Build, true),
            (11, "tests", DependencyKind::Development, false),
            (13, "unix", DependencyKind::Normal, false),
        ]
    );
}

#[test]
fn explicit_target_paths_are_read() {
    let (manifests, _) = read(
        "[package]\nname = \"a\"\nbuild = \"make.rs\"\n[lib]\npath = \"code/lib.rs\"\n[[bin]]\nname = \"b\"\npath = \"b.rs\"\n[[test]]\nname = \"t\"\npath = \"t.rs\"\n",
    );
    let paths = ["code/lib.rs", "make.rs", "b.rs", "t.rs"].map(str::to_owned);
    assert_eq!(
        manifests.crates[0].target_paths,
        paths.into_iter().zip([false, false, false, true]).collect::<Vec<_>>()
    );
    assert!(!manifests.crates[0].inherits_lints);
}

#[test]
fn a_broken_manifest_is_a_finding() {
    let (manifests, findings) = read("[package]\nname = \n");
    assert!(manifests.crates.is_empty());
    assert_eq!((findings[0].path.as_str(), findings[0].line), ("crates/a/Cargo.toml", 2));
}
