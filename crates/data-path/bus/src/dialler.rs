//! Dials the other nodes: one task per peer keeps up a session with it, over a path to each of its addresses.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use spandrel_platform::sync::{Queue, Signal};
use spandrel_platform::{Address, Connection, Instant, LinkError, Platform, TaskHandle, before};
use spandrel_shared::{ProcessIncarnation, ShardId};

use crate::bus::{Inner, SessionInfo};
use crate::calls::PLACES_MAX;
use crate::dialled_session::DialledSession;
use crate::frame::{FrameKind, HEADER_BYTES, Header, malformed};
use crate::hello::{Hello, RefusalStatus, VERSION_MIN, refusal_text};
use crate::path::{Path, Paths};
use crate::places::Places;
use crate::receiver::{Ending, FrameReceiver};

/// So much earlier than the next one is each address dialled when a session is opened: mostly the first one answers.
const HEAD_START: Duration = Duration::from_millis(100);

/// The longest pause between attempts to join a path to a session.
const PATH_PAUSE_MAX: Duration = Duration::from_secs(5);

/// A path that has lasted so long is dialled anew at once when it is lost. One that comes and goes is not.
const PATH_STEADY_AFTER: Duration = Duration::from_secs(60);

/// A shard of another node, or another shard of this one, that is dialled.
pub(crate) struct DialledPeer<P: Platform> {
    shard: ShardId,
    addresses: RefCell<Vec<Address>>,
    /// Counts the attempts, so that each begins with the next address.
    attempts: Cell<usize>,
    session: RefCell<Option<Rc<DialledSession<P>>>>,
    /// Something has come in that makes an attempt worth while now.
    hurry: Queue<()>,
    /// Why the last attempts failed, so that it is logged once.
    /// What was logged last of why the peer cannot be reached, and whether as a warning.
    failure: RefCell<(String, bool)>,
    failing_since: Cell<Option<Instant>>,
    task: RefCell<Option<TaskHandle>>,
}

impl<P: Platform> DialledPeer<P> {
    /// Begins to dial `shard`.
    pub(crate) fn start(inner: &Rc<Inner<P>>, shard: ShardId, addresses: Vec<Address>) -> Rc<Self> {
        let dialled = Rc::new(Self {
            shard,
            addresses: RefCell::new(addresses),
            attempts: Cell::new(0),
            session: RefCell::default(),
            hurry: Queue::new(),
            failure: RefCell::default(),
            failing_since: Cell::default(),
            task: RefCell::default(),
        });
        let task = inner.platform.spawn(dial(Rc::clone(inner), Rc::clone(&dialled)));
        *dialled.task.borrow_mut() = Some(task);
        dialled
    }

    pub(crate) fn stop(&self, inner: &Inner<P>) {
        if let Some(session) = self.session() {
            session.end(inner, Ending::Ended);
        }
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }

    pub(crate) fn set_addresses(&self, addresses: Vec<Address>) {
        if *self.addresses.borrow() != addresses {
            *self.addresses.borrow_mut() = addresses;
            self.hurry();
        }
    }

    /// Has the next attempt made at once.
    fn hurry(&self) {
        if self.hurry.is_empty() {
            self.hurry.push(());
        }
    }

    /// The peer has come to this node by itself, so it can most likely be reached. If another run of
    /// its process was dialled, that one is no more.
    pub(crate) fn peer_came(&self, inner: &Inner<P>, incarnation: ProcessIncarnation) {
        self.hurry();
        if let Some(session) = self.session()
            && session.info.incarnation != incarnation
        {
            session.end(inner, Ending::Ended);
        }
    }

    pub(crate) fn session(&self) -> Option<Rc<DialledSession<P>>> {
        self.session.borrow().clone()
    }

    /// A session is over.
    pub(crate) fn forget(&self, over: &DialledSession<P>) {
        self.session.borrow_mut().take_if(|session| std::ptr::eq(&**session, over));
    }

    /// Logs why the peer cannot be reached, if that is news.
    fn report(&self, failures: &[(String, NoPath)], now: Instant) {
        let failure = match failures {
            [] => "no address is known".to_owned(),
            _ => failures.iter().map(|(at, why)| format!("{at}: {why}")).collect::<Vec<_>>().join("; "),
        };
        let since = self.failing_since.get().unwrap_or(now);
        self.failing_since.set(Some(since));
        let is_warning = !is_passing(failures) || now.since(since) >= PASSING_MAX;
        let mut last = self.failure.borrow_mut();
        if (&last.0, last.1) == (&failure, is_warning) {
            return;
        }
        if is_warning {
            tracing::warn!(node = %self.shard, "no session with the node: {failure}");
        } else {
            tracing::info!(node = %self.shard, "no session with the node now: {failure}");
        }
        *last = (failure, is_warning);
    }
}

