//! The NBD server: what a client, which anybody may be, says in negotiation and transmission.
//!
//! An input is a script: raw bytes, options and requests with any content, in any order, perhaps behind a
//! proper negotiation. Whatever it says, the device is asked only for what lies within it, everything that
//! the server took for this client is given back, and the next client is served.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use spandrel_frontend::{NbdConfig, NbdServer};
use spandrel_platform::{Buffer, Connection, Platform};
use spandrel_platform_simulated::SimulatedPlatform;
use spandrel_volume::{BlockDevice, DeviceError, DeviceErrorKind, DeviceLimits, Exports, Extent, OpenError};

use super::wire::{Wire, buffer, connect, drain};
use crate::Target;
use crate::choices::Choices;
use crate::edit::edit;

pub const TARGET: Target = Target {
    name: "nbd-server",
    about: "what an NBD client says to the server",
    run,
    seeds,
    smoke_runs: 1500,
    memory_bytes_max: 4 << 20,
};

const EXPORT: &str = "vm-01";
const SIZE_BYTES: usize = 256 << 10;
const SECTOR_BYTES: u32 = 512;

/// Small bounds, so that breaking one is soon noticed.
fn config() -> NbdConfig {
    NbdConfig {
        request_bytes_max: 64 << 10,
        requests_in_flight_max: 16,
        bytes_in_flight_max: 128 << 10,
        send_queue_bytes_max: 64 << 10,
        discard_bytes_max: 128 << 10,
        negotiation_options_max: 64,
        ..NbdConfig::default()
    }
}

fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let modes = choices.byte();
    let script = script(&mut choices, modes & 1 != 0, modes & 2 != 0);
    let wire = Wire::new(modes & 4 != 0);
    let disk = MemoryDisk::new(&wire.tested.platform());
    let server = NbdServer::new(wire.tested.platform(), OneExport(disk.clone()), config());
    let listener = wire.tested.platform().listen(&Wire::address()).expect("nobody else listens");
    let own = server.clone();
    wire.tested.spawn(async move { drop(own.serve(listener).await) });

    let platform = wire.stranger.platform();
    wire.run(async move {
        let connection = connect(&platform).await;
        connection.send(&script, &[]);
        platform.spawn(drain(connection.clone()));
        // What the server does with a whole script, it does within this.
        platform.sleep(std::time::Duration::from_secs(1)).await;
        connection.close();
    });
    wire.until("the server forgets a client that went", || server.statistics().connections == 0);
    assert_eq!(server.statistics().requests_in_flight, 0);
    wire.until("nobody has the volume open", || disk.attachments() == 0);

    let platform = wire.stranger.platform();
    wire.run(async move { read_as_a_good_client(&connect(&platform).await).await });
}

/// A session as a client should hold it.
async fn read_as_a_good_client(connection: &impl Connection) {
    let mut bytes = client_flags(true);
    push_option(&mut bytes, 7, &go_data(EXPORT));
    push_request(&mut bytes, Request { command: 0, offset: 4096, length: 512, ..Request::default() });
    connection.send(&bytes, &[]);
    // The greeting, the replies to GO (size, block sizes, done), the reply, the data.
    let answer_bytes = 18 + (20 + 12) + (20 + 14) + 20 + 16 + 512;
    let answer = receive_all(connection, answer_bytes).await;
    let reply = &answer[answer_bytes - 528..];
    assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "a good client is served");
}

async fn receive_all(connection: &impl Connection, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let mut filled = 0;
    while filled < count {
        let received = connection.receive(&mut bytes[filled..]).await;
        match received {
            Ok(received @ 1..) => filled += received,
            ended => panic!("a good client is answered {filled} of {count} bytes, then {ended:?}"),
        }
    }
    bytes
}

/// What the client says, without waiting for answers.
fn script(choices: &mut Choices<'_>, negotiated: bool, structured: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    if negotiated {
        bytes = client_flags(true);
        if structured {
            push_option(&mut bytes, 8, &[]);
            push_option(&mut bytes, 10, &context_data(EXPORT, &["base:allocation"]));
        }
        push_option(&mut bytes, 7, &go_data(EXPORT));
    }
    while !choices.is_empty() {
        push_step(&mut bytes, choices);
    }
    bytes
}

