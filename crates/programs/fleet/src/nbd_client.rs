//! An NBD client: opens an export over any platform's connection and keeps many requests in flight.
//!
//! There are two ways to use it. [`NbdClient`] is for whoever wants one request done and its answer:
//! each request is a future. The load does without futures per request: it opens a [`Session`], sends
//! what it likes and takes the answers as they come, so that an I/O costs neither a task nor an
//! allocation.
//!
//! A session is never resumed. When the connection breaks, every request in flight has failed and
//! nothing says whether it was done.

mod error;
mod in_flight;
mod negotiation;
mod protocol;
mod receiver;
mod replies;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

pub use error::{NbdError, RequestFailure};
pub(crate) use in_flight::{InFlight, Pending};
pub(crate) use protocol::{Command, Request};
pub(crate) use receiver::{Event, Receiver};
use spandrel_platform::sync::{OneshotSender, oneshot};
use spandrel_platform::{Address, Buffer, BufferMut, BufferPool, Connection, Platform, before};

/// How long a server may take to open an export.
const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest name that the protocol allows.
const EXPORT_NAME_BYTES_MAX: usize = 4096;

/// What a server says of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its size.
    pub size_bytes: u64,
    /// Offsets and lengths are multiples of this.
    pub request_bytes_min: u32,
    /// The longest read or write.
    pub request_bytes_max: u32,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Whether it takes flushes.
    pub can_flush: bool,
    /// Whether it takes trims.
    pub can_trim: bool,
    /// Whether it takes requests to write zeroes.
    pub can_write_zeroes: bool,
    /// Whether the session has structured replies.
    pub structured_replies: bool,
}

/// An open export.
pub(crate) struct Session<C> {
    pub(crate) sender: Sender<C>,
    pub(crate) receiver: Receiver<C>,
    pub(crate) export: Export,
}

impl<C: Connection> Session<C> {
    /// Connects to `address` and opens `export` there.
    pub(crate) async fn open<P: Platform<Connection = C>>(
        platform: &P,
        address: &Address,
        export: &str,
    ) -> Result<Self, NbdError> {
        if export.len() > EXPORT_NAME_BYTES_MAX {
            return Err(NbdError::Invalid(format!("an export's name of {} bytes", export.len())));
        }
        let connection = platform.connect(address).await?;
        let mut receiver = Receiver::new(connection.clone());
        let deadline = platform.now() + NEGOTIATION_TIMEOUT;
        let negotiation = negotiation::negotiate(&connection, &mut receiver, export);
        let export = before(platform, deadline, negotiation).await.unwrap_or_else(|| {
            Err(NbdError::Silent(format!("within {} seconds", NEGOTIATION_TIMEOUT.as_secs())))
        })?;
        Ok(Self { sender: Sender { connection }, receiver, export })
    }
}

/// The sending side of a session.
#[derive(Clone)]
pub(crate) struct Sender<C> {
    connection: C,
}

impl<C: Connection> Sender<C> {
    /// Sends a request, with its data if it is a write.
    pub(crate) fn send(&self, request: &Request, cookie: u64, data: &[Buffer]) {
        self.connection.send(&request.bytes(cookie), data);
    }

    /// Says good-bye and closes the connection.
    pub(crate) fn disconnect(&self) {
        let request = Request { command: Command::Disconnect, offset: 0, length: 0 };
        self.connection.send(&request.bytes(0), &[]);
        self.connection.close();
    }
}

/// An open export whose requests are futures. Cheap to clone; all clones are the same session,
/// which ends when the last is dropped.
pub struct NbdClient<P: Platform> {
    handle: Rc<Handle<P::Connection>>,
}

impl<P: Platform> Clone for NbdClient<P> {
    fn clone(&self) -> Self {
        Self { handle: Rc::clone(&self.handle) }
    }
}

struct Handle<C: Connection> {
    sender: Sender<C>,
    export: Export,
    shared: Rc<Shared>,
    pool: BufferPool,
}

impl<C: Connection> Drop for Handle<C> {
    fn drop(&mut self) {
        self.sender.disconnect();
    }
}

/// What the handles share with the task that receives.
struct Shared {
    in_flight: RefCell<InFlight<Waiter>>,
    /// Why no more requests can be sent.
    end: RefCell<Option<NbdError>>,
    in_flight_peak: Cell<usize>,
}

/// Who waits for an answer.
struct Waiter {
    /// Where a read's data go; empty for everything else.
    data: BufferMut,
    answer: OneshotSender<Result<BufferMut, NbdError>>,
}

impl<P: Platform> NbdClient<P> {
    /// Connects to `address` and opens `export` there.
    pub async fn open(platform: &P, address: &Address, export: &str) -> Result<Self, NbdError> {
        let Session { sender, receiver, export } = Session::open(platform, address, export).await?;
        let shared = Rc::new(Shared {
            in_flight: RefCell::new(InFlight::new()),
            end: RefCell::default(),
            in_flight_peak: Cell::new(0),
        });
        platform.spawn(receive_answers(receiver, Rc::clone(&shared)));
        let handle = Handle { sender, export, shared, pool: platform.buffers().clone() };
        Ok(Self { handle: Rc::new(handle) })
    }

    /// What the server says of the export.
    pub fn export(&self) -> Export {
        self.handle.export
    }

