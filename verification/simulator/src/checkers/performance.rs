//! Per operation, the count of network round trips, drive writes and flushes equals the performance model.
//!
//! The model is `docs/internals/performance-model.md`: its tables are read here, so that what people read is
//! what is checked. A cell is a sum, such as `2a + r + 1`: a letter stands for what the page says it stands
//! for. A term of requests ends with their kind: `a Write + r CopyWrite`.

use std::collections::BTreeMap;

/// The header of the table of what an operation waits for, one thing after the other.
const WAITS: [&str; 5] = ["operation", "round trips", "drive reads", "drive writes", "flushes"];

/// The header of the table of what an operation costs in all.
const COSTS: [&str; 6] = ["operation", "requests", "drive reads", "drive writes", "flushes", "bytes written"];

/// The header of tables of what many operations, or none, cost over time.
const LIMITS: [&str; 3] = ["what", "bound", "how much"];

/// What letters stand for.
pub type Letters = BTreeMap<char, u64>;

/// Where the copies are, and the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Situation {
    /// In-sync copies of the blocks.
    pub copies: u64,
    /// Those of them that are on other nodes than the owner.
    pub copies_elsewhere: u64,
    /// Drives that hold any of them.
    pub drives: u64,
    /// Other nodes than the owner that hold any in-sync copy of the volume.
    pub nodes_elsewhere: u64,
    /// Whether the client is on another node than the owner.
    pub client_elsewhere: bool,
    /// Whether the drives have volatile caches.
    pub volatile_caches: bool,
}

impl Situation {
    fn letters(&self) -> Letters {
        let far = self.copies == self.copies_elsewhere;
        BTreeMap::from([
            ('c', self.copies),
            ('r', self.copies_elsewhere),
            ('d', self.drives),
            ('o', self.nodes_elsewhere),
            ('a', u64::from(self.client_elsewhere)),
            ('n', u64::from(self.copies_elsewhere > 0)),
            ('f', u64::from(far)),
        ])
    }
}

/// What one operation has cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Round trips between nodes that it waited for, one after the other.
    pub round_trips: u64,
    /// Reads of a drive that it waited for, one after the other.
    pub reads_in_a_row: u64,
    /// Writes to a drive that it waited for, one after the other.
    pub writes_in_a_row: u64,
    /// Flushes of a drive that it waited for, one after the other.
    pub flushes_in_a_row: u64,
    /// Requests from node to node, by kind; no kind with none. Each has one answer.
    pub requests: BTreeMap<String, u64>,
    /// Reads of all drives.
    pub reads: u64,
    /// Writes to all drives.
    pub writes: u64,
    /// Flushes of all drives.
    pub flushes: u64,
    /// Bytes written to all drives.
    pub written_bytes: u64,
}

/// What the page says.
#[derive(Debug)]
pub struct Model {
    /// In the order of the page.
    operations: Vec<(String, Operation)>,
    limits: Vec<(String, Limit)>,
}

#[derive(Debug)]
struct Operation {
    waits: [Sum; WAITS.len() - 1],
    costs: [Sum; COSTS.len() - 1],
}

#[derive(Debug)]
struct Limit {
    is_exact: bool,
    sum: Sum,
}

impl Model {
    /// The model that a page holds.
    ///
    /// # Errors
    ///
    /// What cannot be understood, or is missing.
    pub fn parse(page: &str) -> Result<Self, String> {
        let waits = rows(page, &WAITS)?;
        let costs = rows(page, &COSTS)?;
        let names =
            |rows: &[Vec<&str>]| -> Vec<String> { rows.iter().map(|row| row[0].to_owned()).collect() };
        if names(&waits) != names(&costs) {
            return Err("the tables of operations have different operations".to_owned());
        }
        let operation = |(waits, costs): (&Vec<&str>, &Vec<&str>)| {
            let operation = Operation { waits: sums(&waits[1..])?, costs: sums(&costs[1..])? };
            Ok((waits[0].to_owned(), operation))
        };
        let limit = |row: &Vec<&str>| {
            let is_exact = match row[1] {
                "exactly" => true,
                "at most" => false,
                other => return Err(format!("{:?}: {other:?} is no bound", row[0])),
            };
            Ok((row[0].to_owned(), Limit { is_exact, sum: Sum::parse(row[2])? }))
        };
        Ok(Self {
            operations: waits.iter().zip(&costs).map(operation).collect::<Result<_, String>>()?,
            limits: rows(page, &LIMITS)?.iter().map(limit).collect::<Result<_, String>>()?,
        })
    }

    /// The operations, in the order of the page.
    pub fn operations(&self) -> impl Iterator<Item = &str> {
        self.operations.iter().map(|(name, _)| &name[..])
    }

    /// What is bounded, in the order of the page.
    pub fn limits(&self) -> impl Iterator<Item = &str> {
        self.limits.iter().map(|(what, _)| &what[..])
    }

