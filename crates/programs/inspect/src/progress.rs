//! Shows how far an inspection is: a bar on a terminal, nothing elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::inspection::{Phase, Progress};

/// A bar that goes away when it is dropped.
pub(crate) struct Shown {
    bar: ProgressBar,
    phase: Option<Phase>,
}

impl Shown {
    pub(crate) fn on_standard_error() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template("{msg:20} [{bar:30}] {percent:>3} % {eta} left");
        bar.set_style(style.expect("the template is well-formed").progress_chars("=> "));
        Self { bar, phase: None }
    }

    pub(crate) fn show(&mut self, progress: Progress) {
        if self.phase.replace(progress.phase) != Some(progress.phase) {
            self.bar.reset();
            self.bar.set_message(match progress.phase {
                Phase::Maps => "reading the maps",
                Phase::Journal => "reading the journal",
                Phase::Data => "checking the data",
            });
        }
        self.bar.set_length(progress.total);
        self.bar.set_position(progress.done);
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
