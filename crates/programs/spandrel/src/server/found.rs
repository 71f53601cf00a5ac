//! `spandrel cluster init`: making a cluster of one node, which others join.
//!
//! Only files are made here. The node's first start puts the cluster into its state.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use spandrel_shared::geometry::SLAB_BYTES_MAX;
use spandrel_shared::{ClusterId, Error, NodeId, SlabGeometry};
use spandrel_state_etcd::{member, secured_url};
use spandrel_trust::{Authority, Credentials, Fingerprint, Holder, HolderKey, JoinToken, Secret};

use super::Port;
use super::pending::PendingJoin;
use super::settings::{Founding, Pki, ServerSettings, StatePlace, claim_new};
use crate::admin::administration::unix_ms;
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
    /// Where an etcd is that others keep, if that is to hold the state.
    pub state_endpoints: Option<Vec<String>>,
}

/// Makes a cluster whose first node is in `directory`. What lets others join.
pub fn found(directory: &Directory, new: NewCluster) -> Result<JoinToken, Error> {
    if new.state_endpoints.is_none() {
        member::check_program(&new.etcd)?;
    }
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
    let state = match new.state_endpoints {
        Some(endpoints) => StatePlace::External { endpoints },
        None => StatePlace::Own {
            program: new.etcd,
            endpoints: new.listen.iter().map(|listen| secured_url(&Port::StateClients.at(*listen))).collect(),
            is_member: false,
        },
    };
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
        listen: new.listen,
    };
    settings.write(directory)?;
    Ok(JoinToken {
        cluster,
        authority: authority.fingerprint()?,
        secret,
        addresses: settings.addresses(Port::Admin),
    })
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
