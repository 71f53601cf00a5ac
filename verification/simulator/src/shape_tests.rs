use std::collections::BTreeSet;

use super::*;

const SEEDS: u64 = 2000;

fn shapes() -> impl Iterator<Item = (u64, Shape)> {
    (0..SEEDS).map(|seed| (seed, Shape::of_seed(seed)))
}

#[test]
fn a_seed_is_always_the_same_world() {
    assert!((0..100).all(|seed| Shape::of_seed(seed) == Shape::of_seed(seed)));
    assert_ne!(Shape::of_seed(1), Shape::of_seed(2));
}

#[test]
fn worlds_have_two_servers_or_more_with_a_drive_or_more() {
    for (seed, shape) in shapes() {
        assert!((2..=NODES_MAX as usize).contains(&shape.nodes()), "seed {seed}");
        assert!(shape.drives.iter().all(|drives| (1..=4).contains(drives)), "seed {seed}");
        assert!([512, 4096].contains(&shape.drive.sector_bytes), "seed {seed}");
        assert!(usize::from(shape.left_broken) < shape.nodes(), "seed {seed}: one server at least stays");
    }
}

#[test]
fn volumes_fit_the_drives() {
    for (seed, shape) in shapes() {
        assert!((1..=3).contains(&shape.volumes.len()), "seed {seed}");
        let copies: u64 = shape.volumes.iter().map(|volume| volume.slabs * u64::from(volume.copies)).sum();
        let drives: u64 = shape.drives.iter().map(|drives| u64::from(*drives)).sum();
        assert!(copies <= SLABS_PER_DRIVE * drives, "seed {seed}");
        assert!(SLABS_PER_DRIVE * SLAB_BYTES <= shape.drive.size_bytes / 2, "seed {seed}");
        for volume in &shape.volumes {
            assert!((2..=shape.nodes() as u8).contains(&volume.copies), "seed {seed}");
            assert!(volume.slabs > 0 && volume.size_bytes() == volume.slabs * SLAB_BYTES, "seed {seed}");
        }
    }
}

#[test]
fn settings_are_what_they_say() {
    for (seed, shape) in shapes() {
        let world = shape.world_config(7);
        assert_eq!(world.timeline_events, 7);
        assert!(shape.network.delay_us_min <= shape.network.delay_us_max, "seed {seed}");
        assert!(world.clock_drift_ppm_max <= 500, "seed {seed}: what promises allow for, with room to spare");
        let load = &shape.load;
        let per_mille = [
            load.change_per_mille,
            load.trim_per_mille,
            load.zero_per_mille,
            load.partial_per_mille,
            load.long_per_mille,
            load.idle_per_mille,
        ];
        assert!(per_mille.iter().all(|part| *part <= 1000), "seed {seed}");
        assert!(load.clients + load.movers > 0, "seed {seed}");
        assert!(load.depth > 0 && load.zones > 0 && load.blocks_max >= 2, "seed {seed}");
    }
}

/// What every seed had in common no seed would tell anything about.
#[test]
fn worlds_differ_in_everything() {
    let distinct =
        |of: fn(&Shape) -> u64| shapes().map(|(_, shape)| of(&shape)).collect::<BTreeSet<u64>>().len();
    assert_eq!(distinct(|shape| shape.nodes() as u64), NODES_MAX as usize - 1);
    assert_eq!(distinct(|shape| shape.volumes.len() as u64), 3);
    assert_eq!(
        distinct(|shape| shape.volumes.iter().map(|volume| volume.copies.into()).max().unwrap_or(0)),
        2
    );
    assert_eq!(distinct(|shape| shape.drive.sector_bytes.into()), 2);
    assert_eq!(distinct(|shape| shape.drive.volatile_cache.into()), 2);
    assert_eq!(distinct(|shape| shape.network.random_order.into()), 2);
    assert_eq!(distinct(|shape| (shape.network.bandwidth_bytes_per_second.is_some()).into()), 2);
    assert!(distinct(|shape| shape.left_broken.into()) > 3);
    assert_eq!(distinct(|shape| shape.load.movers.into()), 5);
    assert_eq!(distinct(|shape| shape.load.clients.into()), 3);
}

#[test]
fn only_clients_that_move_are_cut_off() {
    assert!(shapes().all(|(_, shape)| shape.weights.clients_cut == 0 || shape.load.movers > 0));
    let cut = shapes().filter(|(_, shape)| shape.weights.clients_cut > 0).count();
    assert!((400..600).contains(&cut), "{cut}");
}

/// A quarter of all pools repair and spread what they hold by themselves.
#[test]
fn pools_keep_themselves_in_some_runs() {
    let kept: Vec<Shape> = shapes().map(|(_, shape)| shape).filter(Shape::keeps_itself).collect();
    assert!((400..600).contains(&kept.len()), "{}", kept.len());
    assert!(kept.iter().all(|shape| shape.settings().balance && shape.settings().rebuild_after_drive_s <= 8));
    assert!(!Shape::settings_at_rest().balance);
}

/// In two worlds of five everything is read by itself, many times in a run.
#[test]
fn pools_are_scrubbed_by_themselves_in_some_runs() {
    let scrubbed = shapes().filter(|(_, shape)| shape.settings().scrub_period_s > 0);
    let scrubbed: Vec<Shape> = scrubbed.map(|(_, shape)| shape).collect();
    assert!((700..900).contains(&scrubbed.len()), "{}", scrubbed.len());
    assert!(scrubbed.iter().all(|shape| shape.settings().scrub_period_s <= 6));
    assert_eq!(Shape::settings_at_rest().scrub_period_s, 0);
}

