//! A client that loads a volume on a thread of its own, while the test sees how far it comes.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use spandrel_platform::Address;

use crate::history_client::{HistoryClient, LoadEnd, LoadOptions, Next};

/// How long answers may take to come, or to end.
const PATIENCE: Duration = Duration::from_secs(90);

/// A client that loads a volume.
pub struct LoadThread {
    shared: Arc<Shared>,
    thread: JoinHandle<LoadEnd>,
}

/// What the test and the client's thread know of each other.
#[derive(Default)]
struct Shared {
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    answered: u64,
    is_ending: bool,
    /// Where it is to go on.
    go_on_at: Option<Address>,
    /// How large the volume is by then, if it has grown.
    grown_bytes: Option<u64>,
    /// Where everything is to be read in the end.
    read_at: Vec<Address>,
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> Next {
        let mut progress = self.progress();
        progress.answered += 1;
        self.changed.notify_all();
        if progress.is_ending || progress.go_on_at.is_some() { Next::End } else { Next::GoOn }
    }

    /// Loads the volume, at one address after the other, and reads it in the end.
    fn work(self: Arc<Self>, mut client: HistoryClient, options: LoadOptions) -> LoadEnd {
        loop {
            let counting = Arc::clone(&self);
            let mut end = client.load(options, move |_| counting.count()).expect("a cluster that serves");
            let next = self.progress().go_on_at.take().filter(|_| end.is_faultless());
            self.changed.notify_all();
            if let Some(address) = next {
                if let Some(size_bytes) = self.progress().grown_bytes.take() {
                    client.grow(size_bytes);
                }
                client.use_address(address);
                continue;
            }
            for address in std::mem::take(&mut self.progress().read_at) {
                client.use_address(address);
                end.violations.extend(client.check().expect("a cluster that serves"));
            }
            return end;
        }
    }
}

impl LoadThread {
    /// Loads a new volume of `size_bytes`, served as `export` at `address`.
    pub fn start(address: Address, export: &str, size_bytes: u64, seed: u64, options: LoadOptions) -> Self {
        let shared = Arc::new(Shared::default());
        let (own, export) = (Arc::clone(&shared), export.to_owned());
        // The client can only be used on the thread that has made it.
        let thread = std::thread::spawn(move || {
            own.work(HistoryClient::new(address, &export, size_bytes, seed), options)
        });
        Self { shared, thread }
    }

    /// Has the client end what is under way, go on at another address, and waits until it does.
    ///
    /// # Panics
    ///
    /// If that does not come to be.
    pub fn move_to(&self, address: Address) {
        let mut progress = self.shared.progress();
        progress.go_on_at = Some(address);
        let is_there = |progress: &mut Progress| progress.go_on_at.is_some();
        let waited = self.shared.changed.wait_timeout_while(progress, PATIENCE, is_there);
        let (progress, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(progress);
        assert!(!waited.timed_out(), "the client does not end what is under way");
        self.await_answers(1);
    }

    /// The same for a volume that has grown: what has come is written and read, too.
    ///
    /// # Panics
    ///
    /// If that does not come to be.
    pub fn move_to_grown(&self, address: Address, size_bytes: u64) {
        self.shared.progress().grown_bytes = Some(size_bytes);
        self.move_to(address);
    }

    /// How many requests were answered so far.
    pub fn answered(&self) -> u64 {
        self.shared.progress().answered
    }

    /// Waits until so many more requests were answered.
    ///
    /// # Panics
    ///
    /// If that does not come to be.
    pub fn await_answers(&self, more: u64) {
        let progress = self.shared.progress();
        let wanted = progress.answered + more;
        let is_short = |progress: &mut Progress| progress.answered < wanted;
        let waited = self.shared.changed.wait_timeout_while(progress, PATIENCE, is_short);
        let (progress, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "{} of {wanted} requests were answered", progress.answered);
    }

    /// Waits until nothing was answered for so long.
    ///
    /// # Panics
    ///
    /// If answers go on coming.
    pub fn await_silence(&self, silence: Duration) {
        let deadline = Instant::now() + PATIENCE;
        let mut progress = self.shared.progress();
        loop {
            let seen = progress.answered;
            let is_silent = |progress: &mut Progress| progress.answered == seen;
            let waited = self.shared.changed.wait_timeout_while(progress, silence, is_silent);
            let (present, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            if waited.timed_out() {
                return;
            }
            assert!(Instant::now() < deadline, "{} requests were answered, and it goes on", present.answered);
            progress = present;
        }
    }

    /// Ends the load with the next answer, awaits what is under way, and then has everything read at each of these
    /// addresses: what is wrong there is among the violations.
    ///
    /// # Panics
    ///
    /// If the volume cannot be loaded or read.
    pub fn end(self, read_at: &[Address]) -> LoadEnd {
        let mut progress = self.shared.progress();
        progress.is_ending = true;
        progress.read_at = read_at.to_vec();
        drop(progress);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
