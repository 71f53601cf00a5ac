//! What a client's I/Os go to, as the load sees it: something that takes them, and something that says what became of them.
//!
//! An export is reached by what the NBD client has. A drive of this machine is read and written directly; each I/O there is a task
//! of its own, which costs an allocation, and nothing waits for a system call.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;

use spandrel_platform::sync::Signal;
use spandrel_platform::{Buffer, Connection, Drive, DriveError, DriveErrorKind, Platform};

use crate::nbd_client::{Command, Event, Export, InFlight, NbdError, Pending, Receiver, Request, Sender};

/// Where I/Os are sent to.
pub(crate) trait IoSender: 'static {
    /// Begins an I/O, with its data if it is a write.
    fn send_io(&self, request: &Request, cookie: u64, data: &[Buffer]);

    /// Ends it. What is under way may still be done.
    fn end(&self);
}

/// An I/O that is answered.
pub(crate) struct Answer<T> {
    pub(crate) pending: Pending<T>,
    /// Linux's number of the error, if it has failed.
    pub(crate) error: Option<u32>,
}

/// Where the answers come from.
pub(crate) trait IoReceiver: 'static {
    /// Waits until something has come.
    fn fill(&mut self) -> impl Future<Output = Result<(), NbdError>>;

    /// The next I/O that is answered in what has come.
    fn next_answer<T>(&mut self, in_flight: &mut InFlight<T>) -> Result<Option<Answer<T>>, NbdError>;
}

impl<C: Connection> IoSender for Sender<C> {
    fn send_io(&self, request: &Request, cookie: u64, data: &[Buffer]) {
        self.send(request, cookie, data);
    }

    fn end(&self) {
        self.disconnect();
    }
}

impl<C: Connection> IoReceiver for Receiver<C> {
    fn fill(&mut self) -> impl Future<Output = Result<(), NbdError>> {
        Receiver::fill(self)
    }

    fn next_answer<T>(&mut self, in_flight: &mut InFlight<T>) -> Result<Option<Answer<T>>, NbdError> {
        while let Some(event) = self.next(in_flight)? {
            if let Event::Done { pending, error } = event {
                return Ok(Some(Answer { pending, error }));
            }
        }
        Ok(None)
    }
}

/// What has become of I/Os on a drive, and was not looked at yet.
#[derive(Default)]
struct Answers {
    come: RefCell<VecDeque<(u64, Option<u32>)>>,
    changed: Signal,
}

/// A drive that I/Os go to.
pub(crate) struct DriveSender<P: Platform> {
    platform: P,
    drive: P::Drive,
    answers: Rc<Answers>,
}

/// The answers of a drive.
pub(crate) struct DriveReceiver {
    answers: Rc<Answers>,
}

/// Opens the drive at `path`.
pub(crate) async fn open_drive<P: Platform>(
    platform: &P,
    path: &str,
) -> Result<(DriveSender<P>, DriveReceiver, Export), DriveError> {
    let drive = platform.open_drive(path).await?;
    let geometry = drive.geometry();
    let export = Export {
        size_bytes: geometry.size_bytes,
        request_bytes_min: geometry.sector_bytes,
        request_bytes_max: u32::MAX,
        read_only: false,
        can_flush: true,
        can_trim: false,
        can_write_zeroes: false,
        structured_replies: false,
    };
    let answers = Rc::<Answers>::default();
    let receiver = DriveReceiver { answers: Rc::clone(&answers) };
    Ok((DriveSender { platform: platform.clone(), drive, answers }, receiver, export))
}

impl<P: Platform> IoSender for DriveSender<P> {
    fn send_io(&self, request: &Request, cookie: u64, data: &[Buffer]) {
        let (drive, answers, request) = (self.drive.clone(), Rc::clone(&self.answers), *request);
        let data = data.to_vec();
        let pool = self.platform.buffers().clone();
        self.platform.spawn(async move {
            let done = match request.command {
                Command::Write => drive.write(request.offset, data).await,
                _ => drive.read(request.offset, pool.take(request.length as usize)).await.map(drop),
            };
            answers.come.borrow_mut().push_back((cookie, done.err().map(|error| number_of(error.kind))));
            answers.changed.notify_all();
        });
    }

    fn end(&self) {}
}

impl IoReceiver for DriveReceiver {
    async fn fill(&mut self) -> Result<(), NbdError> {
        self.answers.changed.wait_until(|| !self.answers.come.borrow().is_empty()).await;
        Ok(())
    }

    fn next_answer<T>(&mut self, in_flight: &mut InFlight<T>) -> Result<Option<Answer<T>>, NbdError> {
        let Some((cookie, error)) = self.answers.come.borrow_mut().pop_front() else { return Ok(None) };
        let pending = in_flight.remove(cookie).expect("a drive answers each I/O once");
        Ok(Some(Answer { pending, error }))
    }
}

/// Linux's number of an error.
fn number_of(kind: DriveErrorKind) -> u32 {
    match kind {
        DriveErrorKind::NoRoom => 28,
        DriveErrorKind::OutOfRange => 22,
        DriveErrorKind::Unavailable | DriveErrorKind::InUse | DriveErrorKind::Medium => 5,
    }
}

#[cfg(test)]
#[path = "medium_tests.rs"]
mod tests;
