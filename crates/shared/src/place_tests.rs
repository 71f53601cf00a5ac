//! Tests of which servers share what.

use super::{FaultDomain, Place};

fn place(site: &str, rack: &str, chassis: &str) -> Place {
    let label = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Place { site: label(site), rack: label(rack), chassis: label(chassis) }
}

#[test]
fn a_rack_is_one_of_its_site_and_a_chassis_of_its_rack() {
    let path = |place: &Place, domain| place.path(domain, &FaultDomain::LABELLED);
    assert_eq!(path(&place("s1", "r1", ""), FaultDomain::Rack).as_deref(), Some("s1/r1"));
    assert_ne!(
        path(&place("s1", "r1", ""), FaultDomain::Rack),
        path(&place("s2", "r1", ""), FaultDomain::Rack)
    );
    assert_eq!(path(&place("", "r1", ""), FaultDomain::Rack).as_deref(), Some("/r1"));
    assert_eq!(path(&place("s1", "", "c"), FaultDomain::Rack), None, "it has none");
    assert_eq!(path(&place("s1", "r1", "c1"), FaultDomain::Chassis).as_deref(), Some("s1/r1/c1"));
    assert_eq!(path(&place("s1", "r1", "c1"), FaultDomain::Site).as_deref(), Some("s1"));
    assert_eq!(path(&place("s1", "r1", "c1"), FaultDomain::Node), None, "a node needs no label");
    let within_sites = place("s1", "r1", "c1").path(FaultDomain::Chassis, &[FaultDomain::Site]);
    assert_eq!(within_sites.as_deref(), Some("s1/c1"), "of racks nothing is said");
}

#[test]
fn labels_are_shown_from_the_widest_and_are_names() {
    assert_eq!(place("s1", "", "c2").to_string(), "site s1, chassis c2");
    assert_eq!(Place::default().to_string(), "");
    assert!(place("s1", "r-2", "").validate().is_ok());
    assert_eq!(place("s1", "a/b", "").validate().unwrap_err().code, "NAME_INVALID");
    assert!(FaultDomain::Site > FaultDomain::Rack && FaultDomain::Chassis > FaultDomain::Node);
}
