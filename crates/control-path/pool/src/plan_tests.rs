use std::collections::BTreeSet;

use proptest::prelude::*;
use spandrel_shared::{Place, SlabGeometry};

use super::*;
use crate::view::{DriveRoom, NodeRoom};

const SLAB_BYTES: u64 = 16 << 20;

fn node_id(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

fn drive_id(node: u8, place: u8) -> DriveId {
    let mut bytes = [0; 16];
    (bytes[0], bytes[1]) = (node, place);
    DriveId::from_bytes(bytes)
}

/// A pool of nodes with drives of these many slabs, all empty.
fn pool<Drives: AsRef<[u32]>>(nodes: &[Drives]) -> PoolView {
    let geometry = SlabGeometry::new(SLAB_BYTES).unwrap();
    let mut view = PoolView { geometry, nodes: Vec::new(), drives: Vec::new() };
    for (number, drives) in (1..).zip(nodes) {
        let node = node_id(number);
        view.nodes.push(NodeRoom {
            node,
            name: format!("node-{number}"),
            is_online: true,
            volumes_owned: 0,
            place: Place::default(),
            is_in_maintenance: false,
        });
        for (place, slabs_total) in (1..).zip(drives.as_ref()) {
            let drive = drive_id(number, place);
            view.drives.push(DriveRoom {
                drive,
                node,
                slabs_total: *slabs_total,
                slabs_used: 0,
                slabs_leaving: 0,
                is_online: true,
            });
        }
    }
    view
}

fn request(slabs: u64, copies: u8) -> VolumeRequest<'static> {
    VolumeRequest { name: "data", size_bytes: slabs * SLAB_BYTES, copies: Some(copies), owner: None }
}

/// The pool after a plan was carried out.
fn carry_out(view: &mut PoolView, plan: &Plan) {
    let per_drive = plan.copies_per_drive();
    for drive in &mut view.drives {
        drive.slabs_used += per_drive.get(&drive.drive).copied().unwrap_or(0);
    }
    let owner = view.nodes.iter_mut().find(|node| node.node == plan.owner).unwrap();
    owner.volumes_owned += 1;
}

fn node_of(view: &PoolView, drive: DriveId) -> NodeId {
    view.drives.iter().find(|known| known.drive == drive).unwrap().node
}

/// What must hold for every plan.
fn check(view: &PoolView, slabs: u64, plan: &Plan) {
    assert_eq!(plan.slabs.len() as u64, slabs);
    let mut local = 0;
    for drives in &plan.slabs {
        let nodes: Vec<NodeId> = drives.iter().map(|drive| node_of(view, *drive)).collect();
        assert_eq!(nodes.len(), usize::from(plan.copies));
        assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), nodes.len(), "two copies on a node");
        if nodes.contains(&plan.owner) {
            assert_eq!(nodes[0], plan.owner);
            local += 1;
        }
    }
    assert_eq!(local, plan.slabs_local);
    for (drive, copies) in plan.copies_per_drive() {
        let room = view.drives.iter().find(|known| known.drive == drive).unwrap();
        let node = view.nodes.iter().find(|known| known.node == room.node).unwrap();
        assert!(node.is_online && copies <= room.slabs_free(), "{copies} on {room:?}");
    }
}

/// How many copies the drives of other nodes than the owner's got, and those of the owner's.
fn others_and_owners(view: &PoolView, plan: &Plan) -> (Vec<u32>, Vec<u32>) {
    let per_drive = plan.copies_per_drive();
    let count = |drive: &DriveRoom| per_drive.get(&drive.drive).copied().unwrap_or(0);
    let (owners, others): (Vec<_>, Vec<_>) = view.drives.iter().partition(|drive| drive.node == plan.owner);
    (others.into_iter().map(count).collect(), owners.into_iter().map(count).collect())
}

fn spread(counts: &[u32]) -> u32 {
    counts.iter().max().unwrap_or(&0) - counts.iter().min().unwrap_or(&0)
}

