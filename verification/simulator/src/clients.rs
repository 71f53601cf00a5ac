//! The clients of a run: on every node that is up some, each with one volume open, several operations
//! under way at once, most of them in the same few places.
//!
//! A client dies with its node; a new one comes with the node's next start, and on other nodes others
//! wait for the right to write. What a client began and was not answered stays open in the history:
//! it may take effect later, or never. Other clients outlive the nodes that serve them: the [`movers`].

pub mod movers;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::{Platform, TaskHandle};
use spandrel_platform_simulated::{Random, SimulatedPlatform, World};
use spandrel_volume::{BlockDevice, DeviceError, DeviceErrorKind, Exports};

use crate::history::{BLOCK_SECTORS, History, SECTOR_BYTES, content};
use crate::nodes::SimulatedNode;
use crate::shape::{Load, VolumeShape};

/// How long a client waits before it tries to open its volume again.
const OPEN_AGAIN: Duration = Duration::from_millis(20);

/// Where a volume has grown operations go to so many blocks on each side of its former end, and before its new one.
const GROWN_ZONE_BLOCKS: u64 = 4;

/// Sectors between two pages of the map, where operations like to go.
const PAGE_SECTORS: u64 = 512 * BLOCK_SECTORS;

/// A volume as its clients see it, over all of a run.
pub struct ClientVolume {
    /// Its name.
    pub name: String,
    /// What was done to it.
    pub history: History,
    /// The first clients' complaint, if there is one: an answer that nobody may get.
    pub complaint: RefCell<Option<String>>,
    /// As large as any client has seen it.
    sectors: Cell<u64>,
    zones: RefCell<Vec<Range<u64>>>,
    load: Load,
    stopped: Cell<bool>,
}

/// One operation that a client chose.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    kind: Kind,
    sectors: Range<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Trim,
    Zero,
}

impl ClientVolume {
    /// A volume that no client has used yet.
    pub fn new(name: &str, shape: &VolumeShape, load: Load, world: World, random: &Random) -> Self {
        let sectors = sectors_of(shape.size_bytes());
        let zones = (0..load.zones.max(1)).map(|_| zone(random, sectors)).collect();
        Self {
            name: name.to_owned(),
            history: History::of_world(world),
            complaint: RefCell::default(),
            sectors: Cell::new(sectors),
            zones: RefCell::new(zones),
            load,
            stopped: Cell::new(false),
        }
    }

    /// From now on no client begins anything.
    pub fn stop(&self) {
        self.stopped.set(true);
    }

    fn complain(&self, what: String) {
        let mut complaint = self.complaint.borrow_mut();
        if complaint.is_none() {
            *complaint = Some(format!("volume {}: {what}", self.name));
        }
    }

    /// Takes note of how large a client sees the volume. Where it has grown, operations go to both ends of what came.
    fn note_size(&self, sectors: u64) {
        let former = self.sectors.get();
        if sectors > former {
            let some = GROWN_ZONE_BLOCKS * BLOCK_SECTORS;
            let mut zones = self.zones.borrow_mut();
            zones.push(former - some..(former + some).min(sectors));
            zones.push(sectors.saturating_sub(some).max(former)..sectors);
            self.sectors.set(sectors);
        }
    }

    /// What a client does next that sees so many `sectors` of the volume.
    fn choose(&self, random: &Random, sectors: u64) -> Choice {
        self.note_size(sectors);
        let load = &self.load;
        let kind = if !random.chance(load.change_per_mille) {
            Kind::Read
        } else if random.chance(load.trim_per_mille) {
            Kind::Trim
        } else if random.chance(load.zero_per_mille) {
            Kind::Zero
        } else {
            Kind::Write
        };
        let zones = self.zones.borrow();
        let zones: Vec<&Range<u64>> = zones.iter().filter(|zone| zone.end <= sectors).collect();
        let zone = zones[random.index(zones.len())];
        let block = random.between(zone.start, zone.end - 1) / BLOCK_SECTORS;
        let mut first = block * BLOCK_SECTORS;
        let mut count = BLOCK_SECTORS;
        if random.chance(load.long_per_mille) {
            count *= random.between(2, load.blocks_max.into());
        }
        if random.chance(load.partial_per_mille) {
            first += random.below(BLOCK_SECTORS);
            count = random.between(1, count);
        }
        Choice { kind, sectors: first..(first + count).min(sectors) }
    }

