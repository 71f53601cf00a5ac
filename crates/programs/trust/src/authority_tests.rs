use spandrel_platform_tls::holder_of;
use webpki::EndEntityCert;

use super::*;
use crate::{HOLDER_ENDING, HolderKey};

fn cluster() -> ClusterId {
    ClusterId::from_random(1, 2)
}

#[test]
fn a_certificate_names_its_holder_the_cluster_and_the_addresses() {
    let authority = Authority::create(cluster()).unwrap();
    let (key, node) = (HolderKey::generate().unwrap(), NodeId::from_random(3, 4));
    let addresses = ["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
    let pem = authority.issue(&Holder { node, key: &key.public(), addresses: &addresses }).unwrap();
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    assert_eq!(holder_of(&certificate, HOLDER_ENDING), Some(node.to_string()));
    let parsed = EndEntityCert::try_from(&certificate).unwrap();
    for name in [common_name(cluster()), holder_name(node), "192.0.2.7".to_owned(), "2001:db8::7".to_owned()]
    {
        let name = rustls::pki_types::ServerName::try_from(name).unwrap();
        parsed.verify_is_valid_for_subject_name(&name).unwrap();
    }
    let other = rustls::pki_types::ServerName::try_from("192.0.2.8").unwrap();
    assert!(parsed.verify_is_valid_for_subject_name(&other).is_err());
}

#[test]
fn an_authority_that_was_stored_is_the_same_one() {
    let authority = Authority::create(cluster()).unwrap();
    let stored = (authority.certificate_pem().to_owned(), authority.key_pem());
    let loaded = Authority::load(cluster(), stored.0, &stored.1).unwrap();
    assert_eq!(loaded.fingerprint().unwrap(), authority.fingerprint().unwrap());
    assert_ne!(loaded.fingerprint().unwrap(), Authority::create(cluster()).unwrap().fingerprint().unwrap());
    let other = Authority::create(cluster()).unwrap().key_pem();
    assert!(Authority::load(cluster(), authority.certificate_pem().to_owned(), &other).is_err());
    assert_eq!(
        Authority::load(cluster(), String::new(), "no key").err().map(|error| error.code.to_string()),
        Some("CERTIFICATE_NOT_MADE".to_owned())
    );
}
