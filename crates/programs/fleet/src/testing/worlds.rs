//! A simulated machine with an NBD server and a load generator: computing takes no time there, the way
//! between the two takes a known one, and everything else is what the server is told to take.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use spandrel_platform::{Address, Platform};
use spandrel_platform_simulated::{DelayRange, Process, RunEnd, TurnOrder, WorldConfig};
use spandrel_shared::Error;

use super::server::{Behaviour, TestServer};
use crate::generator::ThreadReport;
use crate::load_thread::{Assignment, LoadThread, Task};
use crate::result::CellResult;
use crate::spec::CellSpec;
use crate::target::Target;
use crate::times::LoadTimes;

/// How long a message takes, each way.
pub(crate) const NETWORK_DELAY: Duration = Duration::from_micros(10);

/// A machine with a server and a process for its clients.
pub(crate) struct World {
    world: spandrel_platform_simulated::World,
    pub(crate) server: TestServer,
    pub(crate) process: Process,
    address: Address,
}

/// What a load in such a world comes to.
pub(crate) struct Load {
    pub(crate) result: CellResult,
    /// How long it took from the order to start to the end.
    pub(crate) took: Duration,
}

impl World {
    pub(crate) fn new(behaviour: Behaviour) -> Self {
        Self::with_seed(1, behaviour)
    }

    pub(crate) fn with_seed(seed: u64, behaviour: Behaviour) -> Self {
        let mut config = WorldConfig {
            order: TurnOrder::Fifo,
            clock_drift_ppm_max: 0,
            timer_slack_max: Duration::ZERO,
            ..WorldConfig::default()
        };
        config.network.local_delay = DelayRange { min: NETWORK_DELAY, max: NETWORK_DELAY };
        config.network.split_per_mille = 0;
        Self::with_config(seed, config, behaviour)
    }

    /// A world whose messages arrive in pieces.
    pub(crate) fn fragmenting(seed: u64, behaviour: Behaviour) -> Self {
        let mut config = WorldConfig::default();
        config.network.split_per_mille = 800;
        config.network.socket_buffer_bytes = 16 << 10;
        Self::with_config(seed, config, behaviour)
    }

    fn with_config(seed: u64, config: WorldConfig, behaviour: Behaviour) -> Self {
        let world = spandrel_platform_simulated::World::with_config(seed, config);
        let host = world.add_host("machine");
        let (storage, process) =
            (world.start_process_on(&host, "storage"), world.start_process_on(&host, "load"));
        let address = Address::Unix("socket".to_owned());
        let server = TestServer::new(behaviour);
        let platform = storage.platform();
        let listener = platform.listen(&address).unwrap();
        storage.spawn(server.clone().serve(platform, listener));
        Self { world, server, process, address }
    }

    /// Lets everything that is under way arrive.
    pub(crate) fn settle(&self) {
        assert_eq!(self.world.run_for(Duration::from_secs(1)), RunEnd::TimeOver);
    }

    pub(crate) fn address(&self) -> Address {
        self.address.clone()
    }

    pub(crate) fn targets(&self, count: usize) -> Vec<Target> {
        (0..count).map(|number| self.target(&format!("client-{number}"))).collect()
    }

    pub(crate) fn target(&self, name: &str) -> Target {
        Target::new(name, self.address(), name)
    }

    /// Runs a cell with so many clients on one thread.
    pub(crate) fn run(&self, spec: &CellSpec, clients: usize) -> Load {
        self.run_targets(spec, self.targets(clients)).unwrap()
    }

    pub(crate) fn run_targets(&self, spec: &CellSpec, targets: Vec<Target>) -> Result<Load, Error> {
        spec.validate()?;
        self.run_task(spec, Task::Load, targets)
    }

    /// Fills the volumes of so many clients.
    pub(crate) fn fill(&self, spec: &CellSpec, clients: usize) -> Load {
        self.run_task(spec, Task::Pass, self.targets(clients)).unwrap()
    }

    fn run_task(&self, spec: &CellSpec, task: Task, targets: Vec<Target>) -> Result<Load, Error> {
        let assign = |(number, target)| Assignment { target, number, counters: Arc::default() };
        let assignments = targets.into_iter().enumerate().map(assign).collect();
        let (platform, own_spec) = (self.process.platform(), spec.clone());
        let ran = self.process.block_on(async move {
            let thread = LoadThread::connect(&platform, &own_spec, task, assignments).await?;
            let start = platform.now() + Duration::from_millis(1);
            let times = match task {
                Task::Load => LoadTimes::of_cell(&own_spec, start),
                Task::Pass => LoadTimes::open_ended(start, Duration::ZERO),
            };
            let outcome = thread.run(Arc::new(times), pending()).await;
            Ok((outcome, platform.now().since(start)))
        });
        let (outcome, took) = ran.expect("the load ends")?;
        let report = ThreadReport { outcome, cpu: Duration::ZERO, wall: Duration::ZERO };
        Ok(Load { result: CellResult::new(spec, spec.duration, vec![report]), took })
    }
}
