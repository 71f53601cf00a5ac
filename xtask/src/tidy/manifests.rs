//! The workspace's `Cargo.toml` files: which crates there are and what each depends on.
//!
//! They are read rather than asked of `cargo metadata`, so that a finding can name the line and a
//! test can plant a manifest.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::finding::Finding;
use super::repository::{Repository, folder_of};

/// All crates of the repository.
pub struct Manifests {
    /// By folder.
    pub crates: Vec<Manifest>,
    /// The root manifest's `members`.
    pub members: Vec<String>,
}

/// One crate.
pub struct Manifest {
    /// The path of its `Cargo.toml`.
    pub path: String,
    /// The package's name.
    pub name: String,
    pub dependencies: Vec<Dependency>,
    /// Whether `[lints] workspace = true` stands there.
    pub inherits_lints: bool,
    /// Explicit `path`s of targets, relative to the crate's folder, and whether each is for tests.
    pub target_paths: Vec<(String, bool)>,
}

impl Manifest {
    /// The crate's folder, relative to the root.
    pub fn folder(&self) -> &str {
        folder_of(&self.path)
    }
}

/// One line of a dependency table.
pub struct Dependency {
    /// The package's name, also where the manifest renames it.
    pub package: String,
    pub kind: DependencyKind,
    pub line: usize,
    /// Whether version and features come from the root's `[workspace.dependencies]`.
    pub from_workspace: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyKind {
    Normal,
    Build,
    Development,
}

const TABLES: [(&str, DependencyKind); 3] = [
    ("dependencies", DependencyKind::Normal),
    ("build-dependencies", DependencyKind::Build),
    ("dev-dependencies", DependencyKind::Development),
];

impl Manifests {
    /// Reads all manifests. What cannot be read is a finding.
    pub fn read(repository: &Repository, findings: &mut Vec<Finding>) -> Self {
        let mut manifests = Self { crates: Vec::new(), members: Vec::new() };
        let mut renamed = BTreeMap::new();
        // The root first: the others name what it declares.
        let paths = repository.texts_ending("Cargo.toml").filter(|(path, _)| *path != "Cargo.toml");
        let root = repository.text("Cargo.toml").map(|text| ("Cargo.toml", text));
        for (path, text) in root.into_iter().chain(paths) {
            let table = match DeTable::parse(text) {
                Ok(table) => table,
                Err(error) => {
                    let line = error.span().map_or(1, |span| line_at(text, span.start));
                    let message = error.message().to_owned();
                    findings.push(Finding::new(
                        path,
                        line,
                        format!("this is not TOML ({message})"),
                        "cargo cannot read it",
                        "mend it",
                    ));
                    continue;
                }
            };
            let table = table.get_ref();
            if let Some(workspace) = table_at(table, "workspace") {
                manifests.members.extend(strings_at(workspace, "members"));
                renamed = renames(workspace);
            }
            if let Some(name) = table_at(table, "package").and_then(|package| string_at(package, "name")) {
                manifests.crates.push(read_crate(path, text, name, table, &renamed));
            }
        }
        manifests
    }
}

fn read_crate(
    path: &str,
    text: &str,
    name: &str,
    table: &DeTable<'_>,
    renamed: &BTreeMap<String, String>,
) -> Manifest {
    let mut dependencies = Vec::new();
    let targets = table_at(table, "target").into_iter().flat_map(|targets| targets.values());
    for table in std::iter::once(table).chain(targets.filter_map(|target| target.get_ref().as_table())) {
        for (key, kind) in TABLES {
            for (name, value) in table_at(table, key).into_iter().flatten() {
                let from_workspace =
                    value.get_ref().as_table().is_some_and(|entry| is_true(entry, "workspace"));
                let key = name.get_ref().as_ref();
                let package = match value.get_ref().as_table().and_then(|entry| string_at(entry, "package")) {
                    Some(package) => package.to_owned(),
                    None if from_workspace => renamed.get(key).map_or(key, String::as_str).to_owned(),
                    None => key.to_owned(),
                };
                let line = line_at(text, name.span().start);
                dependencies.push(Dependency { package, kind, line, from_workspace });
            }
        }
    }
    dependencies.sort_by_key(|dependency| dependency.line);
    Manifest {
        path: path.to_owned(),
        name: name.to_owned(),
        dependencies,
        inherits_lints: table_at(table, "lints").is_some_and(|lints| is_true(lints, "workspace")),
        target_paths: target_paths(table),
    }
}

/// What `[workspace.dependencies]` calls by another name than the package's own.
fn renames(workspace: &DeTable<'_>) -> BTreeMap<String, String> {
    let entries = table_at(workspace, "dependencies").into_iter().flatten();
    entries
        .filter_map(|(key, value)| {
            let package = string_at(value.get_ref().as_table()?, "package")?;
            Some((key.get_ref().to_string(), package.to_owned()))
        })
        .collect()
}

fn target_paths(table: &DeTable<'_>) -> Vec<(String, bool)> {
    let mut paths = Vec::new();
    if let Some(path) = table_at(table, "lib").and_then(|lib| string_at(lib, "path")) {
        paths.push((path.to_owned(), false));
    }
    if let Some(path) = table_at(table, "package").and_then(|package| string_at(package, "build")) {
        paths.push((path.to_owned(), false));
    }
    for (key, test_only) in [("bin", false), ("test", true), ("bench", true), ("example", true)] {
        let entries = value_at(table, key).and_then(DeValue::as_array).into_iter().flatten();
        for entry in entries.filter_map(|entry| entry.get_ref().as_table()) {
            paths.extend(string_at(entry, "path").map(|path| (path.to_owned(), test_only)));
        }
    }
    paths
}

fn value_at<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<&'t DeValue<'i>> {
    table.get(key).map(Spanned::get_ref)
}

fn table_at<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<&'t DeTable<'i>> {
    value_at(table, key).and_then(DeValue::as_table)
}

fn string_at<'t>(table: &'t DeTable<'_>, key: &str) -> Option<&'t str> {
    value_at(table, key).and_then(DeValue::as_str)
}

fn strings_at(table: &DeTable<'_>, key: &str) -> Vec<String> {
    let values = value_at(table, key).and_then(DeValue::as_array).into_iter().flatten();
    values.filter_map(|value| value.get_ref().as_str()).map(str::to_owned).collect()
}

fn is_true(table: &DeTable<'_>, key: &str) -> bool {
    value_at(table, key).and_then(DeValue::as_bool) == Some(true)
}

/// The line, counted from 1, of a byte of `text`.
fn line_at(text: &str, byte: usize) -> usize {
    text[..byte.min(text.len())].matches('\n').count() + 1
}

#[cfg(test)]
#[path = "manifests_tests.rs"]
mod tests;
