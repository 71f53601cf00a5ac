//! A part of the state, kept up to date in memory: what a node looks at instead of asking.
//!
//! A mirror may lag behind the state, so it never decides anything that a transaction does not
//! check again. After an error of its watch it reads the whole part anew, which also notices a
//! state that was set back to a backup.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spandrel_platform::Platform;
use spandrel_shared::Error;

use crate::keys::StateKey;
use crate::records::{Record, Stored, decode};
use crate::store::{Entry, Event, Key, Revision, Selection, StateStore, StateWatch};

/// How long a mirror waits before it tries again to reach the state.
const RETRY: Duration = Duration::from_millis(200);

/// The keys with a common prefix.
pub struct Mirror<P: Platform, S: StateStore> {
    platform: P,
    store: S,
    prefix: String,
    entries: BTreeMap<Key, Entry>,
    revision: Revision,
    /// `None` until the part was read, and again after an error.
    watch: Option<S::Watch>,
}

impl<P: Platform, S: StateStore> Mirror<P, S> {
    /// A mirror of the keys that begin with `prefix`. It is empty until the first
    /// [`Mirror::changed`] has completed.
    pub fn new(platform: P, store: S, prefix: &str) -> Self {
        let prefix = prefix.to_owned();
        Self { platform, store, prefix, entries: BTreeMap::new(), revision: Revision::ZERO, watch: None }
    }

    /// The revision up to which it is complete; zero before the first read.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// What stands at a key.
    pub fn entry(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The record at a key.
    pub fn get<T: Record>(&self, key: &StateKey) -> Result<Option<Stored<T>>, Error> {
        self.entries.get(key.to_string().as_str()).map(decode).transpose()
    }

    /// Waits for changes, takes them in and returns the keys that changed. The first call returns
    /// all keys once they are read, even if there are none. Waits for as long as the state cannot
    /// be reached. A future that is dropped before it completes loses nothing.
    pub async fn changed(&mut self) -> BTreeSet<Key> {
        loop {
            let Some(watch) = &mut self.watch else {
                let is_first = self.revision == Revision::ZERO;
                match self.read_anew().await {
                    Some(changed) if is_first || !changed.is_empty() => return changed,
                    Some(_) => {}
                    None => self.platform.sleep(RETRY).await,
                }
                continue;
            };
            match watch.next().await {
                Ok(events) => return self.take_in(events),
                Err(_) => self.watch = None,
            }
        }
    }

    /// Reads everything and begins a watch behind it. The keys that changed; `None` if the state
    /// cannot be reached.
    async fn read_anew(&mut self) -> Option<BTreeSet<Key>> {
        let mut snapshot = self.store.read(&[Selection::prefix(&self.prefix)]).await.ok()?;
        let watch = self.store.watch(&self.prefix, snapshot.revision.next()).await.ok()?;
        let entries: BTreeMap<_, _> =
            snapshot.groups.remove(0).into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        let all: BTreeSet<_> = entries.keys().chain(self.entries.keys()).cloned().collect();
        let changed = all.into_iter().filter(|key| entries.get(key) != self.entries.get(key)).collect();
        (self.entries, self.revision, self.watch) = (entries, snapshot.revision, Some(watch));
        Some(changed)
    }

    fn take_in(&mut self, events: Vec<Event>) -> BTreeSet<Key> {
        let mut changed = BTreeSet::new();
        for event in events {
            self.revision = self.revision.max(event.revision());
            changed.insert(event.key().clone());
            match event {
                Event::Put(entry) => self.entries.insert(entry.key.clone(), entry),
                Event::Deleted { key, .. } => self.entries.remove(&key),
            };
        }
        changed
    }
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
