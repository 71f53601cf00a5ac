use spandrel_cluster::{ScrubFindings, SlabDate, UnwellSlab};

use super::*;
use crate::admin::testing::*;

const DAY_S: u64 = 86_400;

/// A cluster on its hundredth day, with a volume that is as old, and a period of ten days.
async fn facts_on_day_100() -> Facts {
    let mut facts = facts().await;
    facts.gathered_unix_ms = 100 * DAY_S * 1000;
    facts.settings.scrub_period_s = 10 * DAY_S as u32;
    facts
}

fn read_on_days(days: [u64; 2]) -> ScrubRecord {
    let dates = days.map(|day| SlabDate { unix_s: day * DAY_S, is_read: true });
    let found = ScrubFindings { blocks_damaged: 5, blocks_healed: 5, ..ScrubFindings::default() };
    let mut record = ScrubRecord::new(dates, [], found);
    record.pass_began_unix_s = 95 * DAY_S;
    record
}

fn kinds(facts: &Facts) -> Vec<String> {
    let scrubs = facts.scrubs();
    let faults = scrubs.iter().flat_map(|scrub| facts.faults_of_scrub(scrub));
    faults.map(|fault| fault.kind).collect()
}

#[tokio::test]
async fn a_volume_that_was_never_read_is_as_old_as_it_is() {
    let mut facts = facts_on_day_100().await;
    let scrub = &facts.scrubs()[0];
    assert_eq!((scrub.oldest_unix_ms, scrub.newest_unix_ms, scrub.slabs_never_read), (0, None, 2));
    assert!(scrub.is_late);
    facts.volumes[0].record.created_unix_ms = 99 * DAY_S * 1000;
    assert!(!facts.scrubs()[0].is_late);
}

#[tokio::test]
async fn the_owner_knows_better_than_the_state() {
    let mut facts = facts_on_day_100().await;
    facts.scrubs.insert(volume_id(), read_on_days([94, 96]));
    let scrub = facts.scrubs()[0].clone();
    assert_eq!((scrub.slabs.done, scrub.slabs.total, scrub.found.blocks_healed), (1, 2, 5));
    assert_eq!((scrub.oldest_unix_ms, scrub.newest_unix_ms), (94 * DAY_S * 1000, Some(96 * DAY_S * 1000)));
    assert_eq!(scrub.bytes_per_second, 2 * 3 * (4 << 20) / (10 * DAY_S));
    let owner = facts.nodes[0].report.as_mut().expect("it runs");
    owner.owned[0].scrub = Some(read_on_days([97, 98]).summary(2));
    assert_eq!(facts.scrubs()[0].slabs.done, 2);
}

#[tokio::test]
async fn what_cannot_keep_the_pace_is_a_fault_and_explained() {
    let mut facts = facts_on_day_100().await;
    facts.scrubs.insert(volume_id(), read_on_days([86, 99]));
    assert_eq!(kinds(&facts), Vec::<String>::new());
    let told = facts.explain_volume("v1", &Default::default()).expect("it is there");
    assert!(
        told.doing
            .iter()
            .any(|line| line.contains("once in 10 d; the slab that has waited longest has for 14 d"))
    );
    facts.scrubs.insert(volume_id(), read_on_days([84, 99]));
    assert_eq!(kinds(&facts), ["volume.scrub-late"]);
    let fault = &facts.faults_of_scrub(&facts.scrubs()[0])[0];
    assert_eq!((fault.severity, fault.since_ms), (Severity::Warning, Some(DAY_S * 1000)));
    assert!(fault.reason.contains("for 16 d, and everything should be read once in 10 d"), "{fault:?}");
    let told = facts.explain_volume("v1", &Default::default()).expect("it is there");
    assert!(told.why.contains(&fault.reason) && told.may.contains(&fault.actions[0]), "{told:?}");
    facts.settings.scrub_period_s = 0;
    assert_eq!(kinds(&facts), Vec::<String>::new(), "nobody wants it to be read");
    let told = facts.explain_volume("v1", &Default::default()).expect("it is there");
    assert!(told.doing.iter().any(|line| line.contains("switched off")), "{told:?}");
}

#[tokio::test]
async fn what_differs_and_what_is_lost_are_faults_as_long_as_they_do() {
    let mut facts = facts_on_day_100().await;
    let dates = [SlabDate { unix_s: 99 * DAY_S, is_read: true }; 2];
    let unwell = [UnwellSlab { slab: 1, blocks_different: 1, blocks_lost: 2 }];
    facts.scrubs.insert(volume_id(), ScrubRecord::new(dates, unwell, ScrubFindings::default()));
    assert_eq!(kinds(&facts), ["volume.blocks-lost", "volume.copies-differ"]);
    let faults = facts.faults_of_scrub(&facts.scrubs()[0]);
    assert!(faults[0].reason.starts_with("2 blocks are damaged on every copy"), "{faults:?}");
    assert!(faults[1].reason.starts_with("1 block is whole on every copy, but not the same"), "{faults:?}");
    let found = ScrubFindings { blocks_different: 1, blocks_lost: 2, ..ScrubFindings::default() };
    facts.scrubs.insert(volume_id(), ScrubRecord::new(dates, [], found));
    assert_eq!(kinds(&facts), Vec::<String>::new(), "they are well again");
}