fn any_pool() -> impl Strategy<Value = PoolView> {
    let drive = (0_u32..40, 0_u32..40, prop::bool::weighted(0.9));
    let node = (prop::collection::vec(drive, 0..5), prop::bool::weighted(0.9), 0_u32..3);
    prop::collection::vec(node, 0..7).prop_map(|nodes| {
        let mut view = pool::<&[u32]>(&[]);
        for (number, (drives, is_online, volumes_owned)) in (1..).zip(nodes) {
            let node = node_id(number);
            view.nodes.push(NodeRoom {
                node,
                name: format!("node-{number}"),
                is_online,
                volumes_owned,
                place: Place::default(),
                is_in_maintenance: false,
            });
            for (place, (slabs_total, slabs_used, is_online)) in (1..).zip(drives) {
                let drive = drive_id(number, place);
                view.drives.push(DriveRoom {
                    drive,
                    node,
                    slabs_total,
                    slabs_used,
                    slabs_leaving: 0,
                    is_online,
                });
            }
        }
        view
    })
}

proptest! {
    #[test]
    fn a_plan_is_made_exactly_if_there_is_room(
        view in any_pool(),
        slabs in 1_u64..120,
        copies in 1_u8..=3,
        owner in prop::option::of(1_u8..7),
    ) {
        let owner = owner.map(node_id);
        let wanted = VolumeRequest { owner, ..request(slabs, copies) };
        let usable = Space::of(&view).usable_slabs(copies);
        match plan_volume(&view, &wanted) {
            Ok(plan) => {
                prop_assert!(slabs <= usable);
                check(&view, slabs, &plan);
                prop_assert!(owner.is_none_or(|owner| owner == plan.owner));
            }
            Err(error) => match error.code.as_str() {
                "POOL_FULL" => prop_assert!(slabs > usable, "{error}"),
                "TOO_FEW_NODES" => prop_assert_eq!(usable, 0, "{}", error),
                "OWNER_UNKNOWN" | "OWNER_OFFLINE" => {
                    prop_assert!(!view.nodes.iter().any(|node| Some(node.node) == owner && node.is_online));
                }
                _ => prop_assert!(false, "{error}"),
            }
        }
    }

    #[test]
    fn the_order_in_which_drives_are_named_makes_no_difference(
        view in any_pool(),
        slabs in 1_u64..60,
        copies in 1_u8..=3,
        by in any::<prop::sample::Index>(),
    ) {
        let mut turned = view.clone();
        if !turned.drives.is_empty() {
            turned.drives.rotate_left(by.index(view.drives.len()));
            turned.drives.reverse();
        }
        if !turned.nodes.is_empty() {
            turned.nodes.rotate_left(by.index(view.nodes.len()));
        }
        prop_assert_eq!(plan_volume(&view, &request(slabs, copies)), plan_volume(&turned, &request(slabs, copies)));
    }

    #[test]
    fn equal_drives_are_equal_within_one(
        nodes in 1_usize..8,
        drives in 1_usize..6,
        slabs in 1_u64..300,
        copies in 1_u8..=3,
    ) {
        let sizes = vec![150; drives];
        let view = pool(&vec![&sizes[..]; nodes]);
        if let Ok(plan) = plan_volume(&view, &request(slabs, copies)) {
            let (others, owners) = others_and_owners(&view, &plan);
            prop_assert!(spread(&others) <= 1 && spread(&owners) <= 1, "{others:?} {owners:?}");
        }
    }

    /// Room that differs is used in proportion, rounded once for the node and once for the drive.
    #[test]
    fn unequal_drives_fill_up_together(view in any_pool(), slabs in 1_u64..120, copies in 1_u8..=3) {
        let Ok(plan) = plan_volume(&view, &request(slabs, copies)) else { return Ok(()) };
        let per_drive = plan.copies_per_drive();
        let copies_on = |drive: &DriveRoom| per_drive.get(&drive.drive).copied().unwrap_or(0);
        let per_node = |node: NodeId| -> u64 {
            let drives = view.drives.iter().filter(|drive| drive.node == node);
            drives.map(|drive| u64::from(copies_on(drive))).sum()
        };
        let usable = |drive: &&DriveRoom| {
            let node = view.nodes.iter().find(|node| node.node == drive.node).unwrap();
            drive.slabs_free() > 0 && node.is_online
        };
        let drives: Vec<&DriveRoom> = view.drives.iter().filter(usable).collect();
        for low in drives.iter().filter(|drive| per_node(drive.node) < slabs) {
            for high in &drives {
                let comparable = low.node == high.node || low.node != plan.owner && high.node != plan.owner;
                let excess = copies_on(high).saturating_sub(2) * low.slabs_free();
                let allowed = (copies_on(low) + 2) * high.slabs_free();
                prop_assert!(!comparable || excess <= allowed, "{low:?} {high:?} {plan:?}");
            }
        }
    }
}

