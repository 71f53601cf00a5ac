//! Where connections arrive.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use spandrel_platform::{Address, LinkError, Listener};

use crate::connection::{ConnectionState, SimulatedConnection};
use crate::network::Place;
use crate::process::ProcessState;

pub(crate) struct ListenerState {
    process: Rc<ProcessState>,
    key: (u32, Place),
    address: Address,
    /// Connections that nobody has accepted yet.
    backlog: RefCell<VecDeque<Rc<ConnectionState>>>,
    waiter: Cell<Option<Waker>>,
}

impl ListenerState {
    pub(crate) fn new(process: Rc<ProcessState>, key: (u32, Place), address: Address) -> Self {
        Self { process, key, address, backlog: RefCell::default(), waiter: Cell::new(None) }
    }

    pub(crate) fn belongs_to(&self, process: &Rc<ProcessState>) -> bool {
        Rc::ptr_eq(&self.process, process)
    }

    pub(crate) fn process(&self) -> &Rc<ProcessState> {
        &self.process
    }

    pub(crate) fn arrive(&self, connection: Rc<ConnectionState>) {
        self.backlog.borrow_mut().push_back(connection);
        if let Some(waiter) = self.waiter.take() {
            waiter.wake();
        }
    }
}

/// A simulated listener.
pub struct SimulatedListener {
    state: Rc<ListenerState>,
}

impl SimulatedListener {
    pub(crate) fn new(state: Rc<ListenerState>) -> Self {
        Self { state }
    }
}

impl Listener for SimulatedListener {
    type Connection = SimulatedConnection;

    async fn accept(&self) -> Result<SimulatedConnection, LinkError> {
        poll_fn(|context| {
            if self.state.process.is_stopped() {
                return Poll::Pending;
            }
            let first = self.state.backlog.borrow_mut().pop_front();
            match first {
                Some(connection) => Poll::Ready(Ok(SimulatedConnection::new(connection, 1))),
                None => {
                    self.state.waiter.set(Some(context.waker().clone()));
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn address(&self) -> Address {
        self.state.address.clone()
    }
}

impl Drop for SimulatedListener {
    fn drop(&mut self) {
        // The listener of a process that has ended may have a successor at the same place.
        if !self.state.process.is_stopped() {
            self.state.process.shared.network.stop_listening(&self.state.key);
        }
        for connection in self.state.backlog.take() {
            // Nobody will accept it: it closes as one that was accepted and dropped.
            drop(SimulatedConnection::new(connection, 1));
        }
    }
}

impl fmt::Debug for SimulatedListener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SimulatedListener({})", self.state.address)
    }
}
