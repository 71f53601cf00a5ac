//! Calls and words that sources may not hold, by layer.
//!
//! What runs in the simulator takes time, randomness, tasks and I/O from the platform alone, so
//! that one seed replays one run. Clippy bans some of this too (`clippy.toml` of the data path
//! and the control path), by type and so also through methods; this bans the names themselves,
//! whole modules at once and inside macros.
//!
//! Where a rule must be broken, the line or the one above it says `// tidy-allow(rule): reason`.
//! A permit that permits nothing is itself a finding. `unsafe` has no permit.

use super::finding::Finding;
use super::layers::Layer;
use super::rust_source::{Named, Permit, Use};
use super::survey::Survey;

/// Where a ban holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// In what the simulator runs, tests left out.
    Simulated,
    /// In every source, tests included.
    Everywhere,
    /// As `Everywhere`, except the platform as it is asked for and the Linux one.
    OutsidePlatform,
}

struct Ban {
    /// What a permit calls it.
    rule: &'static str,
    /// Prefixes of paths; methods as `.name()`, macros as `name!`.
    names: &'static [&'static str],
    holds: Where,
    why: &'static str,
    fix: &'static str,
}

const BANS: &[Ban] = &[
    Ban {
        rule: "clock",
        names: &["std::time::Instant", "std::time::SystemTime", "std::time::UNIX_EPOCH"],
        holds: Where::Simulated,
        why: "a simulated run must not see the machine's clock",
        fix: "use Platform::now, Platform::sleep or Platform::unix_time",
    },
    Ban {
        rule: "files",
        names: &["std::fs"],
        holds: Where::Simulated,
        why: "a simulated run must not touch the machine's files",
        fix: "use Platform::open_drive",
    },
    Ban {
        rule: "sockets",
        names: &["std::net::TcpStream", "std::net::TcpListener", "std::net::UdpSocket", "std::os::unix::net"],
        holds: Where::Simulated,
        why: "a simulated run must not touch the machine's network",
        fix: "use Platform::connect and Platform::listen",
    },
    Ban {
        rule: "threads",
        names: &["std::thread", "std::sync::mpsc", "std::sync::Condvar"],
        holds: Where::Simulated,
        why: "everything of a shard runs on one thread, or its order could not be replayed",
        fix: "use Platform::spawn and the platform's sync module",
    },
    Ban {
        rule: "runtime",
        names: &["tokio"],
        holds: Where::Simulated,
        why: "there is one executor, and it is the platform's",
        fix: "use the traits of crates/platform/interface",
    },
    Ban {
        rule: "randomness",
        names: &[
            "rand",
            "getrandom",
            "std::hash::RandomState",
            "std::collections::hash_map::RandomState",
            "uuid::Uuid::new_v4",
            "uuid::Uuid::now_v7",
        ],
        holds: Where::Simulated,
        why: "one seed must replay one run",
        fix: "use Platform::random_u64",
    },
    Ban {
        rule: "random-order",
        names: &["std::collections::HashMap", "std::collections::HashSet"],
        holds: Where::Simulated,
        why: "their order differs from run to run",
        fix: "use rustc_hash::FxHashMap or FxHashSet, or a BTreeMap where the order matters",
    },
    Ban {
        rule: "environment",
        names: &["std::env"],
        holds: Where::Simulated,
        why: "a simulated run must not depend on where it is started",
        fix: "take the setting as a parameter from the program",
    },
    Ban {
        rule: "unwrap",
        names: &[".unwrap()", "Option::unwrap", "Result::unwrap"],
        holds: Where::Simulated,
        why: "a panic there says nothing of why it cannot happen",
        fix: "return an error, or use expect with a text that says why it cannot fail",
    },
    Ban {
        rule: "unfinished",
        names: &["todo!", "unimplemented!", "dbg!"],
        holds: Where::Everywhere,
        why: "unfinished code must not be merged",
        fix: "finish it, or leave it out",
    },
    Ban {
        rule: "printing",
        names: &["println!", "eprintln!", "print!", "eprint!"],
        holds: Where::Simulated,
        why: "only programs own the terminal",
        fix: "use tracing, or return what is to be said",
    },
    Ban {
        rule: "sleep",
        names: &["std::thread::sleep"],
        holds: Where::Everywhere,
        why: "a sleep is either too long or too short",
        fix: "await the condition",
    },
    Ban {
        rule: "unsafe",
        names: &["unsafe"],
        holds: Where::OutsidePlatform,
        why: "all unsafe code stands in crates/platform/interface and crates/platform/linux, where it is reviewed as such",
        fix: "use a safe crate, or move it there behind a safe function",
    },
];