#[test]
fn reads_are_local_while_the_owners_node_has_room_beyond_its_reserve() {
    let view = pool(&[&[100, 100]; 4]);
    let plan = plan_volume(&view, &request(80, 3)).unwrap();
    assert_eq!(plan.slabs_local, 80);
    let (others, owners) = others_and_owners(&view, &plan);
    assert_eq!(owners, [40, 40]);
    assert_eq!(others.iter().sum::<u32>(), 160);
    // A drive's room, 100, stays free on the owner's node; its even part of 3/4 is more from 134 on.
    assert_eq!(plan_volume(&view, &request(120, 3)).unwrap().slabs_local, 100);
    assert_eq!(plan_volume(&view, &request(200, 3)).unwrap().slabs_local, 150);
}

#[test]
fn every_node_gets_its_volumes_and_drives_fill_up_together() {
    let mut view = pool(&[&[244, 244]; 4]);
    let mut owners = Vec::new();
    while let Ok(plan) = plan_volume(&view, &request(20, 3)) {
        check(&view, 20, &plan);
        owners.push(plan.owner);
        carry_out(&mut view, &plan);
        if owners.len().is_multiple_of(4) {
            let used: Vec<u32> = view.drives.iter().map(|drive| drive.slabs_used).collect();
            assert!(spread(&used) <= 2, "after {} volumes: {used:?}", owners.len());
            assert_eq!(owners[owners.len() - 4..].iter().collect::<BTreeSet<_>>().len(), 4);
        }
    }
    assert_eq!(owners.len() as u64, 4 * 488 / 3 / 20, "not one volume less than there is room for");
}

#[test]
fn one_large_volume_is_spread_over_all_drives_in_each_part() {
    let view = pool(&[&[244, 244]; 4]);
    let plan = plan_volume(&view, &request(640, 3)).unwrap();
    for part in plan.slabs.chunks(16) {
        let used: BTreeSet<&DriveId> = part.iter().flatten().collect();
        assert_eq!(used.len(), 8, "{part:?}");
    }
}

#[test]
fn what_a_drive_holds_is_shared_with_all_drives_of_other_nodes() {
    let view = pool(&[&[244, 244]; 4]);
    let plan = plan_volume(&view, &request(320, 2)).unwrap();
    for drive in &view.drives {
        let with: BTreeSet<&DriveId> =
            plan.slabs.iter().filter(|drives| drives.contains(&drive.drive)).flatten().collect();
        assert_eq!(with.len(), 7, "itself and the six of other nodes");
    }
}

#[test]
fn the_owner_is_who_owns_fewest_and_has_room() {
    let mut view = pool(&[&[200], &[300], &[300], &[10]]);
    let owner = |view: &PoolView, slabs| plan_volume(view, &request(slabs, 2)).unwrap().owner;
    assert_eq!(owner(&view, 50), node_id(2), "most room, and before its equal");
    view.nodes[1].volumes_owned = 1;
    view.nodes[2].volumes_owned = 1;
    assert_eq!(owner(&view, 50), node_id(1));
    assert_eq!(owner(&view, 250), node_id(2), "the first has no room for all of it");
    assert_eq!(owner(&view, 5), node_id(1), "fewest, most room");
    view.nodes[0].is_online = false;
    assert_eq!(owner(&view, 5), node_id(4));
    view.nodes[3].is_in_maintenance = true;
    assert_eq!(owner(&view, 5), node_id(2), "however much it owns");
    view.nodes[3].is_in_maintenance = false;
    view.nodes.iter_mut().for_each(|node| node.is_in_maintenance = true);
    assert_eq!(owner(&view, 5), node_id(4), "there is no other");
}

#[test]
fn a_node_without_drives_can_own_but_is_not_chosen() {
    let view = pool(&[&[][..], &[100], &[100]]);
    assert_eq!(plan_volume(&view, &request(10, 2)).unwrap().owner, node_id(2));
    let asked = VolumeRequest { owner: Some(node_id(1)), ..request(10, 2) };
    let plan = plan_volume(&view, &asked).unwrap();
    assert_eq!((plan.owner, plan.slabs_local), (node_id(1), 0));
}

