//! The wires between hosts, who listens where, and what befalls the connections.
//!
//! A link is one direction between two hosts on one network. It delays, and may be cut: then
//! everything on it waits. The order of bytes within a connection is kept, as TCP keeps it;
//! across connections there is none.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::{Rc, Weak};

use spandrel_platform::{Address, LinkError};

use crate::config::NetworkConfig;
use crate::connection::{ConnectionState, Side, SimulatedConnection};
use crate::host::HostState;
use crate::listener::{ListenerState, SimulatedListener};
use crate::process::{End, ProcessState};
use crate::random::{DelayRange, Random};
use crate::trace::Kind;
use crate::world::Shared;

/// What all processes together have sent to other hosts. All counted since the world began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounters {
    /// How often something left: what a process queues on one connection in one turn leaves together.
    pub sends: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// One direction between two hosts on one network.
pub(crate) struct Link {
    pub(crate) cut: Cell<bool>,
    delay: Cell<DelayRange>,
    bandwidth_bytes_per_second: Option<u64>,
    /// When the last byte that was given to it has left.
    busy_until: Cell<u64>,
    /// Wires whose next segment waits until the link heals, by their sending side.
    blocked: RefCell<Vec<(Rc<ConnectionState>, Side)>>,
    /// Senders, by side, for whom room waits on this link.
    held_credits: RefCell<Vec<(Rc<ConnectionState>, Side)>>,
}

impl Link {
    /// When `bytes` that leave now will be there.
    pub(crate) fn arrival(&self, now: u64, bytes: usize, random: &Random) -> u64 {
        let mut leaves = now;
        if let Some(bandwidth) = self.bandwidth_bytes_per_second {
            let takes = (bytes as u64).saturating_mul(1_000_000_000) / bandwidth.max(1);
            leaves = now.max(self.busy_until.get()).saturating_add(takes);
            self.busy_until.set(leaves);
        }
        leaves.saturating_add(random.nanoseconds(self.delay.get()))
    }

    pub(crate) fn block(&self, connection: Rc<ConnectionState>, side: Side) {
        self.blocked.borrow_mut().push((connection, side));
    }

    pub(crate) fn hold_credit(&self, connection: Rc<ConnectionState>, side: Side) {
        self.held_credits.borrow_mut().push((connection, side));
    }

    fn release(&self) {
        for (connection, side) in self.blocked.take() {
            connection.unblock(side);
        }
        for (connection, side) in self.held_credits.take() {
            connection.release_credit(side);
        }
    }
}

/// On which of its addresses a process listens, or is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Any,
    Loopback,
    Network(u8),
}

/// Where on a host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Port(u16, Scope),
    Path(String),
}

pub(crate) struct Network {
    pub(crate) config: NetworkConfig,
    pub(crate) random: Random,
    /// By the numbers of sender and receiver, and the network's.
    links: RefCell<BTreeMap<(u32, u32, u8), Rc<Link>>>,
    listeners: RefCell<BTreeMap<(u32, Place), Rc<ListenerState>>>,
    connections: RefCell<BTreeMap<u64, Weak<ConnectionState>>>,
    connected: Cell<u64>,
    pub(crate) counters: Cell<NetworkCounters>,
}

impl Network {
    pub(crate) fn new(seed: u64, config: NetworkConfig) -> Self {
        assert!(config.socket_buffer_bytes > 0, "without socket buffers nothing can be sent");
        Self {
            config,
            random: Random::stream(seed, "network", 0),
            links: RefCell::default(),
            listeners: RefCell::default(),
            connections: RefCell::default(),
            connected: Cell::new(0),
            counters: Cell::default(),
        }
    }

    pub(crate) fn link(&self, from: &HostState, to: &HostState, network: u8) -> Rc<Link> {
        let local = from.number == to.number;
        let key = (from.number, to.number, if local { 0 } else { network });
        let mut links = self.links.borrow_mut();
        let link = links.entry(key).or_insert_with(|| {
            Rc::new(Link {
                cut: Cell::new(false),
                delay: Cell::new(if local { self.config.local_delay } else { self.config.delay }),
                bandwidth_bytes_per_second: self.config.bandwidth_bytes_per_second.filter(|_| !local),
                busy_until: Cell::new(0),
                blocked: RefCell::default(),
                held_credits: RefCell::default(),
            })
        });
        Rc::clone(link)
    }

