use std::collections::BTreeSet;

use super::*;

const SEEDS: u64 = 2000;

/// The servers, drives and volumes that a fault names.
fn names(fault: &Fault) -> (Vec<usize>, Option<DrivePlace>, Option<usize>) {
    match *fault {
        Fault::Stop { node, .. }
        | Fault::Pause { node, .. }
        | Fault::Isolate { node, .. }
        | Fault::ClientsCut { node, .. }
        | Fault::ClientsDropped { node }
        | Fault::StateCutOff { node, .. }
        | Fault::TimeOfDay { node, .. }
        | Fault::ClockDrift { node, .. }
        | Fault::Label { node, .. }
        | Fault::LoseDrives { node, .. } => (vec![node], None, None),
        Fault::Cut { from, to, .. } | Fault::CutPath { from, to, .. } | Fault::SlowLink { from, to, .. } => {
            (vec![from, to], None, None)
        }
        Fault::Orphan { node, other, .. } => (other.into_iter().chain([node]).collect(), None, None),
        Fault::BreakConnections { one, other, .. } => (vec![one, other], None, None),
        Fault::DriveHangs { place, .. }
        | Fault::DriveSlow { place, .. }
        | Fault::DriveFails { place, .. }
        | Fault::Rot { place, .. }
        | Fault::StrayWrite { place, .. }
        | Fault::Unreadable { place, .. }
        | Fault::NoRoom { place, .. }
        | Fault::Retire { place, .. }
        | Fault::LoseCache { place, .. }
        | Fault::ReleaseCache { place, .. }
        | Fault::RetireCache { place, .. }
        | Fault::OldImage { place, .. } => (vec![place.node], Some(place), None),
        Fault::Scrub { volume } | Fault::SetVolume { volume, .. } | Fault::Grow { volume, .. } => {
            (Vec::new(), None, Some(volume))
        }
        Fault::HandOver { volume, to } => (vec![to], None, Some(volume)),
        Fault::PowerCutAll { .. }
        | Fault::OlderState { .. }
        | Fault::CacheMode { .. }
        | Fault::MapMemory { .. }
        | Fault::StateOutage { .. }
        | Fault::StateLosses { .. } => (Vec::new(), None, None),
    }
}

#[test]
fn faults_name_what_there_is() {
    for plan in (0..SEEDS).map(Plan::of_seed) {
        let (seed, shape) = (plan.seed, &plan.shape);
        assert_eq!(plan.faults.len(), shape.faults as usize, "seed {seed}");
        assert!(!plan.faults.is_empty(), "seed {seed}");
        for PlannedFault { after_ms, fault } in &plan.faults {
            assert!((1..=shape.fault_interval_ms_max).contains(after_ms), "seed {seed}");
            let (nodes, place, volume) = names(fault);
            let distinct: BTreeSet<usize> = nodes.iter().copied().collect();
            assert_eq!(distinct.len(), nodes.len(), "seed {seed}: {fault:?}");
            assert!(nodes.iter().all(|node| *node < shape.nodes()), "seed {seed}: {fault:?}");
            assert!(volume.is_none_or(|volume| volume < shape.volumes.len()), "seed {seed}: {fault:?}");
            let caches = shape.cache.map_or(0, |cache| cache.drives);
            let exists = |place: DrivePlace| place.drive < (shape.drives[place.node] + caches).into();
            assert!(place.is_none_or(exists), "seed {seed}: {fault:?}");
        }
    }
}

#[test]
fn values_stay_within_what_is_promised() {
    for fault in (0..SEEDS).flat_map(|seed| Plan::of_seed(seed).faults).map(|planned| planned.fault) {
        let is_within = match fault {
            Fault::ClockDrift { ppm, .. } => ppm.abs() <= 500,
            Fault::TimeOfDay { jump_ms, .. } => jump_ms.abs() <= 3_600_000,
            Fault::StateLosses { requests, answers, late, .. } => requests.max(answers).max(late) < 1000,
            Fault::Isolate { inbound, outbound, .. } | Fault::ClientsCut { inbound, outbound, .. } => {
                inbound || outbound
            }
            Fault::DriveSlow { factor, .. } => factor >= 2,
            Fault::Unreadable { blocks, .. } => blocks > 0,
            Fault::Grow { blocks, .. } => (1..=GROWTH_BLOCKS_MAX).contains(&blocks),
            Fault::Rot { newest_per_mille, .. } => (1..=1000).contains(&newest_per_mille),
            _ => true,
        };
        assert!(is_within, "{fault:?}");
    }
}

#[test]
fn every_kind_is_drawn_and_those_without_weight_are_not() {
    let mut kinds = BTreeSet::new();
    for plan in (0..SEEDS).map(Plan::of_seed) {
        let of_plan: BTreeSet<&str> = plan.faults.iter().map(|planned| planned.fault.kind()).collect();
        let weights = &plan.shape.weights;
        let left_out = [
            (weights.rot, "bit rot"),
            (weights.power_cut_all, "power cut of the cluster"),
            (weights.scrub, "scrub"),
            (weights.pause, "pause"),
        ];
        for (weight, kind) in left_out {
            assert!(weight > 0 || !of_plan.contains(kind), "seed {}: {kind}", plan.seed);
        }
        kinds.extend(of_plan);
    }
    assert_eq!(kinds.len(), 39, "{kinds:?}");
}

#[test]
fn a_plan_is_the_same_when_it_is_read_back() {
    for seed in 0..200 {
        let plan = Plan::of_seed(seed);
        let text = serde_json::to_string(&plan).expect("it can be written");
        assert_eq!(serde_json::from_str::<Plan>(&text).expect("it can be read"), plan, "seed {seed}");
        assert_eq!(Plan::of_seed(seed), plan);
    }
}
