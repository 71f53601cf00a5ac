//! Two processes that speak over a simulated wire: one under test, one that says what an input chooses.

use std::time::Duration;

use spandrel_platform::{Address, BufferMut, Connection, Platform};
use spandrel_platform_simulated::{Process, SimulatedConnection, SimulatedPlatform, World, WorldConfig};

/// How long anything may take, in the world's own time. All waiting in the code under test is shorter.
const PATIENCE: Duration = Duration::from_secs(600);

/// The two processes.
pub struct Wire {
    pub world: World,
    /// The code under test.
    pub tested: Process,
    /// The one that is not to be trusted.
    pub stranger: Process,
}

impl Wire {
    /// The world; with `pieces`, what is sent arrives in pieces.
    pub fn new(pieces: bool) -> Self {
        let mut config = WorldConfig { clock_drift_ppm_max: 0, ..WorldConfig::default() };
        config.network.split_per_mille = if pieces { 500 } else { 0 };
        config.limits.steps = 1_000_000;
        let world = World::with_config(1, config);
        let host = world.add_host("machine");
        let tested = world.start_process_on(&host, "tested");
        let stranger = world.start_process_on(&host, "stranger");
        Self { world, tested, stranger }
    }

    pub fn address() -> Address {
        Address::Unix("socket".to_owned())
    }

    /// Runs the world until `future`, run by the stranger, has completed.
    pub fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let end = self.stranger.block_on(future);
        end.unwrap_or_else(|end| panic!("it does not come to its end: {end:?}"))
    }

    /// Runs the world until `condition` holds.
    pub fn until(&self, what: &str, condition: impl FnMut() -> bool) {
        let end = self.world.run_until_within(PATIENCE, condition);
        assert_eq!(end, spandrel_platform_simulated::RunEnd::ConditionMet, "{what}");
    }
}

/// Connects to the code under test.
pub async fn connect(platform: &SimulatedPlatform) -> SimulatedConnection {
    platform.connect(&Wire::address()).await.expect("the code under test listens")
}

/// Receives exactly `count` bytes; `None` if the other side closes before that.
pub async fn receive(connection: &SimulatedConnection, count: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; count];
    let mut filled = 0;
    while filled < count {
        match connection.receive(&mut bytes[filled..]).await {
            Ok(0) | Err(_) => return None,
            Ok(received) => filled += received,
        }
    }
    Some(bytes)
}

/// Receives and forgets until the other side closes.
pub async fn drain(connection: SimulatedConnection) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(1..) = connection.receive(&mut bytes).await {}
}

/// A buffer with this content.
pub fn buffer(platform: &impl Platform, bytes: &[u8]) -> BufferMut {
    platform.buffers().copy_of(bytes)
}
