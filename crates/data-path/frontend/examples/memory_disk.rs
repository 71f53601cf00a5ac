//! Serves disks in memory over NBD: what the front-end costs by itself.
//!
//! ```text
//! cargo run --release -p spandrel-frontend --example memory_disk -- /tmp/disk.sock 1G
//! nbdinfo 'nbd+unix:///disk?socket=/tmp/disk.sock'
//! ```
//!
//! The first argument is the path of a unix socket or a TCP address, the second one the size of
//! the disk, which is named `disk`. It stops at the end of its input.

// An example is a program: it owns its terminal and starts its own threads.
#![allow(clippy::disallowed_methods)]

use std::cell::RefCell;
use std::rc::Rc;

use futures_channel::oneshot;
use spandrel_frontend::{NbdConfig, NbdServer};
use spandrel_platform::{Address, BLOCK_BYTES, Buffer, BufferPool, Platform};
use spandrel_platform_linux::{Runtime, RuntimeConfig};
use spandrel_shared::size::parse_size;
use spandrel_volume::{BlockDevice, DeviceError, DeviceErrorKind, DeviceLimits, Exports, Extent, OpenError};

const NAME: &str = "disk";
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A disk whose blocks are kept by reference: a read copies nothing.
#[derive(Clone)]
struct MemoryDisk {
    blocks: Rc<RefCell<Vec<Option<Buffer>>>>,
    pool: BufferPool,
    zeros: Buffer,
}

impl MemoryDisk {
    fn new(size_bytes: u64, pool: &BufferPool) -> Self {
        let count = usize::try_from(size_bytes / BLOCK).expect("the disk fits in memory");
        let zeros = pool.take_zeroed(BLOCK_BYTES).freeze();
        Self { blocks: Rc::new(RefCell::new(vec![None; count])), pool: pool.clone(), zeros }
    }

    /// Calls `change` with each block that the range touches, and the part of it that is meant.
    fn for_each(&self, offset: u64, length: u64, mut change: impl FnMut(&mut Option<Buffer>, u64, u64)) {
        let mut blocks = self.blocks.borrow_mut();
        let end = offset + length;
        let mut position = offset;
        while position < end {
            let block = position / BLOCK;
            let until = end.min((block + 1) * BLOCK);
            change(&mut blocks[block as usize], position - block * BLOCK, until - block * BLOCK);
            position = until;
        }
    }

    /// What `block` holds with `content` in the place of its bytes from `start` on.
    fn changed(&self, block: &Option<Buffer>, start: u64, content: &[u8]) -> Buffer {
        if content.len() == BLOCK_BYTES {
            return self.pool.copy_of(content).freeze();
        }
        let mut whole = self.pool.copy_of(block.as_ref().unwrap_or(&self.zeros));
        whole[start as usize..start as usize + content.len()].copy_from_slice(content);
        whole.freeze()
    }
}

impl BlockDevice for MemoryDisk {
    fn limits(&self) -> DeviceLimits {
        DeviceLimits {
            size_bytes: self.blocks.borrow().len() as u64 * BLOCK,
            request_bytes_min: 512,
            request_bytes_preferred: BLOCK_BYTES as u32,
            request_bytes_max: 32 << 20,
            read_only: false,
        }
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Vec<Buffer>, DeviceError> {
        let mut parts = Vec::with_capacity(length as usize / BLOCK_BYTES + 2);
        self.for_each(offset, u64::from(length), |block, start, end| {
            let content = block.as_ref().unwrap_or(&self.zeros);
            parts.push(content.slice(start as usize..end as usize));
        });
        Ok(parts)
    }

    async fn write(&self, offset: u64, data: Buffer) -> Result<(), DeviceError> {
        let mut rest = &data[..];
        self.for_each(offset, data.len() as u64, |block, start, end| {
            let (content, behind) = rest.split_at((end - start) as usize);
            rest = behind;
            *block = Some(self.changed(block, start, content));
        });
        Ok(())
    }

    async fn write_zeroes(&self, offset: u64, length: u64, keep_allocated: bool) -> Result<(), DeviceError> {
        self.for_each(offset, length, |block, start, end| {
            let whole = end - start == BLOCK;
            if !keep_allocated && (whole || block.is_none()) {
                *block = None;
            } else {
                *block = Some(self.changed(block, start, &self.zeros[..(end - start) as usize]));
            }
        });
        Ok(())
    }

    async fn trim(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.for_each(offset, length, |block, start, end| {
            if end - start == BLOCK {
                *block = None;
            }
        });
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, DeviceError> {
        let mut extents: Vec<Extent> = Vec::new();
        self.for_each(offset, length, |block, start, end| {
            let (length, allocated) = (end - start, block.is_some());
            match extents.last_mut() {
                Some(last) if last.allocated == allocated => last.length += length,
                _ => extents.push(Extent { length, allocated }),
            }
        });
        Ok(extents)
    }
}

#[derive(Clone)]
struct OneDisk(MemoryDisk);

impl Exports for OneDisk {
    type Device = MemoryDisk;

    fn names(&self) -> Vec<String> {
        vec![NAME.to_owned()]
    }

    async fn open(&self, name: &str) -> Result<MemoryDisk, OpenError> {
        if name == NAME || name.is_empty() {
            return Ok(self.0.clone());
        }
        Err(DeviceError::new(DeviceErrorKind::NotFound, format!("there is no volume {name:?}")).into())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, size] = &arguments[..] else {
        return Err("usage: memory_disk <socket path or TCP address> <size>".into());
    };
    let address = match address.parse() {
        Ok(tcp) => Address::Tcp(tcp),
        Err(_) => Address::Unix(address.clone()),
    };
    let size_bytes = parse_size(size).ok_or_else(|| format!("{size:?} is no size"))? / BLOCK * BLOCK;
    let mut runtime = Runtime::new(RuntimeConfig::default())?;
    let platform = runtime.platform();
    let listener = platform.listen(&address)?;
    let exports = OneDisk(MemoryDisk::new(size_bytes, platform.buffers()));
    let server = NbdServer::new(platform.clone(), exports, NbdConfig::default());
    let end_of_input = end_of_input();
    let own = server.clone();
    runtime.block_on(async move {
        let accepting = own.clone();
        platform.spawn(async move {
            if let Err(error) = accepting.serve(listener).await {
                eprintln!("no more connections: {error}");
            }
        });
        // An error says that the thread is gone, which is as good a reason to stop.
        let _ = end_of_input.await;
        own.stop().await;
    });
    eprintln!("{:#?}\n{:#?}", server.statistics(), runtime.statistics());
    Ok(())
}

/// Completes at the end of the input, which is how whoever started this says that it may go.
fn end_of_input() -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        sender.send(())
    });
    receiver
}
