use spandrel_shared::{LoadCounts, NodeId, ProcessIncarnation};

use super::*;

fn drive(number: u64, cache: Option<CacheCounts>) -> DriveLoad {
    DriveLoad {
        drive: DriveId::from_random(1, number),
        location: format!("/dev/{number}"),
        load: LoadCounts::default(),
        cache,
    }
}

fn load(drives: Vec<DriveLoad>) -> NodeLoad {
    NodeLoad {
        node: NodeId::from_random(1, 1),
        incarnation: ProcessIncarnation::from_random(1, 1),
        at_us: 0,
        cpu_us: None,
        nodes_reached: 0,
        is_in_maintenance: false,
        repairs: 0,
        volumes: Vec::new(),
        bus: LoadCounts::default(),
        drives,
    }
}

fn counts(hit_bytes: u64, missed_bytes: u64) -> CacheCounts {
    let (populated_bytes, destaged_bytes) = (missed_bytes / 2, hit_bytes / 2);
    CacheCounts {
        hit_bytes,
        missed_bytes,
        populated_bytes,
        destaged_bytes,
        dirty_bytes: 5,
        copied_bytes: 6,
        total_bytes: 100,
    }
}

#[test]
fn what_was_counted_in_the_interval_is_divided_by_it() {
    let before = load(vec![drive(1, Some(counts(1000, 4000)))]);
    let after = load(vec![drive(1, Some(counts(7000, 6000))), drive(2, None)]);
    let rates = CacheRates::of_node("n1", Some(&before), &after, 2.0);
    assert_eq!(rates.len(), 1, "the other drive has none");
    let one = &rates[0];
    assert_eq!((one.node.as_str(), one.location.as_str()), ("n1", "/dev/1"));
    assert_eq!((one.hit_bytes_per_second, one.missed_bytes_per_second), (3000.0, 1000.0));
    assert_eq!((one.populated_bytes_per_second, one.destaged_bytes_per_second), (500.0, 1500.0));
    assert_eq!(one.hit_percent(), Some(75.0));
    assert_eq!(one.counts, counts(7000, 6000));
    let both = one.clone().and(one);
    assert_eq!(
        (both.hit_bytes_per_second, both.counts.dirty_bytes, both.counts.total_bytes),
        (6000.0, 10, 200)
    );
}

/// A drive that was attached anew, or is new, says nothing of the interval.
#[test]
fn what_began_anew_has_no_rates() {
    let after = load(vec![drive(1, Some(counts(1000, 0)))]);
    for before in [None, Some(load(Vec::new())), Some(load(vec![drive(1, Some(counts(9000, 1)))]))] {
        let rates = CacheRates::of_node("n1", before.as_ref(), &after, 1.0);
        assert_eq!((rates[0].hit_bytes_per_second, rates[0].hit_percent()), (0.0, None));
    }
}

#[test]
fn the_json_has_plain_fields() {
    let rates = CacheRates { counts: counts(3, 4), ..CacheRates::default() };
    let json = serde_json::to_value(rates).expect("plain data");
    assert_eq!(
        (&json["hit_bytes"], &json["dirty_bytes"], &json["hit_bytes_per_second"]),
        (&3.into(), &5.into(), &0.0.into())
    );
}