#[test]
fn copies_follow_the_nodes_unless_asked_for() {
    let copies = |nodes: &[[u32; 1]]| {
        let unasked = VolumeRequest { copies: None, ..request(10, 1) };
        plan_volume(&pool(nodes), &unasked).map(|plan| plan.copies).map_err(|error| error.code)
    };
    assert_eq!(copies(&[[99]; 4]), Ok(3));
    assert_eq!(copies(&[[99]; 3]), Ok(3));
    assert_eq!(copies(&[[99]; 2]), Ok(2));
    assert_eq!(copies(&[[99]]), Err("TOO_FEW_NODES".to_owned()), "a single copy has to be asked for");
}

fn refusal(view: &PoolView, wanted: &VolumeRequest<'_>) -> Error {
    plan_volume(view, wanted).unwrap_err()
}

#[test]
fn sizes_are_refused_with_their_neighbours() {
    let view = pool(&[&[99]; 3]);
    let sized = |size_bytes| refusal(&view, &VolumeRequest { size_bytes, ..request(1, 3) });
    assert_eq!(sized(0).code, "SIZE_ZERO");
    let error = sized(10_000);
    assert_eq!(error.code, "SIZE_UNALIGNED");
    assert!(error.why.contains("10000 bytes is 1808 bytes above a multiple of 4096"), "{error}");
    assert_eq!(error.next, "make it 8192 or 12288 bytes");
    assert_eq!(sized(1).next, "make it 4096 bytes");
    assert_eq!(sized(u64::MAX).next, format!("make it {} bytes", u64::MAX - 4095));
}

#[test]
fn copies_are_one_to_three() {
    let view = pool(&[&[99]; 5]);
    for copies in [0, 4, 255] {
        let error = refusal(&view, &request(1, copies));
        assert_eq!(error.code, "COPIES_INVALID");
        assert!(error.why.contains(&format!("{copies} copies")), "{error}");
    }
}

#[test]
fn too_few_nodes_are_named() {
    let mut view = pool(&[&[99][..], &[99], &[99], &[]]);
    view.nodes[1].is_online = false;
    let error = refusal(&view, &request(1, 3));
    assert_eq!(error.code, "TOO_FEW_NODES");
    assert!(error.what.contains("\"data\""), "{error}");
    assert_eq!(
        error.why,
        "its 3 copies must be on 3 different nodes, and 2 have drives that are online (node-1, node-3); \
         without: node-2, node-4"
    );
    assert!(error.next.ends_with("ask for 2 copies"), "{error}");
    view.drives[2].is_online = false;
    assert!(refusal(&view, &request(1, 2)).next.contains("1 copy, if its data may be lost"));
}

#[test]
fn a_full_pool_says_how_much_would_fit() {
    let mut view = pool(&[&[100], &[100], &[150]]);
    view.drives[0].slabs_used = 40;
    let error = refusal(&view, &request(100, 3));
    assert_eq!(error.code, "POOL_FULL");
    assert_eq!(
        error.why,
        "it needs 100 slabs of 16 MiB × 3 = 300 slab copies; 310 are free (node-1 60, node-2 100, node-3 150), \
         which is room for 60 slabs with 3 copies on different nodes: 960 MiB; no use for 40 on node-2, 90 on \
         node-3, because the other nodes have less room"
    );
    assert_eq!(
        error.next,
        "make it at most 960 MiB, or keep 2 copies, or delete volumes, or add drives to the smaller nodes"
    );
    assert!(plan_volume(&view, &request(60, 3)).is_ok());
    assert!(plan_volume(&view, &request(100, 2)).is_ok());
    let nothing = refusal(&pool(&[&[0, 1][..], &[1], &[1]]), &request(2, 3));
    assert!(nothing.next.starts_with("make it at most 16 MiB, or delete"), "{nothing}");
    let huge = VolumeRequest { size_bytes: u64::MAX - 4095, ..request(1, 3) };
    assert_eq!(refusal(&view, &huge).code, "POOL_FULL");
}