    /// The host that has `address`, and on which network.
    pub(crate) fn host_at(&self, shared: &Shared, address: IpAddr) -> Option<(Rc<HostState>, u8)> {
        let IpAddr::V4(address) = address else { return None };
        let [first, network, middle, low] = address.octets();
        let number = usize::from(u16::from_be_bytes([middle, low])).checked_sub(1)?;
        let known = first == 10 && network < self.config.networks;
        known.then(|| shared.host(number)).flatten().map(|host| (host, network))
    }

    pub(crate) fn connect(
        &self,
        process: &Rc<ProcessState>,
        address: &Address,
    ) -> Result<SimulatedConnection, LinkError> {
        let (host, network, place) = self.target(process, address)?;
        let id = self.connected.get();
        self.connected.set(id + 1);
        let port = take_port(&process.host);
        let own_address = match &place {
            Place::Port(_, Scope::Network(network)) => IpAddr::V4(process.host.address(*network)),
            _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let caller = match address {
            Address::Tcp(_) => SocketAddr::new(own_address, port).to_string(),
            Address::Unix(path) => format!("{path} (a client)"),
        };
        let links = [self.link(&process.host, &host, network), self.link(&host, &process.host, network)];
        let connection = ConnectionState::new(process, host, id, place, links, [address.to_string(), caller]);
        self.connections.borrow_mut().insert(id, Rc::downgrade(&connection));
        connection.call();
        Ok(SimulatedConnection::new(connection, 0))
    }

    fn target(
        &self,
        process: &Rc<ProcessState>,
        address: &Address,
    ) -> Result<(Rc<HostState>, u8, Place), LinkError> {
        let socket = match address {
            Address::Unix(path) => return Ok((Rc::clone(&process.host), 0, Place::Path(path.clone()))),
            Address::Tcp(socket) => socket,
        };
        if socket.ip().is_loopback() || socket.ip().is_unspecified() {
            return Ok((Rc::clone(&process.host), 0, Place::Port(socket.port(), Scope::Loopback)));
        }
        match self.host_at(&process.shared, socket.ip()) {
            Some((host, network)) => Ok((host, network, Place::Port(socket.port(), Scope::Network(network)))),
            None => Err(LinkError::Other(format!("no route to {address}: no simulated host has it"))),
        }
    }

    pub(crate) fn listen(
        &self,
        process: &Rc<ProcessState>,
        address: &Address,
    ) -> Result<SimulatedListener, LinkError> {
        if process.is_stopped() {
            return Err(LinkError::Other(format!("listening on {address}: the process has ended")));
        }
        let (place, address) = self.listening_place(process, address)?;
        let taken = match &place {
            Place::Path(_) => self.listeners.borrow().contains_key(&(process.host.number, place.clone())),
            Place::Port(port, scope) => self.is_taken(process.host.number, *port, *scope),
        };
        if taken {
            return Err(LinkError::AddressInUse(address.to_string()));
        }
        process.shared.record(Kind::LinkState, [process.number as u64, 2, 0], || {
            format!("{}: listens on {address}", process.name)
        });
        let key = (process.host.number, place);
        let state = Rc::new(ListenerState::new(Rc::clone(process), key.clone(), address));
        self.listeners.borrow_mut().insert(key, Rc::clone(&state));
        Ok(SimulatedListener::new(state))
    }

    fn listening_place(
        &self,
        process: &Rc<ProcessState>,
        address: &Address,
    ) -> Result<(Place, Address), LinkError> {
        let socket = match address {
            Address::Unix(path) => return Ok((Place::Path(path.clone()), address.clone())),
            Address::Tcp(socket) => socket,
        };
        let scope = if socket.ip().is_unspecified() {
            Scope::Any
        } else if socket.ip().is_loopback() {
            Scope::Loopback
        } else {
            match self.host_at(&process.shared, socket.ip()) {
                Some((host, network)) if host.number == process.host.number => Scope::Network(network),
                _ => {
                    let host = &process.host.name;
                    return Err(LinkError::Other(format!("{address} is no address of host {host}")));
                }
            }
        };
        let port = match socket.port() {
            0 => self.free_port(process, scope)?,
            port => port,
        };
        Ok((Place::Port(port, scope), Address::Tcp(SocketAddr::new(socket.ip(), port))))
    }

    fn free_port(&self, process: &Rc<ProcessState>, scope: Scope) -> Result<u16, LinkError> {
        let ports = std::iter::repeat_with(|| take_port(&process.host)).take(1 << 14);
        ports
            .into_iter()
            .find(|port| !self.is_taken(process.host.number, *port, scope))
            .ok_or_else(|| LinkError::AddressInUse(format!("every port of host {}", process.host.name)))
    }

    fn is_taken(&self, host: u32, port: u16, scope: Scope) -> bool {
        let range =
            (host, Place::Port(port, Scope::Any))..=(host, Place::Port(port, Scope::Network(u8::MAX)));
        self.listeners.borrow().range(range).any(|((_, place), _)| match place {
            Place::Port(_, other) => *other == scope || *other == Scope::Any || scope == Scope::Any,
            Place::Path(_) => false,
        })
    }

    /// Who listens at `place` of `host`.
    pub(crate) fn listener(&self, host: u32, place: &Place) -> Option<Rc<ListenerState>> {
        let listeners = self.listeners.borrow();
        let exact = listeners.get(&(host, place.clone()));
        let found = exact.or_else(|| match place {
            Place::Port(port, _) => listeners.get(&(host, Place::Port(*port, Scope::Any))),
            Place::Path(_) => None,
        });
        found.cloned()
    }

    pub(crate) fn stop_listening(&self, key: &(u32, Place)) {
        let listener = self.listeners.borrow_mut().remove(key);
        drop(listener);
    }

    pub(crate) fn forget(&self, connection: u64) {
        self.connections.borrow_mut().remove(&connection);
    }

    pub(crate) fn process_ended(&self, process: &Rc<ProcessState>, end: End) {
        self.listeners.borrow_mut().retain(|_, listener| !listener.belongs_to(process));
        for connection in self.all_connections() {
            connection.process_ended(process, end);
        }
    }

    /// Nobody repeats what a host without power has sent, also before its processes ended.
    pub(crate) fn power_lost(&self, host: &Rc<HostState>) {
        for connection in self.all_connections() {
            connection.power_lost(host);
        }
    }

    pub(crate) fn power_returned(&self, host: &Rc<HostState>) {
        for (connection, side) in host.take_blocked() {
            connection.unblock(side);
        }
        for connection in self.all_connections() {
            connection.power_returned(host);
        }
    }

    pub(crate) fn set_cut(&self, shared: &Shared, network: u8, from: &HostState, to: &HostState, cut: bool) {
        assert!(from.number != to.number, "a host cannot be cut off from itself");
        let link = self.link(from, to, network);
        if link.cut.replace(cut) == cut {
            return;
        }
        let pair = u64::from(from.number) << 32 | u64::from(to.number);
        shared.record(Kind::LinkState, [pair, u64::from(cut), network.into()], || {
            let what = if cut { "cut" } else { "healed" };
            format!("link {} -> {} on network {network} {what}", from.name, to.name)
        });
        if !cut {
            link.release();
        }
    }

    pub(crate) fn heal_all(&self, shared: &Shared) {
        let cut: Vec<_> =
            self.links.borrow().iter().filter(|(_, link)| link.cut.get()).map(|(key, _)| *key).collect();
        for (from, to, network) in cut {
            if let (Some(from), Some(to)) = (shared.host(from as usize), shared.host(to as usize)) {
                self.set_cut(shared, network, &from, &to, false);
            }
        }
    }

    pub(crate) fn set_delay(&self, network: u8, from: &HostState, to: &HostState, delay: DelayRange) {
        self.link(from, to, network).delay.set(delay);
    }

    pub(crate) fn break_connections(&self, shared: &Shared, a: &HostState, b: &HostState) -> usize {
        let all = self.all_connections();
        let affected: Vec<_> = all.iter().filter(|connection| connection.joins(a, b)).collect();
        for connection in &affected {
            self.break_connection(shared, connection);
        }
        affected.len()
    }

    pub(crate) fn break_random_connection(&self, shared: &Shared) -> bool {
        let all = self.all_connections();
        let remote: Vec<_> = all.iter().filter(|connection| connection.is_remote()).collect();
        let Some(connection) = remote.get(self.random.index(remote.len())) else { return false };
        self.break_connection(shared, connection);
        true
    }

    fn break_connection(&self, shared: &Shared, connection: &Rc<ConnectionState>) {
        shared.record(Kind::ConnectionState, [connection.id(), 9, 0], || {
            format!("{} breaks", connection.describe(0))
        });
        connection.break_now();
    }

    fn all_connections(&self) -> Vec<Rc<ConnectionState>> {
        self.connections.borrow().values().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn tear_down(&self) {
        drop(self.listeners.take());
        for link in self.links.take().into_values() {
            drop(link.blocked.take());
            drop(link.held_credits.take());
        }
    }
}

/// The next port of the range that is for anybody. Ports of calls are only names, so that it does
/// not matter if two calls get the same one.
fn take_port(host: &HostState) -> u16 {
    let port = host.next_port.get();
    host.next_port.set(if port == u16::MAX { 49_152 } else { port + 1 });
    port
}