/// Whether a peer is not reached for a reason that passes by itself, as a rule: it does not know this node yet, or it is down,
/// which is told elsewhere and may be meant.
fn is_passing(failures: &[(String, NoPath)]) -> bool {
    let is_unknown = failures.iter().any(|(_, why)| matches!(why, NoPath::Unknown(_)));
    let is_down = !failures.is_empty() && failures.iter().all(|(_, why)| matches!(why, NoPath::NotThere(_)));
    is_unknown || is_down
}

/// After so long it is no trouble that passes.
const PASSING_MAX: Duration = Duration::from_secs(30);

/// The pauses between attempts that fail: each about twice as long as the one before.
struct Pauses {
    next: Duration,
    max: Duration,
}

impl Pauses {
    fn take<P: Platform>(&mut self, inner: &Inner<P>) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        // Nodes that lost each other at the same time do not come back at the same time.
        let half = pause / 2;
        let spread_ns = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
        half + Duration::from_nanos(inner.platform.random_u64() % spread_ns)
    }
}

/// Dials a node again and again.
async fn dial<P: Platform>(inner: Rc<Inner<P>>, peer: Rc<DialledPeer<P>>) {
    let (min, max) = (inner.config.retry_pause_min, inner.config.retry_pause_max);
    let mut pauses = Pauses { next: min, max };
    loop {
        while peer.hurry.try_pop().is_some() {}
        let addresses = peer.addresses.borrow().clone();
        if let Some(opened) = open(&inner, &peer, &addresses).await {
            let began = inner.platform.now();
            hold(&inner, &peer, &addresses, opened).await;
            if inner.platform.now().since(began) >= max {
                pauses.next = min;
                continue;
            }
        }
        let pause = std::pin::pin!(inner.platform.sleep(pauses.take(&inner)));
        let hurry = std::pin::pin!(peer.hurry.pop());
        if let Either::Right(_) = select(pause, hurry).await {
            pauses.next = min;
        }
    }
}

/// A session with its first path.
struct Opened<P: Platform> {
    session: Rc<DialledSession<P>>,
    address: Address,
    path: OpenedPath<P>,
}

struct OpenedPath<P: Platform> {
    path: Rc<Path<P::Connection>>,
    frames: FrameReceiver<P>,
}

/// Keeps up the paths of a session until it ends.
async fn hold<P: Platform>(
    inner: &Inner<P>,
    peer: &DialledPeer<P>,
    addresses: &[Address],
    opened: Opened<P>,
) {
    let Opened { session, address, path } = opened;
    peer.failure.take();
    peer.failing_since.set(None);
    let number = session.info.session;
    tracing::info!(node = %peer.shard, session = number, "session begins");
    inner.counters.sessions_dialled.add(1);
    *peer.session.borrow_mut() = Some(Rc::clone(&session));
    inner.changes.notify_all();
    let mut first = Some(path);
    // The one that is there counts first.
    let others = addresses.iter().filter(|at| **at != address);
    let paths: FuturesUnordered<_> = std::iter::once(&address)
        .chain(others)
        .take(inner.config.paths_max.max(1))
        .map(|at| {
            let opened = if *at == address { first.take() } else { None };
            keep_path(inner, peer, &session, at, opened)
        })
        .collect();
    let kept = futures_util::future::join(paths.collect::<()>(), async {
        if session.repeats {
            futures_util::future::join(session.watch_paths(inner, peer.shard), session.repeat_lost(inner))
                .await;
        }
    });
    // Whoever ends the session has ended it for good; the paths close with it.
    let over = std::pin::pin!(session.over.wait_until(|| session.is_over()));
    select(over, std::pin::pin!(kept)).await;
    let ending = session.ending.borrow().clone().unwrap_or(Ending::Ended);
    if matches!(ending, Ending::Malformed(_)) {
        inner.counters.connections_malformed.add(1);
        tracing::warn!(node = %peer.shard, session = number, "session ends: {ending}");
    } else {
        tracing::info!(node = %peer.shard, session = number, "session ends: {ending}");
    }
}