    /// The most requests that were in flight at once.
    pub fn in_flight_peak(&self) -> usize {
        self.handle.shared.in_flight_peak.get()
    }

    /// Reads `length` bytes at `offset`.
    pub async fn read(&self, offset: u64, length: u32) -> Result<Buffer, NbdError> {
        let data = self.handle.pool.take(length as usize);
        let request = Request { command: Command::Read, offset, length };
        self.request(request, data, &[]).await.map(BufferMut::freeze)
    }

    /// Writes `data` to `offset`.
    pub async fn write(&self, offset: u64, data: Buffer) -> Result<(), NbdError> {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.change(Request { command: Command::Write, offset, length }, &[data]).await
    }

    /// Makes every change that was answered before durable.
    pub async fn flush(&self) -> Result<(), NbdError> {
        self.change(Request { command: Command::Flush, offset: 0, length: 0 }, &[]).await
    }

    /// Gives the room of `length` bytes at `offset` back.
    pub async fn trim(&self, offset: u64, length: u32) -> Result<(), NbdError> {
        self.change(Request { command: Command::Trim, offset, length }, &[]).await
    }

    /// Makes `length` bytes at `offset` read as zeros.
    pub async fn write_zeroes(&self, offset: u64, length: u32) -> Result<(), NbdError> {
        self.change(Request { command: Command::WriteZeroes, offset, length }, &[]).await
    }

    async fn change(&self, request: Request, data: &[Buffer]) -> Result<(), NbdError> {
        let nothing = self.handle.pool.take(0);
        self.request(request, nothing, data).await.map(drop)
    }

    async fn request(
        &self,
        request: Request,
        into: BufferMut,
        data: &[Buffer],
    ) -> Result<BufferMut, NbdError> {
        self.check(&request)?;
        let shared = &self.handle.shared;
        if let Some(end) = &*shared.end.borrow() {
            return Err(end.clone());
        }
        let (answer, answered) = oneshot();
        let cookie = {
            let mut in_flight = shared.in_flight.borrow_mut();
            let cookie = in_flight.insert(request, Waiter { data: into, answer });
            shared.in_flight_peak.set(shared.in_flight_peak.get().max(in_flight.len()));
            cookie
        };
        self.handle.sender.send(&request, cookie, data);
        answered.await.unwrap_or(Err(NbdError::Closed))
    }

    /// Whether the export takes the request.
    fn check(&self, request: &Request) -> Result<(), NbdError> {
        let export = &self.handle.export;
        let Request { command, offset, length } = *request;
        let invalid = |why: String| Err(NbdError::Invalid(format!("{}: {why}", command.name())));
        let is_supported = match command {
            Command::Flush => export.can_flush,
            Command::Trim => export.can_trim,
            Command::WriteZeroes => export.can_write_zeroes,
            Command::Read | Command::Write | Command::Disconnect => true,
        };
        if !is_supported {
            return invalid("the export does not know it".to_owned());
        }
        if command == Command::Flush {
            return Ok(());
        }
        if command != Command::Read && export.read_only {
            return invalid("the export is read-only".to_owned());
        }
        let unit = u64::from(export.request_bytes_min);
        if length == 0 || !offset.is_multiple_of(unit) || !u64::from(length).is_multiple_of(unit) {
            return invalid(format!("{length} bytes at byte {offset} are not whole units of {unit} bytes"));
        }
        let end = offset.checked_add(u64::from(length));
        if end.is_none_or(|end| end > export.size_bytes) {
            return invalid(format!("{length} bytes at byte {offset} end behind the export"));
        }
        let carries_data = matches!(command, Command::Read | Command::Write);
        if carries_data && length > export.request_bytes_max {
            let most = export.request_bytes_max;
            return invalid(format!("{length} bytes, the export takes at most {most} in one request"));
        }
        Ok(())
    }
}

/// Hands out answers until the connection ends.
async fn receive_answers<C: Connection>(mut receiver: Receiver<C>, shared: Rc<Shared>) {
    let error = loop {
        if let Err(error) = receiver.fill().await {
            break error;
        }
        if let Err(error) = hand_out(&mut receiver, &shared) {
            break error;
        }
    };
    *shared.end.borrow_mut() = Some(error.clone());
    let unanswered = shared.in_flight.borrow_mut().drain();
    for pending in unanswered {
        pending.token.answer.send(Err(error.clone()));
    }
}

/// Hands out the answers that were received.
fn hand_out<C: Connection>(receiver: &mut Receiver<C>, shared: &Shared) -> Result<(), NbdError> {
    let mut in_flight = shared.in_flight.borrow_mut();
    while let Some(event) = receiver.next(&mut in_flight)? {
        match event {
            Event::Data { cookie, position, bytes } => {
                if let Some(pending) = in_flight.get_mut(cookie) {
                    let start = position as usize;
                    pending.token.data[start..start + bytes.len()].copy_from_slice(bytes);
                }
            }
            Event::Zeros { cookie, position, length } => {
                if let Some(pending) = in_flight.get_mut(cookie) {
                    pending.token.data[position as usize..][..length as usize].fill(0);
                }
            }
            Event::Done { pending, error } => {
                let Waiter { data, answer } = pending.token;
                let failure = error.map(|number| RequestFailure { request: pending.request, number });
                answer.send(failure.map_or(Ok(data), |failure| Err(NbdError::Failed(failure))));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "nbd_client_tests.rs"]
mod tests;
