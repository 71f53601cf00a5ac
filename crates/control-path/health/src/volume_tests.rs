use super::*;

const GOOD: CopyFacts =
    CopyFacts { is_in_sync: true, is_reachable: true, is_lost: false, is_repairing: false };
const AWAY: CopyFacts = CopyFacts { is_reachable: false, ..GOOD };
const STALE: CopyFacts = CopyFacts { is_in_sync: false, ..GOOD };
const STALE_AND_AWAY: CopyFacts = CopyFacts { is_in_sync: false, ..AWAY };
const RESYNC: CopyFacts = CopyFacts { is_repairing: true, ..STALE };
const LOST: CopyFacts = CopyFacts { is_lost: true, ..AWAY };

fn status_of(slabs: &[&[CopyFacts]]) -> String {
    let slabs = slabs.iter().map(|slab| slab.to_vec()).collect();
    status(&VolumeFacts { slabs, copies: 3, is_served: true, is_uneven: false }).to_string()
}

#[test]
fn every_row_of_the_table() {
    assert_eq!(status_of(&[&[GOOD, GOOD, GOOD]]), "Healthy (OK)");
    assert_eq!(status_of(&[&[GOOD, GOOD, AWAY]]), "Warning (Incomplete)");
    assert_eq!(status_of(&[&[GOOD, GOOD, STALE_AND_AWAY]]), "Warning (Degraded)");
    assert_eq!(status_of(&[&[GOOD, GOOD, STALE]]), "Warning (Degraded)");
    assert_eq!(status_of(&[&[GOOD, GOOD, RESYNC]]), "Warning (Degraded, In Service)");
    assert_eq!(status_of(&[&[AWAY, STALE, STALE]]), "Unknown (Detached - Incomplete, Degraded, Incomplete)");
    assert_eq!(status_of(&[&[LOST, STALE, STALE]]), "Unhealthy (No Redundancy, Degraded)");
    let unserved = VolumeFacts { slabs: vec![vec![GOOD; 3]], copies: 3, is_served: false, is_uneven: false };
    assert_eq!(status(&unserved).to_string(), "Warning (Starting)");
    let after_a_loss = VolumeFacts { slabs: vec![vec![GOOD, GOOD, AWAY]], ..unserved.clone() };
    assert!(
        status(&after_a_loss).to_string().contains("Starting"),
        "its clients wait: {}",
        status(&after_a_loss)
    );
    let detached = VolumeFacts { slabs: vec![vec![AWAY]], ..unserved };
    assert!(!status(&detached).to_string().contains("Starting"), "{}", status(&detached));
}

#[test]
fn unevenness_shows_where_all_else_is_well() {
    let uneven = |slab: [CopyFacts; 3]| {
        let facts = VolumeFacts { slabs: vec![slab.to_vec()], copies: 3, is_served: true, is_uneven: true };
        status(&facts).to_string()
    };
    assert_eq!(uneven([GOOD; 3]), "Healthy (Suboptimal)");
    assert_eq!(uneven([GOOD, GOOD, AWAY]), "Warning (Incomplete)");
}

#[test]
fn one_bad_slab_among_good_ones_decides() {
    let good: &[CopyFacts] = &[GOOD, GOOD, GOOD];
    assert_eq!(status_of(&[good, &[GOOD, GOOD, AWAY], good]), "Warning (Incomplete)");
    assert_eq!(
        status_of(&[good, &[GOOD, GOOD, AWAY], &[GOOD, STALE, GOOD]]),
        "Warning (Degraded, Incomplete)"
    );
}

#[test]
fn too_few_copies_are_degraded() {
    assert_eq!(status_of(&[&[GOOD, GOOD]]), "Warning (Degraded)");
    assert_eq!(status_of(&[&[]]), "Unhealthy (No Redundancy, Degraded)");
}

#[test]
fn healthy_is_said_only_if_every_copy_is_good() {
    // All combinations of all facts on three copies.
    for bits in 0..1 << 12 {
        let copy = |shift: u32| CopyFacts {
            is_in_sync: bits >> shift & 1 == 1,
            is_reachable: bits >> shift & 2 == 2,
            is_lost: bits >> shift & 4 == 4,
            is_repairing: bits >> shift & 8 == 8,
        };
        let slab = vec![copy(0), copy(4), copy(8)];
        let all_good = slab.iter().all(|copy| *copy == GOOD);
        let status = status(&VolumeFacts { slabs: vec![slab], copies: 3, is_served: true, is_uneven: false });
        assert_eq!(status.is_healthy(), all_good, "{status}");
    }
}
