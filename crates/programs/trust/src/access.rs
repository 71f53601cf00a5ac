//! What lets people and programs use the admin API.

use std::fmt;
use std::str::FromStr;

use spandrel_shared::Error;

use crate::secret::{Fingerprint, Secret, decode, encode};

const PREFIX: &str = "sa1";

/// Lets its bearer use the admin API. As text it is one word: `sa1.SECRETS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    /// The authority of the cluster that has given it.
    pub authority: Fingerprint,
    /// What shows who the bearer is.
    pub secret: Secret,
}

impl fmt::Display for AccessToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&self.authority.0[..], &self.secret.0].concat();
        write!(formatter, "{PREFIX}.{}", encode(&bytes))
    }
}

impl FromStr for AccessToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let secrets = text.trim().strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('.'));
        let bytes: Option<[u8; 48]> = secrets.and_then(decode);
        let bytes = bytes.ok_or_else(|| {
            Error::new(
                "TOKEN_INVALID",
                "this is no access token",
                "it is no \"sa1.\" with 64 letters and digits behind it",
                "copy the whole word that `spandrel access create` has printed",
            )
        })?;
        Ok(Self {
            authority: Fingerprint(bytes[..32].try_into().expect("32 bytes")),
            secret: Secret(bytes[32..].try_into().expect("16 bytes")),
        })
    }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
