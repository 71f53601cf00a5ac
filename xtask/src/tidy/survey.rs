//! What all checks look at: the repository with its manifests and sources parsed once.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::manifests::{Manifest, Manifests};
use super::module_graph::ModuleGraph;
use super::repository::Repository;
use super::rust_source::RustSource;

/// The repository, read and parsed.
pub struct Survey {
    pub repository: Repository,
    pub manifests: Manifests,
    /// Every `.rs` file that parses, by path.
    pub sources: BTreeMap<String, RustSource>,
    pub modules: ModuleGraph,
}

impl Survey {
    /// Parses `repository`. What cannot be parsed is a finding.
    pub fn new(repository: Repository) -> (Self, Vec<Finding>) {
        let mut findings = Vec::new();
        let manifests = Manifests::read(&repository, &mut findings);
        let mut sources = BTreeMap::new();
        for (path, text) in repository.texts_ending(".rs") {
            match RustSource::parse(text) {
                Ok(source) => {
                    sources.insert(path.to_owned(), source);
                }
                Err((line, error)) => findings.push(Finding::new(
                    path,
                    line,
                    format!("this is not Rust ({error})"),
                    "no rule can be checked here",
                    "mend it, or give what is meant to be broken another ending",
                )),
            }
        }
        let modules = ModuleGraph::new(&repository, &manifests, &sources);
        (Self { repository, manifests, sources, modules }, findings)
    }

    /// A survey of planted files, which must all parse.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let (survey, findings) = Self::new(Repository::of(files));
        assert_eq!(findings, []);
        survey
    }

    /// The crate that a file belongs to.
    pub fn crate_of(&self, path: &str) -> Option<&Manifest> {
        self.manifests
            .crates
            .iter()
            .filter(|manifest| path.strip_prefix(manifest.folder()).is_some_and(|rest| rest.starts_with('/')))
            .max_by_key(|manifest| manifest.folder().len())
    }

    /// Whether a source is compiled for tests alone.
    pub fn is_test(&self, path: &str) -> bool {
        path.ends_with("_tests.rs") || self.modules.is_test_only(path)
    }
}
