//! Which source files are compiled: those a crate's root reaches through `mod`, `#[path]` and
//! `include!`, and whether that is for tests alone.

use std::collections::BTreeMap;

use super::manifests::{Manifest, Manifests};
use super::repository::{Repository, folder_of, resolve};
use super::rust_source::{ModuleDeclaration, RustSource};

/// The files reached, each with whether every way to it is for tests alone.
pub struct ModuleGraph {
    test_only: BTreeMap<String, bool>,
}

/// A file on the way: modules without a path are looked up beside a root or a `mod.rs`, and in
/// a folder of the file's own name otherwise.
struct Visit {
    path: String,
    looks_beside: bool,
    test_only: bool,
}

impl ModuleGraph {
    /// Follows the modules from all roots of all crates.
    pub fn new(
        repository: &Repository,
        manifests: &Manifests,
        sources: &BTreeMap<String, RustSource>,
    ) -> Self {
        let mut graph = Self { test_only: BTreeMap::new() };
        let mut open: Vec<Visit> =
            manifests.crates.iter().flat_map(|manifest| roots(repository, manifest)).collect();
        while let Some(visit) = open.pop() {
            // A second way changes nothing, unless the first ones were for tests and this is not.
            if graph.test_only.get(&visit.path).is_some_and(|&before| !before || visit.test_only) {
                continue;
            }
            graph.test_only.insert(visit.path.clone(), visit.test_only);
            let Some(source) = sources.get(&visit.path) else { continue };
            for module in &source.modules {
                open.extend(
                    candidates(&visit, module).into_iter().filter(|next| repository.has_file(&next.path)),
                );
            }
            for included in &source.included {
                if let Some(path) = resolve(folder_of(&visit.path), included) {
                    open.push(Visit { path, looks_beside: true, test_only: visit.test_only });
                }
            }
        }
        graph
    }

    /// Whether any crate compiles this file.
    pub fn reaches(&self, path: &str) -> bool {
        self.test_only.contains_key(path)
    }

    /// Whether this file is compiled, but for tests, benchmarks and examples alone.
    pub fn is_test_only(&self, path: &str) -> bool {
        self.test_only.get(path) == Some(&true)
    }
}

/// The files that cargo compiles as roots of targets.
fn roots(repository: &Repository, manifest: &Manifest) -> Vec<Visit> {
    let folder = manifest.folder();
    let mut roots = Vec::new();
    let mut add = |path: String, test_only| roots.push(Visit { path, looks_beside: true, test_only });
    for file in repository.files_below(folder) {
        let inside = &file[folder.len() + 1..];
        match inside.split('/').collect::<Vec<_>>()[..] {
            ["src", "lib.rs" | "main.rs"] | ["build.rs"] | ["src", "bin", _, "main.rs"] => {
                add(file.to_owned(), false);
            }
            ["src", "bin", name] if name.ends_with(".rs") => add(file.to_owned(), false),
            ["tests" | "benches" | "examples", _, "main.rs"] => add(file.to_owned(), true),
            ["tests" | "benches" | "examples", name] if name.ends_with(".rs") => add(file.to_owned(), true),
            _ => {}
        }
    }
    for (path, test_only) in &manifest.target_paths {
        if let Some(path) = resolve(folder, path) {
            add(path, *test_only);
        }
    }
    roots
}

/// Where the compiler looks for the file of `module`.
fn candidates(visit: &Visit, module: &ModuleDeclaration) -> Vec<Visit> {
    let folder = folder_of(&visit.path);
    let own_name =
        visit.path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs")).unwrap_or_default();
    let inside = module.inside.join("/");
    let base = if visit.looks_beside { inside.clone() } else { format!("{own_name}/{inside}") };
    let test_only = visit.test_only || module.test_only;
    let ways = match &module.path {
        Some(path) if inside.is_empty() => vec![(path.clone(), true)],
        Some(path) => vec![(format!("{base}/{path}"), true)],
        None => {
            vec![
                (format!("{base}/{}.rs", module.name), false),
                (format!("{base}/{}/mod.rs", module.name), true),
            ]
        }
    };
    ways.into_iter()
        .filter_map(|(path, looks_beside)| {
            Some(Visit { path: resolve(folder, &path)?, looks_beside, test_only })
        })
        .collect()
}

#[cfg(test)]
#[path = "module_graph_tests.rs"]
mod tests;
