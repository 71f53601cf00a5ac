//! The platform that a simulated process sees.

use std::fmt;
use std::future::Future;
use std::rc::Rc;

use spandrel_platform::{
    Address, BufferPool, Connection as _, DriveError, Instant, LinkError, Platform, TaskHandle, UnixTime,
    before,
};

use crate::connection::SimulatedConnection;
use crate::drive::{OpenDrive, open};
use crate::host::Sleep;
use crate::listener::SimulatedListener;
use crate::process::{Process, ProcessState};

/// A simulated process's machine. Cheap to clone.
///
/// Once the process has ended, nothing done with it has an effect, and its futures never
/// complete.
#[derive(Clone)]
pub struct SimulatedPlatform {
    process: Rc<ProcessState>,
}

impl SimulatedPlatform {
    pub(crate) fn new(process: Rc<ProcessState>) -> Self {
        Self { process }
    }

    /// The process whose platform it is.
    pub fn process(&self) -> Process {
        Process { state: Rc::clone(&self.process) }
    }

    /// Adds a line to the world's trace and timeline.
    pub fn note(&self, text: &str) {
        self.process.shared.note(self.process.number as u64, text);
    }
}

impl Platform for SimulatedPlatform {
    type Drive = OpenDrive;
    type Connection = SimulatedConnection;
    type Listener = SimulatedListener;
    type Detached = SimulatedConnection;

    fn now(&self) -> Instant {
        Instant::from_nanoseconds(self.process.host.local_time())
    }

    fn unix_time(&self) -> UnixTime {
        self.process.host.unix_time()
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + 'static {
        Sleep::new(Rc::clone(&self.process.host), deadline.nanoseconds())
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) -> TaskHandle {
        self.process.spawn(task)
    }

    fn random_u64(&self) -> u64 {
        self.process.random.next_u64()
    }

    fn buffers(&self) -> &BufferPool {
        &self.process.buffers
    }

    async fn open_drive(&self, location: &str) -> Result<OpenDrive, DriveError> {
        open(self, &self.process, location).await
    }

    async fn connect(&self, address: &Address) -> Result<SimulatedConnection, LinkError> {
        let network = &self.process.shared.network;
        let deadline = self.now() + self.process.shared.config.network.connect_timeout;
        let connection = network.connect(&self.process, address)?;
        // Dropping the connection, here or when the caller gives up, withdraws the attempt.
        match before(self, deadline, connection.established()).await {
            Some(Ok(())) => Ok(connection),
            Some(Err(error)) => Err(error),
            None => Err(LinkError::Other(format!("connecting to {address} timed out"))),
        }
    }

    fn listen(&self, address: &Address) -> Result<SimulatedListener, LinkError> {
        self.process.shared.network.listen(&self.process, address)
    }

    /// The threads of a simulated process are the tasks of one: the connection is as good for any of them.
    fn detach(&self, connection: &SimulatedConnection) -> Option<SimulatedConnection> {
        (connection.queued_bytes() == 0).then(|| connection.clone())
    }

    fn attach(&self, detached: SimulatedConnection) -> Result<SimulatedConnection, LinkError> {
        Ok(detached)
    }
}

impl fmt::Debug for SimulatedPlatform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "SimulatedPlatform({}, incarnation {})",
            self.process.name, self.process.incarnation
        )
    }
}
