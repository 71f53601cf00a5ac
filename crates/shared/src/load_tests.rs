use super::*;

const TENTH: Duration = Duration::from_millis(100);

#[test]
fn what_was_done_and_what_is_under_way_is_counted() {
    let load = Load::default();
    let first = load.begin_read();
    let second = load.begin_read();
    let write = load.begin_write();
    assert_eq!((load.counts().reads.in_flight, load.counts().writes.in_flight), (2, 1));
    first.done(4096);
    write.done(512);
    let counts = load.counts();
    assert_eq!((counts.reads.done, counts.reads.bytes, counts.reads.in_flight), (1, 4096, 1));
    assert_eq!((counts.writes.done, counts.writes.bytes, counts.writes.in_flight), (1, 512, 0));
    drop(second);
    let counts = load.counts();
    assert_eq!((counts.reads.done, counts.in_flight(), counts.done()), (1, 0, 2), "nobody has answered it");
}

#[test]
fn the_time_under_way_gives_queue_and_latency() {
    let load = Load::default();
    load.pass(TENTH);
    assert_eq!(load.counts(), LoadCounts::default(), "nothing was under way");
    // Two writes at once for three tenths of a second, then one of them for one more.
    let (first, second) = (load.begin_write(), load.begin_write());
    (0..3).for_each(|_| load.pass(TENTH));
    first.done(0);
    load.pass(TENTH);
    second.done(0);
    load.pass(TENTH);
    let writes = load.counts().writes;
    assert_eq!(writes.in_flight_us, 700_000);
    assert_eq!(writes.in_flight_us / writes.done, 350_000, "0.3 and 0.4 s");
    assert_eq!(load.counts().reads, FlowCounts::default());
}