/// Carries what goes over one address of the peer, again and again, until the session is over.
async fn keep_path<P: Platform>(
    inner: &Inner<P>,
    peer: &DialledPeer<P>,
    session: &DialledSession<P>,
    address: &Address,
    mut opened: Option<OpenedPath<P>>,
) {
    let min = inner.config.retry_pause_min;
    let mut pauses = Pauses { next: min, max: PATH_PAUSE_MAX };
    let mut told = String::new();
    while !session.is_over() {
        let joined = match opened.take() {
            Some(opened) => Ok(opened),
            None => join(inner, peer, session, address).await,
        };
        match joined {
            Ok(OpenedPath { path, mut frames }) => {
                let began = inner.platform.now();
                let ending = session.receive(inner, peer.shard, &path, &mut frames).await;
                if !session.is_over() {
                    told = ending.to_string();
                    tracing::info!(node = %peer.shard, %address, "path ends: {ending}");
                }
                session.lose(inner, &path, ending);
                if inner.platform.now().since(began) >= PATH_STEADY_AFTER {
                    pauses.next = min;
                }
            }
            Err(failure) if failure != told && !session.is_over() => {
                tracing::warn!(node = %peer.shard, %address, "no path to the node: {failure}");
                told = failure;
            }
            Err(_) => {}
        }
        inner.platform.sleep(pauses.take(inner)).await;
    }
}

/// Opens a session on the first connection that comes to one.
async fn open<P: Platform>(
    inner: &Rc<Inner<P>>,
    peer: &Rc<DialledPeer<P>>,
    addresses: &[Address],
) -> Option<Opened<P>> {
    let mut failures = Vec::new();
    let attempt = peer.attempts.replace(peer.attempts.get().wrapping_add(1));
    let connect = |(place, address): (u32, &Address)| {
        let (platform, address) = (inner.platform.clone(), address.clone());
        async move {
            if place > 0 {
                platform.sleep(HEAD_START * place).await;
            }
            (platform.connect(&address).await, address)
        }
    };
    let in_turn = addresses.iter().cycle().skip(attempt % addresses.len().max(1)).take(addresses.len());
    let mut connecting: FuturesUnordered<_> = (0..).zip(in_turn).map(connect).collect();
    while let Some((connected, address)) = connecting.next().await {
        let opening = match connected {
            Ok(connection) => open_on(inner, peer, connection, addresses.len() > 1).await,
            Err(LinkError::Refused(reason)) => Err(NoPath::NotThere(reason)),
            Err(error) => Err(error.to_string().into()),
        };
        match opening {
            Ok((session, path)) => return Some(Opened { session, address, path }),
            Err(failure) => failures.push((address.to_string(), failure)),
        }
    }
    // They come in any order.
    failures.sort_by(|one, other| one.0.cmp(&other.0));
    peer.report(&failures, inner.platform.now());
    None
}

/// Opens a session on a connection.
async fn open_on<P: Platform>(
    inner: &Inner<P>,
    peer: &Rc<DialledPeer<P>>,
    connection: P::Connection,
    repeats: bool,
) -> Result<(Rc<DialledSession<P>>, OpenedPath<P>), NoPath> {
    let number = inner.next_session();
    let hello = Hello { repeats, ..Hello::new(&inner.identity, &inner.config, peer.shard) };
    let (welcome, version, opened) = greet(inner, peer, connection, number, &hello).await?;
    let session = DialledSession {
        info: SessionInfo { session: number, incarnation: welcome.incarnation, shards: welcome.shards },
        version,
        repeats,
        paths: Paths::new(Rc::clone(&opened.path)),
        path_count: Cell::new(1),
        lost: RefCell::default(),
        repeats_due: RefCell::default(),
        repeats_told: Signal::new(),
        calls: Rc::default(),
        places: Places::new((welcome.requests_max as usize).min(PLACES_MAX), welcome.request_bytes_max),
        turn: Places::new(1, 0),
        peer: Rc::downgrade(peer),
        ending: RefCell::default(),
        over: Signal::new(),
    };
    Ok((Rc::new(session), opened))
}

