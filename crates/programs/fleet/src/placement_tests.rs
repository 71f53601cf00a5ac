use super::*;

fn apart(placements: &[Placement]) -> usize {
    placements.iter().filter(|placement| placement.client != placement.owner).count()
}

#[test]
fn as_many_clients_are_aligned_as_are_wanted() {
    for nodes in 2..=16 {
        for clients in [1, 3, 16, 100, 256] {
            for aligned in [0, 1, 30, 70, 99, 100] {
                let placed = placements(clients, nodes, aligned);
                let wanted = clients as f64 * (100.0 - f64::from(aligned)) / 100.0;
                let found = apart(&placed) as f64;
                assert!((found - wanted).abs() <= 0.5, "{clients} on {nodes}, {aligned} %: {found}");
                assert!(placed.iter().all(|placement| placement.client < nodes && placement.owner < nodes));
            }
        }
    }
}

#[test]
fn clients_and_owners_are_spread_over_all_nodes() {
    for aligned in [0, 70, 100] {
        let placed = placements(100, 4, aligned);
        for node in 0..4 {
            let of = |side: fn(&Placement) -> usize| placed.iter().filter(|one| side(one) == node).count();
            assert_eq!(of(|one| one.client), 25, "{aligned} %");
            assert!(of(|one| one.owner).abs_diff(25) <= 3, "{aligned} %: {placed:?}");
        }
        let per_node = (0..4).map(|node| {
            let of_node: Vec<Placement> = placed.iter().copied().filter(|one| one.client == node).collect();
            apart(&of_node)
        });
        let (least, most) = (per_node.clone().min(), per_node.max());
        assert!(most <= least.map(|least| least + 1), "{aligned} %: {least:?} to {most:?}");
    }
}

/// The least and the most that a node owns are as near as they can be, or one apart from that.
#[test]
fn no_node_owns_many_more_volumes_than_another() {
    for nodes in 2..=16 {
        for clients in [nodes, 2 * nodes, 100, 256] {
            for aligned in [0, 30, 70] {
                let placed = placements(clients, nodes, aligned);
                let owned = |node: usize| placed.iter().filter(|one| one.owner == node).count();
                let counts: Vec<usize> = (0..nodes).map(owned).collect();
                let (least, most) = (counts.iter().min(), counts.iter().max());
                assert!(
                    most <= least.map(|least| least + 2).as_ref(),
                    "{clients} on {nodes}, {aligned} %: {counts:?}"
                );
            }
        }
    }
}

#[test]
fn clients_of_one_node_alone_are_aligned() {
    assert_eq!(placements(3, 1, 0), [Placement { client: 0, owner: 0 }; 3]);
    assert_eq!(placements(0, 3, 50), []);
}