    /// A block of a place where clients like to go.
    pub fn block_changed_once(&self) -> u64 {
        self.zones.borrow()[0].start / BLOCK_SECTORS
    }
}

/// A few blocks at a place where something happens: an end of the volume, of a slab, of a page.
fn zone(random: &Random, sectors: u64) -> Range<u64> {
    let length = BLOCK_SECTORS * random.between(1, 8);
    let around = match random.below(4) {
        0 => 0,
        1 => sectors,
        2 => PAGE_SECTORS * random.between(1, sectors / PAGE_SECTORS),
        _ => BLOCK_SECTORS * random.below(sectors / BLOCK_SECTORS),
    };
    let before = BLOCK_SECTORS * random.between(0, length / BLOCK_SECTORS);
    let start = around.saturating_sub(before).min(sectors - length);
    start..start + length
}

/// Starts a client of `volume` on a node that is up.
pub fn start(
    volume: &Rc<ClientVolume>,
    node: &SimulatedNode,
    platform: &SimulatedPlatform,
    random: Random,
) -> TaskHandle {
    let client = Client {
        volume: Rc::clone(volume),
        node: node.clone(),
        platform: platform.clone(),
        random: Rc::new(random),
    };
    platform.spawn(client.run())
}

#[derive(Clone)]
struct Client {
    volume: Rc<ClientVolume>,
    node: SimulatedNode,
    platform: SimulatedPlatform,
    random: Rc<Random>,
}

impl Client {
    async fn run(self) {
        while !self.volume.stopped.get() {
            let Ok(device) = self.node.exports().open(&self.volume.name).await else {
                self.platform.sleep(OPEN_AGAIN).await;
                continue;
            };
            // Open for a while, then given to others.
            let operations = self.random.between(5, 200);
            let workers = (0..self.volume.load.depth.max(1)).map(|_| self.work(&device, operations));
            futures_util::future::join_all(workers).await;
            drop(device);
            self.platform.sleep(Duration::from_millis(self.random.below(20))).await;
        }
    }

    async fn work(&self, device: &impl BlockDevice, operations: u64) {
        let idle = self.random.chance(self.volume.load.idle_per_mille);
        for _ in 0..operations {
            if self.volume.stopped.get() {
                return;
            }
            let mut choice = self.volume.choose(&self.random, sectors_of(device.limits().size_bytes));
            if device.limits().read_only || idle {
                choice.kind = Kind::Read;
            }
            let outcome = match choice.kind {
                Kind::Read => self.read(device, &choice.sectors).await,
                _ => self.change(device, &choice).await,
            };
            if outcome.is_err() {
                self.platform.sleep(OPEN_AGAIN).await;
                return;
            }
            let pause = self.random.below(self.volume.load.pause_us_max);
            self.platform.sleep(Duration::from_micros(pause)).await;
        }
    }

    async fn read(&self, device: &impl BlockDevice, sectors: &Range<u64>) -> Result<(), DeviceError> {
        let (offset, length) = bytes_of(sectors);
        let number = self.volume.history.begin_read(sectors.clone());
        let length = u32::try_from(length).expect("no operation is that long");
        let parts = device.read(offset, length).await.inspect_err(|error| self.judge(error, sectors))?;
        let parts = parts.iter().map(|part| &part[..]);
        if let Err(what) = self.volume.history.end_read(number, parts) {
            self.volume.complain(what);
        }
        Ok(())
    }

