use super::*;

#[test]
fn the_generation_outweighs_every_revision() {
    let newest = Revision((1 << REVISION_BITS) - 1);
    let order = [
        StateStamp::default(),
        StateStamp::new(0, Revision(1)),
        StateStamp::new(0, newest),
        StateStamp::new(1, Revision(0)),
        StateStamp::new(GENERATION_MAX, newest),
    ];
    assert!(order.is_sorted());
    assert_eq!(order[4].0, u64::MAX);
    assert_eq!((order[2].generation(), order[2].revision()), (0, newest));
    assert_eq!((order[3].generation(), order[3].revision()), (1, Revision(0)));
}

#[test]
fn an_older_state_is_refused_until_it_is_recovered() {
    let (old, seen) = (StateStamp::new(0, Revision(90)), StateStamp::new(0, Revision(100)));
    assert_eq!(seen.check_not_older(seen), Ok(()));
    assert_eq!(seen.check_not_older(old), Ok(()));
    let error = old.check_not_older(seen).unwrap_err();
    assert_eq!(error.code, "STATE_OLDER_THAN_DRIVES");
    assert!(error.why.contains("revision 90") && error.why.contains("revision 100"), "{error}");
    let generation = generation_to_recover(seen.generation(), 0).unwrap();
    assert_eq!(StateStamp::new(generation, Revision(91)).check_not_older(seen), Ok(()));
}

#[test]
fn each_recovery_has_a_later_generation_and_two_of_the_same_state_differ() {
    let all =
        |newest| [0, 1, 4095, 4096, u64::MAX].map(|random| generation_to_recover(newest, random).unwrap());
    assert_eq!(all(0), [4096, 4097, 8191, 4096, 8191]);
    for newest in all(0) {
        assert_eq!(all(newest), [8192, 8193, 12_287, 8192, 12_287]);
        assert_eq!((recoveries_between(0, newest), recoveries_between(newest, all(newest)[1])), (1, 1));
    }
    assert_eq!(recoveries_between(0, all(4096)[2]), 2);
    assert_eq!(generation_to_recover(GENERATION_MAX - 4096, 4095), Some(GENERATION_MAX));
    assert_eq!(generation_to_recover(GENERATION_MAX, 0), None);
    assert_eq!(generation_to_recover(u32::MAX, 0), None);
}