/// In a third of the worlds maps have few leaves in memory, and in half of these the bound changes.
#[test]
fn maps_are_bounded_in_some_runs_and_otherwise_now_and_then() {
    let bounded = shapes().filter(|(_, shape)| shape.map_memory_bytes > 0).count();
    assert!((450..620).contains(&bounded), "{bounded}");
    let changed = shapes().filter(|(_, shape)| shape.weights.map_memory > 0).count();
    assert!((280..390).contains(&changed), "{changed}");
    assert_eq!(Shape::settings_at_rest().map_memory_bytes, 0);
}

/// In about half of the worlds somebody says where servers stand, in some of them again and again.
#[test]
fn servers_have_labels_in_some_runs() {
    let labelled: Vec<Shape> =
        shapes().map(|(_, shape)| shape).filter(|shape| shape.domains.is_some()).collect();
    assert!((900..1200).contains(&labelled.len()), "{}", labelled.len());
    assert!(labelled.iter().all(|shape| shape.labels.len() == shape.nodes()));
    let changed = labelled.iter().filter(|shape| shape.weights.label > 0).count();
    assert!((400..600).contains(&changed), "{changed}");
    assert!(shapes().all(|(_, shape)| shape.domains.is_some() || shape.weights.label == 0));
}

/// Two worlds of five have cache drives, with room for the journals behind them, and things happen to these.
#[test]
fn drives_are_cached_in_some_runs() {
    let cached: Vec<Shape> = shapes().map(|(_, shape)| shape).filter(|shape| shape.cache.is_some()).collect();
    assert!((700..900).contains(&cached.len()), "{}", cached.len());
    for weight in [
        |of: &Weights| of.old_cache,
        |of: &Weights| of.lose_cache,
        |of: &Weights| of.release_cache,
        |of: &Weights| of.retire_cache,
        |of: &Weights| of.cache_mode,
    ] {
        let with = cached.iter().filter(|shape| weight(&shape.weights) > 0).count();
        assert!((300..500).contains(&with), "{with}");
        assert!(shapes().all(|(_, shape)| shape.cache.is_some() || weight(&shape.weights) == 0));
    }
    let of_cache =
        |shape: &Shape| shape.cache.map(|cache| (cache.size_bytes, cache.drives)).unwrap_or_default();
    for shape in &cached {
        let (size_bytes, caches) = of_cache(shape);
        let behind = shape.drives.iter().map(|drives| u64::from(drives.div_ceil(caches))).max().unwrap();
        assert!(size_bytes > behind * JOURNAL_BYTES, "{shape:?}");
    }
}

/// Every kind of fault but the crash is left out of about half of the runs.
#[test]
fn kinds_of_faults_are_left_out_of_some_runs() {
    let weights: Vec<Vec<u32>> = shapes().map(|(_, shape)| all(&shape.weights)).collect();
    for kind in 0..weights[0].len() {
        let without = weights.iter().filter(|weights| weights[kind] == 0).count();
        let expected = if kind == 0 { 0..=0 } else { 800..=1200 };
        assert!(expected.contains(&without), "kind {kind} is left out of {without} runs");
    }
}

fn all(weights: &Weights) -> Vec<u32> {
    let Weights {
        stop,
        power_cut_all,
        pause,
        cut,
        isolate,
        orphan,
        break_connections,
        clients_cut: _,
        slow_link,
        state_outage,
        state_losses,
        clock,
        drive_slow,
        drive_fails,
        rot,
        stray_writes,
        unreadable,
        no_room,
        lose_drives,
        older_state,
        hand_over,
        old_cache: _,
        lose_cache: _,
        release_cache: _,
        retire_cache: _,
        cache_mode: _,
        map_memory: _,
        retire,
        set_volume,
        grow,
        label: _,
        cut_path,
        scrub,
    } = *weights;
    let network = [cut, isolate, orphan, break_connections, slow_link, cut_path];
    let state = [state_outage, state_losses, clock];
    let drives = [
        drive_slow,
        drive_fails,
        rot,
        stray_writes,
        unreadable,
        no_room,
        lose_drives,
        scrub,
        older_state,
        hand_over,
        retire,
        set_volume,
        grow,
    ];
    [&[stop, power_cut_all, pause][..], &network, &state, &drives].concat()
}

/// Cache drives are unlike the drives behind them in all ways that a layout has to mind.
#[test]
fn caches_differ_from_the_drives_behind_them() {
    let of_worlds = shapes().filter(|(_, shape)| shape.cache.is_some()).map(|(_, shape)| {
        let (drive, cache) = (shape.drive_config(), shape.cache_config());
        (drive.sector_bytes, cache.sector_bytes, drive.volatile_cache, cache.volatile_cache)
    });
    assert_eq!(of_worlds.collect::<BTreeSet<_>>().len(), 16);
}

/// Scenarios that do not say it have cache drives like the other drives.
#[test]
fn caches_that_say_nothing_are_like_the_drives_behind_them() {
    let mut shape = Shape::of_seed(1);
    for (sector_bytes, volatile_cache) in [(512, true), (4096, false)] {
        shape.drive = DriveShape { sector_bytes, volatile_cache, ..shape.drive };
        let text = r#"{"drives": 1, "size_bytes": 4194304, "mode": "read-write"}"#;
        shape.cache = Some(serde_json::from_str(text).expect("a cache of an older scenario"));
        let cache = shape.cache_config();
        assert_eq!((cache.sector_bytes, cache.volatile_cache), (sector_bytes, volatile_cache));
        assert_eq!(cache.size_bytes, 4 << 20);
    }
}
