//! Clients that move: on a machine of their own, over NBD, to whichever server lets them write.
//!
//! A real client whose server dies, stands still or is cut off connects to another one and sends what was not
//! answered again, while the first server may still have it: unread in a socket, held up on the network, half
//! done. What keeps that from undoing a later write is the right to write, which the second server takes over.
//! So these clients use the program's front-end and its real client of the protocol, and nothing else.
//!
//! - A mover opens its volume on one server after the other until one takes it; with changes to repeat, until
//!   one lets it write.
//! - It leaves a server that does not answer for a time that it draws, that breaks the connection, or that
//!   does not let it write any more; now and then also one that is good. It leaves in one of two ways: it
//!   closes the connection at once, or lets it be until what was asked there is answered.
//! - What was not answered is repeated on the next server, as the same operation of the history.
//!
//! Invariant: a mover does not come back to a server where a change of its own may still be under way, before
//! another server has answered it a change. Over two connections to one server, which share its right to write,
//! an older request may overtake a newer one: the protocol promises nothing else, to any client.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{join_all, select};
use spandrel_fleet::{NbdClient, NbdError};
use spandrel_platform::sync::{Signal, oneshot};
use spandrel_platform::{Address, Buffer, Platform, TaskHandle, before};
use spandrel_platform_simulated::{Random, SimulatedPlatform};

use super::{Choice, ClientVolume, Kind, OPEN_AGAIN, bytes_of, sectors_of, whole_blocks};
use crate::history::{OperationNumber, content};

/// How long a mover waits for an answer at least, one of these.
const PATIENCE_MS: [u64; 4] = [300, 1000, 3000, 6000];

/// A mover that got no answer from one server after the other becomes more patient, up to this.
const PATIENCE_MAX: Duration = Duration::from_secs(12);

/// How often a connection that was left, with requests under way, is asked whether it is still there: nothing
/// else tells that the server has lost its power.
const ARE_YOU_THERE: Duration = Duration::from_secs(1);

/// The protocol's errors.
mod error_number {
    pub(super) const NOT_PERMITTED: u32 = 1;
    pub(super) const NO_SPACE: u32 = 28;
}

type Nbd = NbdClient<SimulatedPlatform>;

/// Starts a mover on the machine of the clients. `servers` are where all servers listen for clients.
pub fn start(
    volume: &Rc<ClientVolume>,
    servers: Rc<[Address]>,
    platform: &SimulatedPlatform,
    random: Random,
) -> TaskHandle {
    let mover = Mover {
        volume: Rc::clone(volume),
        servers,
        platform: platform.clone(),
        random,
        closed_on: RefCell::default(),
        left: RefCell::default(),
        silent: Cell::new(0),
    };
    platform.spawn(mover.run())
}

struct Mover {
    volume: Rc<ClientVolume>,
    servers: Rc<[Address]>,
    platform: SimulatedPlatform,
    random: Random,
    /// Servers on which it has closed a connection with changes under way, since one was answered.
    closed_on: RefCell<BTreeSet<usize>>,
    /// Connections that it has left and that still have requests under way.
    left: RefCell<Vec<Rc<Line>>>,
    /// Connections in a row that have brought no answer.
    silent: Cell<u32>,
}

/// A connection to a server.
struct Line {
    server: usize,
    client: RefCell<Option<Nbd>>,
    patience: Duration,
    /// Operations that may still begin on it.
    allowance: Cell<u64>,
    /// Whether something was answered on it.
    has_answered: Cell<bool>,
    /// Whether it is no good any more.
    over: Cell<bool>,
    ended: Signal,
    /// The requests that are under way.
    requests: RefCell<Vec<TaskHandle>>,
}

/// Where one of the operations that a mover has under way at once is kept, from server to server.
#[derive(Default)]
struct Desk(RefCell<Option<Asked>>);

/// An operation that was not answered yet.
#[derive(Clone, Debug)]
struct Asked {
    kind: Kind,
    sectors: Range<u64>,
    value: u64,
    /// Its number in the history; a read gets a new one with each attempt.
    number: Option<OperationNumber>,
}

impl Desk {
    fn asked(&self) -> Option<Asked> {
        self.0.borrow().clone()
    }

    fn has_change(&self) -> bool {
        self.0.borrow().as_ref().is_some_and(|asked| asked.kind != Kind::Read && asked.number.is_some())
    }
}

impl Line {
    /// It is no good any more: whoever works on it goes elsewhere.
    fn give_up(&self) {
        self.over.set(true);
        self.ended.notify_all();
    }

    fn is_busy(&self) -> bool {
        self.requests.borrow().iter().any(|request| !request.is_finished())
    }

    fn keep(&self, request: TaskHandle) {
        let mut requests = self.requests.borrow_mut();
        requests.retain(|request| !request.is_finished());
        requests.push(request);
    }

