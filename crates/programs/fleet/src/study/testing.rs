//! Rows, and a cluster that is none, for tests of studies.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use spandrel_shared::{CacheMode, Error};

use super::cluster::{StudyCluster, StudyClusterSpec, StudyLab};
use super::machine::MachineUse;
use super::report::StudyRow;
use crate::arguments::VolumeRequest;
use crate::generator::ThreadReport;
use crate::load_thread::ThreadOutcome;
use crate::meter::{CacheReading, ClusterMeter, MeterReading, Usage};
use crate::result::CellResult;
use crate::spec::CellSpec;
use crate::tally::ClientTally;
use crate::target::Target;
use crate::testing::{Answer, Behaviour, LinuxServer, TestServer};

/// A row of four clients that did so many I/Os in a second.
pub(crate) fn row(name: &str, cache_mode: CacheMode, count: u64) -> StudyRow {
    let spec = CellSpec::default();
    let latency = Duration::from_secs(4) / count.max(1) as u32;
    let mut clients: Vec<ClientTally> =
        (0..4).map(|number| ClientTally::new(&format!("{number}"), false)).collect();
    for _ in 0..count {
        clients[0].done(false, latency, spec.block_size_bytes, Duration::ZERO);
    }
    let outcome = ThreadOutcome { clients: clients.into_iter().enumerate().collect(), guests: Vec::new() };
    let report = ThreadReport { outcome, cpu: Duration::ZERO, wall: Duration::from_secs(1) };
    StudyRow {
        name: name.to_owned(),
        cache_mode,
        working_set_bytes: 64 << 20,
        cell: CellResult::new(&spec, Duration::from_secs(1), vec![report]),
        usage: Usage {
            seconds: 2.0,
            cpu_seconds: Some(0.5),
            generator_cpu_seconds: 0.1,
            busy_cores: Some(0.5),
            user_written_bytes: 0,
            drive_written_bytes: None,
            write_amplification: None,
            cache: None,
        },
        cache: CacheReading { hit_bytes: 3, missed_bytes: 1, ..CacheReading::default() },
        machine: MachineUse { cores: 2, busy_percent: Some(30.0) },
        is_steady: true,
        are_caches_settled: true,
    }
}

/// What was asked of a [`FakeCluster`], in order.
pub(crate) type Calls = Arc<Mutex<Vec<String>>>;

/// Makes clusters that are none: a server that answers as quickly as the cache mode has it.
#[derive(Default)]
pub(crate) struct FakeLab {
    pub(crate) calls: Calls,
    /// From which of its calls on each cluster fails.
    pub(crate) fails_at: Option<&'static str>,
    /// What is written to the cache drives stays there.
    pub(crate) moves_nothing: bool,
    /// What the clusters were asked for by the clients.
    pub(crate) servers: Vec<TestServer>,
}

pub(crate) struct FakeCluster {
    calls: Calls,
    fails_at: Option<&'static str>,
    server: LinuxServer,
    mode: Arc<AtomicU8>,
    has_cache_drives: bool,
    /// What the cache drives keep of what is written.
    dirty_bytes_max: u64,
    /// The modes that cache writes since it was clean: each counts as a byte.
    dirty_modes: u64,
    /// How many requests came before what is written to the cache drives.
    clean_at: usize,
    hit_bytes: u64,
}

pub(crate) const ROOM_BYTES: u64 = 36 << 20;

/// What cache drives keep that are emptied.
const DIRTY_BYTES_MAX: u64 = ROOM_BYTES / 4;
const COPIES: u64 = 3;

impl StudyLab for FakeLab {
    type Cluster = FakeCluster;

    fn start(&mut self, spec: &StudyClusterSpec) -> Result<FakeCluster, Error> {
        let media = spec.media.map_or("memory", |media| media.capacity_media.name());
        self.calls.lock().unwrap().push(format!("start {media}"));
        let mode = Arc::new(AtomicU8::new(0));
        let seen = Arc::clone(&mode);
        let decide =
            move |_: &_| Answer::Done(Duration::from_millis(3 - u64::from(seen.load(Ordering::SeqCst))));
        let server = LinuxServer::start(Behaviour { size_bytes: 64 << 20, ..Behaviour::deciding(decide) });
        self.servers.push(server.server.clone());
        let (calls, fails_at) = (Arc::clone(&self.calls), self.fails_at);
        let has_cache_drives = spec.cache_drive_size_bytes.is_some();
        Ok(FakeCluster {
            calls,
            fails_at,
            server,
            mode,
            has_cache_drives,
            dirty_bytes_max: if self.moves_nothing { u64::MAX } else { DIRTY_BYTES_MAX },
            dirty_modes: 0,
            clean_at: 0,
            hit_bytes: 0,
        })
    }
}

impl FakeCluster {
    fn note(&self, call: String) -> Result<(), Error> {
        let fails = self.fails_at.is_some_and(|at| call.starts_with(at));
        self.calls.lock().unwrap().push(call);
        match fails {
            true => Err(Error::new("FAKE_FAILED", "it", "as told", "nothing")),
            false => Ok(()),
        }
    }
}

impl ClusterMeter for FakeCluster {
    fn read(&mut self) -> Result<MeterReading, Error> {
        Ok(MeterReading::default())
    }
}

impl StudyCluster for FakeCluster {
    fn make_volumes(&mut self, request: &VolumeRequest) -> Result<Vec<Target>, Error> {
        self.note(format!("volumes {} of {} MiB", request.count, request.size_bytes >> 20))?;
        Ok(self.server.targets(request.count as usize))
    }

    fn set_cache_mode(&mut self, mode: CacheMode) -> Result<(), Error> {
        self.note(mode.to_string())?;
        let number = u8::from(mode.caches_writes()) + u8::from(mode.caches_reads());
        self.mode.store(number, Ordering::SeqCst);
        if !mode.caches_writes() {
            return Ok(());
        }
        if self.dirty_modes == 0 {
            self.clean_at = self.server.server.asked().len();
        }
        self.dirty_modes += 1;
        Ok(())
    }

    fn read_caches(&mut self) -> Result<CacheReading, Error> {
        if !self.has_cache_drives {
            return Ok(CacheReading::default());
        }
        self.hit_bytes += 4096;
        let written = match self.dirty_modes {
            0 => 0,
            _ => {
                let asked = self.server.server.asked();
                let writes = asked[self.clean_at..].iter().filter(|asked| asked.is_write());
                COPIES * writes.map(|asked| u64::from(asked.length)).sum::<u64>()
            }
        };
        let dirty_bytes = written.min(self.dirty_bytes_max) + self.dirty_modes;
        let destaged_bytes = written.saturating_sub(self.dirty_bytes_max);
        let hit_bytes = self.hit_bytes;
        Ok(CacheReading {
            room_bytes: ROOM_BYTES,
            dirty_bytes,
            destaged_bytes,
            hit_bytes,
            ..CacheReading::default()
        })
    }

    fn await_clean(&mut self, tick: &mut dyn FnMut(u64)) -> Result<(), Error> {
        self.note("await clean".to_owned())?;
        tick(self.dirty_modes);
        self.dirty_modes = 0;
        Ok(())
    }

    fn remove(self) -> Result<(), Error> {
        self.note("remove".to_owned())
    }
}

impl Drop for FakeCluster {
    fn drop(&mut self) {
        self.calls.lock().unwrap().push("drop".to_owned());
    }
}
