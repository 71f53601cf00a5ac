//! Accepts the sessions in which other nodes ask, and the paths of these.
//!
//! Each node has at most one session. A newer hello of the same node ends the older session: its connections
//! are closed, what was received and not begun is dropped, and only when every request of it that is
//! being served has ended is the newer session welcomed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::sync::Signal;
use spandrel_platform::{Connection, Listener, Platform, TaskHandle, before};
use spandrel_shared::ProcessIncarnation;

use crate::accepted_session::AcceptedSession;
use crate::bus::Inner;
use crate::frame::{FrameKind, HEADER_BYTES, Header, malformed};
use crate::hello::{Hello, Refusal, RefusalStatus, VERSION_MIN};
use crate::path::Path;
use crate::receiver::{Ending, FrameReceiver};
use crate::{BusService, Peer};

/// The rest after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Nodes whose refusals are remembered.
const REFUSALS_MAX: usize = 256;

/// A node that has asked for a session.
pub(crate) struct AcceptedPeer<P: Platform> {
    /// The newest hello.
    newest: Cell<Option<(ProcessIncarnation, u32)>>,
    /// The session that was welcomed last, until it is over.
    session: RefCell<Option<Rc<AcceptedSession<P>>>>,
    /// Told when either changes.
    changed: Signal,
}

impl<P: Platform> AcceptedPeer<P> {
    fn new() -> Rc<Self> {
        Rc::new(Self { newest: Cell::new(None), session: RefCell::default(), changed: Signal::new() })
    }

    /// Ends the node's session.
    pub(crate) fn end(&self) {
        if let Some(session) = &*self.session.borrow() {
            session.end();
        }
    }

    /// Ends the node's session and completes when it is over.
    pub(crate) async fn ended(&self) {
        self.end();
        self.changed.wait_until(|| self.session.borrow().is_none()).await;
    }

    /// Ends the node's session, and whatever waits for that.
    pub(crate) fn expel(&self) {
        self.newest.set(None);
        self.end();
        self.changed.notify_all();
    }

    /// Makes a hello the newest one, unless a newer one of the same process has come.
    fn claim(&self, claim: (ProcessIncarnation, u32)) -> bool {
        let newer = |(incarnation, session)| incarnation == claim.0 && session >= claim.1;
        if self.newest.get().is_some_and(newer) {
            return false;
        }
        self.newest.set(Some(claim));
        self.changed.notify_all();
        true
    }
}

/// Accepts connections until the bus stops.
pub(crate) async fn serve<P: Platform, S: BusService>(
    inner: Rc<Inner<P>>,
    listener: P::Listener,
    service: Rc<S>,
) {
    let accepting = accept(Rc::clone(&inner), listener, service);
    let _accepting = AbortOnDrop(inner.platform.spawn(accepting));
    inner.stop_signal.wait_until(|| inner.stopping.get()).await;
}