    async fn change(&self, device: &impl BlockDevice, choice: &Choice) -> Result<(), DeviceError> {
        let history = &self.volume.history;
        let sectors = choice.sectors.clone();
        let (offset, length) = bytes_of(&sectors);
        let (number, outcome) = match choice.kind {
            Kind::Trim => (history.begin_write(whole_blocks(&sectors), 0), device.trim(offset, length).await),
            Kind::Zero => {
                let number = history.begin_write(sectors, 0);
                (number, device.write_zeroes(offset, length, false).await)
            }
            Kind::Write | Kind::Read => {
                let value = history.value();
                let data = content(self.platform.buffers(), value, sectors.end - sectors.start);
                (history.begin_write(sectors, value), device.write(offset, data).await)
            }
        };
        match &outcome {
            Ok(()) => history.end_write(number),
            Err(error) => {
                if error.kind == DeviceErrorKind::ReadOnly {
                    history.refuse(number);
                }
                self.judge(error, &choice.sectors);
            }
        }
        outcome
    }

    /// Whether a client may get this error at all.
    fn judge(&self, error: &DeviceError, sectors: &Range<u64>) {
        let allowed = match error.kind {
            DeviceErrorKind::ReadOnly
            | DeviceErrorKind::NoRoom
            | DeviceErrorKind::Stopping
            | DeviceErrorKind::NotFound
            | DeviceErrorKind::Busy => true,
            // A right to write that was lost ends what was under way. A lost block never may.
            DeviceErrorKind::Failed => !error.detail.contains("damaged"),
            DeviceErrorKind::Invalid => false,
        };
        if !allowed {
            self.volume.complain(format!("sectors {sectors:?}: {error}"));
        }
    }
}

/// The sectors of a size.
fn sectors_of(size_bytes: u64) -> u64 {
    size_bytes / SECTOR_BYTES as u64
}

/// Offset and length in bytes.
fn bytes_of(sectors: &Range<u64>) -> (u64, u64) {
    (sectors.start * SECTOR_BYTES as u64, (sectors.end - sectors.start) * SECTOR_BYTES as u64)
}

/// The sectors that a trim changes: parts of blocks at either end keep their content.
fn whole_blocks(sectors: &Range<u64>) -> Range<u64> {
    let start = sectors.start.next_multiple_of(BLOCK_SECTORS);
    start..(sectors.end / BLOCK_SECTORS * BLOCK_SECTORS).max(start)
}

/// How often one change is tried.
const CHANGE_ATTEMPTS: u32 = 200;

/// Writes one block, through a node that is up; or does not, if the drives have no room.
pub async fn change_once(
    volume: Rc<ClientVolume>,
    block: u64,
    node: SimulatedNode,
    platform: SimulatedPlatform,
) {
    let random = Rc::new(Random::new(0));
    let client = Client { volume: Rc::clone(&volume), node, platform, random };
    let start = block * BLOCK_SECTORS;
    let choice = Choice { kind: Kind::Write, sectors: start..start + BLOCK_SECTORS };
    for _ in 0..CHANGE_ATTEMPTS {
        if let Ok(device) = client.node.exports().open(&volume.name).await
            && client.change(&device, &choice).await.is_ok()
        {
            return;
        }
        client.platform.sleep(OPEN_AGAIN).await;
    }
}

/// Reads everything that clients ever touched, once, through a node that is up.
pub async fn read_back(volume: Rc<ClientVolume>, node: SimulatedNode, platform: SimulatedPlatform) {
    let random = Rc::new(Random::new(0));
    let client = Client { volume: Rc::clone(&volume), node, platform, random };
    loop {
        let Ok(device) = client.node.exports().open(&volume.name).await else {
            client.platform.sleep(OPEN_AGAIN).await;
            continue;
        };
        let chunk = 256 * BLOCK_SECTORS;
        for touched in volume.history.touched() {
            for start in (touched.start..touched.end).step_by(chunk as usize) {
                let sectors = start..(start + chunk).min(touched.end);
                if let Err(error) = client.read(&device, &sectors).await {
                    volume.complain(format!("sectors {sectors:?} cannot be read back: {error}"));
                }
            }
        }
        return;
    }
}

#[cfg(test)]
#[path = "clients_tests.rs"]
mod tests;
