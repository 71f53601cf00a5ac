//! `spandrel cluster init`: making a cluster of one node, which others join.
//!
//! Only files are made here. The node's first start puts the cluster into its state.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use spandrel_shared::geometry::SLAB_BYTES_MAX;
use spandrel_shared::{ClusterId, Error, NodeId, SlabGeometry};
use spandrel_state_etcd::{EtcdOptions, EtcdState, member, secured_url};
use spandrel_trust::{Authority, Credentials, Fingerprint, Holder, HolderKey, JoinToken, Secret};

use super::Port;
use super::pending::PendingJoin;
use super::run::external_identity;
use super::settings::{Founding, Pki, ServerSettings, StatePlace, claim_new};
use crate::admin::administration::unix_ms;
use crate::admin::api::StateIdentity;
use crate::directory::Directory;
use crate::random::random;

/// The most addresses that a server has.
const ADDRESSES_MAX: usize = 8;

/// How long a join token lets servers join.
pub const JOIN_TIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a new cluster is to be.
#[derive(Clone, Debug)]
pub struct NewCluster {
    /// Its name.
    pub name: String,
    /// The first node's name.
    pub node_name: String,
    /// The first of the node's ports, at each of its addresses.
    pub listen: Vec<SocketAddr>,
    /// The pool's slab size; 256 MiB if absent.
    pub slab_bytes: Option<SlabGeometry>,
    /// etcd, a path or a name in `PATH`.
    pub etcd: PathBuf,
    /// An etcd that others keep, if that is to hold the state.
    pub state: Option<ExternalState>,
}

/// An etcd that others keep.
#[derive(Clone, Debug)]
pub struct ExternalState {
    /// Where its members answer clients: addresses or names, with ports.
    pub addresses: Vec<String>,
    /// With what servers prove who they are; without, nothing is encrypted.
    pub identity: Option<StateIdentity>,
}

impl ExternalState {
    /// Where its members answer clients.
    ///
    /// Error: `STATE_NOT_ENCRYPTED` if one is on another machine and nothing would be encrypted on the way: whoever can
    /// read along or write there owns the cluster.
    fn endpoints(&self) -> Result<Vec<String>, Error> {
        if self.identity.is_some() {
            return Ok(self.addresses.iter().map(|address| format!("https://{address}")).collect());
        }
        if let Some(other) = self.addresses.iter().find(|address| !is_on_this_machine(address)) {
            return Err(Error::new(
                "STATE_NOT_ENCRYPTED",
                "the cluster is not made",
                format!(
                    "the etcd at {other} is on another machine, and nothing on the way there would be encrypted"
                ),
                "say with what servers prove who they are there: --state-authority, --state-certificate, --state-key; \
                 or let the cluster keep its state itself (without --state)",
            ));
        }
        Ok(self.addresses.iter().map(|address| format!("http://{address}")).collect())
    }

    /// Refuses certificates and keys that cannot be used at `endpoints`: they are looked at now, and not only when the
    /// node starts.
    ///
    /// Error: `STATE_IDENTITY_INVALID`.
    fn check_identity(&self, endpoints: &[String]) -> Result<(), Error> {
        let Some(identity) = &self.identity else { return Ok(()) };
        let next = "look at what --state-authority, --state-certificate and --state-key name";
        let mut authority = CertificateDer::pem_slice_iter(identity.authority_pem.as_bytes());
        if authority.next().is_none_or(|certificate| certificate.is_err()) {
            return Err(Error::new(
                "STATE_IDENTITY_INVALID",
                "the cluster is not made",
                "the authority's file holds no certificate in PEM",
                next,
            ));
        }
        let connected = EtcdState::connect(&EtcdOptions {
            endpoints: endpoints.to_vec(),
            namespace: String::new(),
            identity: Some(external_identity(identity.clone())),
        });
        connected.map(drop).map_err(|error| Error { next: next.to_owned(), ..error })
    }
}

