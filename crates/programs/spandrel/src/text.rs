//! Small texts that several commands need.

use std::io::Write;

use spandrel_shared::size::format_size;

/// Writes a result to standard output. That nobody reads it is no error.
pub fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}

/// Microseconds in the unit that people would choose: `12 us`, `1.3 ms`.
pub fn format_us(us: f64) -> String {
    if us < 1000.0 {
        format!("{us:.0} us")
    } else if us < 100_000.0 {
        format!("{:.1} ms", us / 1000.0)
    } else {
        format!("{:.0} ms", us / 1000.0)
    }
}

/// So many of a thing: `1 node`, `2 nodes`.
pub fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// What stands on a cache drive alone, as the subject of a sentence; none if nobody says how much that is.
pub fn alone_text(bytes: Option<u64>) -> String {
    match bytes {
        Some(bytes) => format!("{} that stand there alone are", format_size(bytes)),
        None => "what stands there alone is".to_owned(),
    }
}

/// So many copies: `1 copy of a slab`, `3 copies of slabs`.
pub fn slab_copies(count: u64) -> String {
    if count == 1 { "1 copy of a slab".to_owned() } else { format!("{count} copies of slabs") }
}

/// The word that goes with so many of a thing.
pub fn verb_for(count: u64, one: &'static str, more: &'static str) -> &'static str {
    if count == 1 { one } else { more }
}

/// So many copies: `1 copy`, `3 copies`.
pub fn copies_text(copies: u8) -> String {
    if copies == 1 { "1 copy".to_owned() } else { format!("{copies} copies") }
}

/// A result as JSON, for programs.
pub fn json(result: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string_pretty(result).expect("results are plain data");
    text.push('\n');
    text
}

/// A part of the whole, in percent.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.0} %", part as f64 * 100.0 / whole as f64) }
}

/// How long ago something was, in the unit that people would choose: `5 s`, `3 min`, `7 h`, `12 d`.
pub fn age_text(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A text for a shell, in quotes if it needs them.
pub fn quoted(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=+,@%".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
