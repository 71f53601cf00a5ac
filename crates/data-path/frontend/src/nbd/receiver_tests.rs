use proptest::prelude::*;
use spandrel_platform::Platform;

use super::super::stop::StopSignal;
use super::*;
use crate::testing::{TestConnection, TestPlatform};

/// What the receiving side does next.
#[derive(Clone, Debug)]
enum Action {
    Message(usize),
    Take(usize),
    Discard(usize),
}

fn action() -> impl Strategy<Value = Action> {
    let length = prop_oneof![1_usize..100, 1_usize..10_000, 30_000_usize..200_000];
    (0..3, length).prop_map(|(kind, length)| match kind {
        0 => Action::Message(length.min(60_000)),
        1 => Action::Take(length),
        _ => Action::Discard(length),
    })
}

fn receiver(platform: &TestPlatform, connection: TestConnection) -> Receiver<TestConnection> {
    Receiver::new(connection, StopSignal::default().listen(), platform.buffers())
}

/// Bytes that differ from their neighbours near and far.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index ^ (index >> 8) ^ (index >> 15)) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_byte_arrives_once_and_in_order(
        actions in proptest::collection::vec(action(), 1..12),
        fragment in prop_oneof![Just(usize::MAX), 1_usize..50_000],
    ) {
        let platform = TestPlatform::new();
        platform.fragment(fragment);
        let (client, server) = platform.pair();
        let lengths = actions.iter().map(|action| match action {
            Action::Message(length) | Action::Take(length) | Action::Discard(length) => *length,
        });
        let all = pattern(lengths.sum());
        client.send(&all, &[]);
        let mut receiver = receiver(&platform, server);
        let pool = platform.buffers().clone();
        platform.run(async move {
            let mut position = 0;
            for action in actions {
                match action {
                    Action::Message(length) => {
                        receiver.fill(length).await.unwrap();
                        assert!(receiver.received()[..length] == all[position..position + length]);
                        receiver.consume(length);
                        position += length;
                    }
                    Action::Take(length) => {
                        let data = receiver.take(length, &pool).await.unwrap();
                        assert!(data[..] == all[position..position + length]);
                        position += length;
                    }
                    Action::Discard(length) => {
                        receiver.discard(length as u64).await.unwrap();
                        position += length;
                    }
                }
            }
            client.close();
            assert_eq!(receiver.fill(1).await, Err(Ending::Closed));
        });
    }
}

#[test]
fn a_stop_ends_the_wait_for_a_message_and_loses_nothing() {
    let platform = TestPlatform::new();
    let (client, server) = platform.pair();
    let stop = StopSignal::default();
    let mut receiver = Receiver::new(server, stop.listen(), platform.buffers());
    client.send(b"abc", &[]);
    let own_platform = platform.clone();
    platform.run(async move {
        own_platform.spawn(async move { stop.raise() });
        assert_eq!(receiver.fill(4).await, Err(Ending::Stopping));
        assert_eq!(receiver.received(), b"abc");
        client.send(b"d", &[]);
        assert_eq!(&receiver.take(4, own_platform.buffers()).await.unwrap()[..], b"abcd");
    });
}

#[test]
fn long_data_are_received_where_they_belong() {
    let platform = TestPlatform::new();
    let (client, server) = platform.pair();
    let mut receiver = receiver(&platform, server);
    client.send(&pattern(1 << 20), &[]);
    let pool = platform.buffers().clone();
    platform.run(async move {
        receiver.take(1 << 20, &pool).await.unwrap();
        assert!(receiver.after_direct);
        client.send(&pattern(1 << 20), &[]);
        receiver.fill(28).await.unwrap();
        assert!(receiver.received().len() <= BUFFER_BYTES_AFTER_DIRECT, "little is left to copy");
        assert!(!receiver.after_direct);
    });
}
