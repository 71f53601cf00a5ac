//! Secrets, what is kept of them, and fingerprints.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

const SECRET_BYTES: usize = 16;

/// What only the holder of a token knows: 128 random bits.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(crate) [u8; SECRET_BYTES]);

impl Secret {
    /// A new one.
    pub fn random() -> Self {
        let mut bytes = [0; SECRET_BYTES];
        SystemRandom::new().fill(&mut bytes).expect("the kernel gives random bytes");
        Self(bytes)
    }

    /// What is kept of it where it is to be recognised.
    pub fn digest(&self) -> SecretDigest {
        SecretDigest(hex(digest(&SHA256, &self.0).as_ref()))
    }
}

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        decode(&text).map(Self).ok_or_else(|| serde::de::Error::custom("no secret"))
    }
}

/// Secrets are in no log.
impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}

/// The SHA-256 of a secret in hexadecimal digits. That suffices, for secrets are random and long.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SecretDigest(String);

impl fmt::Display for SecretDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The SHA-256 of an authority's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Self {
        let digest = digest(&SHA256, certificate);
        Self(digest.as_ref().try_into().expect("a SHA-256 has 32 bytes"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex(&self.0))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes in a form that survives being pasted.
pub(crate) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads what [`encode`] gives, if it is of that length.
pub(crate) fn decode<const LENGTH: usize>(text: &str) -> Option<[u8; LENGTH]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

impl FromStr for SecretDigest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_digest { Ok(Self(text.to_owned())) } else { Err(format!("{text:?} is no digest")) }
    }
}