fn push_step(bytes: &mut Vec<u8>, choices: &mut Choices<'_>) {
    match choices.byte() % 8 {
        0 => bytes.extend(client_flags(choices.flag())),
        1 => {
            let count = usize::from(choices.byte());
            bytes.extend(choices.bytes(count));
        }
        2 => {
            let (option, count) = (u32::from(choices.byte() % 12), usize::from(choices.byte()));
            push_option(bytes, option, choices.bytes(count));
        }
        3 => push_known_option(bytes, choices),
        4 => edit(bytes, choices),
        5 => push_request(bytes, Request::chosen(choices)),
        kind => {
            // Mostly within the volume, so that it is carried out; sometimes just across its end.
            let sectors = SIZE_BYTES / SECTOR_BYTES as usize;
            let first = choices.index(sectors + 2);
            let count = 1 + choices.index((sectors + 2 - first).min(64));
            let (offset, length) = ((first as u64) * u64::from(SECTOR_BYTES), count as u32 * SECTOR_BYTES);
            let command = if kind == 6 { 1 } else { u16::from(choices.byte() % 8) };
            let flags = u16::from(choices.byte() % 32);
            push_request(
                bytes,
                Request { flags, command, cookie: u64::from(choices.byte()), offset, length },
            );
            if command == 1 {
                bytes.extend(vec![choices.byte(); length as usize]);
            }
        }
    }
}

fn push_known_option(bytes: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let name = if choices.byte() < 200 { EXPORT } else { "other" };
    let mut data = match choices.byte() % 4 {
        0 => name.as_bytes().to_vec(),
        1 => go_data(name),
        2 => context_data(name, &["base:allocation"]),
        _ => context_data(name, &["base:", "x:y"]),
    };
    if choices.flag() {
        edit(&mut data, choices);
    }
    let options = [1, 6, 7, 9, 10];
    push_option(bytes, options[choices.index(options.len())], &data);
}

fn client_flags(no_zeroes: bool) -> Vec<u8> {
    vec![0, 0, 0, if no_zeroes { 3 } else { 1 }]
}

fn push_option(bytes: &mut Vec<u8>, option: u32, data: &[u8]) {
    bytes.extend(b"IHAVEOPT");
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
}

fn go_data(name: &str) -> Vec<u8> {
    let mut data = text(name);
    data.extend([0, 0]);
    data
}

fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = text(name);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(text(query)));
    data
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

#[derive(Default)]
struct Request {
    flags: u16,
    command: u16,
    cookie: u64,
    offset: u64,
    length: u32,
}

impl Request {
    fn chosen(choices: &mut Choices<'_>) -> Self {
        Self {
            flags: choices.short(),
            command: u16::from(choices.byte() % 10),
            cookie: choices.number(),
            offset: choices.number(),
            length: choices.number() as u32,
        }
    }
}

fn push_request(bytes: &mut Vec<u8>, request: Request) {
    bytes.extend(0x2560_9513_u32.to_be_bytes());
    bytes.extend(request.flags.to_be_bytes());
    bytes.extend(request.command.to_be_bytes());
    bytes.extend(request.cookie.to_be_bytes());
    bytes.extend(request.offset.to_be_bytes());
    bytes.extend(request.length.to_be_bytes());
}

fn seeds() -> Vec<Vec<u8>> {
    // Every step once: raw, behind a negotiation, and with structured replies in pieces.
    let steps = [
        vec![0, 1],
        vec![2, 3, 0],
        vec![2, 8, 0],
        vec![3, 0, 3, 0, 4, 0],
        vec![3, 0, 1, 0, 1, 0],
        vec![6, 8, 0, 7, 0, 0, 1, 9],
        vec![7, 8, 0, 15, 0, 0, 4, 2],
        vec![7, 0, 0, 63, 0, 3, 0, 3],
        vec![7, 0, 0, 63, 0, 4, 1, 4],
        vec![7, 0, 0, 63, 0, 6, 2, 5],
        vec![7, 0, 0, 63, 0, 7, 8, 6],
        vec![5, 0, 0, 1, 7, 64, 79],
        vec![5, 0, 0, 2, 0, 0, 0],
    ];
    (0..8).map(|modes| [vec![modes], steps.concat()].concat()).collect()
}

