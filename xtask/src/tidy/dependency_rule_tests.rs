use super::*;

const MEMBERS: &str =
    "crates/data-path/drive crates/data-path/volume crates/platform/linux crates/platform/simulated";

/// A manifest of a crate in good standing.
fn manifest(name: &str, dependencies: &str) -> String {
    format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{dependencies}")
}

fn findings(drive: &str, volume: &str) -> Vec<(String, usize, String)> {
    let members: Vec<_> = MEMBERS.split(' ').collect();
    let files = [
        ("Cargo.toml", format!("[workspace]\nmembers = {members:?}\n")),
        ("crates/data-path/drive/Cargo.toml", drive.to_owned()),
        ("crates/data-path/volume/Cargo.toml", volume.to_owned()),
        ("crates/platform/linux/Cargo.toml", manifest("linux", "[dependencies]\nlibc.workspace = true\n")),
        ("crates/platform/simulated/Cargo.toml", manifest("simulated", "")),
    ];
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    check(&Survey::of(&files)).into_iter().map(|found| (found.path, found.line, found.what)).collect()
}

#[test]
fn a_clean_workspace_has_no_findings() {
    let drive = manifest(
        "drive",
        "[dependencies]\nserde.workspace = true\n[dev-dependencies]\nsimulated.workspace = true\ntokio.workspace = true\n",
    );
    assert_eq!(findings(&drive, &manifest("volume", "[dependencies]\ndrive.workspace = true\n")), []);
}

#[test]
fn the_wrong_layer_the_wrong_crate_and_an_own_version_are_found() {
    let drive = manifest(
        "drive",
        "[dependencies]\nvolume.workspace = true\nlinux.workspace = true\nserde = \"1\"\n[build-dependencies]\nsimulated.workspace = true\n[target.'cfg(unix)'.dependencies]\ntokio.workspace = true\n",
    );
    let path = "crates/data-path/drive/Cargo.toml".to_owned();
    assert_eq!(
        findings(&drive, &manifest("volume", "")),
        [
            (path.clone(), 6, "drive may not depend on volume".to_owned()),
            (path.clone(), 7, "drive may not depend on linux".to_owned()),
            (path.clone(), 8, "serde has a version or path of its own here".to_owned()),
            (path.clone(), 10, "drive may not depend on simulated".to_owned()),
            (path, 12, "drive may not depend on tokio".to_owned()),
        ]
    );
}

#[test]
fn a_renamed_dependency_is_judged_by_its_package() {
    let drive = manifest("drive", "[dependencies]\nserde = { package = \"tokio\", workspace = true }\n");
    assert_eq!(findings(&drive, &manifest("volume", ""))[0].2, "drive may not depend on tokio");
}

#[test]
fn strangers_and_crates_without_the_lints_are_found() {
    let root = "[workspace]\nmembers = [\"xtask\"]\n";
    let survey = Survey::of(&[
        ("Cargo.toml", root),
        ("xtask/Cargo.toml", "[package]\nname = \"xtask\"\n[lints]\nworkspace = false\n"),
        ("crates/shared/Cargo.toml", &manifest("shared", "")),
        ("crates/sideways/Cargo.toml", &manifest("sideways", "")),
    ]);
    let found: Vec<_> = check(&survey).into_iter().map(|found| found.what).collect();
    assert_eq!(
        found,
        [
            "shared is not a member of the workspace",
            "sideways stands in no layer",
            "xtask does not inherit the workspace's lints",
        ]
    );
}
