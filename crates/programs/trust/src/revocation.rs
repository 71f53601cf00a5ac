//! The list of certificates that count no more, for etcd, which cannot ask the cluster's state.
//!
//! A certificate's serial number is its holder's identity. etcd reads the list at every connection and compares
//! serial numbers; it asks nothing about who has signed the list, which is a file of its own server. So each server
//! signs its own, and none needs the authority's key for that.

use std::collections::BTreeSet;

use rcgen::{
    CertificateRevocationListParams, Issuer, KeyIdMethod, RevocationReason, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use spandrel_shared::{ClusterId, Error, NodeId};

use crate::HolderKey;
use crate::authority::{VALID_FROM_YEAR, VALID_UNTIL_YEAR, failed, parameters};

/// The serial number of a holder's certificate.
pub(crate) fn serial_of(holder: NodeId) -> SerialNumber {
    SerialNumber::from_slice(&holder.to_bytes())
}

/// A list with the certificates of all who were `removed`, in DER, which every version of etcd reads (PEM only those
/// before 3.6), signed with the key of whoever is to read it.
pub fn revocation_list(
    cluster: ClusterId,
    key: &HolderKey,
    removed: &BTreeSet<NodeId>,
) -> Result<Vec<u8>, Error> {
    let each = removed.iter().map(|holder| RevokedCertParams {
        serial_number: serial_of(*holder),
        revocation_time: date_time_ymd(VALID_FROM_YEAR, 1, 1),
        reason_code: Some(RevocationReason::CessationOfOperation),
        invalidity_date: None,
    });
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(VALID_FROM_YEAR, 1, 1),
        next_update: date_time_ymd(VALID_UNTIL_YEAR, 1, 1),
        crl_number: SerialNumber::from(removed.len() as u64),
        issuing_distribution_point: None,
        revoked_certs: each.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let issuer = Issuer::new(parameters(cluster), key.pair());
    list.signed_by(&issuer).map(|list| list.der().to_vec()).map_err(failed)
}
