use super::*;
use crate::records::decode;
use crate::store::{Entry, Value};
use crate::test_cluster::{TestCluster, TestState, new_volume, owner, plan, volume};

const DAY_S: u64 = 86_400;

fn read_at(unix_s: u64) -> SlabDate {
    SlabDate { unix_s, is_read: true }
}

fn record(dates: impl IntoIterator<Item = SlabDate>) -> ScrubRecord {
    ScrubRecord::new(dates, [], ScrubFindings::default())
}

/// Numbers that look like chance, the same each time.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

#[test]
fn dates_that_are_few_are_kept_as_they_are() {
    let dates = [read_at(7), read_at(7), read_at(9), SlabDate { unix_s: 9, is_read: false }, read_at(7)];
    let record = record(dates);
    assert_eq!(record.dates.len(), 4);
    assert_eq!(record.dates(5).collect::<Vec<_>>(), dates);
    assert_eq!(record.dates(2).collect::<Vec<_>>(), dates[..2], "a volume can have fewer slabs than once");
    assert_eq!(record.dates(9).count(), 5, "of others it says nothing");
}

/// Whatever the dates are: the record is small, has a date for each slab, and none is later than the true one.
#[test]
fn dates_that_are_many_become_older_never_newer() {
    for seed in 0..300 {
        let mut number = numbers(seed);
        let slabs = 1 + number(3000);
        let (span_s, unread) = ([1, 1000, DAY_S, 400 * DAY_S][seed as usize % 4], number(4));
        let dates: Vec<SlabDate> = (0..slabs)
            .map(|_| SlabDate { unix_s: 1_000_000 + number(span_s), is_read: number(4) >= unread })
            .collect();
        let record = record(dates.iter().copied());
        assert!(record.dates.len() <= RUNS_MAX, "seed {seed}: {} runs", record.dates.len());
        let kept: Vec<SlabDate> = record.dates(slabs as u32).collect();
        assert_eq!(kept.len() as u64, slabs, "seed {seed}");
        for (kept, date) in kept.iter().zip(&dates) {
            assert!(
                kept.unix_s <= date.unix_s && kept.is_read <= date.is_read,
                "seed {seed}: {kept:?}, {date:?}"
            );
        }
        let oldest = |dates: &[SlabDate]| dates.iter().map(|date| date.unix_s).min();
        assert_eq!(oldest(&kept), oldest(&dates), "seed {seed}");
    }
}

/// A volume whose slabs are read one after the other in four weeks: each date is right to within a few hours.
#[test]
fn dates_of_a_pass_are_right_to_within_hours() {
    let dates = || (0..500).map(|slab| read_at(slab * 28 * DAY_S / 500));
    let record = record(dates());
    for (kept, date) in record.dates(500).zip(dates()) {
        assert!(date.unix_s - kept.unix_s <= 8 * 3600, "{kept:?}, {date:?}");
    }
}

/// A thousand volumes of five hundred slabs have little in the state, whatever has become of their scrubs.
#[test]
fn what_is_kept_of_a_thousand_volumes_is_small() {
    let mut number = numbers(1);
    let dates = (0..500).map(|_| read_at(1_795_000_000 + number(28 * DAY_S)));
    let unwell = (0..500).map(|slab| UnwellSlab { slab, blocks_different: 65_536, blocks_lost: 65_536 });
    let worst = encode(&ScrubRecord::new(dates, unwell, ScrubFindings::default())).len();
    assert!(worst < 24 << 10, "{worst} bytes");
    let dates = (0..500).map(|slab| read_at(1_795_000_000 + slab * 28 * DAY_S / 500));
    let usual = encode(&ScrubRecord::new(dates, [], ScrubFindings::default())).len();
    assert!(usual * 1000 < 4 << 20, "{usual} bytes");
}

#[test]
fn a_summary_tells_the_oldest_and_the_newest_and_what_is_done() {
    let mut record = ScrubRecord::of_new_volume(4, 100);
    let expected = ScrubSummary {
        slabs: 4,
        slabs_never_read: 4,
        oldest_unix_s: Some(100),
        pass_began_unix_s: 100,
        found: ScrubFindings { since_unix_s: 100, ..ScrubFindings::default() },
        ..ScrubSummary::default()
    };
    assert_eq!(record.summary(4), expected);
    record.dates =
        runs_of([read_at(300), read_at(150), read_at(400), SlabDate { unix_s: 120, is_read: false }]);
    record.pass_began_unix_s = 300;
    record.unwell = vec![UnwellSlab { slab: 1, blocks_different: 2, blocks_lost: 3 }];
    let summary = record.summary(5);
    assert_eq!((summary.slabs_done, summary.slabs_never_read), (2, 2), "one has come since");
    assert_eq!((summary.oldest_unix_s, summary.newest_unix_s), (Some(120), Some(400)));
    assert_eq!((summary.blocks_different_now, summary.blocks_lost_now), (2, 3));
    assert_eq!((summary.age_s(500), summary.age_s(7)), (380, 0));
}

