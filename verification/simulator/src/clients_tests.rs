use super::*;
use crate::shape::Shape;

/// The volumes of many worlds, as clients see them.
fn volumes() -> impl Iterator<Item = ClientVolume> {
    (0..500).flat_map(|seed| {
        let shape = Shape::of_seed(seed);
        let volume = move |(number, volume): (usize, &VolumeShape)| {
            let random = Random::stream(seed, "zones", number as u64);
            ClientVolume::new("v", volume, shape.load, World::new(0), &random)
        };
        Shape::of_seed(seed).volumes.iter().enumerate().map(volume).collect::<Vec<_>>()
    })
}

#[test]
fn zones_lie_within_the_volume_on_whole_blocks() {
    for volume in volumes() {
        assert!(!volume.zones.borrow().is_empty());
        for zone in &*volume.zones.borrow() {
            assert!(zone.start < zone.end && zone.end <= volume.sectors.get(), "{zone:?}");
            assert!(zone.start.is_multiple_of(BLOCK_SECTORS) && zone.end.is_multiple_of(BLOCK_SECTORS));
        }
    }
}

#[test]
fn zones_reach_both_ends_and_borders_of_pages() {
    let volumes: Vec<ClientVolume> = volumes().collect();
    let some = |is_there: &dyn Fn(&ClientVolume, &Range<u64>) -> bool| {
        volumes.iter().any(|volume| volume.zones.borrow().iter().any(|zone| is_there(volume, zone)))
    };
    assert!(some(&|_, zone| zone.start == 0));
    assert!(some(&|volume, zone| zone.end == volume.sectors.get()));
    assert!(some(&|_, zone| zone.start / PAGE_SECTORS < (zone.end - 1) / PAGE_SECTORS));
}

#[test]
fn choices_lie_within_the_volume() {
    for (volume, seed) in volumes().zip(0..) {
        let random = Random::new(seed);
        for _ in 0..200 {
            let Choice { sectors, .. } = volume.choose(&random, volume.sectors.get());
            assert!(sectors.start < sectors.end && sectors.end <= volume.sectors.get(), "{sectors:?}");
            let starts_in = |zone: &Range<u64>| zone.contains(&sectors.start);
            assert!(volume.zones.borrow().iter().any(starts_in), "{sectors:?} begins in no zone");
        }
    }
}

#[test]
fn a_load_is_what_it_says() {
    let shape = Shape::of_seed(1);
    let kinds = |change_per_mille, trim_per_mille, zero_per_mille| {
        let load = Load { change_per_mille, trim_per_mille, zero_per_mille, ..shape.load };
        let volume = ClientVolume::new("v", &shape.volumes[0], load, World::new(0), &Random::new(1));
        let random = Random::new(2);
        let mut kinds: Vec<Kind> =
            (0..300).map(|_| volume.choose(&random, volume.sectors.get()).kind).collect();
        kinds.sort_by_key(|kind| *kind as u8);
        kinds.dedup();
        kinds
    };
    assert_eq!(kinds(0, 500, 500), [Kind::Read]);
    assert_eq!(kinds(1000, 1000, 0), [Kind::Trim]);
    assert_eq!(kinds(1000, 0, 1000), [Kind::Zero]);
    assert_eq!(kinds(1000, 0, 0), [Kind::Write]);
    assert_eq!(kinds(500, 500, 500), [Kind::Read, Kind::Write, Kind::Trim, Kind::Zero]);
}

#[test]
fn whole_blocks_only_where_parts_are_left_out() {
    for mut volume in volumes().take(100) {
        volume.load.partial_per_mille = 0;
        let random = Random::new(3);
        for _ in 0..100 {
            let sectors = volume.choose(&random, volume.sectors.get()).sectors;
            assert!(sectors.start.is_multiple_of(BLOCK_SECTORS) && sectors.end.is_multiple_of(BLOCK_SECTORS));
        }
    }
}

#[test]
fn the_first_complaint_is_kept() {
    let volume = volumes().next().expect("every world has a volume");
    volume.complain("one".to_owned());
    volume.complain("two".to_owned());
    assert_eq!(volume.complaint.take().as_deref(), Some("volume v: one"));
}

#[test]
fn clients_go_to_both_ends_of_what_came_as_far_as_they_see_it() {
    let shape = VolumeShape { slabs: 1, copies: 2 };
    let load = Shape::of_seed(1).load;
    let random = Random::new(1);
    let volume = ClientVolume::new("v", &shape, load, World::new(0), &random);
    let (former, grown) = (volume.sectors.get(), volume.sectors.get() + 100 * BLOCK_SECTORS);
    let choices: Vec<Choice> = (0..1000).map(|_| volume.choose(&random, grown)).collect();
    let some = |there: Range<u64>| choices.iter().any(|choice| there.contains(&choice.sectors.start));
    assert!(some(former..former + GROWN_ZONE_BLOCKS * BLOCK_SECTORS) && some(grown - BLOCK_SECTORS..grown));
    assert!(choices.iter().all(|choice| choice.sectors.end <= grown));
    let seen_before = (0..1000).map(|_| volume.choose(&random, former));
    assert!(seen_before.into_iter().all(|choice| choice.sectors.end <= former));
}
