//! Who belongs to a cluster, and who may do what with it.
//!
//! Every cluster is an authority of its own: it signs a certificate for each node and witness, and nothing is said
//! between them without both sides' certificates. A [`JoinToken`] lets a server become a node; an [`AccessToken`]
//! lets a person or a program use the admin API. Both carry the fingerprint of
//! the authority, so that whoever holds one knows that it is this cluster that answers.
//!
//! Invariants:
//! - A private key never leaves the machine that made it, except the authority's own, which each node keeps, so that
//!   any of them can admit others.
//! - Of a token's secret the cluster keeps the digest alone.

mod access;
mod authority;
mod credentials;
mod join_token;
mod pinned;
mod revocation;
mod secret;

pub use access::AccessToken;
pub use authority::{Authority, Holder};
pub use credentials::{Credentials, HolderKey};
pub use join_token::JoinToken;
pub use pinned::{pinned_client, pinned_client_of_any_name};
pub use revocation::revocation_list;
pub use secret::{Fingerprint, Secret, SecretDigest};

use spandrel_shared::{ClusterId, NodeId};

/// What the name of each holder ends with in its certificate.
pub const HOLDER_ENDING: &str = ".node.spandrel";

/// The name that all certificates of a cluster carry.
pub fn common_name(cluster: ClusterId) -> String {
    format!("{cluster}.cluster.spandrel")
}

/// The name that only this holder's certificate carries.
pub fn holder_name(node: NodeId) -> String {
    format!("{node}{HOLDER_ENDING}")
}
