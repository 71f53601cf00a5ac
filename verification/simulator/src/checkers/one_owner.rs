//! Two nodes never both complete changes of one volume.
//!
//! Every ownership has an epoch of its own, and owners say when they answer a change. So the epochs of
//! a volume's answers, in the order of their times, must never go down: an answer under an older epoch
//! behind one under a newer means that the old owner went on after the new one had begun.

use std::collections::BTreeMap;

use spandrel_shared::witness::Completion;
use spandrel_shared::{Epoch, VolumeId};

/// The newest epoch under which each volume's changes were answered.
#[derive(Default)]
pub struct OneOwner {
    newest: BTreeMap<VolumeId, Epoch>,
    completions: u64,
}

impl OneOwner {
    /// Takes the answers since it was last told, in their order.
    ///
    /// # Errors
    ///
    /// An answer of an owner that another one had followed.
    pub fn check(&mut self, completions: &[Completion]) -> Result<(), String> {
        for Completion { volume, epoch } in completions {
            self.completions += 1;
            let newest = self.newest.entry(*volume).or_insert(*epoch);
            if *epoch < *newest {
                return Err(format!(
                    "volume {volume}: a change was answered under epoch {} after one under epoch {}",
                    epoch.0, newest.0
                ));
            }
            *newest = *epoch;
        }
        Ok(())
    }

    /// How many answers it has seen.
    pub fn completions(&self) -> u64 {
        self.completions
    }
}

#[cfg(test)]
#[path = "one_owner_tests.rs"]
mod tests;
