//! Serves a file as a disk over vhost-user until it is killed: `spandrel-test-disk SOCKET FILE`. What was written is in the file when it
//! is answered, as far as other processes see it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use spandrel_platform::{Buffer, BufferPool, Platform as _};
use spandrel_platform_linux::{LinuxPlatform, Runtime, RuntimeConfig};
use spandrel_vhost::{DiskServer, OpenDisk};
use spandrel_volume::{BlockDevice, DeviceError, DeviceErrorKind, DeviceLimits, Extent};

/// A file as a disk.
#[derive(Clone)]
struct FileDisk {
    file: Arc<File>,
    size_bytes: u64,
}

fn failed(error: std::io::Error) -> DeviceError {
    DeviceError::new(DeviceErrorKind::Failed, error.to_string())
}

impl BlockDevice for FileDisk {
    fn limits(&self) -> DeviceLimits {
        DeviceLimits {
            size_bytes: self.size_bytes,
            request_bytes_min: 512,
            request_bytes_preferred: 4096,
            request_bytes_max: 1 << 20,
            read_only: false,
        }
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Vec<Buffer>, DeviceError> {
        let mut buffer = BufferPool::default().take(length as usize);
        self.file.read_exact_at(&mut buffer, offset).map_err(failed)?;
        Ok(vec![buffer.freeze()])
    }

    async fn write(&self, offset: u64, data: Buffer) -> Result<(), DeviceError> {
        self.file.write_all_at(&data, offset).map_err(failed)
    }

    async fn write_zeroes(&self, offset: u64, length: u64, _: bool) -> Result<(), DeviceError> {
        let length = usize::try_from(length).expect("no longer than the file");
        self.file.write_all_at(&vec![0; length], offset).map_err(failed)
    }

    async fn trim(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn extents(&self, _: u64, length: u64) -> Result<Vec<Extent>, DeviceError> {
        Ok(vec![Extent { length, allocated: true }])
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, file] = &arguments[..] else { panic!("a socket and a file are wanted, not {arguments:?}") };
    let file = OpenOptions::new().read(true).write(true).open(file).expect("the file is there");
    let size_bytes = file.metadata().expect("the file is there").len();
    let disk = FileDisk { file: Arc::new(file), size_bytes };
    let mut runtime = Runtime::new(RuntimeConfig::default()).expect("files can be opened");
    let shard = runtime.remote();
    let open: OpenDisk<FileDisk> = Arc::new(move |task| {
        let disk = disk.clone();
        let begin = move |platform: LinuxPlatform| {
            let task = task(platform.clone(), Ok(disk));
            platform.spawn(task);
        };
        shard.spawn(Box::new(begin));
    });
    let _server = DiskServer::start(Path::new(socket), [0; 20], open).expect("the socket's folder is there");
    runtime.block_on(std::future::pending::<()>());
}
