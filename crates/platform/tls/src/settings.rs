//! With what this side proves who it is, and what it asks of the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ServerConfig};
use spandrel_platform::Address;
use webpki::EndEntityCert;

/// How a platform secures its connections. Cheap to clone and to send to other threads.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// For connections that this side makes. It must show a certificate, and know the authority.
    pub client: Arc<ClientConfig>,
    /// For connections that arrive. It must demand a certificate of the authority.
    pub server: Arc<ServerConfig>,
    /// A name that every certificate of the authority carries besides the holder's own.
    pub common_name: ServerName<'static>,
    /// What the holder's own name ends with in its certificate. It is told without this ending.
    pub own_name_ending: String,
    /// The TCP addresses at which this side listens with TLS.
    pub secured: BTreeSet<Address>,
}

impl TlsSettings {
    /// The name that the holder of a certificate has for itself. None if it has none.
    pub(crate) fn holder(&self, certificate: &CertificateDer<'_>) -> Option<String> {
        holder_of(certificate, &self.own_name_ending)
    }
}

/// The name in a certificate that ends with `ending`, without that. None if it has none.
pub fn holder_of(certificate: &CertificateDer<'_>, ending: &str) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let mut names = certificate.valid_dns_names();
    names.find_map(|name| name.strip_suffix(ending)).map(str::to_owned)
}