fn is_on_this_machine(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Makes a cluster whose first node is in `directory`. What lets others join.
pub fn found(directory: &Directory, new: NewCluster) -> Result<JoinToken, Error> {
    let state = state_place(&new)?;
    check_listen(&new.listen)?;
    check_local(&new.listen)?;
    let _lock = claim_new(directory)?;
    PendingJoin::check_none(directory)?;
    let cluster = ClusterId::from_random(random(), random());
    let node = NodeId::from_random(random(), random());
    let authority = Authority::create(cluster)?;
    let key = HolderKey::generate()?;
    let addresses = holder_addresses(&new.listen);
    let holder = Holder { node, key: &key.public(), addresses: &addresses };
    let credentials = Credentials {
        cluster,
        authority_pem: authority.certificate_pem().to_owned(),
        certificate_pem: authority.issue(&holder)?,
        key_pem: key.pem(),
    };
    Pki(directory).write(&credentials, Some(&authority.key_pem()))?;
    let secret = Secret::random();
    let created_unix_ms = unix_ms();
    let settings = ServerSettings {
        format: ServerSettings::format(),
        cluster,
        cluster_name: new.name,
        node,
        name: new.node_name,
        witness: false,
        state,
        founding: Some(Founding {
            slab_bytes: new
                .slab_bytes
                .or_else(|| SlabGeometry::new(SLAB_BYTES_MAX))
                .expect("the largest slab is one"),
            created_unix_ms,
            join_digest: secret.digest().to_string(),
            key_digest: Fingerprint::of(&key.public()).to_string(),
            join_expires_unix_ms: created_unix_ms + JOIN_TIME.as_millis() as u64,
        }),
        generation: 0,
        servers: Default::default(),
        drives: Vec::new(),
        cache_drives: BTreeSet::new(),
        listen: new.listen,
    };
    if let Some(identity) = new.state.and_then(|state| state.identity) {
        Pki(directory).write_state_identity(&identity)?;
    }
    settings.write(directory)?;
    Ok(JoinToken {
        cluster,
        authority: authority.fingerprint()?,
        secret,
        addresses: settings.addresses(Port::Admin),
    })
}

/// Where the state of a new cluster is to be. What would be in the way of that is said before anything is made.
fn state_place(new: &NewCluster) -> Result<StatePlace, Error> {
    if let Some(state) = &new.state {
        let endpoints = state.endpoints()?;
        state.check_identity(&endpoints)?;
        return Ok(StatePlace::External { endpoints });
    }
    member::check_program(&new.etcd)?;
    let endpoints = new.listen.iter().map(|listen| secured_url(&Port::StateClients.at(*listen)));
    Ok(StatePlace::Own { program: new.etcd.clone(), endpoints: endpoints.collect(), is_member: false })
}

/// The addresses that stand in a server's certificate.
pub fn holder_addresses(listen: &[SocketAddr]) -> Vec<std::net::IpAddr> {
    let mut addresses: Vec<_> = listen.iter().map(SocketAddr::ip).collect();
    // What is connected to over the loopback interface sees one of these, whichever was listened at.
    addresses.extend(["127.0.0.1", "::1"].map(|text| text.parse::<std::net::IpAddr>().expect("an address")));
    addresses.sort();
    addresses.dedup();
    addresses
}

/// Refuses addresses that this machine does not have. Later it would be too late: they stand in its certificate.
pub fn check_local(listen: &[SocketAddr]) -> Result<(), Error> {
    for address in listen {
        if let Err(error) = TcpListener::bind((address.ip(), 0)) {
            return Err(Error::new(
                "LISTEN_INVALID",
                "a server cannot listen like this",
                format!("{}: {error}", address.ip()),
                "name an address that this machine has (`ip address` lists them)",
            ));
        }
    }
    Ok(())
}

/// Refuses addresses at which a server cannot listen, or others not find it.
pub fn check_listen(listen: &[SocketAddr]) -> Result<(), Error> {
    let refuse = |why: String, next: &str| {
        Err(Error::new("LISTEN_INVALID", "a server cannot listen like this", why, next))
    };
    if listen.is_empty() {
        return refuse("no address was given".to_owned(), "name one with --listen");
    }
    for address in listen {
        if address.ip().is_unspecified() {
            let next = "name the address at which the other servers reach this one";
            return refuse(format!("{address} is every address, and the others need to know one"), next);
        }
        if address.port() == 0 || address.port().checked_add(Port::COUNT - 1).is_none() {
            let next = "choose a port from 1 to 65532; the three behind it are used as well";
            return refuse(format!("{address} has no room for {} ports", Port::COUNT), next);
        }
    }
    if listen.len() > ADDRESSES_MAX {
        let next = "name those at which the other servers reach this one";
        return refuse(format!("{} are more than {ADDRESSES_MAX} addresses", listen.len()), next);
    }
    for (place, one) in listen.iter().enumerate() {
        let overlaps =
            |other: &SocketAddr| other.ip() == one.ip() && other.port().abs_diff(one.port()) < Port::COUNT;
        if let Some(other) = listen[place + 1..].iter().find(|other| overlaps(other)) {
            let next = "choose ports that are four apart, or leave one of the two out";
            return refuse(format!("{one} and {other} need the same ports"), next);
        }
    }
    if listen.iter().any(|one| one.ip().is_loopback() != listen[0].ip().is_loopback()) {
        let next = "name addresses of the network, or of the loopback interface alone";
        return refuse(
            "some of its addresses are this machine's own alone, and some are not".to_owned(),
            next,
        );
    }
    Ok(())
}