    /// What an operation costs by the model.
    ///
    /// # Errors
    ///
    /// The page does not have it, or uses a letter that stands for nothing.
    pub fn expected(&self, name: &str, situation: &Situation) -> Result<Cost, String> {
        let found = self.operations.iter().find(|(other, _)| other == name);
        let (_, Operation { waits, costs }) = found.ok_or_else(|| format!("the page has no {name:?}"))?;
        let letters = situation.letters();
        let number = |sum: &Sum| sum.number(&letters).map_err(|error| format!("{name:?}: {error}"));
        let flushes = |sum: &Sum| if situation.volatile_caches { number(sum) } else { Ok(0) };
        let [round_trips, reads_in_a_row, writes_in_a_row, flushes_in_a_row] = waits;
        let [requests, reads, writes, all_flushes, written_bytes] = costs;
        Ok(Cost {
            round_trips: number(round_trips)?,
            reads_in_a_row: number(reads_in_a_row)?,
            writes_in_a_row: number(writes_in_a_row)?,
            flushes_in_a_row: flushes(flushes_in_a_row)?,
            requests: requests.by_kind(&letters).map_err(|error| format!("{name:?}: {error}"))?,
            reads: number(reads)?,
            writes: number(writes)?,
            flushes: flushes(all_flushes)?,
            written_bytes: number(written_bytes)?,
        })
    }

    /// Whether an operation has cost what the model says, no more and no less.
    ///
    /// # Errors
    ///
    /// Both, if they differ.
    pub fn check(&self, name: &str, situation: &Situation, counted: &Cost) -> Result<(), String> {
        let expected = self.expected(name, situation)?;
        if *counted == expected {
            return Ok(());
        }
        Err(format!("{name}, {situation:?}:\nby the model {expected:?}\ncounted      {counted:?}"))
    }

    /// Whether what was counted over some time is within its bound.
    ///
    /// # Errors
    ///
    /// It is not, or the page does not bound it.
    pub fn check_limit(&self, what: &str, letters: &Letters, counted: u64) -> Result<(), String> {
        let found = self.limits.iter().find(|(other, _)| other == what);
        let (_, Limit { is_exact, sum }) =
            found.ok_or_else(|| format!("the page does not bound {what:?}"))?;
        let bound = sum.number(letters).map_err(|error| format!("{what:?}: {error}"))?;
        match *is_exact {
            true if counted != bound => {
                Err(format!("{what}: {counted}, exactly {bound} by the model, {letters:?}"))
            }
            false if counted > bound => {
                Err(format!("{what}: {counted}, at most {bound} by the model, {letters:?}"))
            }
            _ => Ok(()),
        }
    }
}

/// The rows of all tables of a page with this header.
fn rows<'a>(page: &'a str, header: &[&str]) -> Result<Vec<Vec<&'a str>>, String> {
    let mut rows = Vec::new();
    let mut lines = page.lines();
    while lines.by_ref().any(|line| cells(line) == header) {
        // Behind the header stands the line that rules it off.
        for line in lines.by_ref().skip(1).take_while(|line| line.starts_with('|')) {
            let row = cells(line);
            if row.len() != header.len() {
                return Err(format!("a row of {} cells below {header:?}: {line}", row.len()));
            }
            rows.push(row);
        }
    }
    if rows.is_empty() { Err(format!("the page has no table {header:?}")) } else { Ok(rows) }
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

fn sums<const COUNT: usize>(cells: &[&str]) -> Result<[Sum; COUNT], String> {
    let sums: Vec<Sum> = cells.iter().map(|cell| Sum::parse(cell)).collect::<Result<_, _>>()?;
    Ok(sums.try_into().expect("a row has as many cells as its header"))
}

/// What stands in a cell.
#[derive(Debug)]
struct Sum(Vec<Term>);

#[derive(Debug)]
struct Term {
    factor: u64,
    letter: Option<char>,
    kind: Option<String>,
}

impl Sum {
    fn parse(cell: &str) -> Result<Self, String> {
        let wrong = || format!("{cell:?} is no sum");
        let term = |text: &str| {
            let text = text.trim();
            let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
            let (number, rest) = text.split_at(digits);
            let mut factor = Some(1);
            if !number.is_empty() {
                factor = number.parse().ok();
            }
            let (letter, rest) = match rest.strip_prefix(|character: char| character.is_ascii_lowercase()) {
                Some(behind) => (rest.chars().next(), behind),
                None => (None, rest),
            };
            let kind = rest.trim();
            let is_kind = kind.starts_with(|character: char| character.is_ascii_uppercase())
                && kind.chars().all(|character| character.is_ascii_alphabetic());
            let is_whole = if kind.is_empty() { digits > 0 || letter.is_some() } else { is_kind };
            let term = Term { factor: factor?, letter, kind: is_kind.then(|| kind.to_owned()) };
            is_whole.then_some(term)
        };
        let terms: Option<Vec<Term>> = cell.split('+').map(term).collect();
        terms.map(Self).ok_or_else(wrong)
    }

    fn number(&self, letters: &Letters) -> Result<u64, String> {
        match self.0.iter().find_map(|term| term.kind.as_ref()) {
            Some(kind) => Err(format!("{kind} where there are no requests")),
            None => self.0.iter().map(|term| term.number(letters)).sum(),
        }
    }

    /// The numbers of the kinds of which there are any.
    fn by_kind(&self, letters: &Letters) -> Result<BTreeMap<String, u64>, String> {
        let mut kinds = BTreeMap::new();
        for term in &self.0 {
            match (&term.kind, term.number(letters)?) {
                (_, 0) => {}
                (Some(kind), number) => *kinds.entry(kind.clone()).or_insert(0) += number,
                (None, _) => return Err("requests of no kind".to_owned()),
            }
        }
        Ok(kinds)
    }
}

impl Term {
    fn number(&self, letters: &Letters) -> Result<u64, String> {
        let Some(letter) = self.letter else { return Ok(self.factor) };
        let value = letters.get(&letter).ok_or_else(|| format!("nothing is called {letter:?}"))?;
        Ok(self.factor * value)
    }
}

#[cfg(test)]
#[path = "performance_tests.rs"]
mod tests;
