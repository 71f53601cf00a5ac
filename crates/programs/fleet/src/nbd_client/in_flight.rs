//! The requests that were sent and not yet answered.
//!
//! A cookie holds a place in the table and how often that place was used before, so that a late or
//! invented answer is noticed. Places are reused: once the table has grown to the number of requests
//! in flight, it allocates nothing.

use super::protocol::Request;

/// Requests in flight, each with what its sender wants to know when it is answered.
pub(crate) struct InFlight<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

struct Place<T> {
    uses: u32,
    pending: Option<Pending<T>>,
}

/// A request in flight.
pub(crate) struct Pending<T> {
    pub(crate) request: Request,
    pub(crate) token: T,
    /// Bytes of a read that have come.
    pub(super) received_bytes: u32,
    /// The error that a chunk has told, of which the last chunk is still to come.
    pub(super) error: Option<u32>,
}

impl<T> InFlight<T> {
    /// A table without requests.
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// Requests in flight.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Adds a request and returns its cookie.
    pub(crate) fn insert(&mut self, request: Request, token: T) -> u64 {
        let pending = Pending { request, token, received_bytes: 0, error: None };
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { uses: 0, pending: None });
            u32::try_from(self.places.len() - 1).expect("far fewer than 2^32 requests are in flight")
        });
        let place = &mut self.places[index as usize];
        place.pending = Some(pending);
        u64::from(place.uses) << 32 | u64::from(index)
    }

    /// The request that `cookie` names.
    pub(crate) fn get_mut(&mut self, cookie: u64) -> Option<&mut Pending<T>> {
        let place = self.places.get_mut((cookie & u64::from(u32::MAX)) as usize)?;
        if u64::from(place.uses) != cookie >> 32 {
            return None;
        }
        place.pending.as_mut()
    }

    /// Takes the request that `cookie` names out.
    pub(crate) fn remove(&mut self, cookie: u64) -> Option<Pending<T>> {
        self.get_mut(cookie)?;
        let index = (cookie & u64::from(u32::MAX)) as u32;
        let place = &mut self.places[index as usize];
        place.uses = place.uses.wrapping_add(1);
        self.free.push(index);
        place.pending.take()
    }

    /// Takes all requests out, in the order of their places.
    pub(crate) fn drain(&mut self) -> Vec<Pending<T>> {
        let pending = self.places.iter_mut().filter_map(|place| place.pending.take()).collect();
        self.places.clear();
        self.free.clear();
        pending
    }
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
