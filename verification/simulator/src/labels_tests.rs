use std::collections::BTreeSet;

use super::*;

#[test]
fn a_label_is_one_that_the_world_has() {
    for seed in 0..500 {
        let random = Random::new(seed);
        let Some(domains) = Domains::draw(&random) else { continue };
        let labels: Vec<Labels> = (0..10).map(|_| domains.labels(&random)).collect();
        for Labels { site, rack, chassis } in labels {
            assert!(site <= domains.sites && rack <= domains.racks && chassis <= domains.chassis);
        }
    }
}

#[test]
fn servers_share_labels_and_some_have_none() {
    let random = Random::new(1);
    let domains = Domains { sites: 2, racks: 0, chassis: 1 };
    let places: Vec<Place> = (0..500).map(|_| domains.labels(&random).place()).collect();
    let sites: BTreeSet<Option<&str>> = places.iter().map(|place| place.site.as_deref()).collect();
    assert_eq!(sites, BTreeSet::from([None, Some("s1"), Some("s2")]));
    assert!(places.iter().all(|place| place.rack.is_none()));
    assert!(places.iter().any(|place| place.chassis.as_deref() == Some("c1")));
    assert!(places.iter().all(|place| place.validate().is_ok()));
}