/// Checks every source of every crate.
pub fn check(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in &survey.sources {
        let layer = survey.crate_of(path).and_then(|manifest| Layer::of(manifest.folder()));
        let is_test = survey.is_test(path);
        let mut permits: Vec<(&Permit, bool)> = source.permits.iter().map(|permit| (permit, false)).collect();
        let in_code = source.uses.iter().map(|found| (found, is_test));
        let in_tests = source.uses_in_tests.iter().map(|found| (found, true));
        // One line may name a thing twice, as an import and as a path.
        let mut broken: Vec<(usize, &Ban)> = Vec::new();
        for (found, for_tests) in in_code.chain(in_tests) {
            let bans = BANS.iter().filter(|ban| ban.holds_in(layer, for_tests) && ban.forbids(found));
            for ban in bans {
                if !broken.iter().any(|(line, before)| (*line, before.rule) == (found.line, ban.rule)) {
                    broken.push((found.line, ban));
                    findings.extend(judge(path, found, ban, &mut permits));
                }
            }
        }
        findings.extend(permits.iter().filter(|(_, used)| !used).map(|(permit, _)| {
            Finding::new(
                path,
                permit.line,
                format!("the permit for `{}` permits nothing", permit.rule),
                "a stale permit would hide the next breach",
                "delete it, or correct the rule's name",
            )
        }));
    }
    findings
}

/// The finding for a broken rule, unless a permit covers it.
fn judge(path: &str, found: &Use, ban: &Ban, permits: &mut [(&Permit, bool)]) -> Option<Finding> {
    let permit = permits.iter_mut().find(|(permit, _)| {
        permit.rule == ban.rule && (permit.line == found.line || permit.line + 1 == found.line)
    });
    let name = match &found.named {
        Named::Path(path) => path.clone(),
        Named::Method(name) => format!(".{name}()"),
        Named::Macro(name) => format!("{name}!"),
        Named::Unsafe => "unsafe".to_owned(),
    };
    match permit {
        Some((permit, used)) if found.named != Named::Unsafe => {
            *used = true;
            permit.reason.is_empty().then(|| {
                Finding::new(
                    path,
                    permit.line,
                    format!("the permit for `{}` gives no reason", ban.rule),
                    "the next reader must be able to judge it",
                    format!("write `// tidy-allow({}): reason`", ban.rule),
                )
            })
        }
        _ => Some(Finding::new(
            path,
            found.line,
            format!("`{name}` stands here ({} rule)", ban.rule),
            ban.why,
            ban.fix,
        )),
    }
}

impl Ban {
    fn holds_in(&self, layer: Option<Layer>, for_tests: bool) -> bool {
        match self.holds {
            Where::Everywhere => true,
            Where::OutsidePlatform => !matches!(layer, Some(Layer::PlatformInterface | Layer::PlatformLinux)),
            Where::Simulated => !for_tests && layer.is_some_and(Layer::runs_simulated),
        }
    }

    fn forbids(&self, found: &Use) -> bool {
        self.names.iter().any(|name| match &found.named {
            Named::Path(path) => path_is_banned(path, name),
            Named::Method(method) => {
                name.strip_prefix('.').and_then(|name| name.strip_suffix("()")) == Some(method)
            }
            Named::Macro(called) => name.strip_suffix('!') == Some(called),
            Named::Unsafe => *name == "unsafe",
        })
    }
}

/// Whether a path is the banned one or leads into it, or is a glob import that covers it.
fn path_is_banned(path: &str, banned: &str) -> bool {
    let leads_into = |longer: &str, shorter: &str| {
        longer.strip_prefix(shorter).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    leads_into(path, banned) || path.strip_suffix("::*").is_some_and(|module| leads_into(banned, module))
}

#[cfg(test)]
#[path = "banned_code_tests.rs"]
mod tests;
