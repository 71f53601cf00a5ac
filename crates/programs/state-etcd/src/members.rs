//! The members of etcd, and which of them is asked.
//!
//! Invariants:
//! - Requests go to one member until it fails, then to the next one: whoever watches on it hears of that, so that
//!   a member that falls silent holds up nobody for long.
//! - A change is sent to one member at most, unless it is sure that an earlier one did nothing with it.

use std::future::Future;
use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error as EtcdError, KvClient, LeaseClient, WatchClient};
use spandrel_cluster::store::{StoreError, StoreErrorKind};
use spandrel_shared::Error;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::failure::{Failure, Verdict};

/// How long connecting to a member may take.
const CONNECT_TIME: Duration = Duration::from_millis(500);

/// How long one member may take for what can be asked of another as well.
const ATTEMPT_TIME: Duration = Duration::from_secs(1);

/// How long a request may take in all. etcd elects a new leader within that.
const REQUEST_TIME: Duration = Duration::from_secs(4);

/// How long is waited when every member has refused to do anything.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest answer, in bytes: what the limits of etcd and of the cluster's size can add up to.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// How often a connection is probed, so that one that is dead is noticed if nothing is asked. etcd refuses to be
/// probed more than once in five seconds.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// The members.
pub struct Members {
    members: Vec<Client>,
    /// The place of the one that is asked.
    present: watch::Sender<usize>,
}

/// A member that is asked.
#[derive(Clone)]
pub struct Member {
    /// Its place in the list.
    pub place: usize,
    client: Client,
}

impl Member {
    /// Its keys.
    pub fn kv(&self) -> KvClient {
        self.client.kv_client().max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// Its leases.
    pub fn lease(&self) -> LeaseClient {
        self.client.lease_client()
    }

    /// Its watches.
    pub fn watches(&self) -> WatchClient {
        self.client.watch_client().max_decoding_message_size(ANSWER_BYTES_MAX)
    }
}

impl Members {
    /// The members at `endpoints`. Nothing is sent to them yet.
    pub async fn at(endpoints: &[String]) -> Result<Self, Error> {
        let invalid = |what: String, why: String| {
            let next = "name each member like http://127.0.0.1:2379";
            Err(Error::new("STATE_ADDRESS_INVALID", what, why, next))
        };
        if endpoints.is_empty() {
            return invalid("no address of the cluster's state".to_owned(), "the list is empty".to_owned());
        }
        let options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIME)
            .with_require_leader(true)
            .with_keep_alive(PROBE_INTERVAL, ATTEMPT_TIME)
            .with_keep_alive_while_idle(true);
        let mut members = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            match Client::connect([endpoint], Some(options.clone())).await {
                Ok(client) => members.push(client),
                Err(error) => {
                    return invalid(format!("not an address of etcd: {endpoint:?}"), error.to_string());
                }
            }
        }
        Ok(Self { members, present: watch::Sender::new(0) })
    }

    /// Asks for something that is the same when it is done twice.
    pub async fn repeat<T, F>(&self, request: impl Fn(Member) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let may_repeat = |verdict| !matches!(verdict, Verdict::Refused(_));
        let result = self.ask(ATTEMPT_TIME, may_repeat, request).await;
        result.map_err(|failure| failure.into_error(StoreErrorKind::Unavailable))
    }

    /// Asks for a change.
    pub async fn change<T, F>(&self, request: impl Fn(Member) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let may_repeat = |verdict| verdict == Verdict::NotDone;
        let result = self.ask(REQUEST_TIME, may_repeat, request).await;
        result.map_err(|failure| failure.into_error(StoreErrorKind::Unknown))
    }

    /// Asks one member after the other, as long as `may_repeat` lets it and there is time.
    async fn ask<T, F>(
        &self,
        attempt_time: Duration,
        may_repeat: impl Fn(Verdict) -> bool,
        request: impl Fn(Member) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let end = Instant::now() + REQUEST_TIME;
        let mut attempts = 0;
        loop {
            let place = *self.present.borrow();
            let member = Member { place, client: self.members[place].clone() };
            let attempt_end = end.min(Instant::now() + attempt_time);
            let failure = match timeout_at(attempt_end, request(member)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => Failure::from(error),
                Err(_) => Failure::silence(),
            };
            if matches!(failure.verdict, Verdict::Refused(_)) {
                return Err(failure);
            }
            self.leave(place);
            if !may_repeat(failure.verdict) || Instant::now() + PAUSE >= end {
                return Err(failure);
            }
            attempts += 1;
            if attempts % self.members.len() == 0 {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// The member at `place` has failed: the next one is asked from now on, unless somebody else has seen to that.
    fn leave(&self, place: usize) {
        let next = (place + 1) % self.members.len();
        self.present.send_if_modified(|present| {
            let is_first = *present == place && next != place;
            if is_first {
                *present = next;
            }
            is_first
        });
    }

    /// Waits until another member than the one at `place` is asked.
    pub async fn left(&self, place: usize) {
        let mut present = self.present.subscribe();
        // Its sender lives as long as this.
        drop(present.wait_for(|present| *present != place).await);
    }
}
