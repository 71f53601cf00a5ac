use std::cell::Cell;
use std::rc::Rc;

use spandrel_platform::Listener;
use spandrel_platform_simulated::{Process, Random, SimulatedConnection, SimulatedPlatform, World};

use super::*;
use crate::frame::{ANSWER_BODY_BYTES_MAX, FrameKind};
use crate::test_support::raw::frame_of;
use crate::test_support::{address_of, pattern, run_until};

/// Two ends of a connection.
fn connected(world: &World) -> (Process, SimulatedConnection, FrameReceiver<SimulatedPlatform>) {
    let (near, far) = (world.process("near"), world.process("far"));
    let (platform, address) = (far.platform(), address_of(world, "far"));
    let listener = platform.listen(&address).expect("the port is free");
    let accepting = platform.clone();
    let frames = Rc::new(Cell::new(None));
    let slot = Rc::clone(&frames);
    far.spawn(async move {
        let connection = listener.accept().await.expect("a connection");
        slot.set(Some(FrameReceiver::new(&accepting, connection)));
    });
    let platform = near.platform();
    let connection = near.block_on(async move { platform.connect(&address).await });
    let connection = connection.expect("it ends").expect("somebody listens");
    let mut received = None;
    run_until(world, || {
        received = frames.take();
        received.is_some()
    });
    (far, connection, received.expect("it was accepted"))
}

fn frame(sequence: u64, body_bytes: usize, payload_bytes: usize) -> Vec<u8> {
    let mut header = Header::new(FrameKind::Answer, 1, 1, sequence);
    header.payload_bytes = payload_bytes;
    let body = pattern(sequence, body_bytes);
    [frame_of(header, &body), pattern(sequence + 1, payload_bytes)].concat()
}

#[test]
fn frames_of_all_sizes_come_out_as_they_went_in() {
    for seed in 0..30 {
        let world = World::swarm(seed);
        let (far, connection, mut frames) = connected(&world);
        if seed % 2 == 0 {
            frames.widen();
        }
        if seed % 4 < 2 {
            frames.share_payloads();
        }
        let random = Random::stream(seed, "frames", 0);
        let sizes: Vec<(usize, usize)> = (0..60)
            .map(|_| {
                let body = [0, 50, 1000, 5000, 70_000, 300_000, 1_500_000][random.index(7)];
                let payload = [0, 1, 4095, 4096, 20_000, 33_000, 200_000, 1 << 20][random.index(8)];
                (random.index(body + 1), random.index(payload + 1))
            })
            .collect();
        for (sequence, (body, payload)) in sizes.iter().enumerate() {
            connection.send(&frame(sequence as u64, *body, *payload), &[]);
        }
        let received = far.block_on(async move {
            for (sequence, (body_bytes, payload_bytes)) in sizes.iter().enumerate() {
                let sequence = sequence as u64;
                let header = frames.header().await.expect("a frame");
                assert_eq!((header.sequence, header.payload_bytes), (sequence, *payload_bytes));
                let body = frames.body(&header).await.expect("a body");
                assert!(*body == *pattern(sequence, *body_bytes), "seed {seed}, frame {sequence}");
                let payload = frames.payload(&header).await.expect("a payload");
                assert_eq!(payload.is_some(), *payload_bytes > 0);
                if let Some(payload) = payload {
                    assert!(*payload == *pattern(sequence + 1, *payload_bytes), "seed {seed}");
                }
            }
            frames
        });
        let mut frames = received.expect("all frames come");
        connection.close();
        let ending = far.block_on(async move { frames.header().await.err() });
        assert_eq!(ending, Ok(Some(Ending::Closed)));
    }
}

#[test]
fn a_connection_that_ends_within_a_frame_brings_no_frame() {
    let whole = frame(1, 100, 50_000);
    for cut in [0, 1, 95, 96, 150, 196, 20_000, whole.len() - 1] {
        let world = World::new(cut as u64);
        let (far, connection, mut frames) = connected(&world);
        connection.send(&whole[..cut], &[]);
        connection.close();
        let ending = far.block_on(async move {
            let header = frames.header().await?;
            frames.body(&header).await?;
            frames.payload(&header).await.map(drop)
        });
        assert_eq!(ending, Ok(Err(Ending::Closed)), "cut at {cut}");
    }
}

#[test]
fn memory_that_a_long_body_needed_is_given_back() {
    let world = World::new(1);
    let (far, connection, mut frames) = connected(&world);
    frames.widen();
    connection.send(&frame(1, ANSWER_BODY_BYTES_MAX, 0), &[]);
    connection.send(&frame(2, 10, 0), &[]);
    connection.send(&frame(3, 10, 0), &[]);
    let lengths = far.block_on(async move {
        let mut lengths = Vec::new();
        for _ in 0..3 {
            let header = frames.header().await.expect("a frame");
            frames.body(&header).await.expect("a body");
            lengths.push(frames.memory.memory_bytes());
        }
        lengths
    });
    assert_eq!(lengths, Ok(vec![ANSWER_BODY_BYTES_MAX, BUFFER_BYTES, BUFFER_BYTES]));
}

#[test]
fn the_time_of_the_newest_bytes_is_known() {
    let world = World::new(1);
    let (far, connection, mut frames) = connected(&world);
    let before = frames.received_at();
    let platform = far.platform();
    connection.send(&frame(1, 10, 0), &[]);
    let (received_at, now) = far
        .block_on(async move {
            frames.header().await.expect("a frame");
            (frames.received_at(), platform.now())
        })
        .expect("it ends");
    assert!(received_at > before && received_at == now);
}
