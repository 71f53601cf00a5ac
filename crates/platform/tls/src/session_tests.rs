use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::*;
use crate::testing::TestAuthority;

/// A write of 4 KiB with its frame's header and body.
const MESSAGE_BYTES: usize = 4096 + 160;

/// Two sides whose handshake is over.
fn pair() -> (Session, Session) {
    let authority = TestAuthority::new("one.cluster.test");
    let near = authority.holder("near", &authority, &[]);
    let far = authority.holder("far", &authority, &[]);
    let mut sides = [Session::client(&near).unwrap(), Session::server(&far).unwrap()];
    let mut arrived = [Vec::new(), Vec::new()];
    let mut open = BTreeSet::new();
    while open.len() < 2 {
        for side in 0..2 {
            let mut output = Output::default();
            let (done, wait) = sides[side].advance(&mut arrived[side], &mut output);
            arrived[side].drain(..done);
            arrived[1 - side].extend_from_slice(&output.wire);
            if wait.unwrap() == Wait::Open {
                open.insert(side);
            }
        }
    }
    let [client, server] = sides;
    (client, server)
}

/// Sends a message, and returns how long sealing and opening it has taken.
fn pass(client: &mut Session, server: &mut Session, message: &[u8], wire: &mut [u8]) -> [Duration; 2] {
    let began = Instant::now();
    let count = client.encrypt(&mut [], message, wire).unwrap();
    let sealed = Instant::now();
    let mut output = Output::default();
    let (done, wait) = server.advance(&mut wire[..count], &mut output);
    let opened = Instant::now();
    assert_eq!((done, wait.unwrap()), (count, Wait::Open));
    assert!(output.plain == message);
    [sealed - began, opened - sealed]
}

#[test]
fn what_one_side_seals_the_other_opens() {
    let (mut client, mut server) = pair();
    let message: Vec<u8> = (0..MESSAGE_BYTES).map(|number| number as u8).collect();
    let mut wire = vec![0; Session::wire_bytes(MESSAGE_BYTES)];
    for _ in 0..100 {
        pass(&mut client, &mut server, &message, &mut wire);
    }
}

/// What encryption costs for each write. `cargo test -p spandrel-platform-tls --release -- --ignored --nocapture cost`
#[test]
#[ignore = "a measurement, which proves nothing"]
fn cost_of_a_message() {
    const ROUNDS: u32 = 200_000;
    let (mut client, mut server) = pair();
    let message = vec![7; MESSAGE_BYTES];
    let mut wire = vec![0; Session::wire_bytes(MESSAGE_BYTES)];
    let mut totals = [Duration::ZERO; 2];
    for _ in 0..ROUNDS {
        let times = pass(&mut client, &mut server, &message, &mut wire);
        totals.iter_mut().zip(times).for_each(|(total, time)| *total += time);
    }
    let [sealing, opening] = totals.map(|total| total.as_nanos() / u128::from(ROUNDS));
    println!("a message of {MESSAGE_BYTES} bytes: {sealing} ns to seal, {opening} ns to open");
}
