//! The NBD client of the fleet: what a server says to it, which may be any server.
//!
//! An input says how the server opens an export and how it answers requests: properly, with something
//! changed, or with any bytes. However that is, each request comes to its end, and a read that succeeded
//! brings as many bytes as it asked for.

use std::pin::Pin;
use std::time::Duration;

use futures_util::future::join_all;
use spandrel_fleet::NbdClient;
use spandrel_platform::{Connection, Listener, Platform, before};
use spandrel_platform_simulated::{SimulatedConnection, SimulatedListener, SimulatedPlatform};

use super::wire::{Wire, buffer, drain, receive};
use crate::Target;
use crate::choices::Choices;
use crate::edit::edit;

pub const TARGET: Target = Target {
    name: "nbd-client",
    about: "what an NBD server says to the fleet's client",
    run,
    seeds,
    smoke_runs: 1500,
    memory_bytes_max: 4 << 20,
};

/// How long the server waits for a client that waits for the server.
const SERVER_PATIENCE: Duration = Duration::from_secs(20);

/// Requests that the client sends at once.
const REQUESTS: usize = 6;

fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let modes = choices.byte();
    let wire = Wire::new(modes & 4 != 0);
    let platform = wire.stranger.platform();
    let listener = platform.listen(&Wire::address()).expect("nobody else listens");
    let script = choices.rest().to_vec();
    wire.stranger.spawn(async move {
        let connection = listener.accept().await.expect("the client comes");
        let clone = connection.clone();
        let patience = platform.now() + SERVER_PATIENCE;
        before(&platform, patience, serve(&connection, &mut Choices::new(&script))).await;
        keep(listener, clone, &platform).await;
    });
    let platform = wire.tested.platform();
    let end = wire.tested.block_on(async move { use_export(&platform).await });
    end.unwrap_or_else(|end| panic!("the client waits for ever: {end:?}"));
}

/// Says nothing more for a while, then closes: whoever waits for an answer learns that none comes.
async fn keep(listener: SimulatedListener, connection: SimulatedConnection, platform: &SimulatedPlatform) {
    platform.spawn(drain(connection.clone()));
    platform.sleep(Duration::from_secs(30)).await;
    connection.close();
    drop(listener);
}

/// Opens the export and has all kinds of requests in flight.
async fn use_export(platform: &SimulatedPlatform) {
    let Ok(client) = NbdClient::open(platform, &Wire::address(), "vm-01").await else { return };
    let unit = client.export().request_bytes_min.min(64 << 10);
    let data = buffer(platform, &vec![7; unit as usize]).freeze();
    let last = client.export().size_bytes.saturating_sub(u64::from(unit));
    let reads = async {
        for offset in [0, last] {
            if let Ok(read) = client.read(offset, unit).await {
                assert_eq!(read.len(), unit as usize);
            }
        }
    };
    let two_units = async {
        if let Ok(read) = client.read(0, unit * 2).await {
            assert_eq!(read.len(), 2 * unit as usize);
        }
    };
    let write = async { drop(client.write(0, data).await) };
    let flush = async { drop(client.flush().await) };
    let trim = async { drop(client.trim(0, unit).await) };
    let zero = async { drop(client.write_zeroes(0, unit).await) };
    let all: [Pin<Box<dyn Future<Output = ()> + '_>>; 6] = [
        Box::pin(reads),
        Box::pin(two_units),
        Box::pin(write),
        Box::pin(flush),
        Box::pin(trim),
        Box::pin(zero),
    ];
    join_all(all).await;
}

