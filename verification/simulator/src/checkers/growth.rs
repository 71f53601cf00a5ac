//! A volume never becomes smaller, and is as large as somebody was told.

use std::cell::Cell;

use spandrel_cluster::VolumeMembership;

/// A volume in a world with small drives grows to so many times its first size at most.
const TIMES_MAX: u64 = 3;

/// What is known of a volume's size.
pub struct Growth {
    first_bytes: u64,
    /// As the cluster's state has shown it last.
    present_bytes: Cell<u64>,
    /// The largest size to which it was said to have grown.
    answered_bytes: Cell<u64>,
}

impl Growth {
    /// A volume that was made with a size.
    pub fn of(size_bytes: u64) -> Self {
        Self {
            first_bytes: size_bytes,
            present_bytes: Cell::new(size_bytes),
            answered_bytes: Cell::new(size_bytes),
        }
    }

    /// Its size, as it was looked at last.
    pub fn present_bytes(&self) -> u64 {
        self.present_bytes.get()
    }

    /// Whether a size is more than the world has room for beside all else.
    pub fn is_enough(&self, size_bytes: u64) -> bool {
        size_bytes > TIMES_MAX * self.first_bytes
    }

    /// Whoever asked was told that the volume has grown.
    pub fn answered(&self, size_bytes: u64) {
        self.answered_bytes.set(self.answered_bytes.get().max(size_bytes));
    }

    /// Looks at the volume as the cluster's state has it.
    ///
    /// # Errors
    ///
    /// It is smaller than it was, or than somebody was told.
    pub fn check(&self, volume: &VolumeMembership) -> Result<(), String> {
        let (name, now) = (&volume.record.name, volume.record.size_bytes);
        let known = self.present_bytes.get().max(self.answered_bytes.get());
        if now < known {
            return Err(format!("volume {name} has {now} bytes, and had {known}"));
        }
        self.present_bytes.set(now);
        Ok(())
    }
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
