//! The machine as the data path and the control path see it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::time::ClockId;
use spandrel_platform::{
    Address, BufferPool, DriveError, Instant, LinkError, Platform, TaskHandle, UnixTime,
};

use crate::connection::{DetachedConnection, LinuxConnection};
use crate::drive::LinuxDrive;
use crate::listener::LinuxListener;
use crate::remote::RemoteHandle;
use crate::shard::Shard;
use crate::statistics::RuntimeStatistics;
use crate::timers::TimerKey;
use crate::watched::Watched;

/// The real machine, as seen from the thread of one [`Runtime`](crate::Runtime). Cheap to clone.
#[derive(Clone)]
pub struct LinuxPlatform {
    shard: Rc<Shard>,
}

impl LinuxPlatform {
    pub(crate) fn new(shard: Rc<Shard>) -> Self {
        Self { shard }
    }

    /// What the runtime has done so far.
    pub fn statistics(&self) -> RuntimeStatistics {
        self.shard.counters.snapshot()
    }

    /// A handle through which other threads reach this runtime.
    pub fn remote(&self) -> RemoteHandle {
        RemoteHandle::new(Arc::clone(&self.shard.remote))
    }

    /// Watches an eventfd, by which others wake tasks of this runtime.
    ///
    /// # Errors
    /// The system's, if it cannot be watched.
    pub fn watch(&self, eventfd: OwnedFd) -> std::io::Result<Watched> {
        Ok(Watched::new(&self.shard, eventfd, EventFlags::IN)?)
    }
}

impl Platform for LinuxPlatform {
    type Drive = LinuxDrive;
    type Connection = LinuxConnection;
    type Listener = LinuxListener;
    type Detached = DetachedConnection;

    fn now(&self) -> Instant {
        self.shard.now()
    }

    fn unix_time(&self) -> UnixTime {
        let time = rustix::time::clock_gettime(ClockId::Realtime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let milliseconds = u64::try_from(time.tv_nsec / 1_000_000).unwrap_or(0);
        UnixTime(seconds * 1000 + milliseconds)
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + 'static {
        Sleep::until(&self.shard, deadline)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) -> TaskHandle {
        self.shard.executor.spawn(task)
    }

    fn random_u64(&self) -> u64 {
        self.shard.random_u64()
    }

    fn buffers(&self) -> &BufferPool {
        &self.shard.buffers
    }

    /// Opens a regular file or a block device for exclusive use. Opening itself blocks the thread,
    /// for as long as the kernel takes to look the path up.
    async fn open_drive(&self, location: &str) -> Result<LinuxDrive, DriveError> {
        LinuxDrive::open(&self.shard, location).await
    }

    async fn connect(&self, address: &Address) -> Result<LinuxConnection, LinkError> {
        crate::connect::connect(&self.shard, address).await
    }

    fn listen(&self, address: &Address) -> Result<LinuxListener, LinkError> {
        LinuxListener::listen(&self.shard, address)
    }

    fn detach(&self, connection: &LinuxConnection) -> Option<DetachedConnection> {
        connection.detach()
    }

    fn attach(&self, detached: DetachedConnection) -> Result<LinuxConnection, LinkError> {
        LinuxConnection::attach(&self.shard, detached)
    }
}

/// Completes at a deadline. Its timer is gone once it has fired or the future is dropped.
pub(crate) struct Sleep {
    shard: Rc<Shard>,
    deadline: Instant,
    timer: Option<TimerKey>,
}

impl Sleep {
    pub(crate) fn until(shard: &Rc<Shard>, deadline: Instant) -> Self {
        Self { shard: Rc::clone(shard), deadline, timer: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(key) = self.timer {
            if self.shard.timers.renew(key, context.waker()) {
                return Poll::Pending;
            }
            return Poll::Ready(());
        }
        if self.shard.now() >= self.deadline {
            return Poll::Ready(());
        }
        let key = self.shard.timers.set(self.deadline, context.waker().clone());
        self.timer = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.timer {
            self.shard.timers.cancel(key);
        }
    }
}