    /// Closes the connection; answers that are still to come reach nobody.
    fn close(&self) {
        for request in self.requests.take() {
            request.abort();
        }
        self.client.take();
    }
}

impl Mover {
    async fn run(self) {
        let desks: Vec<Desk> = (0..self.volume.load.depth.max(1)).map(|_| Desk::default()).collect();
        while let Some(line) = self.connect(&desks).await {
            join_all(desks.iter().map(|desk| self.work(&line, desk))).await;
            self.silent.set(if line.has_answered.get() { 0 } else { self.silent.get() + 1 });
            self.leave(line, desks.iter().any(Desk::has_change));
            self.platform.sleep(Duration::from_millis(self.random.below(20))).await;
        }
    }

    /// Opens the volume on a server that takes it.
    async fn connect(&self, desks: &[Desk]) -> Option<Rc<Line>> {
        while !self.volume.stopped.get() {
            let server = self.random.index(self.servers.len());
            let patience = self.patience();
            if self.may_go_to(server) {
                let opening = NbdClient::open(&self.platform, &self.servers[server], &self.volume.name);
                let opened = before(&self.platform, self.platform.now() + patience, opening).await;
                match opened {
                    // A server that does not reach the cluster's state may not know how large the volume has become.
                    Some(Ok(client)) if !sees_all(&client, desks) => {}
                    Some(Ok(client)) if client.export().read_only && desks.iter().any(Desk::has_change) => {}
                    Some(Ok(client)) => return Some(Rc::new(self.line(server, client, patience))),
                    Some(Err(NbdError::Protocol(what))) => self.volume.complain(what),
                    Some(Err(_)) | None => {}
                }
            }
            self.platform.sleep(OPEN_AGAIN).await;
        }
        None
    }

    fn line(&self, server: usize, client: Nbd, patience: Duration) -> Line {
        Line {
            server,
            client: RefCell::new(Some(client)),
            patience,
            allowance: Cell::new(self.random.between(5, 200)),
            has_answered: Cell::new(false),
            over: Cell::new(false),
            ended: Signal::new(),
            requests: RefCell::default(),
        }
    }

    fn patience(&self) -> Duration {
        let drawn = PATIENCE_MS[self.random.index(PATIENCE_MS.len())];
        (Duration::from_millis(drawn) * (1 << self.silent.get().min(8))).min(PATIENCE_MAX)
    }

    fn may_go_to(&self, server: usize) -> bool {
        self.left.borrow_mut().retain(|line| line.is_busy());
        !self.closed_on.borrow().contains(&server)
            && self.left.borrow().iter().all(|line| line.server != server)
    }

    /// Leaves a server. `has_changes` if changes were not answered.
    fn leave(&self, line: Rc<Line>, has_changes: bool) {
        if !line.is_busy() {
            return;
        }
        // Of all servers only one is avoided because of this at a time: the others may stay away.
        let may_avoid = self.closed_on.borrow().is_empty() && self.servers.len() > 1;
        if !has_changes || (may_avoid && self.random.chance(500)) {
            line.close();
            if has_changes {
                self.closed_on.borrow_mut().insert(line.server);
            }
            return;
        }
        self.left.borrow_mut().push(Rc::clone(&line));
        self.platform.spawn(see_off(line, self.platform.clone()));
    }

    /// Repeats what stands at `desk`, then does more, until the connection is to be left.
    async fn work(&self, line: &Rc<Line>, desk: &Desk) {
        let (reads_only, sectors) = match &*line.client.borrow() {
            Some(client) => {
                let export = client.export();
                let reads_only = export.read_only || self.random.chance(self.volume.load.idle_per_mille);
                (reads_only, sectors_of(export.size_bytes))
            }
            None => return,
        };
        while !line.over.get() {
            if desk.asked().is_none() {
                if self.volume.stopped.get() || line.allowance.get() == 0 {
                    return;
                }
                line.allowance.set(line.allowance.get() - 1);
                *desk.0.borrow_mut() = Some(self.choose(reads_only, sectors));
            }
            if !self.attempt(line, desk).await {
                return;
            }
            let pause = Duration::from_micros(self.random.below(self.volume.load.pause_us_max));
            let over = std::pin::pin!(line.ended.wait_until(|| line.over.get()));
            select(over, std::pin::pin!(self.platform.sleep(pause))).await;
        }
    }

    fn choose(&self, reads_only: bool, sectors: u64) -> Asked {
        let Choice { kind, sectors } = self.volume.choose(&self.random, sectors);
        let kind = if reads_only { Kind::Read } else { kind };
        let value = if kind == Kind::Write { self.volume.history.value() } else { 0 };
        Asked { kind, sectors, value, number: None }
    }

