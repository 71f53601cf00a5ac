//! Authorities and their holders, for tests.

use std::collections::BTreeSet;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite, Tls13CipherSuite};
use spandrel_platform::Address;

use crate::TlsSettings;

/// What each test's holders are called behind their names.
pub(crate) const ENDING: &str = ".node.test";

/// An authority.
pub(crate) struct TestAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    common_name: String,
    provider: Arc<CryptoProvider>,
}

impl TestAuthority {
    pub(crate) fn new(common_name: &str) -> Self {
        Self::with_provider(common_name, ring::default_provider())
    }

    /// One whose holders renew their keys after so many records.
    pub(crate) fn with_short_keys(common_name: &str, records: u64) -> Self {
        let usual = ring::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().expect("it is one of TLS 1.3");
        let mut suite = Tls13CipherSuite {
            common: rustls::CipherSuiteCommon { ..usual.common },
            hkdf_provider: usual.hkdf_provider,
            aead_alg: usual.aead_alg,
            quic: None,
        };
        suite.common.confidentiality_limit = records;
        let suite = SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)));
        let provider = CryptoProvider { cipher_suites: vec![suite], ..ring::default_provider() };
        Self::with_provider(common_name, provider)
    }

    fn with_provider(common_name: &str, provider: CryptoProvider) -> Self {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
        Self { issuer, common_name: common_name.to_owned(), provider: Arc::new(provider) }
    }

    /// A holder, who trusts `trusted`, and listens with TLS at `secured`.
    pub(crate) fn holder(&self, name: &str, trusted: &TestAuthority, secured: &[Address]) -> TlsSettings {
        let key = KeyPair::generate().unwrap();
        let names = vec![self.common_name.clone(), format!("{name}{ENDING}")];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        let chain = vec![certificate.der().clone()];
        let private = || PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let roots = trusted.roots();
        let versions = &[&rustls::version::TLS13];
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&self.provider));
        let client = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_webpki_verifier(verifier.build().unwrap())
            .with_client_auth_cert(chain.clone(), private())
            .unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&self.provider));
        let server = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(chain, private())
            .unwrap();
        TlsSettings {
            client: Arc::new(client),
            server: Arc::new(server),
            common_name: ServerName::try_from(trusted.common_name.clone()).unwrap(),
            own_name_ending: ENDING.to_owned(),
            secured: BTreeSet::from_iter(secured.iter().cloned()),
        }
    }

    /// The same without a certificate to show where it connects.
    pub(crate) fn stranger(&self, trusted: &TestAuthority) -> TlsSettings {
        let mut settings = self.holder("stranger", trusted, &[]);
        let verifier =
            WebPkiServerVerifier::builder_with_provider(trusted.roots(), Arc::clone(&self.provider));
        let client = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_webpki_verifier(verifier.build().unwrap())
            .with_no_client_auth();
        settings.client = Arc::new(client);
        settings
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        Arc::new(roots)
    }
}
