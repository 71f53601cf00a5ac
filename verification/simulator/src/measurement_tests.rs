use std::collections::BTreeSet;

use spandrel_shared::canary::{self, Bug};

use super::load::{Counted, Load};
use super::*;
use crate::checkers::performance::{Letters, Model};

const PAGE: &str = include_str!("../../../docs/internals/performance-model.md");

/// What is measured in a world of its own.
const WHILE_JOINING: &str = "write of 4 KiB while a copy joins";

const LONG_WRITE_GROUPS: &str = "groups of a write of 4 MiB, one after the other";

/// Where the volume of a test lies that all nodes hold whole.
fn only_place(laboratory: &Laboratory, volume: VolumeId) -> Place {
    let mut places = laboratory.places(volume, 1).expect("it is owned");
    assert_eq!(places.len(), 1, "{places:?}");
    places.remove(0)
}

fn step_named(name: &str) -> Step {
    let found = WITHIN_A_SLAB.into_iter().find(|step| step.name == Some(name));
    found.expect("it is measured")
}

fn model() -> Model {
    Model::parse(PAGE).expect("the page can be understood")
}

#[test]
fn every_operation_costs_what_the_model_says() {
    let (model, mut complaints, mut measured) = (model(), Vec::new(), BTreeSet::new());
    for volatile_caches in [true, false] {
        let laboratory = Laboratory::new(4, LARGE_DRIVE_BYTES, Times::telling(), volatile_caches);
        for copies in 1..=3 {
            let volume = laboratory.create_volume(&format!("v{copies}"), 8, copies).expect("there is room");
            let within = laboratory.places(volume, 1).expect("it is owned");
            let across = laboratory.places(volume, 2).expect("it is owned");
            let is_far = |place: &Place| place.copies == place.copies_elsewhere;
            assert!(within.iter().any(is_far) && !within.iter().all(is_far), "both are there: {within:?}");
            for client in 0..4 {
                let device = laboratory.open(client, &within[0].volume).expect("nobody else writes");
                let steps = within.iter().flat_map(|place| WITHIN_A_SLAB.map(|step| (place, step)));
                let steps =
                    steps.chain(across.iter().flat_map(|place| ACROSS_SLABS.map(|step| (place, step))));
                for (place, step) in steps {
                    let cost = laboratory.measure(client, &device, place, step).expect("it can be measured");
                    let Some(name) = step.name else { continue };
                    let situation = laboratory.situation(place, client);
                    complaints.extend(model.check(name, &situation, &cost).err());
                    measured.insert(name);
                }
            }
        }
    }
    let mut named: BTreeSet<&str> = model.operations().collect();
    named.remove(WHILE_JOINING);
    assert_eq!(measured, named);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn the_pieces_of_a_long_write_go_out_together() {
    let (model, laboratory) = (model(), Laboratory::new(4, LARGE_DRIVE_BYTES, Times::telling(), true));
    for copies in 1..=3 {
        let volume = laboratory.create_volume(&format!("v{copies}"), 8, copies).expect("there is room");
        for place in laboratory.places(volume, 1).expect("it is owned") {
            for client in [place.owner, (place.owner + 1) % 4] {
                let device = laboratory.open(client, &place.volume).expect("nobody else writes");
                let cost = laboratory.measure(client, &device, &place, LONG_WRITE);
                let cost = cost.expect("it can be measured");
                let short = model.expected("write of 1 MiB", &laboratory.situation(&place, client));
                assert_eq!(cost.round_trips, short.expect("the page has it").round_trips, "{place:?}");
                assert_eq!(cost.writes_in_a_row, cost.flushes_in_a_row, "{place:?}");
                let bounded = model.check_limit(LONG_WRITE_GROUPS, &Letters::new(), cost.flushes_in_a_row);
                assert_eq!(bounded, Ok(()), "{place:?}");
            }
        }
    }
}

#[test]
fn the_examples_follow_from_the_tables() {
    for (copies, client_elsewhere) in [(1, false), (1, true), (2, false), (2, true), (3, false), (3, true)] {
        let situation = Situation {
            copies,
            copies_elsewhere: copies - 1,
            drives: copies,
            nodes_elsewhere: copies - 1,
            client_elsewhere,
            volatile_caches: true,
        };
        let cost = model().expected("write of 4 KiB", &situation).expect("the page has it");
        let client = if client_elsewhere { "on another node" } else { "on the owner's node" };
        let messages = 2 * cost.requests.values().sum::<u64>();
        let Cost { round_trips, writes, flushes, .. } = cost;
        let row = format!("| {copies} | {client} | {round_trips} | {messages} | {writes} | {flushes} |");
        assert!(PAGE.lines().any(|line| line == row), "the page lacks {row}");
    }
}

#[test]
fn a_stale_copy_costs_nothing_and_a_joining_one_keeps_nobody_waiting() {
    let (model, name) = (model(), "write of 4 KiB");
    let laboratory = Laboratory::new(3, LARGE_DRIVE_BYTES, Times::telling(), true);
    let nodes = &laboratory.nodes;
    let volume = laboratory.create_volume("v", 2, 3).expect("there is room");
    let owner = only_place(&laboratory, volume).owner;
    let (client, absent) = ((owner + 1) % 3, (owner + 2) % 3);
    let device = laboratory.open(client, "v").expect("nobody else writes");
    nodes.stop(absent, false);
    let leg_is = |state: &str| {
        let report = nodes.node(owner).map(|node| node.report());
        let legs = report.into_iter().flat_map(|report| report.owned).flat_map(|owned| owned.legs);
        legs.filter(|leg| leg.node == node_id(absent)).any(|leg| leg.state == state)
    };
    assert_eq!(nodes.run_until(|| leg_is("stale")), RunEnd::ConditionMet);
    let place = only_place(&laboratory, volume);
    assert_eq!((place.copies, place.nodes_elsewhere), (2, 1));
    let situation = laboratory.situation(&place, client);
    let cost = laboratory.measure(client, &device, &place, step_named(name)).expect("it can be measured");
    assert_eq!(model.check(name, &situation, &cost), Ok(()));

    // So far away that it joins for long, and that whoever waited for it would show.
    let far_away = DelayRange { min: 200 * ONE_WAY, max: 200 * ONE_WAY };
    nodes.world.set_link_delay(nodes.host(owner), nodes.host(absent), far_away);
    nodes.world.set_link_delay(nodes.host(absent), nodes.host(owner), far_away);
    nodes.start(absent);
    assert_eq!(nodes.run_until(|| leg_is("joining")), RunEnd::ConditionMet);
    // The mark is told at most 200 ms after the write.
    let settle = 220 * ONE_WAY;
    let cost = laboratory.measure_amid(client, &device, &place, step_named(name), settle);
    assert_eq!(model.check(WHILE_JOINING, &situation, &cost.expect("it can be measured")), Ok(()));
    assert!(leg_is("joining"), "nothing was copied meanwhile");
}

#[test]
fn what_many_operations_share_is_bounded_as_the_model_says() {
    let (model, mut all) = (model(), Vec::new());
    let (fast, drawn) = (Times::telling(), drawn());
    for (times, volatile_caches) in [(fast, true), (drawn, true), (drawn, false)] {
        for (client_elsewhere, pause_ms_max) in [(0, 0), (1, 0), (0, 2), (1, 2)] {
            let laboratory = Laboratory::new(3, SMALL_DRIVE_BYTES, times, volatile_caches);
            let volume = laboratory.create_volume("v", 3, 3).expect("there is room");
            let place = only_place(&laboratory, volume);
            all.extend(laboratory.idle(10).expect("all are up"));
            let client = (place.owner + client_elsewhere) % 3;
            let pause_max = Duration::from_millis(pause_ms_max);
            let load = Load { client, writers: 16, writes_each: 840, pause_max };
            all.extend(laboratory.load(&place, load).expect("all writes are answered"));
        }
    }
    let check = |counted: &Counted| model.check_limit(counted.what, &counted.letters, counted.count).err();
    let complaints: Vec<String> = all.iter().filter_map(check).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    let counted: BTreeSet<&str> = all.iter().map(|counted| counted.what).collect();
    assert_eq!(counted, model.limits().filter(|what| *what != LONG_WRITE_GROUPS).collect());
    let checkpoints = all.iter().filter(|counted| counted.what == "checkpoints of a drive");
    assert!(
        checkpoints.map(|counted| counted.count).min() > Some(0),
        "the journal was filled far enough everywhere"
    );
}

/// Times as they may be in reality.
fn drawn() -> Times {
    let us = Duration::from_micros;
    Times { one_way: DelayRange::microseconds(20, 200), write: us(50), flush: us(200), read: us(80) }
}

#[test]
fn a_flush_that_is_left_out_is_noticed() {
    let laboratory = Laboratory::new(3, LARGE_DRIVE_BYTES, Times::telling(), true);
    let volume = laboratory.create_volume("v", 1, 3).expect("there is room");
    let place = only_place(&laboratory, volume);
    let device = laboratory.open(place.owner, "v").expect("nobody else writes");
    let measure = || {
        let step = step_named("write of 4 KiB");
        let cost = laboratory.measure(place.owner, &device, &place, step).expect("it can be measured");
        model().check("write of 4 KiB", &laboratory.situation(&place, place.owner), &cost)
    };
    assert_eq!(measure(), Ok(()));
    canary::plant(Some(Bug::SkipFlush));
    let unflushed = measure();
    canary::plant(None);
    assert!(unflushed.is_err());
    assert_eq!(measure(), Ok(()));
}

#[test]
fn a_latency_tells_what_was_waited_for() {
    let cost = waited_for(Duration::from_nanos(4_010_203)).expect("two round trips");
    let waits = (cost.round_trips, cost.writes_in_a_row, cost.flushes_in_a_row, cost.reads_in_a_row);
    assert_eq!(waits, (2, 1, 2, 3));
    assert!(waited_for(Duration::from_millis(3)).is_err(), "an answer is missing");
}
