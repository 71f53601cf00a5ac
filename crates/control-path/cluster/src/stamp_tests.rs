use super::*;

#[test]
fn the_generation_outweighs_every_revision() {
    let newest = Revision((1 << REVISION_BITS) - 1);
    let order = [
        StateStamp::default(),
        StateStamp::new(0, Revision(1)),
        StateStamp::new(0, newest),
        StateStamp::new(1, Revision(0)),
        StateStamp::new(u16::MAX, newest),
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
    let generation = seen.generation_to_recover().unwrap();
    assert_eq!(StateStamp::new(generation, Revision(91)).check_not_older(seen), Ok(()));
    assert_eq!(StateStamp::new(u16::MAX, Revision(1)).generation_to_recover(), None);
}