/// The server's side of a session.
async fn serve(connection: &SimulatedConnection, choices: &mut Choices<'_>) {
    send(connection, b"NBDMAGICIHAVEOPT\0\x03".to_vec(), choices);
    // Client flags, then the two options of our client.
    if receive(connection, 4).await.is_none() {
        return;
    }
    for _ in 0..2 {
        let Some(head) = receive(connection, 16).await else { return };
        let (option, length) = (number(&head[8..12]), number(&head[12..16]));
        if receive(connection, length as usize).await.is_none() {
            return;
        }
        let refuse = choices.byte() > 240;
        if option == 7 && !refuse {
            let size_bytes = if choices.flag() { choices.number() } else { 1 << 20 };
            let flags = if choices.flag() { choices.short() } else { 0x6d };
            let export = [&[0, 0][..], &size_bytes.to_be_bytes(), &flags.to_be_bytes()].concat();
            send(connection, option_reply(option, 3, &export), choices);
            let sizes = [if choices.flag() { choices.number() as u32 } else { 512 }, 4096, 1 << 20];
            let sizes = sizes.iter().flat_map(|size| size.to_be_bytes());
            send(
                connection,
                option_reply(option, 3, &[0, 3].into_iter().chain(sizes).collect::<Vec<_>>()),
                choices,
            );
        }
        let kind = if refuse { 1 << 31 | u32::from(choices.byte()) } else { 1 };
        send(connection, option_reply(option, kind, &[]), choices);
    }
    for _ in 0..=REQUESTS {
        let Some(request) = receive(connection, 28).await else { return };
        if request[7] == 1 {
            let length = number(&request[24..28]);
            if receive(connection, length as usize).await.is_none() {
                return;
            }
        }
        answer(connection, &request, choices);
    }
}

fn answer(connection: &SimulatedConnection, request: &[u8], choices: &mut Choices<'_>) {
    let cookie = &request[8..16];
    let (offset, length) = (&request[16..24], &request[24..28]);
    let is_read = request[7] == 0;
    for _ in 0..1 + choices.byte() % 3 {
        let data = vec![9; number(length).min(64 << 10) as usize];
        let last = if choices.byte() < 200 { 1 } else { 0 };
        let reply = match choices.byte() % 6 {
            0 if is_read => chunk(last, 1, cookie, &[offset, &data].concat()),
            1 if is_read => chunk(last, 2, cookie, &[offset, length].concat()),
            2 => simple_reply(cookie, u32::from(choices.byte())),
            3 => chunk(last, 0x8001, cookie, &[0, 0, 0, 5, 0, 2, b'n', b'o']),
            4 => {
                let kind = u16::from(choices.byte() % 8) | u16::from(choices.byte() & 0x80) << 8;
                let count = usize::from(choices.byte());
                chunk(last, kind, cookie, choices.bytes(count))
            }
            _ if is_read => [simple_reply(cookie, 0), data].concat(),
            _ => chunk(1, 0, cookie, &[]),
        };
        send(connection, reply, choices);
    }
}

/// Sends `bytes`, perhaps changed.
fn send(connection: &SimulatedConnection, mut bytes: Vec<u8>, choices: &mut Choices<'_>) {
    if choices.byte() > 220 {
        edit(&mut bytes, choices);
    }
    connection.send(&bytes, &[]);
}

fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
    [option, kind, data.len() as u32].iter().for_each(|number| bytes.extend(number.to_be_bytes()));
    bytes.extend(data);
    bytes
}

fn simple_reply(cookie: &[u8], error: u32) -> Vec<u8> {
    [&0x6744_6698_u32.to_be_bytes(), &error.to_be_bytes(), cookie].concat()
}

fn chunk(flags: u16, kind: u16, cookie: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = 0x668e_33ef_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie);
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn seeds() -> Vec<Vec<u8>> {
    // Every way to answer, for each of them alone; and refusals of either option.
    let open = [0; 10];
    let mut seeds: Vec<Vec<u8>> =
        (0..6).map(|kind| [&open[..], &[0, 0, kind, 0].repeat(7)].concat()).collect();
    seeds.push(vec![4, 0, 250]);
    seeds.push(vec![4, 0, 0, 0, 250, 6]);
    seeds
}
