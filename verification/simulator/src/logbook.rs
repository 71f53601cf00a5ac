//! What the code under test logs during a run, with the virtual time: for the story of a failure.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use spandrel_platform_simulated::World;
use tracing_subscriber::fmt::MakeWriter;

thread_local! {
    static BOOK: RefCell<Option<Logbook>> = const { RefCell::new(None) };
}

/// Lines with their times.
#[derive(Default)]
struct Logbook {
    world: Option<World>,
    lines: Vec<(Duration, String)>,
}

/// Does `work` with a logbook of this thread. Returns what was logged beside the result.
pub fn keep<T>(work: impl FnOnce() -> T) -> (T, Vec<(Duration, String)>) {
    BOOK.set(Some(Logbook::default()));
    let subscriber = tracing_subscriber::fmt()
        .with_writer(Lines)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .with_max_level(tracing::Level::INFO)
        .finish();
    let result = tracing::subscriber::with_default(subscriber, work);
    let book = BOOK.take().unwrap_or_default();
    (result, book.lines)
}

/// From now on lines get the time of this world, until [`close`].
pub fn open(world: &World) {
    BOOK.with(|book| {
        if let Some(book) = book.borrow_mut().as_mut() {
            book.world = Some(world.clone());
        }
    });
}

/// The world ends.
pub fn close() {
    BOOK.with(|book| {
        if let Some(book) = book.borrow_mut().as_mut() {
            book.world = None;
        }
    });
}

/// The lines, one below the other.
pub fn text(lines: &[(Duration, String)]) -> String {
    let mut text = String::new();
    for (time, line) in lines {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:>5}.{:09} {line}", time.as_secs(), time.subsec_nanos());
    }
    text
}

struct Lines;

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(Vec::new())
    }
}

/// One line that is being written.
struct Line(Vec<u8>);

impl io::Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        BOOK.with(|book| {
            // What is logged while the book is open is not written into it.
            if let Ok(mut book) = book.try_borrow_mut()
                && let Some(book) = book.as_mut()
            {
                let now = book.world.as_ref().map_or(Duration::ZERO, World::now);
                book.lines.push((now, String::from_utf8_lossy(&self.0).trim_end().to_owned()));
            }
        });
    }
}

#[cfg(test)]
#[path = "logbook_tests.rs"]
mod tests;
