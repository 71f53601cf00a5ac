use futures_util::FutureExt;
use spandrel_shared::{NodeId, ProcessIncarnation, ShardId};

use super::*;

fn writer(number: u64) -> VolumeWriter {
    let incarnation = ProcessIncarnation::from_random(1, 1);
    VolumeWriter { shard: ShardId::first(NodeId::from_random(1, 1)), incarnation, attachment: number }
}

#[test]
fn a_new_writer_waits_for_all_that_others_have_begun() {
    let writers = Writers::default();
    let (first, second, own) = (writers.begin(writer(1)), writers.begin(writer(1)), writers.begin(writer(2)));
    let mut ended = std::pin::pin!(writers.others_ended(writer(2)));
    assert!(ended.as_mut().now_or_never().is_none());
    drop(first);
    assert!(ended.as_mut().now_or_never().is_none(), "the other one has two under way");
    drop(second);
    assert!(ended.as_mut().now_or_never().is_some(), "the own one does not count");
    drop(own);
    assert!(writers.under_way.borrow().is_empty(), "nothing is left behind");
}

#[test]
fn turns_come_in_the_order_of_asking() {
    let writers = Writers::default();
    let first = writers.turn().now_or_never().expect("nobody has it");
    let mut second = std::pin::pin!(writers.turn());
    assert!(second.as_mut().now_or_never().is_none());
    let mut third = std::pin::pin!(writers.turn());
    assert!(third.as_mut().now_or_never().is_none());
    drop(first);
    assert!(third.as_mut().now_or_never().is_none(), "another one was before it");
    let second = second.as_mut().now_or_never().expect("it is its turn");
    drop(second);
    assert!(third.as_mut().now_or_never().is_some());
}
