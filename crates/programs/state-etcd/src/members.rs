//! The members of etcd, and which of them is asked.
//!
//! Invariants:
//! - Requests go to one member until it fails, then to the next one. Whoever watches hears of that, so that a member
//!   that falls silent holds up nobody for long.
//! - A change is sent to one member at most, unless it is sure that an earlier one did nothing with it.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ClusterClient, ConnectOptions, Error as EtcdError, Identity, KvClient, LeaseClient,
    MaintenanceClient, TlsOptions, WatchClient,
};
use futures_util::future::join_all;
use spandrel_cluster::store::{StoreError, StoreErrorKind};
use spandrel_shared::Error;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::EtcdIdentity;
use crate::failure::{Failure, Verdict};

/// How long connecting to a member may take.
const CONNECT_TIME: Duration = Duration::from_millis(500);

/// How long one member may take at first for what can be asked of another as well. Twice as long in each further
/// round: an answer may be long.
const ATTEMPT_TIME: Duration = Duration::from_secs(1);

/// How long a change is waited for before its member is asked for a sign of life, and how long that may take. A change
/// must not be sent to another member, so one that is only slow, as during an election, is waited for; one that is
/// silent is not.
const SIGN_OF_LIFE_AFTER: Duration = Duration::from_millis(300);
/// See [`SIGN_OF_LIFE_AFTER`].
const SIGN_OF_LIFE_TIME: Duration = Duration::from_millis(700);

/// How long a request may take in all. etcd elects a new leader within that.
const REQUEST_TIME: Duration = Duration::from_secs(4);

/// How long is waited when every member has been asked in vain.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest answer, in bytes: more than all of the largest cluster's state.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// How often a connection is probed on which something is awaited, so that one that is dead is noticed. etcd
/// does not let itself be probed more than once in five seconds, nor while nothing is awaited.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// The members.
pub struct Members {
    /// Never empty.
    members: RwLock<Arc<[Connections]>>,
    options: ConnectOptions,
    /// Held while the members are exchanged for others.
    changing: tokio::sync::Mutex<()>,
    /// How often one has failed: the member after it is asked from then on.
    failures: watch::Sender<u64>,
}

/// The connections to a member. Watches have their own: a watch whose changes nobody takes holds up what shares its
/// connection.
#[derive(Clone)]
struct Connections {
    endpoint: String,
    requests: Client,
    watches: Client,
}

/// A member that is asked.
#[derive(Clone)]
pub struct Member {
    /// How many have failed before it.
    pub turn: u64,
    connections: Connections,
}