#[test]
fn an_owner_that_cannot_be_is_refused() {
    let mut view = pool(&[&[99]; 4]);
    view.nodes[2].is_online = false;
    let owned_by = |number| VolumeRequest { owner: Some(node_id(number)), ..request(1, 3) };
    let offline = refusal(&view, &owned_by(3));
    assert_eq!(offline.code, "OWNER_OFFLINE");
    assert!(offline.next.ends_with("node-1, node-2, node-4"), "{offline}");
    assert_eq!(refusal(&view, &owned_by(9)).code, "OWNER_UNKNOWN");
    view.nodes[0].is_in_maintenance = true;
    assert_eq!(refusal(&view, &owned_by(1)).code, "NODE_IN_MAINTENANCE");
}

#[test]
fn sizes_can_be_typed_in_again() {
    for (bytes, text) in
        [(0, "0 B"), (1, "1 B"), (1 << 20, "1 MiB"), (1536 << 20, "1536 MiB"), (3 << 60, "3 EiB")]
    {
        assert_eq!(exact_size(bytes), text);
    }
    assert_eq!(spandrel_shared::size::parse_size(&exact_size(6304 << 20)), Some(6304 << 20));
}

#[test]
fn nodes_in_maintenance_get_copies_only_where_the_others_do_not_suffice() {
    let mut view = pool(&[&[100]; 4]);
    view.nodes[1].is_in_maintenance = true;
    let with_room = plan_volume(&view, &request(30, 3)).unwrap();
    assert_eq!(with_room.copies_per_drive().len(), 3, "{with_room:?}");
    let needed = Warning::NodesInMaintenance { names: vec!["node-2".to_owned()] };
    assert!(!with_room.warnings.contains(&needed), "{with_room:?}");
    let unasked = VolumeRequest { copies: None, ..request(30, 3) };
    assert_eq!(plan_volume(&view, &unasked).unwrap().copies, 3);

    let without_room = plan_volume(&view, &request(110, 3)).unwrap();
    assert_eq!(without_room.copies_per_drive().len(), 4, "{without_room:?}");
    assert!(without_room.warnings.contains(&needed), "{without_room:?}");
    view.nodes[0].is_online = false;
    let too_few = plan_volume(&view, &unasked).unwrap();
    assert_eq!(too_few.copies, 3, "maintenance is no reason for fewer copies");
    assert!(too_few.warnings.contains(&needed), "{too_few:?}");
}

#[test]
fn warnings_say_what_may_not_be_wanted() {
    let mut view = pool(&[&[100, 100]; 4]);
    let codes = |view: &PoolView, slabs, copies| {
        let plan = plan_volume(view, &request(slabs, copies)).unwrap();
        plan.warnings.iter().map(Warning::code).collect::<Vec<_>>()
    };
    // 800 slab copies, 400 of them reserve.
    assert_eq!(codes(&view, 133, 3), Vec::<&str>::new());
    assert_eq!(codes(&view, 134, 3), ["BELOW_RESERVE"]);
    assert_eq!(codes(&view, 10, 1), ["SINGLE_COPY"]);
    view.nodes[3].is_online = false;
    let plan = plan_volume(&view, &request(100, 3)).unwrap();
    let texts: Vec<String> = plan.warnings.iter().map(Warning::to_string).collect();
    assert!(
        texts[0].starts_with("4.69 GiB of the pool would stay free, less than the reserve of 6.25 GiB"),
        "{texts:?}"
    );
    assert!(texts[1].contains("offline (node-4)"), "{texts:?}");
}

#[test]
fn the_largest_pool_is_planned() {
    // 16 nodes with 26 drives: 416 in all; 64 TiB in slabs of 256 MiB.
    let drives = [2000; 26];
    let view = PoolView { geometry: SlabGeometry::default(), ..pool(&[&drives[..]; 16]) };
    let wanted = VolumeRequest { size_bytes: 64 << 40, ..request(1, 3) };
    let plan = plan_volume(&view, &wanted).unwrap();
    assert_eq!(plan.slabs.len(), 262_144);
    let (others, owners) = others_and_owners(&view, &plan);
    assert!(spread(&others) <= 1 && spread(&owners) <= 1);
    assert_eq!(others.iter().chain(&owners).map(|count| u64::from(*count)).sum::<u64>(), 3 * 262_144);
}

/// A pool of nodes with a drive each, in racks of these names.
fn racks(slabs: u32, racks: &[&str]) -> PoolView {
    let mut view = pool(&racks.iter().map(|_| [slabs]).collect::<Vec<_>>());
    for (node, rack) in view.nodes.iter_mut().zip(racks) {
        node.place.rack = Some((*rack).to_owned());
    }
    view
}

