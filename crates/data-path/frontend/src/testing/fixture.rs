//! A server with one disk, listening.

use std::time::Duration;

use spandrel_platform::{Address, Platform};

use super::{Client, MemoryDisk, MemoryExports, TestConnection, TestPlatform};
use crate::{NbdConfig, NbdServer};

/// The name of the disk.
pub(crate) const EXPORT: &str = "vm-01";

#[derive(Clone)]
pub(crate) struct Fixture {
    pub(crate) platform: TestPlatform,
    pub(crate) disk: MemoryDisk,
    pub(crate) exports: MemoryExports,
    pub(crate) server: NbdServer<TestPlatform, MemoryExports>,
}

impl Fixture {
    /// A server that serves a disk of `size_bytes`.
    pub(crate) fn new(size_bytes: usize) -> Self {
        Self::with_config(size_bytes, NbdConfig::default())
    }

    pub(crate) fn with_config(size_bytes: usize, config: NbdConfig) -> Self {
        let platform = TestPlatform::new();
        let disk = MemoryDisk::new(&platform, size_bytes);
        let other = MemoryDisk::new(&platform, 4096);
        let exports = MemoryExports::new(&platform, &[(EXPORT, disk.clone()), ("other", other)]);
        let server = NbdServer::new(platform.clone(), exports.clone(), config);
        let fixture = Self { platform, disk, exports, server };
        let listener = fixture.platform.listen(&Self::address()).unwrap();
        let own = fixture.server.clone();
        fixture.platform.spawn(async move { own.serve(listener).await.unwrap() });
        fixture.platform.settle();
        fixture
    }

    pub(crate) fn address() -> Address {
        Address::Unix("socket".to_owned())
    }

    /// A connection on which nothing has been said.
    pub(crate) async fn connect(&self) -> TestConnection {
        self.platform.connect(&Self::address()).await.unwrap()
    }

    /// A client of the disk.
    pub(crate) async fn attach(&self, structured: bool) -> Client {
        Client::attach(self.connect().await, EXPORT, structured).await
    }

    /// Runs `test` with this fixture to its end.
    pub(crate) fn run<T: 'static>(&self, test: impl AsyncFnOnce(Fixture) -> T + 'static) -> T {
        let own = self.clone();
        self.platform.run(async move { test(own).await })
    }

    /// Completes when no connection is left.
    pub(crate) async fn until_alone(&self) {
        self.until(|fixture| fixture.server.statistics().connections == 0).await;
    }

    /// Completes when `condition` holds. Time passes, and ever faster, only while nothing else
    /// can happen.
    pub(crate) async fn until(&self, condition: impl Fn(&Fixture) -> bool) {
        let mut pause = Duration::from_nanos(1);
        while !condition(self) {
            self.platform.sleep(pause).await;
            pause *= 2;
        }
    }

    /// Completes when nothing else can happen without time passing.
    pub(crate) async fn quiet(&self) {
        self.platform.sleep(Duration::from_nanos(1)).await;
    }
}
