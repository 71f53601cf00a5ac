//! What lets a server join a cluster.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use spandrel_shared::{ClusterId, Error};

use crate::secret::{Fingerprint, Secret, decode, encode};

const PREFIX: &str = "sj1";

/// Lets a server join a cluster, once it is given to it. As text it is one word, safe to paste:
/// `sj1.SECRETS.ADDRESS[,ADDRESS…]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its authority's.
    pub authority: Fingerprint,
    /// What shows that the bearer may join.
    pub secret: Secret,
    /// Where nodes of the cluster answer the admin API.
    pub addresses: Vec<SocketAddr>,
}

impl fmt::Display for JoinToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&self.cluster.to_bytes());
        bytes.extend_from_slice(&self.authority.0);
        bytes.extend_from_slice(&self.secret.0);
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        write!(formatter, "{PREFIX}.{}.{}", encode(&bytes), addresses.join(","))
    }
}

impl FromStr for JoinToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |why: &str| {
            Error::new(
                "TOKEN_INVALID",
                "this is no join token",
                why,
                "copy the whole word that `spandrel cluster init` or `spandrel cluster join-token` has printed",
            )
        };
        let mut parts = text.trim().splitn(3, '.');
        let (prefix, secrets, addresses) = (parts.next(), parts.next(), parts.next());
        if prefix != Some(PREFIX) {
            return Err(refuse("it does not begin with \"sj1.\""));
        }
        let bytes: [u8; 64] =
            secrets.and_then(decode).ok_or_else(|| refuse("its middle is damaged or cut off"))?;
        let addresses = addresses.unwrap_or_default().split(',').map(str::parse).collect::<Result<_, _>>();
        let addresses =
            addresses.map_err(|_| refuse("it does not end with addresses like 192.0.2.7:7441"))?;
        let part = |start: usize| bytes[start..start + 16].try_into().expect("16 bytes");
        Ok(Self {
            cluster: ClusterId::from_bytes(part(0)),
            authority: Fingerprint(bytes[16..48].try_into().expect("32 bytes")),
            secret: Secret(part(48)),
            addresses,
        })
    }
}

#[cfg(test)]
#[path = "join_token_tests.rs"]
mod tests;
