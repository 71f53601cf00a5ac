//! The fleet against the NBD server that ships, over unix sockets: two halves of the protocol that
//! were written apart.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::oneshot;
use spandrel_fleet::{
    CellSpec, NbdClient, NbdError, NoMeter, NoProgress, Pattern, SweepSpec, Target, run_cell, sweep,
};
use spandrel_frontend::{FrontendStatistics, NbdConfig, NbdServer};
use spandrel_platform::{Address, Buffer, BufferPool, Platform};
use spandrel_platform_linux::{LinuxPlatform, Runtime, RuntimeConfig};
use spandrel_volume::{BlockDevice, DeviceError, DeviceErrorKind, DeviceLimits, Exports, Extent, OpenError};

const VOLUME_BYTES: usize = 8 << 20;

/// A volume in memory.
#[derive(Clone)]
struct MemoryVolume {
    content: Rc<RefCell<Vec<u8>>>,
    pool: BufferPool,
}

impl MemoryVolume {
    fn fill(&self, offset: u64, length: u64) {
        self.content.borrow_mut()[offset as usize..(offset + length) as usize].fill(0);
    }
}

impl BlockDevice for MemoryVolume {
    fn limits(&self) -> DeviceLimits {
        DeviceLimits {
            size_bytes: VOLUME_BYTES as u64,
            request_bytes_min: 512,
            request_bytes_preferred: 4096,
            request_bytes_max: 1 << 20,
            read_only: false,
        }
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Vec<Buffer>, DeviceError> {
        let start = offset as usize;
        let content = self.content.borrow();
        // In parts, as a volume of many slabs has them.
        let parts = content[start..start + length as usize].chunks(12 << 10);
        Ok(parts.map(|part| self.pool.copy_of(part).freeze()).collect())
    }

    async fn write(&self, offset: u64, data: Buffer) -> Result<(), DeviceError> {
        let start = offset as usize;
        self.content.borrow_mut()[start..start + data.len()].copy_from_slice(&data);
        Ok(())
    }

    async fn write_zeroes(&self, offset: u64, length: u64, _keep: bool) -> Result<(), DeviceError> {
        self.fill(offset, length);
        Ok(())
    }

    async fn trim(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.fill(offset, length);
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn extents(&self, _offset: u64, length: u64) -> Result<Vec<Extent>, DeviceError> {
        Ok(vec![Extent { length, allocated: true }])
    }
}

/// A volume for every name that begins with `client`.
#[derive(Clone)]
struct Volumes {
    pool: BufferPool,
}

impl Exports for Volumes {
    type Device = MemoryVolume;

    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn open(&self, name: &str) -> Result<MemoryVolume, OpenError> {
        if !name.starts_with("client") {
            let error = DeviceError::new(DeviceErrorKind::NotFound, format!("there is no volume {name:?}"));
            return Err(error.into());
        }
        let content = Rc::new(RefCell::new(vec![0; VOLUME_BYTES]));
        Ok(MemoryVolume { content, pool: self.pool.clone() })
    }
}

/// A server on a thread of its own. Ends when dropped.
struct Server {
    address: Address,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<FrontendStatistics>>,
}

impl Server {
    fn start(folder: &Path) -> Self {
        let address = Address::Unix(folder.join("nbd").to_string_lossy().into_owned());
        let (stop, stopped) = oneshot::channel::<()>();
        let (listening, is_listening) = mpsc::channel();
        let own = address.clone();
        let thread = std::thread::spawn(move || {
            let mut runtime = Runtime::new(RuntimeConfig::default()).expect("a runtime can be made");
            let platform = runtime.platform();
            let listener = platform.listen(&own).expect("the folder is new");
            let volumes = Volumes { pool: platform.buffers().clone() };
            let server = NbdServer::new(platform.clone(), volumes, NbdConfig::default());
            let accepting = server.clone();
            platform
                .spawn(async move { accepting.serve(listener).await.expect("it listens until it stops") });
            listening.send(()).expect("the test waits");
            runtime.block_on(async move {
                let _ = stopped.await;
                server.stop().await;
                server.statistics()
            })
        });
        is_listening.recv().expect("the server listens");
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    fn targets(&self, count: usize) -> Vec<Target> {
        let target = |number| {
            let name = format!("client-{number}");
            Target::new(name.clone(), self.address.clone(), name)
        };
        (0..count).map(target).collect()
    }

    /// Stops it and says what it did.
    fn end(&mut self) -> FrontendStatistics {
        self.stop = None;
        self.thread.take().expect("a server ends once").join().expect("the server does not panic")
    }
}

fn spec() -> CellSpec {
    CellSpec {
        warmup: Duration::from_millis(20),
        duration: Duration::from_millis(150),
        write_percent: 30,
        outstanding: 8,
        write_source_bytes: 1 << 20,
        ..CellSpec::default()
    }
}

#[test]
fn every_kind_of_load_is_served_without_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    for pattern in [Pattern::Random, Pattern::Sequential, Pattern::Interlocked] {
        for block_size_bytes in [512, 4096, 256 << 10] {
            let spec = CellSpec { pattern, block_size_bytes, threads: 2, ..spec() };
            let result = run_cell(&server.targets(3), &spec).unwrap();
            assert_eq!((result.errors, result.unanswered, result.clients_lost), (0, 0, 0), "{result:?}");
            assert!(result.clients.iter().all(|client| client.total.iops > 0.0), "{result:?}");
            assert!(result.read.count > 0 && result.write.count > 0);
        }
    }
    let statistics = server.end();
    assert_eq!((statistics.requests_failed, statistics.requests_refused), (0, 0));
    assert!(statistics.reads > 0 && statistics.writes > 0);
}

#[test]
fn server_and_fleet_count_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    // Everything is measured but the very last I/Os, which come back after the end.
    let spec = CellSpec { warmup: Duration::ZERO, ..spec() };
    let result = run_cell(&server.targets(2), &spec).unwrap();
    let statistics = server.end();
    let served = statistics.reads + statistics.writes;
    let after_the_end = served - result.total.count;
    assert!(after_the_end <= 2 * 8, "{served} served, {} counted", result.total.count);
    assert!(statistics.written_bytes - result.write.bytes <= 2 * 8 * 4096);
}

#[test]
fn a_sweep_with_fill_runs_through() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let spec = SweepSpec {
        block_sizes_bytes: vec![4096],
        threads: vec![1],
        write_percents: vec![0, 100],
        outstanding: vec![1, 8],
        common: CellSpec { working_set_bytes: Some(4 << 20), ..spec() },
        fill: true,
    };
    let result = sweep(&spec, &server.targets(4), &mut NoMeter, &mut NoProgress).unwrap();
    assert_eq!((result.rows.len(), &result.stopped_by), (4, &None));
    assert!(result.rows.iter().all(|row| row.cell.errors == 0 && row.cell.total.iops > 0.0));
}

