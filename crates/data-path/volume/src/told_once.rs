//! What is logged once, and not at each of the attempts that meet it again.

use std::cell::RefCell;

/// The last thing that was told.
#[derive(Default)]
pub(crate) struct ToldOnce(RefCell<Option<String>>);

impl ToldOnce {
    /// Whether `text` is to be told: not if it was the last thing that was.
    pub(crate) fn is_to_be_told(&self, text: &str) -> bool {
        let mut told = self.0.borrow_mut();
        let is_new = told.as_deref() != Some(text);
        if is_new {
            *told = Some(text.to_owned());
        }
        is_new
    }

    /// What was told last.
    pub(crate) fn last(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// The next thing is told, even if it is the same.
    pub(crate) fn forget(&self) {
        self.0.take();
    }
}

#[cfg(test)]
#[path = "told_once_tests.rs"]
mod tests;
