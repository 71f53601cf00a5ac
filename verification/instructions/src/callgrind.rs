//! What callgrind writes: the instructions of each function.
//!
//! A function's own instructions stand in lines of their own; what it calls stands behind a line `calls=`, and is not counted
//! twice. Names stand in full once, and then by a number in brackets.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Functions with this in their name, or in the name of their file, are of the made-up world and of whoever loads it.
const OF_THE_WORLD: [&str; 6] = [
    "spandrel_platform_simulated",
    "spandrel_simulator",
    "spandrel_instructions",
    "platform/simulated",
    "verification/simulator",
    "verification/instructions",
];

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
        self.functions.iter().filter(|(name, function)| {
            !OF_THE_WORLD.iter().any(|world| name.contains(world) || function.file.contains(world))
        })
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
