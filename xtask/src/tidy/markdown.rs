//! As much of Markdown as the checks need: links, code spans, headings and numbered lists.
//!
//! Fenced code blocks count for nothing. Links inside code spans count for nothing.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::repository::{folder_of, resolve};

/// What one document holds.
pub struct Markdown {
    pub links: Vec<Link>,
    pub code_spans: Vec<CodeSpan>,
    /// What `#...` may name here: headings as GitHub spells them, and explicit ids.
    pub anchors: BTreeSet<String>,
    /// Each item of a numbered list: its first line and its last.
    pub numbered_items: Vec<(usize, usize)>,
}

/// A link or an image.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    pub line: usize,
    /// As it stands there.
    pub target: String,
}

/// What stands between backticks.
#[derive(Debug, PartialEq, Eq)]
pub struct CodeSpan {
    pub line: usize,
    pub text: String,
}

impl Markdown {
    /// Reads a document.
    pub fn parse(text: &str) -> Self {
        let mut prose = without_fences(text);
        let anchors = anchors(&prose);
        let numbered_items = numbered_items(&prose);
        let code_spans = take_code_spans(&mut prose);
        Self { links: links(&prose), code_spans, anchors, numbered_items }
    }
}

/// The repository path that `target` in the document `from` leads to; `None` for what leads
/// elsewhere: another site, or out of the repository.
pub fn link_path(from: &str, target: &str) -> Option<String> {
    if leads_to_a_site(target) {
        return None;
    }
    match target.split('#').next() {
        None | Some("") => Some(from.to_owned()),
        Some(relative) => resolve(folder_of(from), relative),
    }
}

/// Whether a link's target has a scheme, as `https:` or `mailto:`.
pub fn leads_to_a_site(target: &str) -> bool {
    target.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+.-".contains(letter))
    })
}

/// The text with the lines of fenced code blocks emptied, so that line numbers stay.
fn without_fences(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            // A line with a closing run of backticks is a code span, not the start of a block.
            (None, Some(mark)) if !start[mark.len()..].contains(mark) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, _) => prose.push_str(line),
            (Some(_), _) => {}
        }
        prose.push('\n');
    }
    prose
}

/// Takes the code spans out of `prose`, leaving blanks of the same length.
fn take_code_spans(prose: &mut String) -> Vec<CodeSpan> {
    let mut spans = Vec::new();
    let mut bytes = std::mem::take(prose).into_bytes();
    let run_at = |bytes: &[u8], at: usize| bytes[at..].iter().take_while(|&&byte| byte == b'`').count();
    let mut at = 0;
    while at < bytes.len() {
        let run = run_at(&bytes, at);
        if run == 0 {
            at += 1;
            continue;
        }
        let start = at + run;
        let mut end = start;
        // A span ends at a run of the same length, and never leaves its paragraph.
        let closed = loop {
            if end >= bytes.len() || bytes[end..].starts_with(b"\n\n") {
                break false;
            }
            match run_at(&bytes, end) {
                0 => end += 1,
                other if other == run => break true,
                other => end += other,
            }
        };
        if closed {
            let words = String::from_utf8_lossy(&bytes[start..end]);
            let text = words.split_whitespace().collect::<Vec<_>>().join(" ");
            spans.push(CodeSpan { line: line_at(&bytes, at), text });
            let blank = bytes[at..end + run].iter_mut().filter(|byte| **byte != b'\n');
            blank.for_each(|byte| *byte = b' ');
            at = end + run;
        } else {
            at = start;
        }
    }
    // Whole spans were blanked, so no character was cut.
    *prose = String::from_utf8_lossy(&bytes).into_owned();
    spans
}

fn links(prose: &str) -> Vec<Link> {
    let mut found: Vec<(usize, &str)> = Vec::new();
    for (mark, ends) in [("](", [')', ' ']), ("src=\"", ['"', '"']), ("href=\"", ['"', '"'])] {
        for (at, _) in prose.match_indices(mark) {
            let rest = &prose[at + mark.len()..];
            found.push((at, rest.split(ends).next().unwrap_or(rest)));
        }
    }
    for (at, _) in prose.match_indices("]: ") {
        let line_start = prose[..at].rfind('\n').map_or(0, |end| end + 1);
        if prose[line_start..].starts_with('[') {
            found.extend(prose[at + 3..].split_whitespace().next().map(|target| (at, target)));
        }
    }
    found.sort();
    found
        .into_iter()
        .map(|(at, target)| Link {
            line: line_at(prose.as_bytes(), at),
            target: target.trim_matches(['<', '>']).to_owned(),
        })
        .collect()
}

fn anchors(prose: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for line in prose.lines() {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if (1..=6).contains(&level) && title.starts_with(' ') {
            let anchor = anchor_of(title);
            let count = seen.entry(anchor.clone()).or_default();
            anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
            *count += 1;
        }
        for mark in ["id=\"", "name=\""] {
            if let Some((_, rest)) = line.split_once(mark) {
                anchors.extend(rest.split('"').next().map(str::to_owned));
            }
        }
    }
    anchors
}

/// A heading as GitHub makes an anchor of it.
fn anchor_of(title: &str) -> String {
    title
        .trim()
        .chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
        .flat_map(char::to_lowercase)
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

fn numbered_items(prose: &str) -> Vec<(usize, usize)> {
    let mut items: Vec<(usize, usize)> = Vec::new();
    let mut inside = false;
    for (index, line) in prose.lines().enumerate() {
        let digits = line.trim_start().trim_start_matches(|letter: char| letter.is_ascii_digit());
        if digits.len() < line.trim_start().len() && digits.starts_with(". ") {
            items.push((index + 1, index + 1));
            inside = true;
        } else if line.trim().is_empty() || line.starts_with('#') {
            inside = false;
        } else if let Some(item) = items.last_mut().filter(|_| inside) {
            item.1 = index + 1;
        }
    }
    items
}

/// The line, counted from 1, of the byte `at`.
fn line_at(bytes: &[u8], at: usize) -> usize {
    bytes[..at].iter().filter(|&&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