/// Adds a path to a session.
async fn join<P: Platform>(
    inner: &Inner<P>,
    peer: &DialledPeer<P>,
    session: &DialledSession<P>,
    address: &Address,
) -> Result<OpenedPath<P>, String> {
    let connection = inner.platform.connect(address).await.map_err(|error| error.to_string())?;
    let path = session.next_path();
    let hello = Hello { path, repeats: true, ..Hello::new(&inner.identity, &inner.config, peer.shard) };
    let greeted = greet(inner, peer, connection, session.info.session, &hello).await;
    if matches!(greeted, Err(NoPath::SessionOver(_))) {
        // What was asked in it is not answered any more, whatever the paths that are left look like.
        session.end(inner, Ending::Over);
    }
    let (welcome, version, opened) = greeted.map_err(|failure| failure.to_string())?;
    if welcome.incarnation != session.info.incarnation || version != session.version {
        return Err("another process of the node answers there".to_owned());
    }
    if session.is_over() {
        return Err("the session has ended meanwhile".to_owned());
    }
    session.paths.add(Rc::clone(&opened.path));
    session.tell_lost(inner, &opened.path);
    tracing::info!(node = %peer.shard, session = session.info.session, %address, "path begins");
    Ok(opened)
}

/// Why a connection has become no path.
enum NoPath {
    /// The other side says that the session is over, in these words.
    SessionOver(String),
    /// The other side says that it does not know this node, in these words: it may come to.
    Unknown(String),
    /// Nobody listens there.
    NotThere(String),
    /// Something else.
    Other(String),
}

impl From<String> for NoPath {
    fn from(reason: String) -> Self {
        NoPath::Other(reason)
    }
}

impl std::fmt::Display for NoPath {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (NoPath::SessionOver(reason)
        | NoPath::Unknown(reason)
        | NoPath::NotThere(reason)
        | NoPath::Other(reason)) = self;
        formatter.write_str(reason)
    }
}

/// Says hello and waits for the welcome.
async fn greet<P: Platform>(
    inner: &Inner<P>,
    peer: &DialledPeer<P>,
    connection: P::Connection,
    session: u32,
    hello: &Hello,
) -> Result<(Hello, u16, OpenedPath<P>), NoPath> {
    let header = Header::new(FrameKind::Hello, VERSION_MIN, session, 0);
    inner.send_raw(&connection, header, &hello.encode());
    let mut frames = FrameReceiver::new(&inner.platform, connection.clone());
    let deadline: Instant = inner.platform.now() + inner.config.hello_timeout;
    let welcomed = before(&inner.platform, deadline, read_welcome(inner, &mut frames, session)).await;
    let welcome = match welcomed {
        Some(Ok(welcome)) => welcome?,
        Some(Err(ending)) => return Err(ending.to_string().into()),
        None => return Err("no answer to the hello".to_owned().into()),
    };
    let proven = connection.peer_name();
    let version = welcome.judge(&inner.identity, proven.as_deref()).map_err(|refusal| refusal.reason)?;
    if welcome.shard != peer.shard {
        return Err(format!("node {} answers there", welcome.shard).into());
    }
    frames.widen();
    inner.receipts_of(peer.shard).set(frames.received_at());
    Ok((welcome, version, OpenedPath { path: Path::new(hello.path, connection), frames }))
}

/// The welcome, or why there is none.
async fn read_welcome<P: Platform>(
    inner: &Inner<P>,
    frames: &mut FrameReceiver<P>,
    session: u32,
) -> Result<Result<Hello, NoPath>, Ending> {
    let header = frames.header().await?;
    if !matches!(header.kind, FrameKind::Welcome | FrameKind::Refusal) {
        // Its body may be long.
        return Err(malformed("neither welcome nor refusal").into());
    }
    let body = frames.body(&header).await?;
    inner.counters.received(HEADER_BYTES + header.body_bytes);
    match header.kind {
        FrameKind::Welcome if header.session == session => Ok(Ok(Hello::decode(body)?)),
        FrameKind::Refusal => {
            let reason = refusal_text(body);
            Ok(Err(match header.status {
                status if status == RefusalStatus::SessionOver as u8 => {
                    NoPath::SessionOver(format!("refused: {reason}"))
                }
                status if status == RefusalStatus::Unknown as u8 => NoPath::Unknown(reason),
                _ => NoPath::Other(format!("refused: {reason}")),
            }))
        }
        _ => Err(malformed("the welcome to another session").into()),
    }
}

#[cfg(test)]
#[path = "dialler_tests.rs"]
mod tests;
