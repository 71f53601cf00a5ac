//! Tables for terminals: aligned, and at most [`WIDTH_MAX`] columns wide.

use spandrel_shared::number::group_thousands;

/// The widest line.
pub const WIDTH_MAX: usize = 100;

/// What separates two columns.
const GAP: &str = "  ";

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table that grows row by row.
#[derive(Clone, Debug)]
pub struct Table {
    heads: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns. A head that begins with `>` makes its column one of numbers.
    pub fn new(heads: &[&str]) -> Self {
        let head = |text: &&str| match text.strip_prefix('>') {
            Some(text) => (text.to_owned(), Align::Right),
            None => ((*text).to_owned(), Align::Left),
        };
        Self { heads: heads.iter().map(head).collect(), rows: Vec::new() }
    }

    /// Adds a row. An empty cell shows as `-`.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> = cells.into_iter().collect();
        assert_eq!(row.len(), self.heads.len(), "a row has a cell for each column");
        self.rows.push(row);
    }

    /// The lines. If they would be too wide, the widest columns are cut until they fit.
    pub fn render(&self) -> String {
        self.render_within(WIDTH_MAX)
    }

    /// The same, in lines of at most so many columns.
    pub fn render_within(&self, width_max: usize) -> String {
        let widths = self.widths(width_max);
        let heads = self.heads.iter().map(|(text, _)| text.as_str());
        let mut text = self.line(heads, &widths);
        for row in &self.rows {
            let cells = row.iter().map(|cell| if cell.is_empty() { "-" } else { cell.as_str() });
            text += &self.line(cells, &widths);
        }
        text
    }

    fn widths(&self, width_max: usize) -> Vec<usize> {
        let width_of = |column: usize| {
            let cells = self.rows.iter().map(|row| length(&row[column]));
            cells.chain([length(&self.heads[column].0), 1]).max().unwrap_or(1)
        };
        let mut widths: Vec<usize> = (0..self.heads.len()).map(width_of).collect();
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > width_max {
            match widths.iter_mut().max() {
                Some(widest) if *widest > 1 => *widest -= 1,
                // Narrower than all columns with one letter each.
                _ => break,
            }
        }
        widths
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.zip(widths).zip(&self.heads) {
            let cell = cut(cell, *width);
            let padding = " ".repeat(width - length(&cell));
            line += &match align {
                Align::Left => format!("{cell}{padding}{GAP}"),
                Align::Right => format!("{padding}{cell}{GAP}"),
            };
        }
        format!("{}\n", line.trim_end())
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// The text, cut to `width` characters, the last of which then says that something is missing.
pub fn cut(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    let mut shorter: String = text.chars().take(width.saturating_sub(1)).collect();
    shorter.push('…');
    shorter
}

/// A number in whole, its thousands set apart: `1,234,567`.
pub fn count_text(number: u64) -> String {
    group_thousands(&number.to_string())
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
