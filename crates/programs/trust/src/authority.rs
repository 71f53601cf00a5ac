//! The authority that signs for everybody who belongs to a cluster.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SignatureAlgorithm,
    date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use spandrel_shared::{ClusterId, Error, NodeId};

use crate::revocation::serial_of;
use crate::secret::Fingerprint;
use crate::{common_name, holder_name};

/// The years that a certificate holds. Who no longer belongs to a cluster is refused by its state, not by a date; and
/// a server whose clock is wrong after a start must be able to speak.
pub(crate) const VALID_FROM_YEAR: i32 = 1970;
pub(crate) const VALID_UNTIL_YEAR: i32 = 2120;

/// Signs for those who belong to a cluster.
pub struct Authority {
    cluster: ClusterId,
    certificate_pem: String,
    key: KeyPair,
}

/// Who a certificate is for.
pub struct Holder<'a> {
    /// The node or witness.
    pub node: NodeId,
    /// Its public key: the point on the curve P-256, uncompressed.
    pub key: &'a [u8],
    /// The addresses at which it is spoken to and from which it speaks. etcd compares them.
    pub addresses: &'a [IpAddr],
}

/// A holder's key as rcgen wants it.
struct PublicKey<'a>(&'a [u8]);

impl PublicKeyData for PublicKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl Authority {
    /// A new cluster's.
    pub fn create(cluster: ClusterId) -> Result<Self, Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let certificate = parameters(cluster).self_signed(&key).map_err(failed)?;
        Ok(Self { cluster, certificate_pem: certificate.pem(), key })
    }

    /// The one whose certificate and private key these are, in PEM.
    pub fn load(cluster: ClusterId, certificate_pem: String, key_pem: &str) -> Result<Self, Error> {
        let key = KeyPair::from_pem(key_pem).map_err(failed)?;
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(failed)?;
        if !certificate.windows(key.der_bytes().len()).any(|window| window == key.der_bytes()) {
            return Err(failed("the authority's key is not that of its certificate"));
        }
        Ok(Self { cluster, certificate_pem, key })
    }

    /// Its certificate, in PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Its private key, in PEM.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// By which others know it.
    pub fn fingerprint(&self) -> Result<Fingerprint, Error> {
        fingerprint_of(&self.certificate_pem)
    }

    /// A certificate for `holder`, in PEM.
    pub fn issue(&self, holder: &Holder<'_>) -> Result<String, Error> {
        let mut parameters =
            CertificateParams::new(vec![common_name(self.cluster), holder_name(holder.node)])
                .map_err(failed)?;
        parameters.subject_alt_names.extend(holder.addresses.iter().map(|ip| SanType::IpAddress(*ip)));
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, holder_name(holder.node));
        set_validity(&mut parameters);
        parameters.serial_number = Some(serial_of(holder.node));
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        parameters.use_authority_key_identifier_extension = true;
        let issuer = Issuer::new(self::parameters(self.cluster), &self.key);
        let certificate = parameters.signed_by(&PublicKey(holder.key), &issuer).map_err(failed)?;
        Ok(certificate.pem())
    }
}

/// The fingerprint of a certificate in PEM.
pub(crate) fn fingerprint_of(certificate_pem: &str) -> Result<Fingerprint, Error> {
    let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(failed)?;
    Ok(Fingerprint::of(&certificate))
}

fn set_validity(parameters: &mut CertificateParams) {
    parameters.not_before = date_time_ymd(VALID_FROM_YEAR, 1, 1);
    parameters.not_after = date_time_ymd(VALID_UNTIL_YEAR, 1, 1);
}

pub(crate) fn parameters(cluster: ClusterId) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, common_name(cluster));
    set_validity(&mut parameters);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

pub(crate) fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(
        "CERTIFICATE_NOT_MADE",
        "a certificate cannot be made or read",
        error.to_string(),
        "if a file below the node's pki folder was changed, put it back as it was",
    )
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