struct AbortOnDrop(TaskHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn accept<P: Platform, S: BusService>(inner: Rc<Inner<P>>, listener: P::Listener, service: Rc<S>) {
    let mut failing = false;
    loop {
        match listener.accept().await {
            Ok(connection) => {
                failing = false;
                let welcoming = HelloPlace::take(&inner, &connection);
                inner.platform.spawn(welcome(Rc::clone(&inner), connection, Rc::clone(&service), welcoming));
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!("no connection can be accepted on {}: {error}", listener.address());
                }
                inner.platform.sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Connections that have not come to a session yet.
pub(crate) struct Hellos<P: Platform> {
    next: u64,
    /// In the order in which they came.
    waiting: BTreeMap<u64, P::Connection>,
    /// Whether it was said that there are too many, since nobody waited last.
    told: bool,
    /// Why the last one ended that broke off before its hello.
    broken: String,
}

impl<P: Platform> Default for Hellos<P> {
    fn default() -> Self {
        Self { next: 0, waiting: BTreeMap::new(), told: false, broken: String::new() }
    }
}

/// A connection's place among them.
struct HelloPlace<P: Platform> {
    inner: Rc<Inner<P>>,
    number: u64,
}

impl<P: Platform> HelloPlace<P> {
    /// Takes a place. If there is none, the connection that has waited for the longest time is closed: whoever means
    /// well says hello at once, and gets through a crowd that says nothing.
    fn take(inner: &Rc<Inner<P>>, connection: &P::Connection) -> Self {
        let mut hellos = inner.hellos.borrow_mut();
        let number = hellos.next;
        hellos.next += 1;
        hellos.waiting.insert(number, connection.clone());
        if hellos.waiting.len() > inner.config.hellos_max
            && let Some((_, oldest)) = hellos.waiting.pop_first()
        {
            if !std::mem::replace(&mut hellos.told, true) {
                tracing::warn!(from = oldest.peer(), "closed: too many connections say no hello");
            }
            oldest.close();
        }
        drop(hellos);
        Self { inner: Rc::clone(inner), number }
    }
}

impl<P: Platform> Drop for HelloPlace<P> {
    fn drop(&mut self) {
        let mut hellos = self.inner.hellos.borrow_mut();
        let own = hellos.waiting.remove(&self.number);
        hellos.told &= !hellos.waiting.is_empty();
        drop(hellos);
        // Closing may call back.
        drop(own);
    }
}

/// Says once why connections break off before they say hello: a certificate that is none of this cluster's, mostly.
fn tell_broken<P: Platform>(inner: &Inner<P>, connection: &P::Connection, ending: &Ending) {
    let reason = ending.to_string();
    let mut hellos = inner.hellos.borrow_mut();
    if !matches!(ending, Ending::Closed) && hellos.broken != reason {
        tracing::warn!(from = connection.peer(), "closed before it said hello: {reason}");
        hellos.broken = reason;
    }
}

/// Serves one connection, from its hello to its end.
async fn welcome<P: Platform, S: BusService>(
    inner: Rc<Inner<P>>,
    connection: P::Connection,
    service: Rc<S>,
    hello_place: HelloPlace<P>,
) {
    let mut frames = FrameReceiver::new(&inner.platform, connection.clone());
    let deadline = inner.platform.now() + inner.config.hello_timeout;
    let (hello, number) = match before(&inner.platform, deadline, read_hello(&inner, &mut frames)).await {
        Some(Ok(hello)) => hello,
        Some(Err(Ending::Malformed(reason))) => {
            inner.counters.connections_malformed.add(1);
            tracing::warn!(from = connection.peer(), "closed: {reason}");
            return;
        }
        Some(Err(ending)) => {
            tell_broken(&inner, &connection, &ending);
            return;
        }
        None => return,
    };
    let path = Path::new(hello.path, connection.clone());
    let agreed = match hello.path {
        0 => open(&inner, &path, &hello, number).await,
        _ => join(&inner, &path, &hello, number),
    };
    let (peer, session) = match agreed {
        Ok(agreed) => agreed,
        Err(refusal) => {
            refuse(&inner, &connection, &hello, number, &refusal);
            return;
        }
    };
    drop(hello_place);
    frames.widen();
    let ending = session.receive(&inner, &service, &path, &mut frames).await;
    if let Ending::Malformed(reason) = &ending {
        inner.counters.connections_malformed.add(1);
        tracing::warn!(node = %session.peer.shard, session = number, "accepted session ends: {reason}");
        session.end();
    }
    if !session.lose(&path) {
        return;
    }
    tracing::info!(node = %session.peer.shard, session = number, "accepted session ends: {ending}");
    drop(frames);
    session.places.emptied().await;
    service.session_ended(session.peer);
    peer.session.take();
    peer.changed.notify_all();
}

async fn read_hello<P: Platform>(
    inner: &Inner<P>,
    frames: &mut FrameReceiver<P>,
) -> Result<(Hello, u32), Ending> {
    let header = frames.header().await?;
    if header.kind != FrameKind::Hello {
        return Err(malformed("the first frame is no hello").into());
    }
    let hello = Hello::decode(frames.body(&header).await?)?;
    inner.counters.received(HEADER_BYTES + header.body_bytes);
    Ok((hello, header.session))
}

type Opened<P> = (Rc<AcceptedPeer<P>>, Rc<AcceptedSession<P>>);

/// The version that both sides speak, or why the other side is not listened to.
fn judge<P: Platform>(inner: &Inner<P>, connection: &P::Connection, hello: &Hello) -> Result<u16, Refusal> {
    if inner.stopping.get() {
        let reason = format!("node {} stops", inner.identity.shard);
        return Err(Refusal { status: RefusalStatus::Stopping, reason });
    }
    let proven = connection.peer_name();
    let version = hello.judge(&inner.identity, proven.as_deref())?;
    // A certificate outlives the time for which its holder belongs to the cluster.
    if proven.is_some() && !inner.dialled.borrow().contains_key(&hello.shard) {
        return Err(unknown(inner, hello));
    }
    Ok(version)
}

fn unknown<P: Platform>(inner: &Inner<P>, hello: &Hello) -> Refusal {
    let reason = format!(
        "node {} does not know node {} yet: it is let in when that has learnt of it, unless it was removed from the cluster",
        inner.identity.shard, hello.shard
    );
    Refusal { status: RefusalStatus::Unknown, reason }
}

/// Adds a path to the session of the node.
fn join<P: Platform>(
    inner: &Rc<Inner<P>>,
    path: &Rc<Path<P::Connection>>,
    hello: &Hello,
    number: u32,
) -> Result<Opened<P>, Refusal> {
    judge(inner, &path.connection, hello)?;
    let over = || Refusal { status: RefusalStatus::SessionOver, reason: format!("session {number} is over") };
    let asking = inner.accepted.borrow().get(&hello.shard).cloned().ok_or_else(over)?;
    let session = asking.session.borrow().clone().ok_or_else(over)?;
    let peer = Peer { shard: hello.shard, incarnation: hello.incarnation, session: number };
    if session.peer != peer || !session.may_have_paths() {
        return Err(over());
    }
    if !session.add(inner, path) {
        let reason = format!("session {number} has a path {}, or as many paths as it may", path.number);
        return Err(Refusal { status: RefusalStatus::Path, reason });
    }
    greet(inner, &path.connection, session.version, hello, number);
    tracing::info!(node = %hello.shard, session = number, from = path.connection.peer(), "path accepted");
    Ok((asking, session))
}

/// Answers a hello.
fn greet<P: Platform>(
    inner: &Inner<P>,
    connection: &P::Connection,
    version: u16,
    hello: &Hello,
    number: u32,
) {
    let own = Hello::new(&inner.identity, &inner.config, hello.shard);
    inner.send_raw(connection, Header::new(FrameKind::Welcome, version, number, 0), &own.encode());
}

/// Ends the former session of the node, then welcomes the new one.
async fn open<P: Platform>(
    inner: &Rc<Inner<P>>,
    path: &Rc<Path<P::Connection>>,
    hello: &Hello,
    number: u32,
) -> Result<Opened<P>, Refusal> {
    let version = judge(inner, &path.connection, hello)?;
    let asking = {
        let mut accepted = inner.accepted.borrow_mut();
        Rc::clone(accepted.entry(hello.shard).or_insert_with(AcceptedPeer::new))
    };
    let claim = (hello.incarnation, number);
    let superseded = || Refusal {
        status: RefusalStatus::Superseded,
        reason: "a newer session of the same node has come".to_owned(),
    };
    if !asking.claim(claim) {
        return Err(superseded());
    }
    if let Some(former) = &*asking.session.borrow() {
        former.end();
    }
    let newest = || asking.newest.get() == Some(claim);
    asking.changed.wait_until(|| !newest() || asking.session.borrow().is_none()).await;
    // What was true before the former session ended need not be true any more.
    judge(inner, &path.connection, hello)?;
    if asking.newest.get().is_none() {
        return Err(unknown(inner, hello));
    }
    if !newest() {
        return Err(superseded());
    }
    let peer = Peer { shard: hello.shard, incarnation: hello.incarnation, session: number };
    let session = AcceptedSession::new(peer, version, hello.repeats, Rc::clone(path), &inner.config);
    *asking.session.borrow_mut() = Some(Rc::clone(&session));
    greet(inner, &path.connection, version, hello, number);
    inner.counters.sessions_accepted.add(1);
    inner.refusals.borrow_mut().remove(&hello.shard);
    tracing::info!(node = %hello.shard, session = number, "session accepted");
    let dialled = inner.dialled.borrow().get(&hello.shard).cloned();
    if let Some(dialled) = dialled {
        dialled.peer_came(inner, hello.incarnation);
    }
    Ok((asking, session))
}

fn refuse<P: Platform>(
    inner: &Inner<P>,
    connection: &P::Connection,
    hello: &Hello,
    number: u32,
    refusal: &Refusal,
) {
    inner.counters.hellos_refused.add(1);
    let mut header = Header::new(FrameKind::Refusal, VERSION_MIN, number, 0);
    header.status = refusal.status as u8;
    inner.send_raw(connection, header, refusal.reason.as_bytes());
    connection.close();
    let mut refusals = inner.refusals.borrow_mut();
    if refusals.get(&hello.shard) == Some(&refusal.reason) {
        return;
    }
    match refusal.status {
        // Each node that joins goes through that.
        RefusalStatus::Unknown => tracing::info!(from = connection.peer(), "not let in: {}", refusal.reason),
        _ => tracing::warn!(from = connection.peer(), "refused: {}", refusal.reason),
    }
    if refusals.len() >= REFUSALS_MAX {
        refusals.clear();
    }
    refusals.insert(hello.shard, refusal.reason.clone());
}

#[cfg(test)]
#[path = "acceptor_tests.rs"]
mod tests;
