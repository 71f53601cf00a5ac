//! What callgrind writes: the instructions of each function.
//!
//! A function's own instructions stand in lines of their own; what it calls stands behind a line `calls=`, and is not counted
//! twice. Names stand in full once, and then by a number in brackets.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// The made-up world and whoever loads it: their crates.
const WORLD_CRATES: [&str; 3] =
    ["spandrel_platform_simulated", "spandrel_simulator", "spandrel_instructions"];

/// Their folders.
const WORLD_FOLDERS: [&str; 3] =
    ["platform/simulated/", "verification/simulator/", "verification/instructions/"];

/// The instructions of each function, by the function's name.
#[derive(Debug, Default)]
pub struct Profile {
    functions: BTreeMap<String, Function>,
}

#[derive(Clone, Debug, Default)]
struct Function {
    file: String,
    instructions: u64,
}

impl Profile {
    /// Reads what callgrind has written.
    ///
    /// # Errors
    ///
    /// It counts something else than instructions, or a line is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader::default();
        for line in text.lines() {
            reader.read(line)?;
        }
        Ok(reader.profile)
    }

    /// The instructions of all functions but those of the made-up world.
    pub fn own_instructions(&self) -> u64 {
        self.own().map(|(_, function)| function.instructions).sum()
    }

    fn own(&self) -> impl Iterator<Item = (&String, &Function)> {
        self.functions.iter().filter(|(name, function)| !is_of_the_world(name, &function.file))
    }

    /// The functions that take the most, for one of `operations`.
    pub fn listing(&self, operations: u64, count: usize) -> String {
        let mut own: Vec<_> = self.own().collect();
        own.sort_by_key(|(_, function)| std::cmp::Reverse(function.instructions));
        let mut text = format!("{:>8}  all\n", self.own_instructions() / operations);
        for (name, function) in own.into_iter().take(count) {
            let each = function.instructions as f64 / operations as f64;
            writeln!(text, "{each:>8.1}  {name}").expect("a string takes what is written to it");
        }
        text
    }
}

/// Whether a function is the made-up world's. What is generic names the world in its parameters, and is not for that.
fn is_of_the_world(name: &str, file: &str) -> bool {
    let dropped = name.strip_prefix("core::ptr::drop_in_place<");
    let path = dropped.unwrap_or(name).trim_start_matches(['<', '&', '(']);
    let path = path.strip_prefix("mut ").unwrap_or(path);
    // Legacy names of symbols write a path as it stands, those of today put a number behind the crate.
    let crate_name = path.split(|end: char| !(end.is_alphanumeric() || end == '_')).next();
    crate_name.is_some_and(|name| WORLD_CRATES.contains(&name))
        || WORLD_FOLDERS.iter().any(|folder| file.contains(folder))
}

/// What has been read so far.
#[derive(Default)]
struct Reader {
    files: HashMap<String, String>,
    names: HashMap<String, String>,
    function: String,
    file: String,
    /// The next line of costs is of what was called.
    is_call: bool,
    profile: Profile,
}

impl Reader {
    fn read(&mut self, line: &str) -> Result<(), String> {
        if let Some(events) = line.strip_prefix("events:") {
            let is_first = events.split_whitespace().next() == Some("Ir");
            return is_first.then_some(()).ok_or_else(|| format!("it counts{events} and no instructions"));
        }
        if let Some((key, value)) = line.split_once('=').filter(|(key, _)| !key.contains(' ')) {
            match key {
                "fl" => self.file = named(&mut self.files, value),
                "fi" | "fe" | "cfi" | "cfl" => _ = named(&mut self.files, value),
                "fn" => {
                    self.function = named(&mut self.names, value);
                    let function = self.profile.functions.entry(self.function.clone()).or_default();
                    function.file.clone_from(&self.file);
                }
                "cfn" => _ = named(&mut self.names, value),
                "calls" => self.is_call = true,
                _ => {}
            }
            return Ok(());
        }
        if !line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            return Ok(());
        }
        if std::mem::take(&mut self.is_call) {
            return Ok(());
        }
        let instructions = line.split_whitespace().nth(1).map_or(Ok(0), str::parse::<u64>);
        let instructions = instructions.map_err(|_| format!("a line of costs is not understood: {line}"))?;
        if let Some(function) = self.profile.functions.get_mut(&self.function) {
            function.instructions += instructions;
        }
        Ok(())
    }
}

/// The name behind `(NUMBER) NAME`, or the one that the number stood for before.
fn named(known: &mut HashMap<String, String>, value: &str) -> String {
    let Some((number, name)) = value.split_once(')') else { return value.to_owned() };
    match name.trim() {
        "" => known.get(number).cloned().unwrap_or_default(),
        name => {
            known.insert(number.to_owned(), name.to_owned());
            name.to_owned()
        }
    }
}

#[cfg(test)]
#[path = "callgrind_tests.rs"]
mod tests;