#[test]
fn late_is_what_has_waited_for_one_and_a_half_periods() {
    let summary = ScrubRecord::of_new_volume(1, 1000).summary(1);
    assert!(!summary.is_late(100, 1150) && summary.is_late(100, 1151));
    assert!(!summary.is_late(0, u64::MAX), "nobody wants it to be read");
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let entry = |value: Value| Entry {
        key: StateKey::Scrub(volume(1)).key(),
        value,
        created: Revision(1),
        modified: Revision(1),
        lease: None,
    };
    let unwell = [UnwellSlab { slab: 1, blocks_different: 2, blocks_lost: 3 }];
    let written = ScrubRecord::new([read_at(5), read_at(6)], unwell, ScrubFindings::default());
    assert_eq!(decode::<ScrubRecord>(&entry(encode(&written))).unwrap().record, written);
    let many = br#"{"format":1,"dates":[[4294967295,1,true]],"pass_began_unix_s":1,"passes":0,"found":{"since_unix_s":1,"blocks_damaged":0,"blocks_healed":0,"blocks_different":0,"blocks_lost":0,"pages_lacking":0}}"#;
    let refused = decode::<ScrubRecord>(&entry(Value::from(many.to_vec()))).unwrap_err();
    assert!(refused.why.contains("more than can be numbered"), "{refused}");
}

async fn owned_volume(state: &TestState) -> VolumeMembership {
    let room = state.pool_room().await.unwrap();
    let made = state.create_volume(&new_volume(1, 4, 2), &plan(4, 2, 3, 1, 1), &room).await.unwrap();
    state.take_volume(volume(1), &made, owner(1)).await.unwrap();
    state.membership(volume(1)).await.unwrap().unwrap()
}

#[test]
fn only_the_owner_writes_and_nothing_that_comes_late_undoes_it() {
    let cluster = TestCluster::new(1, 3, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned_volume(&state).await;
        assert_eq!(state.scrub(volume(1)).await.unwrap(), None);
        let before = state.stamp().await.unwrap();
        let (one, two) = (record([read_at(1)]), record([read_at(2)]));
        let first = state.note_scrub(owner(1), &seen, None, &one).await.unwrap();
        assert_eq!(state.stamp().await.unwrap(), before, "it makes the state no newer");
        let second = state.note_scrub(owner(1), &seen, Some(first), &two).await.unwrap();
        for late in [None, Some(first)] {
            let outcome = state.note_scrub(owner(1), &seen, late, &one).await;
            assert_eq!(outcome, Err(StateError::Conflict));
        }
        let stands = state.scrub(volume(1)).await.unwrap().unwrap();
        assert_eq!((stands.record, stands.revision), (two, second));

        let refused = state.note_scrub(owner(2), &seen, Some(second), &one).await;
        assert!(matches!(refused, Err(StateError::Refused(error)) if error.code == "NOT_OWNER"));
        let stored = Stored { record: seen.record.clone(), revision: seen.revision };
        state.take_volume(volume(1), &stored, owner(2)).await.unwrap();
        let outcome = state.note_scrub(owner(1), &seen, Some(second), &one).await;
        assert_eq!(outcome, Err(StateError::Conflict), "another one has taken the volume since");
    });
}

#[test]
fn nothing_is_left_of_a_volume_that_was_deleted() {
    let cluster = TestCluster::new(1, 3, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned_volume(&state).await;
        let known = state.note_scrub(owner(1), &seen, None, &record([read_at(1)])).await.unwrap();
        state.delete_volume(volume(1), 1).await.unwrap();
        assert!(state.scrubs().await.unwrap().is_empty());
        for known in [None, Some(known)] {
            let outcome = state.note_scrub(owner(1), &seen, known, &record([read_at(2)])).await;
            assert_eq!(outcome, Err(StateError::Conflict));
        }
    });
}