impl Member {
    /// Its keys.
    pub fn kv(&self) -> KvClient {
        self.connections.requests.kv_client().max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// Its leases.
    pub fn lease(&self) -> LeaseClient {
        self.connections.requests.lease_client()
    }

    /// What it knows of the members.
    pub fn cluster(&self) -> ClusterClient {
        self.connections.requests.cluster_client()
    }

    /// How it is itself.
    pub fn maintenance(&self) -> MaintenanceClient {
        self.connections.requests.maintenance_client()
    }

    /// Its watches.
    pub fn watches(&self) -> WatchClient {
        self.connections.watches.watch_client().max_decoding_message_size(ANSWER_BYTES_MAX)
    }
}

impl Members {
    /// The members at `endpoints`. Nothing is sent to them yet.
    pub async fn at(endpoints: &[String], identity: Option<&EtcdIdentity>) -> Result<Self, Error> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIME)
            .with_require_leader(true)
            .with_keep_alive(PROBE_INTERVAL, ATTEMPT_TIME)
            .with_keep_alive_while_idle(false);
        if let Some(identity) = identity {
            options = options.with_tls(tls_options(identity));
        }
        let members = connect_all(endpoints, &options, &[]).await?;
        let members = RwLock::new(members.into());
        Ok(Self {
            members,
            options,
            changing: tokio::sync::Mutex::default(),
            failures: watch::Sender::new(0),
        })
    }

    /// From now on the members are those at `endpoints`. The one that is asked goes on being asked, if it is one of
    /// them; if not, that counts as its failure. Connections to those that stay are kept.
    pub async fn set(&self, endpoints: &[String]) -> Result<(), Error> {
        // One change after the other, in the order in which they were asked for.
        let _turn = self.changing.lock().await;
        let known = self.all();
        let is_known = |endpoint: &String| known.iter().any(|member| member.endpoint == *endpoint);
        if known.len() == endpoints.len() && endpoints.iter().all(is_known) {
            return Ok(());
        }
        let mut members = connect_all(endpoints, &self.options, &known).await?;
        self.failures.send_modify(|failures| {
            let asked = &known[(*failures % known.len() as u64) as usize].endpoint;
            match members.iter().position(|member| member.endpoint == *asked) {
                Some(place) => {
                    let wanted = (*failures % members.len() as u64) as usize;
                    let turns = (members.len() + place - wanted) % members.len();
                    members.rotate_left(turns);
                }
                None => *failures += 1,
            }
            *self.members.write().unwrap_or_else(PoisonError::into_inner) = members.into();
        });
        Ok(())
    }

    fn all(&self) -> Arc<[Connections]> {
        Arc::clone(&self.members.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The numbers of the members that answer at the endpoints and follow a leader, or lead.
    pub async fn answering(&self) -> BTreeSet<u64> {
        let members = self.all();
        let asked = members.iter().map(async |connections| {
            let member = Member { turn: 0, connections: connections.clone() };
            let status = timeout(ATTEMPT_TIME, member.maintenance().status()).await.ok()?.ok()?;
            (status.leader() != 0).then(|| status.header().map(|header| header.member_id()))?
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Asks for something that is the same when it is done twice. `silence` is what no answer means.
    pub async fn repeat<T, F>(
        &self,
        silence: StoreErrorKind,
        request: impl Fn(Member) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let may_repeat = |verdict| !matches!(verdict, Verdict::Refused(_));
        let request = |member| {
            let answer = request(member);
            async move { answer.await.map_err(Failure::from) }
        };
        let result = self.ask(ATTEMPT_TIME, may_repeat, request).await;
        result.map_err(|failure| failure.into_error(silence))
    }

    /// Asks for a change.
    pub async fn change<T, F>(&self, request: impl Fn(Member) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let may_repeat = |verdict| verdict == Verdict::NotDone;
        let request = |member: Member| {
            let answer = request(member.clone());
            async move {
                tokio::select! {
                    answer = answer => answer.map_err(Failure::from),
                    () = silence_of(&member) => Err(Failure::silence()),
                }
            }
        };
        let result = self.ask(REQUEST_TIME, may_repeat, request).await;
        result.map_err(|failure| failure.into_error(StoreErrorKind::Unknown))
    }

    /// Asks one member after the other, as long as `may_repeat` lets it and there is time.
    async fn ask<T, F>(
        &self,
        mut attempt_time: Duration,
        may_repeat: impl Fn(Verdict) -> bool,
        request: impl Fn(Member) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let end = Instant::now() + REQUEST_TIME;
        let mut attempts = 0;
        loop {
            let member = self.present();
            let turn = member.turn;
            let attempt_end = end.min(Instant::now() + attempt_time);
            let failure = match timeout_at(attempt_end, request(member)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::silence(),
            };
            if failure.is_of_the_member {
                self.failed(turn);
            }
            if !may_repeat(failure.verdict) || Instant::now() + PAUSE + CONNECT_TIME >= end {
                return Err(failure);
            }
            attempts += 1;
            if attempts % self.all().len() == 0 {
                attempt_time = REQUEST_TIME.min(attempt_time * 2);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// The place of the member that is asked.
    #[cfg(test)]
    pub fn asked(&self) -> usize {
        (self.present().turn % self.all().len() as u64) as usize
    }

    /// Where the member answers that is asked.
    #[cfg(test)]
    pub fn asked_endpoint(&self) -> String {
        self.present().connections.endpoint
    }

    /// The member that is asked.
    fn present(&self) -> Member {
        let turn = *self.failures.borrow();
        let members = self.all();
        let place = turn % members.len() as u64;
        Member { turn, connections: members[place as usize].clone() }
    }

    /// The member that was asked in this turn has failed. It may be known already.
    fn failed(&self, turn: u64) {
        self.failures.send_if_modified(|failures| {
            let is_news = *failures == turn;
            *failures += u64::from(is_news);
            is_news
        });
    }

    /// Waits until the member that was asked in this turn has failed.
    pub async fn left(&self, turn: u64) {
        let mut failures = self.failures.subscribe();
        // Its sender lives as long as this.
        drop(failures.wait_for(|failures| *failures != turn).await);
    }
}

/// Completes when a member gives no sign of life. Any answer is one, and so is a refusal.
async fn silence_of(member: &Member) {
    loop {
        tokio::time::sleep(SIGN_OF_LIFE_AFTER).await;
        let mut maintenance = member.maintenance();
        if timeout(SIGN_OF_LIFE_TIME, maintenance.status()).await.is_err() {
            return;
        }
    }
}

/// How this side and the members show each other who they are.
fn tls_options(identity: &EtcdIdentity) -> TlsOptions {
    let options = match &identity.member_name {
        Some(name) => TlsOptions::new().domain_name(name.clone()),
        None => TlsOptions::new(),
    };
    options
        .ca_certificate(Certificate::from_pem(&identity.authority_pem))
        .identity(Identity::from_pem(&identity.certificate_pem, &identity.key_pem))
        .timeout(CONNECT_TIME)
}

/// Whether a text is a URL with an address or a name, and a port.
fn is_address(endpoint: &str) -> bool {
    let address = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    let parts = address.and_then(|address| address.rsplit_once(':'));
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// Connections to the members at `endpoints`: those that are `known`, and new ones.
async fn connect_all(
    endpoints: &[String],
    options: &ConnectOptions,
    known: &[Connections],
) -> Result<Vec<Connections>, Error> {
    let invalid = |what: String, why: String| {
        let next = "name each member like http://127.0.0.1:2379";
        Error::new("STATE_ADDRESS_INVALID", what, why, next)
    };
    if endpoints.is_empty() {
        let what = "no address of the cluster's state";
        return Err(invalid(what.to_owned(), "the list is empty".to_owned()));
    }
    let connect = async |endpoint: &String| {
        let client = Client::connect([endpoint], Some(options.clone())).await;
        client.map_err(|error| match error {
            // An address that is one can only fail by what is to be shown there: nothing was sent yet.
            EtcdError::TransportError(error) if is_address(endpoint) => Error::new(
                "STATE_IDENTITY_INVALID",
                "the cluster's state cannot be asked",
                format!("this side's certificate or key cannot be used: {error}"),
                "if a file below the server's pki folder was changed, put it back as it was",
            ),
            error => invalid(format!("not an address of etcd: {endpoint:?}"), error.to_string()),
        })
    };
    let mut members = Vec::with_capacity(endpoints.len());
    for endpoint in endpoints {
        let connections = match known.iter().find(|known| known.endpoint == *endpoint) {
            Some(known) => known.clone(),
            None => Connections {
                endpoint: endpoint.clone(),
                requests: connect(endpoint).await?,
                watches: connect(endpoint).await?,
            },
        };
        members.push(connections);
    }
    Ok(members)
}
