use spandrel_shared::Place;

use super::*;
use crate::testing::pool;

/// Nodes with a drive each, in these racks; an empty name is none.
fn racks(names: &[&str]) -> PoolView {
    let mut view = pool(&names.iter().map(|_| [10]).collect::<Vec<_>>());
    for (node, rack) in view.nodes.iter_mut().zip(names) {
        node.place = Place { rack: (!rack.is_empty()).then(|| (*rack).to_owned()), ..Place::default() };
    }
    view
}

#[test]
fn a_level_counts_if_every_node_has_its_label_and_there_are_enough() {
    let (rack, node) = (FaultDomain::Rack, FaultDomain::Node);
    assert_eq!(racks(&["", "", ""]).levels(2), [node]);
    assert_eq!(racks(&["a", "a", "b"]).levels(2), [rack, node]);
    assert_eq!(racks(&["a", "a", "b"]).levels(3), [node], "two are not enough for three copies");
    assert_eq!(racks(&["a", "b", "c"]).levels(3), [rack, node]);
    assert_eq!(racks(&["a", "b", ""]).levels(2), [node], "who knows where the third one stands");
    let mut without_drives = racks(&["a", "b", ""]);
    without_drives.drives.pop();
    assert_eq!(without_drives.levels(2), [rack, node], "nothing is placed there");
    let mut away = racks(&["a", "a", "b"]);
    away.nodes[2].is_online = false;
    assert_eq!(away.levels(2), [node], "nothing can be placed in the second rack");
}

#[test]
fn all_nodes_of_a_domain_are_in_it_and_each_drive_is_in_one() {
    let view = racks(&["a", "b", "a", "c"]);
    let domains = view.by_domain(FaultDomain::Rack);
    let sizes: Vec<usize> = domains.iter().map(|domain| domain.drives.len()).collect();
    assert_eq!(sizes, [2, 1, 1]);
    let salts: BTreeSet<u64> = domains.iter().map(|domain| domain.salt).collect();
    assert_eq!(salts.len(), 3);
    let numbers = view.domains(FaultDomain::Rack);
    let number = |index: usize| numbers[&view.nodes[index].node];
    assert!(number(0) == number(2) && number(0) != number(1) && number(1) != number(3));
    assert_eq!(view.by_domain(FaultDomain::Node).len(), 4);
}

#[test]
fn an_offline_node_offers_no_room_in_its_domain() {
    let mut view = racks(&["a", "a", "b"]);
    view.nodes[0].is_online = false;
    let free: Vec<u64> = view.by_domain(FaultDomain::Rack).iter().map(Domain::slabs_free).collect();
    assert_eq!(free, [10, 10]);
}

/// Sites are set node by node. A rack whose site is not known yet is not another one than that of the same name.
#[test]
fn a_rack_is_one_whether_all_its_nodes_have_a_site_or_not() {
    let mut view = racks(&["a", "a", "b", "b"]);
    let racks = |view: &PoolView| view.by_domain(FaultDomain::Rack).len();
    for labelled in 0..4 {
        assert_eq!(view.levels(2), [FaultDomain::Rack, FaultDomain::Node], "{labelled} have a site");
        assert_eq!(view.levels(3), [FaultDomain::Node], "{labelled} have a site: there are two racks");
        assert_eq!(racks(&view), 2, "{labelled} have a site");
        view.nodes[labelled].place.site = Some(if labelled % 2 == 0 { "s1" } else { "s2" }.to_owned());
    }
    assert_eq!(racks(&view), 4, "now all racks are told apart");
    assert_eq!(view.levels(2), [FaultDomain::Site, FaultDomain::Rack, FaultDomain::Node]);
}
