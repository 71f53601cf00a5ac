//! The command line of a member.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;

use super::{Beginning, MemberSettings, Paths};

/// How often the leader shows that it is there, in milliseconds: a lost leader is to be missed soon.
const HEARTBEAT_MS: &str = "100";

/// How long without that before a new leader is elected, at least, in milliseconds; at most twice as long. Ten times
/// the heartbeat, as etcd advises.
const ELECTION_MS: &str = "1000";

/// How many revisions of the past are kept: more than a watch can lag behind, few enough to need little room.
const REVISIONS_KEPT: &str = "10000";

/// The most bytes that etcd's database may take: ten times what the largest cluster's state takes.
const DATABASE_BYTES_MAX: &str = "2147483648";

/// What the member's process is started with: a word for each setting.
pub fn arguments(settings: &MemberSettings) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |name: &str, value: OsString| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        arguments.push(word);
    };
    let clients = urls(settings, &settings.client_addresses);
    let peers = urls(settings, &settings.peer_addresses);
    add("name", settings.name.as_str().into());
    add("data-dir", Paths(&settings.folder).data().into());
    add("listen-client-urls", clients.as_str().into());
    add("advertise-client-urls", clients.as_str().into());
    add("listen-peer-urls", peers.as_str().into());
    add("initial-advertise-peer-urls", peers.as_str().into());
    let (members, state) = match &settings.beginning {
        Beginning::First(token) => {
            add("initial-cluster-token", token.into());
            (vec![(settings.name.clone(), settings.peer_addresses.clone())], "new")
        }
        Beginning::Added(members) => (members.clone(), "existing"),
        Beginning::Member | Beginning::Alone => {
            (vec![(settings.name.clone(), settings.peer_addresses.clone())], "existing")
        }
    };
    let member = |(name, addresses): &(String, Vec<SocketAddr>)| {
        let each: Vec<_> =
            addresses.iter().map(|address| format!("{name}={}", settings.url(address))).collect();
        each.join(",")
    };
    add("initial-cluster", members.iter().map(member).collect::<Vec<_>>().join(",").into());
    add("initial-cluster-state", state.into());
    if let Some(identity) = &settings.identity {
        for prefix in ["", "peer-"] {
            add(&format!("{prefix}cert-file"), identity.certificate.clone().into());
            add(&format!("{prefix}key-file"), identity.key.clone().into());
            add(&format!("{prefix}trusted-ca-file"), identity.authority.clone().into());
            add(&format!("{prefix}client-cert-auth"), "true".into());
        }
        add("client-crl-file", identity.revoked.clone().into());
        add("peer-crl-file", identity.revoked.clone().into());
        // A server with several networks may speak from an address that is not in its certificate. Who it is stands there
        // all the same, and the authority vouches for that.
        add("experimental-peer-skip-client-san-verification", "true".into());
    }
    if settings.beginning == Beginning::Alone {
        add("force-new-cluster", "true".into());
    }
    add("heartbeat-interval", HEARTBEAT_MS.into());
    add("election-timeout", ELECTION_MS.into());
    // A member that was cut off asks whether it could be elected before it calls an election. Otherwise the election that
    // it has called alone meanwhile ends the leader's term when it comes back, and nobody answers for seconds.
    add("pre-vote", "true".into());
    add("auto-compaction-mode", "revision".into());
    add("auto-compaction-retention", REVISIONS_KEPT.into());
    add("quota-backend-bytes", DATABASE_BYTES_MAX.into());
    add("logger", "zap".into());
    add("log-level", "warn".into());
    arguments
}

/// Whether a word only says how a process becomes a member.
pub fn is_of_the_beginning(word: &OsStr) -> bool {
    word.as_encoded_bytes().starts_with(b"--initial-cluster")
}

fn urls(settings: &MemberSettings, addresses: &[SocketAddr]) -> String {
    addresses.iter().map(|address| settings.url(address)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
