//! Runs targets without any tool: with the corpus, and with inputs that are made of it.
//!
//! What is made up depends on the seed and the corpus alone. It is not led by coverage, so it finds less
//! in an hour than libFuzzer does in a minute; it is what runs everywhere and always does the same.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use spandrel_platform_simulated::Random;

use crate::Target;

/// The longest input that is made up, in bytes.
pub const INPUT_BYTES_MAX: usize = 4096;

/// How many inputs are tried between two looks at the clock.
const INPUTS_PER_LOOK: u32 = 64;

/// An input on which a target fails.
pub struct Failure {
    /// The input.
    pub input: Vec<u8>,
    /// Where it comes from: a file, a seed, or a number of what was made up.
    pub origin: String,
}

/// The committed inputs of a target: each was of interest once, most of them because it crashed something.
///
/// # Errors
///
/// If the folder or a file of it cannot be read. A target need not have a folder.
pub fn corpus(target: &Target) -> std::io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let folder = corpus_folder(target);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut paths = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    paths.into_iter().map(|path| std::fs::read(&path).map(|bytes| (path, bytes))).collect()
}

/// Where the committed inputs of a target stand.
pub fn corpus_folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// Tries everything that is known, then `runs` inputs that `seed` makes of it.
///
/// # Errors
///
/// The first input on which the target fails. Its panic has been reported by the panic hook.
pub fn smoke(target: &Target, seed: u64, runs: u32) -> Result<(), Failure> {
    let known = known_inputs(target)?;
    let random = Random::stream(seed, target.name, 0);
    (0..runs).try_for_each(|number| try_made_up(target, &known, &random, number))
}

/// Goes on as [`smoke`] does until `duration` is over, and says how many inputs that were.
///
/// # Errors
///
/// As those of [`smoke`].
pub fn run_for(target: &Target, seed: u64, duration: Duration) -> Result<u32, Failure> {
    let started = Instant::now();
    let known = known_inputs(target)?;
    let random = Random::stream(seed, target.name, 0);
    let mut number = 0_u32;
    while !number.is_multiple_of(INPUTS_PER_LOOK) || started.elapsed() < duration {
        try_made_up(target, &known, &random, number)?;
        number += 1;
    }
    Ok(number)
}

/// Tries one input.
///
/// # Errors
///
/// If the target fails on it.
pub fn try_one(target: &Target, input: Vec<u8>, origin: String) -> Result<Vec<u8>, Failure> {
    // A target builds all it uses anew, so a panic leaves nothing behind that a later run would see.
    match catch_unwind(AssertUnwindSafe(|| target.try_input(&input))) {
        Ok(()) => Ok(input),
        Err(_) => Err(Failure { input, origin }),
    }
}

/// The seeds and the corpus, after a run with each.
fn known_inputs(target: &Target) -> Result<Vec<Vec<u8>>, Failure> {
    let committed = corpus(target).unwrap_or_else(|error| panic!("the corpus of {}: {error}", target.name));
    let seeds = (target.seeds)().into_iter().enumerate();
    let seeds = seeds.map(|(number, seed)| (format!("seed {number}"), seed));
    let committed = committed.into_iter().map(|(path, bytes)| (path.display().to_string(), bytes));
    let empty = std::iter::once(("nothing".to_owned(), Vec::new()));
    empty.chain(seeds).chain(committed).map(|(origin, input)| try_one(target, input, origin)).collect()
}

fn try_made_up(target: &Target, known: &[Vec<u8>], random: &Random, number: u32) -> Result<(), Failure> {
    let input = make_up(known, random);
    try_one(target, input, format!("made-up input {number}")).map(drop)
}

/// A new input: of random bytes, or of known ones that are changed a little.
fn make_up(known: &[Vec<u8>], random: &Random) -> Vec<u8> {
    if random.chance(250) {
        let count = 1 << random.below(11);
        return (0..random.below(count)).map(|_| random.next_u64() as u8).collect();
    }
    let mut input = known[random.index(known.len())].clone();
    for _ in 0..1 << random.below(5) {
        change(&mut input, known, random);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn change(input: &mut Vec<u8>, known: &[Vec<u8>], random: &Random) {
    let at = random.index(input.len() + 1);
    match random.below(7) {
        0 | 1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = random.next_u64() as u8;
            }
        }
        2 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        3 => {
            let count = random.below(9);
            input.splice(at..at, (0..count).map(|_| random.next_u64() as u8));
        }
        4 => {
            let end = (at + random.index(17)).min(input.len());
            input.drain(at..end);
        }
        5 => change_number(input, at, random),
        _ => {
            let other = &known[random.index(known.len())];
            input.truncate(at);
            input.extend_from_slice(&other[random.index(other.len() + 1)..]);
        }
    }
}

/// Another number in place of the next one that stands there in digits.
fn change_number(input: &mut Vec<u8>, at: usize, random: &Random) {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let Some(start) = input[at..].iter().position(is_digit) else { return };
    let start = at + start;
    let digits = input[start..].iter().take_while(|byte| is_digit(byte)).count();
    let number = u64::MAX >> random.below(64);
    let number = number.wrapping_add(random.below(2));
    input.splice(start..start + digits, number.to_string().into_bytes());
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
