//! A member of etcd that a node runs: a process of its own, kept running as long as the node runs.
//!
//! Invariants:
//! - A node that dies leaves its member running; the next run of the node takes the very same process over. So
//!   the cluster's state does not lose a member because a storage process has crashed.
//! - One process uses a member's folder: etcd itself locks it.
//! - A member ends when its node ends in order. Its process is told so at once, whoever waits for it or does not.

mod arguments;
mod process;

pub use process::check_program;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use spandrel_shared::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::process::{Ender, MemberProcess};
use crate::MemberDescription;

/// How soon a member that has ended is started again, at first and at most.
const RESTART_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How often it is looked whether a member that begins has data.
const DATA_INTERVAL: Duration = Duration::from_millis(50);

/// A member that has run for so long has had nothing against its start.
const SETTLED_AFTER: Duration = Duration::from_secs(10);

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSettings {
    /// etcd, version 3.4 or later: a path, or a name that is looked for in `PATH`.
    pub program: PathBuf,
    /// What is the member's own: its data and its log.
    pub folder: PathBuf,
    /// Its name among the members.
    pub name: String,
    /// Where it answers clients.
    pub client_addresses: Vec<SocketAddr>,
    /// Where it answers other members.
    pub peer_addresses: Vec<SocketAddr>,
    /// With what it proves to clients and other members who it is, and whom it lets in. None if it speaks to this
    /// machine alone, unencrypted.
    pub identity: Option<MemberIdentity>,
    /// How it becomes a member.
    pub beginning: Beginning,
}

impl MemberSettings {
    /// One of its addresses, as etcd and its clients write it.
    pub fn url(&self, address: &SocketAddr) -> String {
        match self.identity {
            Some(_) => crate::secured_url(address),
            None => crate::url(address),
        }
    }
}

/// The files with which a member proves who it is, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberIdentity {
    /// The certificate of the authority that has signed for all who may speak with it.
    pub authority: PathBuf,
    /// Its own certificate, for its addresses.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The list of certificates that count no more, read at every connection.
    pub revoked: PathBuf,
}

/// How a process becomes a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// It begins a new etcd, alone. What this says tells it from every other one: members of two etcds that find each
    /// other at an address do not speak with each other.
    First(String),
    /// It was added to an etcd, whose members are these, itself included: their names, and where they answer other
    /// members.
    Added(Vec<(String, Vec<SocketAddr>)>),
    /// It is one already: it is not started without its data. Whoever has begun a member must say so from then on, and
    /// remember it elsewhere than in the member's folder.
    Member,
    /// It was one of several, the others of which are gone for good: it goes on alone with what it has. Whatever the
    /// others knew beyond that is lost, and if they come back there are two of one.
    Alone,
}

impl Beginning {
    /// How a member called `name` begins that was just added to `members`, where it has no name yet.
    ///
    /// Error: `STATE_ADDRESS_INVALID`, if a member's address is not one that this program gives.
    pub fn added(members: &[MemberDescription], name: &str) -> Result<Self, Error> {
        let each = members.iter().map(|member| {
            let called = if member.name.is_empty() { name } else { &member.name };
            let addresses = member.peer_urls.iter().map(|url| address(url)).collect::<Result<_, _>>()?;
            Ok((called.to_owned(), addresses))
        });
        Ok(Self::Added(each.collect::<Result<_, Error>>()?))
    }
}

fn address(url: &str) -> Result<SocketAddr, Error> {
    let address = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let address = address.and_then(|address| address.parse().ok());
    address.ok_or_else(|| {
        Error::new(
            "STATE_ADDRESS_INVALID",
            "a node cannot become a member of this etcd",
            format!("one of its members is at {url:?}, which is no address with a port"),
            "let the members of etcd have numeric addresses",
        )
    })
}

/// How a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberStatus {
    /// Its process runs. Whether it answers is etcd's to say.
    Running {
        /// The process.
        process: u32,
        /// It has data, so it begins no more: from then on [`Beginning::Member`] holds.
        is_member: bool,
    },
    /// Its process has ended, and is started again soon.
    Ended {
        /// How it ended, and the last that it said.
        reason: String,
    },
}

impl MemberStatus {
    /// The process that runs.
    pub fn process(&self) -> Option<u32> {
        match self {
            Self::Running { process, .. } => Some(*process),
            Self::Ended { .. } => None,
        }
    }
}

/// A member that is kept running. Dropping this leaves it running.
pub struct Member {
    stop: watch::Sender<bool>,
    ender: Ender,
    status: watch::Receiver<MemberStatus>,
    keeper: JoinHandle<()>,
}

