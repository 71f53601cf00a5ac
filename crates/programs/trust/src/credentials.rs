//! With what a node proves who it is.

use std::collections::BTreeSet;
use std::sync::Arc;

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData as _};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use spandrel_platform::Address;
use spandrel_platform_tls::TlsSettings;
use spandrel_shared::{ClusterId, Error};

use crate::authority::fingerprint_of;
use crate::{Fingerprint, HOLDER_ENDING, common_name};

/// A holder's own key pair, on the curve P-256.
pub struct HolderKey(KeyPair);

impl HolderKey {
    /// A new one.
    pub fn generate() -> Result<Self, Error> {
        KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map(Self).map_err(unusable)
    }

    /// The one whose private key this is, in PEM.
    pub fn load(pem: &str) -> Result<Self, Error> {
        KeyPair::from_pem_and_sign_algo(pem, &PKCS_ECDSA_P256_SHA256).map(Self).map_err(unusable)
    }

    /// What may be shown to others, as [`crate::Holder`] wants it.
    pub fn public(&self) -> Vec<u8> {
        self.0.der_bytes().to_vec()
    }

    /// What it signs with.
    pub(crate) fn pair(&self) -> &KeyPair {
        &self.0
    }

    /// The private key, in PEM.
    pub fn pem(&self) -> String {
        self.0.serialize_pem()
    }
}

/// All that a member of a cluster needs to speak to the others.
#[derive(Clone)]
pub struct Credentials {
    /// The cluster.
    pub cluster: ClusterId,
    /// The authority's certificate, in PEM.
    pub authority_pem: String,
    /// The member's own certificate, in PEM.
    pub certificate_pem: String,
    /// Its private key, in PEM.
    pub key_pem: String,
}

impl Credentials {
    /// The authority's fingerprint.
    pub fn fingerprint(&self) -> Result<Fingerprint, Error> {
        fingerprint_of(&self.authority_pem)
    }

    /// For connections to other members.
    pub fn client(&self) -> Result<ClientConfig, Error> {
        let verifier = WebPkiServerVerifier::builder_with_provider(self.roots()?, provider()).build();
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unusable)?
            .with_webpki_verifier(verifier.map_err(unusable)?);
        let mut config = builder.with_client_auth_cert(self.chain()?, self.key()?).map_err(unusable)?;
        config.resumption = rustls::client::Resumption::disabled();
        Ok(config)
    }

    /// For connections of other members. With `strangers` those without a certificate are let in too, who must show
    /// a token.
    pub fn server(&self, strangers: bool) -> Result<ServerConfig, Error> {
        let mut verifier = WebPkiClientVerifier::builder_with_provider(self.roots()?, provider());
        if strangers {
            verifier = verifier.allow_unauthenticated();
        }
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(verifier.build().map_err(unusable)?);
        let mut config = builder.with_single_cert(self.chain()?, self.key()?).map_err(unusable)?;
        // Sessions live long; nothing is gained by making the next one quicker.
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// For a platform that listens at `secured`.
    pub fn platform(&self, secured: BTreeSet<Address>) -> Result<TlsSettings, Error> {
        Ok(TlsSettings {
            client: Arc::new(self.client()?),
            server: Arc::new(self.server(false)?),
            common_name: self.common_name()?,
            own_name_ending: HOLDER_ENDING.to_owned(),
            secured,
        })
    }

    /// The name that every certificate of the cluster carries.
    pub fn common_name(&self) -> Result<ServerName<'static>, Error> {
        ServerName::try_from(common_name(self.cluster)).map_err(unusable)
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, Error> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.authority_pem.as_bytes()).map_err(unusable)?;
        roots.add(authority).map_err(unusable)?;
        Ok(Arc::new(roots))
    }

    /// The own certificate and the authority's, so that who knows only its fingerprint can check it.
    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        let each = [&self.certificate_pem, &self.authority_pem]
            .map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()));
        each.into_iter().collect::<Result<_, _>>().map_err(unusable)
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, Error> {
        PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(unusable)
    }
}

/// The cryptography that all of the program uses.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

pub(crate) fn unusable(error: impl std::fmt::Display) -> Error {
    Error::new(
        "CREDENTIALS_UNUSABLE",
        "this node's keys and certificates cannot be used",
        error.to_string(),
        "if a file below the node's pki folder was changed, put it back as it was; else let the node join anew",
    )
}

#[cfg(test)]
#[path = "credentials_tests.rs"]
mod tests;
