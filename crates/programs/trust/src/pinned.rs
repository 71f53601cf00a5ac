//! Connections of those who know nothing of a cluster but its authority's fingerprint.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};
use spandrel_shared::Error;

use crate::Fingerprint;
use crate::credentials::{provider, unusable};

/// For connections to whoever shows a certificate of the authority with this fingerprint, for the name that is asked
/// for.
pub fn pinned_client(authority: Fingerprint) -> Result<ClientConfig, Error> {
    client_of(Pinned { authority, checks_name: true, provider: provider() })
}

/// For connections to whoever shows a certificate of the authority with this fingerprint, whatever its name is: for
/// those who do not know which cluster it is, as the bearers of access tokens. An authority signs certificates of its
/// own cluster's servers and no others, so the name says nothing that the signature does not.
pub fn pinned_client_of_any_name(authority: Fingerprint) -> Result<ClientConfig, Error> {
    client_of(Pinned { authority, checks_name: false, provider: provider() })
}

fn client_of(verifier: Pinned) -> Result<ClientConfig, Error> {
    let verifier = Arc::new(verifier);
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(unusable)?
        // What is checked is more than a usual client checks, not less.
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    Ok(builder.with_no_client_auth())
}

/// Trusts the authority with this fingerprint, which the other side must show beside its own certificate.
#[derive(Debug)]
struct Pinned {
    authority: Fingerprint,
    checks_name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let authority = intermediates.iter().find(|one| Fingerprint::of(one) == self.authority);
        let authority = authority.ok_or(CertificateError::UnknownIssuer)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        if !self.checks_name {
            verify_server_cert_signed_by_trust_anchor(
                &ParsedCertificate::try_from(end_entity)?,
                &roots,
                &[],
                now,
                self.provider.signature_verification_algorithms.all,
            )?;
            return Ok(ServerCertVerified::assertion());
        }
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider));
        let verifier = verifier.build().map_err(|error| TlsError::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