/// A disk in memory that insists on what a front-end promises to volumes.
#[derive(Clone)]
struct MemoryDisk {
    platform: SimulatedPlatform,
    content: Rc<RefCell<Vec<u8>>>,
    attachments: Rc<Cell<usize>>,
    attachment: Option<Rc<Attachment>>,
}

/// Counts those who have the disk open.
struct Attachment(Rc<Cell<usize>>);

impl Drop for Attachment {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl MemoryDisk {
    fn new(platform: &SimulatedPlatform) -> Self {
        let content = Rc::new(RefCell::new(vec![0; SIZE_BYTES]));
        Self { platform: platform.clone(), content, attachments: Rc::default(), attachment: None }
    }

    fn attachments(&self) -> usize {
        self.attachments.get()
    }

    fn range(&self, offset: u64, length: u64) -> std::ops::Range<usize> {
        assert!(self.attachment.is_some(), "only who opened a volume uses it");
        let unit = u64::from(SECTOR_BYTES);
        assert!(offset.is_multiple_of(unit) && length.is_multiple_of(unit) && length > 0);
        let end = offset.checked_add(length).filter(|end| *end <= SIZE_BYTES as u64);
        offset as usize..end.expect("a request lies within the volume") as usize
    }

    fn clear(&self, offset: u64, length: u64) {
        let range = self.range(offset, length);
        self.content.borrow_mut()[range].fill(0);
    }
}

impl BlockDevice for MemoryDisk {
    fn limits(&self) -> DeviceLimits {
        DeviceLimits {
            size_bytes: SIZE_BYTES as u64,
            request_bytes_min: SECTOR_BYTES,
            request_bytes_preferred: 4096,
            request_bytes_max: 32 << 20,
            read_only: false,
        }
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Vec<Buffer>, DeviceError> {
        assert!(length <= config().request_bytes_max);
        let range = self.range(offset, u64::from(length));
        let content = self.content.borrow();
        Ok(content[range].chunks(5 * 512).map(|part| buffer(&self.platform, part).freeze()).collect())
    }

    async fn write(&self, offset: u64, data: Buffer) -> Result<(), DeviceError> {
        let range = self.range(offset, data.len() as u64);
        self.content.borrow_mut()[range].copy_from_slice(&data);
        Ok(())
    }

    async fn write_zeroes(&self, offset: u64, length: u64, _: bool) -> Result<(), DeviceError> {
        self.clear(offset, length);
        Ok(())
    }

    async fn trim(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.clear(offset, length);
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, DeviceError> {
        let range = self.range(offset, length);
        let content = self.content.borrow();
        let states = content[range].chunks(SECTOR_BYTES as usize);
        let is_used = |sector: &[u8]| sector.iter().any(|byte| *byte != 0);
        Ok(states.map(|part| Extent { length: part.len() as u64, allocated: is_used(part) }).collect())
    }
}

/// The disk under one name.
#[derive(Clone)]
struct OneExport(MemoryDisk);

impl Exports for OneExport {
    type Device = MemoryDisk;

    fn names(&self) -> Vec<String> {
        vec![EXPORT.to_owned()]
    }

    async fn open(&self, name: &str) -> Result<MemoryDisk, OpenError> {
        if name != EXPORT {
            return Err(DeviceError::new(DeviceErrorKind::NotFound, "no such volume").into());
        }
        self.0.attachments.set(self.0.attachments.get() + 1);
        let attachment = Some(Rc::new(Attachment(Rc::clone(&self.0.attachments))));
        Ok(MemoryDisk { attachment, ..self.0.clone() })
    }
}
