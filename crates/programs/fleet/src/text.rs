//! Small texts.

/// So many of a thing: `1 client`, `2 clients`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Lines of cells as columns, of which those that `left` names are set to the left and the others to the right.
pub fn aligned(lines: &[Vec<String>], left: &[usize]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let length = |text: &str| text.chars().count();
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| length(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cell = |(column, (cell, width)): (usize, (&String, &usize))| match left.contains(&column) {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        };
        let cells: Vec<String> = line.iter().zip(&widths).enumerate().map(cell).collect();
        text += cells.join("  ").trim_end();
        text += "\n";
    }
    text
}

/// Saves a [`Duration`] as a number of seconds.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(duration.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
