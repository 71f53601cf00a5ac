//! Who may depend on whom: [`super::layers`] for our own crates, a list for all others.

use super::finding::Finding;
use super::layers::Layer;
use super::manifests::{Dependency, DependencyKind, Manifest};
use super::survey::Survey;

/// What code that runs in the simulator may depend on besides our own crates, and why each is
/// harmless there: it is arithmetic or data, without time, threads, randomness or I/O of its own.
/// Tests may use what they like.
const ALLOWED_IN_SIMULATION: [(&str, &str); 16] = [
    ("crc-fast", "the checksum's arithmetic, faster than we could write it"),
    ("futures-channel", "queues between the data path's thread and others, without a runtime"),
    ("futures-util", "joining and racing futures, without a runtime"),
    ("hdrhistogram", "counting latencies"),
    ("postcard", "messages as bytes"),
    ("ring", "digests of contents that are compared, which is arithmetic; of its randomness nothing is used"),
    ("rustc-hash", "maps whose order is the same in every run"),
    ("serde", "state and messages as data"),
    ("serde_json", "what the cluster's state holds, and what programs read"),
    ("smallvec", "lists that are short as a rule, without memory of their own"),
    ("tracing", "events for the log; the program decides where they go"),
    ("uuid", "identities; made from the platform's randomness"),
    ("virtio-bindings", "the numbers of virtio"),
    ("virtio-queue", "the rings of a guest's queues, wherever its memory is"),
    ("vm-memory", "a guest's memory, whoever has mapped it"),
    ("zerocopy", "disk and wire formats as plain memory, without unsafe of our own"),
];

/// Checks every dependency of every crate.
pub fn check(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in &survey.manifests.crates {
        let Some(layer) = Layer::of(manifest.folder()) else {
            findings.push(Finding::new(
                &manifest.path,
                1,
                format!("{} stands in no layer", manifest.name),
                "so nothing says what it may depend on",
                "move it, or give its folder a layer in xtask/src/tidy/layers.rs",
            ));
            continue;
        };
        findings.extend(check_membership(survey, manifest));
        for dependency in &manifest.dependencies {
            findings.extend(check_dependency(survey, manifest, layer, dependency));
        }
    }
    findings
}

/// That the workspace's settings hold for a crate.
fn check_membership(survey: &Survey, manifest: &Manifest) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !survey.manifests.members.iter().any(|member| member == manifest.folder()) {
        findings.push(Finding::new(
            &manifest.path,
            1,
            format!("{} is not a member of the workspace", manifest.name),
            "so neither `cargo test` nor clippy sees it",
            format!("add {:?} to members in Cargo.toml", manifest.folder()),
        ));
    }
    if !manifest.inherits_lints {
        findings.push(Finding::new(
            &manifest.path,
            1,
            format!("{} does not inherit the workspace's lints", manifest.name),
            "so unsafe code and unwrap would pass there",
            "add `[lints]` with `workspace = true`",
        ));
    }
    findings
}

fn check_dependency(
    survey: &Survey,
    manifest: &Manifest,
    layer: Layer,
    dependency: &Dependency,
) -> Vec<Finding> {
    let finding =
        |what: String, why: &str, fix: &str| Finding::new(&manifest.path, dependency.line, what, why, fix);
    let package = &dependency.package;
    let mut findings = Vec::new();
    if !dependency.from_workspace {
        findings.push(finding(
            format!("{package} has a version or path of its own here"),
            "every crate of the workspace must use the same one",
            "declare it in [workspace.dependencies] and write `workspace = true` here",
        ));
    }
    let for_tests = dependency.kind == DependencyKind::Development;
    let ours = survey.manifests.crates.iter().find(|known| known.name == *package);
    match ours.map(|other| Layer::of(other.folder())) {
        Some(Some(other)) => {
            if let Some(why) = layer.refusal(other, for_tests) {
                findings.push(finding(
                    format!("{} may not depend on {package}", manifest.name),
                    why,
                    "take what it needs through a trait, or move the code to the layer that may",
                ));
            }
        }
        // The other crate has its own finding.
        Some(None) => {}
        None if for_tests || !layer.runs_simulated() => {}
        None if ALLOWED_IN_SIMULATION.iter().any(|(allowed, _)| allowed == package) => {}
        None => findings.push(finding(
            format!("{} may not depend on {package}", manifest.name),
            "what runs in the simulator uses only crates known to be without time, threads, randomness and I/O",
            "do without, or add it with its reason to xtask/src/tidy/dependency_rule.rs",
        )),
    }
    findings
}

#[cfg(test)]
#[path = "dependency_rule_tests.rs"]
mod tests;
