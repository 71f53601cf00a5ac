//! NBD: requests of a client, taken off a connection and answered by a device that does nothing.

use divan::Bencher;
use divan::counter::ItemsCount;
use spandrel_frontend::{NbdConfig, NbdServer};
use spandrel_platform::{BLOCK_BYTES, Buffer, Connection, Platform};
use spandrel_platform_simulated::{SimulatedConnection, SimulatedPlatform};
use spandrel_volume::{BlockDevice, DeviceError, DeviceErrorKind, DeviceLimits, Exports, Extent, OpenError};

use crate::world::{address, run, world};

const EXPORT: &[u8] = b"v";
const SIZE_BYTES: u64 = 1 << 30;
/// Commands of the protocol.
const READ: u16 = 0;
const WRITE: u16 = 1;

/// Holds zeros, and forgets what is written.
#[derive(Clone)]
struct Nothing {
    zeros: Buffer,
}

impl BlockDevice for Nothing {
    fn limits(&self) -> DeviceLimits {
        DeviceLimits {
            size_bytes: SIZE_BYTES,
            request_bytes_min: 512,
            request_bytes_preferred: BLOCK_BYTES as u32,
            request_bytes_max: 1 << 20,
            read_only: false,
        }
    }

    async fn read(&self, _: u64, length: u32) -> Result<Vec<Buffer>, DeviceError> {
        Ok(vec![self.zeros.slice(0..length as usize)])
    }

    async fn write(&self, _: u64, _: Buffer) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn write_zeroes(&self, _: u64, _: u64, _: bool) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn trim(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn extents(&self, _: u64, length: u64) -> Result<Vec<Extent>, DeviceError> {
        Ok(vec![Extent { length, allocated: false }])
    }
}

impl Exports for Nothing {
    type Device = Self;

    fn names(&self) -> Vec<String> {
        vec![String::from_utf8_lossy(EXPORT).into_owned()]
    }

    async fn open(&self, name: &str) -> Result<Self, OpenError> {
        let found = name.as_bytes() == EXPORT;
        let missing = || DeviceError::new(DeviceErrorKind::NotFound, "another name").into();
        found.then(|| self.clone()).ok_or_else(missing)
    }
}

/// What a client says to open the volume, and how long what the server says to that is.
fn negotiation() -> (Vec<u8>, usize) {
    let mut go = (EXPORT.len() as u32).to_be_bytes().to_vec();
    go.extend(EXPORT);
    go.extend([0, 0]);
    // The client's flags, and the option GO.
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    bytes.extend(b"IHAVEOPT");
    bytes.extend(7_u32.to_be_bytes());
    bytes.extend((go.len() as u32).to_be_bytes());
    bytes.extend(go);
    // The greeting; the size, the sizes of blocks, and that it is done.
    (bytes, 18 + (20 + 12) + (20 + 14) + 20)
}

/// So many requests of a block, one behind the other.
fn requests(command: u16, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..count as u64 {
        bytes.extend(0x2560_9513_u32.to_be_bytes());
        bytes.extend(0_u16.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(number.to_be_bytes());
        bytes.extend((number * BLOCK_BYTES as u64).to_be_bytes());
        bytes.extend((BLOCK_BYTES as u32).to_be_bytes());
        if command == WRITE {
            bytes.extend([0x5a; BLOCK_BYTES]);
        }
    }
    bytes
}

async fn receive(connection: SimulatedConnection, mut count: usize) {
    let mut bytes = vec![0; 256 << 10];
    while count > 0 {
        let room = count.min(bytes.len());
        let received = connection.receive(&mut bytes[..room]).await.expect("the server goes on");
        assert_ne!(received, 0, "the server closed the connection");
        count -= received;
    }
}

fn serve(bencher: Bencher<'_, '_>, command: u16, count: usize) {
    let world = world();
    let host = world.add_host("machine");
    let (server, client) = (world.start_process_on(&host, "server"), world.start_process_on(&host, "client"));
    let platform = server.platform();
    let nothing = Nothing { zeros: platform.buffers().take_zeroed(1 << 20).freeze() };
    let listener = platform.listen(&address()).expect("nobody else listens");
    let nbd: NbdServer<SimulatedPlatform, Nothing> = NbdServer::new(platform, nothing, NbdConfig::default());
    server.spawn(async move { drop(nbd.serve(listener).await) });

    let platform = client.platform();
    let connection = run(&client, async move {
        let connection = platform.connect(&address()).await.expect("the server listens");
        let (bytes, answer_bytes) = negotiation();
        connection.send(&bytes, &[]);
        receive(connection.clone(), answer_bytes).await;
        connection
    });
    let bytes = requests(command, count);
    let answer_bytes = count * (16 + if command == READ { BLOCK_BYTES } else { 0 });
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        connection.send(&bytes, &[]);
        run(&client, receive(connection.clone(), answer_bytes));
    });
}

#[divan::bench(args = [1, 32])]
fn reads(bencher: Bencher<'_, '_>, count: usize) {
    serve(bencher, READ, count);
}

#[divan::bench(args = [1, 32])]
fn writes(bencher: Bencher<'_, '_>, count: usize) {
    serve(bencher, WRITE, count);
}