    /// Asks for what stands at `desk` and waits for the answer. `false` if there is none, and the server is
    /// to be left.
    async fn attempt(&self, line: &Rc<Line>, desk: &Desk) -> bool {
        let Some(asked) = desk.asked() else { return true };
        let number = self.note(&asked);
        *desk.0.borrow_mut() = Some(Asked { number: Some(number), ..asked.clone() });
        let deadline = self.platform.now() + line.patience;
        let answered = std::pin::pin!(before(&self.platform, deadline, self.ask(line, &asked)));
        let over = std::pin::pin!(line.ended.wait_until(|| line.over.get()));
        let answer = match select(answered, over).await {
            futures_util::future::Either::Left((Some(Some(answer)), _)) => answer,
            futures_util::future::Either::Left((_, _)) | futures_util::future::Either::Right(_) => {
                line.give_up();
                return false;
            }
        };
        match answer {
            Ok(data) => {
                self.end(&asked, number, data);
                line.has_answered.set(true);
                if asked.kind != Kind::Read {
                    self.closed_on.borrow_mut().clear();
                }
            }
            Err(error) if self.is_final(&error, &asked) => line.has_answered.set(true),
            Err(_) => {
                line.give_up();
                return false;
            }
        }
        desk.0.take();
        true
    }

    /// Tells the history of an attempt.
    fn note(&self, asked: &Asked) -> OperationNumber {
        let history = &self.volume.history;
        match (asked.kind, asked.number) {
            (Kind::Read, _) => history.begin_read(asked.sectors.clone()),
            (_, Some(number)) => {
                history.repeat_write(number);
                number
            }
            (Kind::Trim, None) => history.begin_write(whole_blocks(&asked.sectors), 0),
            (Kind::Write | Kind::Zero, None) => history.begin_write(asked.sectors.clone(), asked.value),
        }
    }

    /// Sends a request, which goes on if nobody waits for it any more. `None` if the connection is closed.
    async fn ask(&self, line: &Rc<Line>, asked: &Asked) -> Option<Result<Option<Buffer>, NbdError>> {
        let client = line.client.borrow().clone()?;
        let (offset, length) = bytes_of(&asked.sectors);
        let length = u32::try_from(length).expect("no operation is that long");
        let data = (asked.kind == Kind::Write)
            .then(|| content(self.platform.buffers(), asked.value, asked.sectors.end - asked.sectors.start));
        let (kind, (sender, receiver)) = (asked.kind, oneshot());
        let request = self.platform.spawn(async move {
            let answer = match (kind, data) {
                (Kind::Write, Some(data)) => client.write(offset, data).await.map(|()| None),
                (Kind::Trim, _) => client.trim(offset, length).await.map(|()| None),
                (Kind::Zero, _) => client.write_zeroes(offset, length).await.map(|()| None),
                (Kind::Read | Kind::Write, _) => client.read(offset, length).await.map(Some),
            };
            sender.send(answer);
        });
        line.keep(request);
        receiver.await
    }

    /// An operation was answered.
    fn end(&self, asked: &Asked, number: OperationNumber, data: Option<Buffer>) {
        let history = &self.volume.history;
        match data {
            Some(data) => {
                if let Err(what) = history.end_read(number, [&data[..]]) {
                    self.volume.complain(what);
                }
            }
            None => {
                assert!(asked.kind != Kind::Read, "a read is answered with data");
                history.end_write(number);
            }
        }
    }

    /// Whether an error is the operation's answer. If not, it is to be repeated elsewhere.
    fn is_final(&self, error: &NbdError, asked: &Asked) -> bool {
        match error {
            NbdError::Link(_) | NbdError::Closed | NbdError::Refused(_) | NbdError::Silent(_) => false,
            NbdError::Failed(failure) => match failure.number {
                // The right to write went to another server.
                error_number::NOT_PERMITTED => false,
                error_number::NO_SPACE => true,
                _ => {
                    self.volume.complain(format!("sectors {:?}: {error}", asked.sectors));
                    true
                }
            },
            NbdError::Protocol(_) | NbdError::Invalid(_) => {
                self.volume.complain(format!("sectors {:?}: {error}", asked.sectors));
                true
            }
        }
    }
}

/// Whether all that is to be repeated lies within the volume as a server shows it.
fn sees_all(client: &Nbd, desks: &[Desk]) -> bool {
    let sectors = sectors_of(client.export().size_bytes);
    desks.iter().filter_map(Desk::asked).all(|asked| asked.sectors.end <= sectors)
}

/// Keeps a connection that was left until nothing that was asked there is under way any more.
async fn see_off(line: Rc<Line>, platform: SimulatedPlatform) {
    while line.is_busy() {
        let client = line.client.borrow().clone();
        let Some(client) = client else { break };
        // No answer within the time says nothing, and a broken connection has ended its requests.
        let _ = before(&platform, platform.now() + ARE_YOU_THERE, client.flush()).await;
        drop(client);
        platform.sleep(ARE_YOU_THERE).await;
    }
    line.close();
}

#[cfg(test)]
#[path = "movers_tests.rs"]
mod tests;
