//! What will happen: events by time, and at one time in the order in which they were planned.
//!
//! An ordered map rather than a heap, so that a cancelled event is really gone: neither does it
//! move the clock when its time comes, nor does it keep a world that has nothing to do from
//! saying so.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::connection::{ConnectionState, Side};
use crate::drive::DriveState;
use crate::host::HostState;
use crate::process::ProcessState;
use crate::world::World;

/// Names a planned event: its time and its number.
pub(crate) type EventKey = (u64, u64);

pub(crate) enum Event {
    /// The first sleeper of a host is due.
    Timers(Rc<HostState>),
    /// An operation of a drive completes.
    Drive(Rc<DriveState>, u64),
    /// The first segment on the wire that begins at this side arrives.
    Deliver(Rc<ConnectionState>, Side),
    /// What the reader took becomes room for the sender at this side.
    Credit(Rc<ConnectionState>, Side),
    /// A pause ends, unless a later one has replaced it.
    Resume(Rc<ProcessState>, u64),
    /// Something that the test planned.
    Call(Box<dyn FnOnce(&World)>),
}

#[derive(Default)]
pub(crate) struct EventQueue {
    events: BTreeMap<EventKey, Event>,
    planned: u64,
}

impl EventQueue {
    pub(crate) fn push(&mut self, time: u64, event: Event) -> EventKey {
        let key = (time, self.planned);
        self.planned += 1;
        self.events.insert(key, event);
        key
    }

    pub(crate) fn cancel(&mut self, key: EventKey) -> Option<Event> {
        self.events.remove(&key)
    }

    pub(crate) fn next_time(&self) -> Option<u64> {
        self.events.first_key_value().map(|((time, _), _)| *time)
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.events.pop_first().map(|((time, _), event)| (time, event))
    }
}
