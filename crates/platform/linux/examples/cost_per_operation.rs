//! Measures what one operation costs this runtime in processor time.
//!
//! ```text
//! cargo run --release -p spandrel-platform-linux --example cost_per_operation [DRIVE]
//! ```
//!
//! - *echo*: a client and an echo server, each on a thread of its own, exchange messages of 64 bytes
//!   over a unix socket and over TCP, with 1, 16 and 64 under way. One exchange is one message sent
//!   and one received on each side; given is each thread's processor time for it.
//! - *drive*: writes of 4 KiB with 1 and 32 under way, to a drive in memory and, if DRIVE is given, to
//!   that file or block device. THIS OVERWRITES IT. A file that is not there is created with 1 GiB.
//!   Kernel threads that work for the ring are not counted.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use spandrel_platform::{Address, Connection, Drive, Instant, Listener, Platform};
use spandrel_platform_linux::{
    LinuxConnection, LinuxDrive, LinuxPlatform, MemoryDrive, Runtime, RuntimeConfig, create_drive_file,
};

const MESSAGE_BYTES: usize = 64;
const BLOCK_BYTES: u64 = 4096;
const RUN: Duration = Duration::from_secs(1);

fn main() {
    let directory = std::env::temp_dir().join(format!("spandrel-cost-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("the temporary directory can be written to");
    let socket = Address::Unix(directory.join("socket").to_string_lossy().into_owned());
    let port = Address::Tcp(([127, 0, 0, 1], 0).into());
    for (name, address) in [("unix", socket), ("tcp", port)] {
        for under_way in [1, 16, 64] {
            measure_echo(name, &address, under_way);
        }
    }
    std::fs::remove_dir_all(&directory).expect("the temporary directory can be removed");
    let memory = MemoryDrive::new("cost", 256 << 20).expect("there is memory for a drive");
    measure_drive("memory", &memory.location());
    if let Some(location) = std::env::args().nth(1) {
        if !Path::new(&location).exists() {
            create_drive_file(Path::new(&location), 1 << 30).expect("the drive file can be created");
        }
        measure_drive("given", &location);
    }
}

/// Processor time of this thread, in nanoseconds.
fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("processor time is positive")
}

fn microseconds_each(nanoseconds: u64, count: u64) -> f64 {
    nanoseconds as f64 / 1000.0 / count.max(1) as f64
}

fn measure_echo(name: &str, address: &Address, under_way: usize) {
    let (addresses, real_address) = mpsc::channel();
    let asked = address.clone();
    let server = std::thread::spawn(move || {
        let mut runtime = Runtime::new(RuntimeConfig::default()).expect("a runtime can be made");
        let platform = runtime.platform();
        runtime.block_on(async move {
            let listener = platform.listen(&asked).expect("the address is free");
            addresses.send(listener.address()).expect("the client waits");
            let connection = listener.accept().await.expect("the client connects");
            let started = thread_time();
            echo(&connection).await;
            thread_time() - started
        })
    });
    let address = real_address.recv().expect("the server listens");
    let mut runtime = Runtime::new(RuntimeConfig::default()).expect("a runtime can be made");
    let platform = runtime.platform();
    let started = thread_time();
    let (exchanges, elapsed) = runtime.block_on(async move {
        let connection = platform.connect(&address).await.expect("the server listens");
        exchange(&platform, &connection, under_way).await
    });
    let client_time = thread_time() - started;
    let server_time = server.join().expect("the server ends with its client");
    println!(
        "echo {name:4} {under_way:3} under way: {:9.0} per second, client {:.2} us, server {:.2} us each",
        exchanges as f64 / elapsed.as_secs_f64(),
        microseconds_each(client_time, exchanges),
        microseconds_each(server_time, exchanges),
    );
}

async fn echo(connection: &LinuxConnection) {
    let mut bytes = vec![0; 64 << 10];
    let mut held = 0;
    loop {
        // The client leaves with answers unread, so its end may look like a break.
        let count = connection.receive(&mut bytes[held..]).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        held += count;
        let whole = held - held % MESSAGE_BYTES;
        for message in bytes[..whole].chunks(MESSAGE_BYTES) {
            connection.send(message, &[]);
        }
        bytes.copy_within(whole..held, 0);
        held -= whole;
    }
}

/// Keeps `under_way` messages in the air for a while: how many came back, and in what time.
async fn exchange(
    platform: &LinuxPlatform,
    connection: &LinuxConnection,
    under_way: usize,
) -> (u64, Duration) {
    let started = platform.now();
    for _ in 0..under_way {
        connection.send(&[7; MESSAGE_BYTES], &[]);
    }
    let mut bytes = vec![0; 64 << 10];
    let (mut received_bytes, mut answered) = (0, 0);
    loop {
        received_bytes += connection.receive(&mut bytes).await.expect("the server echoes");
        while answered < received_bytes / MESSAGE_BYTES {
            answered += 1;
            connection.send(&[7; MESSAGE_BYTES], &[]);
        }
        let elapsed = platform.now().since(started);
        if elapsed >= RUN {
            return (answered as u64, elapsed);
        }
    }
}

fn measure_drive(name: &str, location: &str) {
    for under_way in [1, 32] {
        let mut runtime = Runtime::new(RuntimeConfig::default()).expect("a runtime can be made");
        let platform = runtime.platform();
        let location = location.to_string();
        let started = thread_time();
        let (path, writes, elapsed) = runtime.block_on(async move {
            let drive = platform.open_drive(&location).await.unwrap_or_else(|error| panic!("{error}"));
            let began = platform.now();
            let writers: Vec<_> =
                (0..under_way).map(|_| write_on(platform.clone(), drive.clone(), began + RUN)).collect();
            let counts = futures_util::future::join_all(writers).await;
            (drive.path(), counts.iter().sum::<u64>(), platform.now().since(began))
        });
        println!(
            "drive {name} ({path:?}) {under_way:3} under way: {:9.0} writes per second, {:.2} us each",
            writes as f64 / elapsed.as_secs_f64(),
            microseconds_each(thread_time() - started, writes),
        );
    }
}

/// Writes blocks at random places until `end`, one after the other; returns how many.
async fn write_on(platform: LinuxPlatform, drive: LinuxDrive, end: Instant) -> u64 {
    let blocks = drive.geometry().size_bytes / BLOCK_BYTES;
    let block = platform.buffers().copy_of(&[3; BLOCK_BYTES as usize]).freeze();
    let mut count = 0;
    while platform.now() < end {
        let offset = platform.random_u64() % blocks * BLOCK_BYTES;
        drive.write(offset, vec![block.clone()]).await.unwrap_or_else(|error| panic!("{error}"));
        count += 1;
    }
    count
}