#[test]
fn the_client_reads_back_what_it_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let mut runtime = Runtime::new(RuntimeConfig::default()).unwrap();
    let platform = runtime.platform();
    let address = server.address.clone();
    runtime.block_on(async move {
        let client = NbdClient::<LinuxPlatform>::open(&platform, &address, "client-x").await.unwrap();
        assert_eq!(client.export().size_bytes, VOLUME_BYTES as u64);
        assert!(client.export().structured_replies);
        let content: Vec<u8> = (0..300_000_u32).map(|index| (index % 253) as u8).take(299_520).collect();
        client.write(4608, platform.buffers().copy_of(&content).freeze()).await.unwrap();
        client.write_zeroes(8192, 4096).await.unwrap();
        client.flush().await.unwrap();
        let read = client.read(4608, 299_520).await.unwrap();
        let mut expected = content;
        expected[8192 - 4608..][..4096].fill(0);
        assert!(read[..] == expected[..]);
        client.trim(0, 1 << 20).await.unwrap();
        assert!(client.read(0, 1 << 20).await.unwrap().iter().all(|byte| *byte == 0));
        let error = NbdClient::<LinuxPlatform>::open(&platform, &address, "other").await.err().unwrap();
        assert!(
            matches!(&error, NbdError::Refused(why) if why.contains("there is no export \"other\"")),
            "{error}"
        );
    });
}
