//! What the tests of this crate share.

use std::future::{Future, poll_fn};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Mutex;
use std::task::{Poll, Waker};

use spandrel_platform::{Address, Connection, Listener, Platform};

use crate::{LinuxConnection, LinuxPlatform, Runtime, RuntimeConfig};

/// Runs what `test` makes of a new runtime's platform.
pub(crate) fn run<F>(test: impl FnOnce(LinuxPlatform) -> F) -> F::Output
where
    F: Future + 'static,
    F::Output: 'static,
{
    run_with(RuntimeConfig::default(), test)
}

/// The same, with a configuration.
pub(crate) fn run_with<F>(config: RuntimeConfig, test: impl FnOnce(LinuxPlatform) -> F) -> F::Output
where
    F: Future + 'static,
    F::Output: 'static,
{
    let mut runtime = Runtime::new(config).unwrap();
    let future = test(runtime.platform());
    runtime.block_on(future)
}

/// A runtime whose connections within the process go through memory.
pub(crate) fn in_process() -> RuntimeConfig {
    RuntimeConfig { stays_in_process: true, ..RuntimeConfig::default() }
}

/// Any free TCP port of this machine.
pub(crate) fn any_port() -> Address {
    Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

/// A unix socket in `directory`.
pub(crate) fn socket_in(directory: &Path) -> Address {
    Address::Unix(directory.join("socket").to_str().unwrap().to_string())
}

/// Both ends of a new connection at `address`.
pub(crate) async fn pair(platform: &LinuxPlatform, address: &Address) -> (LinuxConnection, LinuxConnection) {
    let listener = platform.listen(address).unwrap();
    let client = platform.connect(&listener.address()).await.unwrap();
    let server = listener.accept().await.unwrap();
    (client, server)
}

/// Receives exactly `length` bytes.
pub(crate) async fn receive_exactly(connection: &LinuxConnection, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        let count = connection.receive(&mut bytes[done..]).await.unwrap();
        assert_ne!(count, 0, "the stream ended after {done} of {length} bytes");
        done += count;
    }
    bytes
}

/// Numbers that look random and are the same every time.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
    }
}

/// What one thread awaits and another opens.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<(bool, Option<Waker>)>,
}

impl Gate {
    /// Lets the waiter pass.
    pub(crate) fn open(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        if let Some(waiter) = state.1.take() {
            waiter.wake();
        }
    }

    /// Whether somebody waits.
    pub(crate) fn is_awaited(&self) -> bool {
        self.state.lock().unwrap().1.is_some()
    }

    /// Completes once the gate is open.
    pub(crate) async fn passed(&self) {
        poll_fn(|context| {
            let mut state = self.state.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