fn rack_of(view: &PoolView, drive: DriveId) -> &str {
    let node = node_of(view, drive);
    let known = view.nodes.iter().find(|known| known.node == node).unwrap();
    known.place.rack.as_deref().unwrap()
}

#[test]
fn copies_are_kept_in_different_racks_where_there_are_enough_and_room() {
    let view = racks(100, &["a", "a", "a", "b", "b", "c"]);
    for (copies, apart_by) in [(2, FaultDomain::Rack), (3, FaultDomain::Rack), (1, FaultDomain::Rack)] {
        let plan = plan_volume(&view, &request(60, copies)).unwrap();
        check(&view, 60, &plan);
        assert_eq!(plan.apart_by, apart_by);
        for drives in &plan.slabs {
            let racks: BTreeSet<&str> = drives.iter().map(|drive| rack_of(&view, *drive)).collect();
            assert_eq!(racks.len(), usize::from(copies), "{drives:?}");
        }
    }
    // Rack c has room for a hundred slabs, and each of three copies needs it.
    let plan = plan_volume(&view, &request(120, 3)).unwrap();
    check(&view, 120, &plan);
    assert_eq!(plan.apart_by, FaultDomain::Node);
    let not_apart = Warning::NotApart { wanted: FaultDomain::Rack, apart_by: FaultDomain::Node };
    assert!(plan.warnings.contains(&not_apart), "{:?}", plan.warnings);
    assert!(not_apart.to_string().contains("on different nodes, and not on different racks"), "{not_apart}");
}

#[test]
fn of_two_racks_three_copies_are_kept_on_three_nodes() {
    let view = racks(100, &["a", "a", "b", "b"]);
    let plan = plan_volume(&view, &request(30, 3)).unwrap();
    check(&view, 30, &plan);
    assert_eq!(plan.apart_by, FaultDomain::Node);
    assert!(!plan.warnings.iter().any(|warning| warning.code() == "NOT_APART"), "there is no wider way");
}

#[test]
fn one_copy_stays_with_the_owner_whatever_rack_it_is_in() {
    let mut view = racks(100, &["a", "a", "b", "b", "c", "c"]);
    for number in 1..=6 {
        let wanted = VolumeRequest { owner: Some(node_id(number)), ..request(40, 3) };
        let plan = plan_volume(&view, &wanted).unwrap();
        check(&view, 40, &plan);
        // Of its rack's forty copies it takes its half: a drive's worth of room is to stay free there.
        assert_eq!(plan.slabs_local, 20);
    }
    // With a second drive there is room enough for all of them.
    view.drives.push(DriveRoom { drive: drive_id(1, 9), ..view.drives[0] });
    let plan = plan_volume(&view, &VolumeRequest { owner: Some(node_id(1)), ..request(40, 3) }).unwrap();
    check(&view, 40, &plan);
    assert_eq!((plan.slabs_local, plan.apart_by), (40, FaultDomain::Rack));
}

proptest! {
    /// With labels, too: as a plan without them would be, or better.
    #[test]
    fn a_plan_with_labels_is_made_exactly_if_there_is_room(
        view in any_pool(),
        labels in prop::collection::vec((0_u8..3, 0_u8..3), 7),
        slabs in 1_u64..120,
        copies in 1_u8..=3,
    ) {
        let mut labelled = view.clone();
        for (node, (site, rack)) in labelled.nodes.iter_mut().zip(labels) {
            (node.place.site, node.place.rack) = (Some(format!("s{site}")), Some(format!("r{rack}")));
        }
        let (plain, plan) =
            (plan_volume(&view, &request(slabs, copies)), plan_volume(&labelled, &request(slabs, copies)));
        prop_assert_eq!(plain.is_ok(), plan.is_ok());
        if let Ok(plan) = plan {
            check(&labelled, slabs, &plan);
            let domains = labelled.domains(plan.apart_by);
            for drives in &plan.slabs {
                let apart: BTreeSet<usize> =
                    drives.iter().map(|drive| domains[&node_of(&labelled, *drive)]).collect();
                prop_assert_eq!(apart.len(), drives.len());
            }
        }
    }
}
