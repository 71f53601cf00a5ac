//! What a machine says of its guest's memory and queues, word for word, and what becomes of it.
//!
//! A queue is served while it has all that is said of it: the guest's memory, where it lies, by what it is woken, and that it is
//! enabled.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;

use futures_channel::mpsc::UnboundedSender;
use rustix::io::FdFlags;
use spandrel_frontend::virtio::{self, CONFIG_BYTES, QUEUE_SIZE_MAX, QueueSetup};
use spandrel_volume::DeviceLimits;
use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use vm_memory::{Address, Bytes};

use crate::device::{Command, Reply, Start};
use crate::dirty_log::{DirtyBitmap, DirtyLog};
use crate::memory::GuestTable;
use crate::record::Record;

/// The most queues of a disk. All are served by one thread, so more of them only keep a guest's processors from waiting for each other.
pub const QUEUES_MAX: u16 = 8;

/// What the machine sends is not for the processes that this one starts: they would keep the guest's memory, and could read it.
fn kept_from_others(file: File) -> Result<File> {
    rustix::io::fcntl_setfd(&file, FdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    Ok(file)
}

const UNSUPPORTED: Error = Error::InvalidOperation("no such disk can do that");

/// Without it nobody would know what was under way when this process ends.
const NO_RECORD: Error = Error::InvalidOperation("the machine keeps no record of what is under way");

/// Where the index of answers stands behind where their queue begins.
const USED_INDEX_AT: u64 = 2;

/// What one connection has said so far.
pub(crate) struct Control {
    shard: UnboundedSender<Command>,
    serial: [u8; virtio::SERIAL_BYTES],
    agreed: u64,
    guest: Option<GuestTable>,
    /// Which pages of the guest's memory are changed here.
    log: Arc<DirtyLog>,
    record: Option<Record>,
    queues: Vec<QueueWords>,
}

/// What was said of a queue.
#[derive(Default)]
struct QueueWords {
    size: u16,
    /// In the machine's own addresses: descriptors, what is available, what was used.
    addresses: Option<[u64; 3]>,
    base: u16,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    enabled: bool,
    served: bool,
}

impl Control {
    pub(crate) fn new(shard: UnboundedSender<Command>, serial: [u8; virtio::SERIAL_BYTES]) -> Self {
        let queues = (0..QUEUES_MAX).map(|_| QueueWords::default()).collect();
        Self { shard, serial, agreed: 0, guest: None, log: Arc::default(), record: None, queues }
    }

    fn tell(&self, command: Command) -> Result<()> {
        self.shard.unbounded_send(command).map_err(|_| gone())
    }

    /// Tells the shard something, and waits for its word.
    fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T> {
        let (reply, answer) = sync_channel(1);
        self.tell(command(reply))?;
        answer.recv().map_err(|_| gone())
    }

    fn limits(&self) -> Result<DeviceLimits> {
        self.ask(Command::Limits)
    }

    fn queue(&mut self, index: u32) -> Result<&mut QueueWords> {
        self.queues.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    /// Serves a queue if all is known of it, and it is not served.
    fn serve_if_ready(&mut self, index: u32) -> Result<()> {
        let (agreed, serial) = (self.agreed, self.serial);
        let words = self.queue(index)?;
        let is_ready = words.enabled && !words.served && words.kick.is_some();
        let (true, Some(addresses)) = (is_ready, words.addresses) else { return Ok(()) };
        let size = words.size;
        let duplicate = |file: &Option<OwnedFd>| file.as_ref().map(OwnedFd::try_clone).transpose();
        let kick = duplicate(&words.kick).map_err(failed)?.ok_or(Error::InvalidParam)?;
        let call = duplicate(&words.call).map_err(failed)?;
        let guest =
            self.guest.as_ref().ok_or(Error::InvalidOperation("the guest's memory is not known yet"))?;
        let place = |address| guest.guest_address(address).ok_or(Error::InvalidParam);
        let [descriptors, available, used] =
            [place(addresses[0])?, place(addresses[1])?, place(addresses[2])?];
        let record = self.record.as_ref().ok_or(NO_RECORD)?.of_queue(index, size).ok_or(NO_RECORD)?;
        let told_at = used.checked_add(USED_INDEX_AT).ok_or(Error::InvalidParam)?;
        let told = guest.memory.load::<u16>(told_at, Ordering::Acquire).map_err(|_| Error::InvalidParam)?;
        let told = u16::from_le(told);
        let unanswered = record.recover(told);
        // Whatever the machine has made of it: it cannot know how far a process came that is gone.
        let next_available = told.wrapping_add(unanswered.len() as u16);
        let event_index = virtio::has_event_index(agreed);
        let setup = QueueSetup {
            size,
            descriptors,
            available,
            used,
            next_available,
            event_index,
            unanswered,
            serial,
        };
        let start = |reply| Command::Start(Box::new(Start { index, setup, kick, call, record, reply }));
        self.ask(start)?.map_err(|reason| failed(io::Error::other(reason)))?;
        self.queue(index)?.served = true;
        Ok(())
    }

    /// Ends the service of a queue, if it is served, and notes from where the next one goes on.
    fn stop(&mut self, index: u32) -> Result<()> {
        if !std::mem::replace(&mut self.queue(index)?.served, false) {
            return Ok(());
        }
        if let Some(taken) = self.ask(|reply| Command::Stop(index, reply))? {
            self.queue(index)?.base = taken;
        }
        Ok(())
    }

    /// Has changed pages marked in this bitmap from now on, or in none.
    fn mark_in(&self, bitmap: Option<DirtyBitmap>) -> Result<()> {
        self.ask(|reply| Command::MarkIn(Arc::clone(&self.log), bitmap, reply))
    }

    fn stop_all(&mut self) -> Result<()> {
        (0..u32::from(QUEUES_MAX)).try_for_each(|index| self.stop(index))
    }
}

fn gone() -> Error {
    failed(io::Error::other("the disk is not served any more"))
}

fn failed(error: io::Error) -> Error {
    Error::ReqHandlerError(error)
}

impl VhostUserBackendReqHandlerMut for Control {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        self.stop_all()?;
        self.queues.iter_mut().for_each(|words| *words = QueueWords::default());
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        let of_vhost = VhostUserVirtioFeatures::PROTOCOL_FEATURES | VhostUserVirtioFeatures::LOG_ALL;
        Ok(virtio::features(&self.limits()?) | of_vhost.bits())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.get_features()? != 0 {
            return Err(Error::FeatureMismatch);
        }
        self.agreed = features;
        if features & VhostUserVirtioFeatures::LOG_ALL.bits() == 0 {
            self.mark_in(None)?;
        }
        // A machine that does not speak of enabling queues means all of them.
        if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            self.queues.iter_mut().for_each(|words| words.enabled = true);
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        postcopy_listening: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        if postcopy_listening.is_some() {
            return Err(UNSUPPORTED);
        }
        let files = files.into_iter().map(kept_from_others).collect::<Result<_>>()?;
        let guest = GuestTable::map(regions, files, &self.log).map_err(failed)?;
        self.ask(|reply| Command::Memory(Arc::clone(&guest.memory), reply))?;
        self.guest = Some(guest);
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).ok().filter(|size| (1..=QUEUE_SIZE_MAX).contains(size));
        self.queue(index)?.size = size.ok_or(Error::InvalidParam)?;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        self.queue(index)?.addresses = Some([descriptor, available, used]);
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.queue(index)?.base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.stop(index)?;
        let words = self.queue(index)?;
        (words.kick, words.call) = (None, None);
        Ok(VhostUserVringState::new(index, u32::from(words.base)))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        // Without an eventfd this side would have to look again and again.
        let kick = file.ok_or(Error::InvalidOperation("a queue without an eventfd"))?;
        self.queue(index.into())?.kick = Some(kept_from_others(kick)?.into());
        self.serve_if_ready(index.into())
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let call = file.map(kept_from_others).transpose()?.map(OwnedFd::from);
        // Whoever does not look must not keep the shard waiting.
        call.iter()
            .try_for_each(|call| rustix::io::ioctl_fionbio(call, true))
            .map_err(|error| failed(error.into()))?;
        if self.queue(index.into())?.served {
            let new = call.as_ref().map(OwnedFd::try_clone).transpose().map_err(failed)?;
            self.tell(Command::Call(index.into(), new))?;
        }
        self.queue(index.into())?.call = call;
        Ok(())
    }

    fn set_vring_err(&mut self, _index: u8, _file: Option<File>) -> Result<()> {
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX.into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.queue(index)?.enabled = enable;
        if enable { self.serve_if_ready(index) } else { self.stop(index) }
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let config = virtio::config_space(&self.limits()?, QUEUES_MAX);
        let wanted = offset as usize..(offset as usize).saturating_add(size as usize);
        // Machines ask for all that they know of, which may be more than there is.
        let mut told =
            config.get(wanted.start..wanted.end.min(CONFIG_BYTES)).ok_or(Error::InvalidParam)?.to_vec();
        told.resize(size as usize, 0);
        Ok(told)
    }

    fn set_config(&mut self, _offset: u32, _buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        Err(UNSUPPORTED)
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> Result<()> {
        Err(UNSUPPORTED)
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(UNSUPPORTED)
    }

    fn get_inflight_fd(&mut self, inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (queues, size) = (inflight.num_queues, inflight.queue_size);
        if !(1..=QUEUES_MAX).contains(&queues) || !(1..=QUEUE_SIZE_MAX).contains(&size) {
            return Err(Error::InvalidParam);
        }
        Record::create(queues, size).map_err(failed)
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        self.record = Some(Record::open(inflight, kept_from_others(file)?).map_err(failed)?);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Err(UNSUPPORTED)
    }

    fn add_mem_region(
        &mut self,
        _region: &VhostUserSingleMemoryRegion,
        _fd: File,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        Err(UNSUPPORTED)
    }

    fn remove_mem_region(&mut self, _region: &VhostUserSingleMemoryRegion) -> Result<()> {
        Err(UNSUPPORTED)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        Err(UNSUPPORTED)
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(UNSUPPORTED)
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(UNSUPPORTED)
    }

    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Result<()> {
        // It comes before or behind the bit that asks for marks, depending on whether queues are served already. In both cases all that is
        // written behind the answer to this is to be marked, until a word without that bit.
        self.mark_in(Some(DirtyBitmap::open(log, kept_from_others(file)?).map_err(failed)?))
    }
}