impl Member {
    /// Takes the member's process over if it runs, else starts it. Needs a tokio runtime that lives as long as the
    /// member is kept.
    ///
    /// Errors: `STATE_PROGRAM_MISSING`, `STATE_PROGRAM_TOO_OLD`, `STATE_MEMBER_DATA_LOST`,
    /// `STATE_MEMBER_NOT_STARTED`.
    pub async fn start(settings: MemberSettings) -> Result<Self, Error> {
        let process = MemberProcess::take_over_or_start(&settings).await?;
        let (stop, stopped) = watch::channel(false);
        let (told, status) = watch::channel(running(&settings, &process));
        let ender = Ender::default();
        ender.follow(&process);
        let keeper = tokio::spawn(keep(settings, process, ender.clone(), stopped, told));
        Ok(Self { stop, ender, status, keeper })
    }

    /// How it is.
    pub fn status(&self) -> MemberStatus {
        self.status.borrow().clone()
    }

    /// Waits until it is otherwise than it was when this was last asked. None if it is kept no longer.
    pub async fn changed(&mut self) -> Option<MemberStatus> {
        self.status.changed().await.ok()?;
        Some(self.status.borrow_and_update().clone())
    }

    /// Ends the member's process, in order if it lets itself be ended so. It is told to when this returns; the future
    /// waits for its end.
    pub fn stop(self) -> impl Future<Output = ()> {
        self.stop.send_replace(true);
        self.ender.end();
        async move {
            if let Err(error) = self.keeper.await {
                tracing::error!("the keeper of etcd has ended: {error}");
            }
        }
    }
}

/// Ends the process that uses the member's data, if there is one: a node that was killed has left it running.
///
/// Error: `STATE_MEMBER_NOT_STOPPED`.
pub async fn stop_running(settings: &MemberSettings) -> Result<(), Error> {
    MemberProcess::stop_running(settings).await.map_err(|error| {
        Error::new(
            "STATE_MEMBER_NOT_STOPPED",
            "etcd cannot be ended that uses this server's part of the state",
            error.to_string(),
            "end it by hand: the process whose command line names the server's directory",
        )
    })
}

/// Starts the process again whenever it ends, until it is to be stopped or left.
async fn keep(
    mut settings: MemberSettings,
    mut process: MemberProcess,
    ender: Ender,
    mut stopped: watch::Receiver<bool>,
    told: watch::Sender<MemberStatus>,
) {
    let mut pause = RESTART_PAUSE.0;
    loop {
        let started = Instant::now();
        let reason = loop {
            tokio::select! {
                // A process that was told to end has not ended by itself.
                biased;
                is_to_stop = end_of_keeping(&mut stopped) => {
                    if is_to_stop && let Err(error) = process.stop().await {
                        tracing::error!("etcd cannot be stopped: {error}");
                    }
                    return;
                }
                reason = process.ended() => break reason,
                () = tokio::time::sleep(DATA_INTERVAL), if begins(&settings.beginning) => {
                    if Paths(&settings.folder).has_data() {
                        settings.beginning = Beginning::Member;
                        told.send_replace(running(&settings, &process));
                    }
                }
            }
        };
        tracing::error!("etcd has ended: {reason}");
        told.send_replace(MemberStatus::Ended { reason });
        if started.elapsed() >= SETTLED_AFTER {
            pause = RESTART_PAUSE.0;
        }
        process = tokio::select! {
            process = start_again(&settings, &mut pause, &told) => process,
            _ = end_of_keeping(&mut stopped) => return,
        };
        ender.follow(&process);
        told.send_replace(running(&settings, &process));
    }
}

/// Whether a member is still to get its data.
fn begins(beginning: &Beginning) -> bool {
    !matches!(beginning, Beginning::Member | Beginning::Alone)
}

fn running(settings: &MemberSettings, process: &MemberProcess) -> MemberStatus {
    MemberStatus::Running { process: process.id(), is_member: !begins(&settings.beginning) }
}

/// Starts the process, as often as that takes.
async fn start_again(
    settings: &MemberSettings,
    pause: &mut Duration,
    told: &watch::Sender<MemberStatus>,
) -> MemberProcess {
    loop {
        tokio::time::sleep(*pause).await;
        *pause = RESTART_PAUSE.1.min(*pause * 2);
        match MemberProcess::take_over_or_start(settings).await {
            Ok(process) => return process,
            Err(error) => {
                tracing::error!("{error}");
                told.send_replace(MemberStatus::Ended { reason: error.to_string() });
            }
        }
    }
}

/// Waits until the member is kept no longer. Whether its process is to be stopped.
async fn end_of_keeping(stopped: &mut watch::Receiver<bool>) -> bool {
    stopped.wait_for(|stopped| *stopped).await.is_ok()
}

/// Where things lie in a member's folder.
struct Paths<'f>(&'f Path);

impl Paths<'_> {
    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    fn log(&self) -> PathBuf {
        self.0.join("etcd.log")
    }

    /// A log that has grown long.
    fn former_log(&self) -> PathBuf {
        self.0.join("etcd.log.1")
    }

    /// Whether there are data of a member.
    fn has_data(&self) -> bool {
        self.data().join("member/wal").is_dir()
    }
}

#[cfg(test)]
#[path = "member_tests.rs"]
mod tests;
