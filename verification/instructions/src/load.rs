//! What is counted: reads and writes of 4 KiB on the node that owns the volume, with three copies on four nodes.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::{BLOCK_BYTES, Buffer, Platform};
use spandrel_platform_simulated::{DelayRange, Process, RunEnd};
use spandrel_simulator::measurement::{LARGE_DRIVE_BYTES, Laboratory, Times};
use spandrel_volume::BlockDevice;

/// The function whose instructions count, with all that it calls.
pub const COUNTED: &str = "*spandrel_instructions::load::counted*";

const BLOCK: u64 = BLOCK_BYTES as u64;

const SLABS: u64 = 4;

/// What is done to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Read,
    Write,
}

/// Some operations, so many of them at a time.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// What it is called.
    pub name: &'static str,
    /// What is done.
    pub action: Action,
    /// How often.
    pub operations: u64,
    /// How many are under way at a time.
    pub outstanding: u64,
}

/// All that are counted.
pub const LOADS: [Load; 4] = [
    Load { name: "read-4k-qd1", action: Action::Read, operations: 2000, outstanding: 1 },
    Load { name: "read-4k-qd32", action: Action::Read, operations: 6400, outstanding: 32 },
    Load { name: "write-4k-qd1", action: Action::Write, operations: 1000, outstanding: 1 },
    Load { name: "write-4k-qd32", action: Action::Write, operations: 6400, outstanding: 32 },
];

/// Does a load once unseen, so that all memory is there, and once to be counted.
///
/// # Errors
///
/// The cluster does not do what it is asked.
pub fn perform(load: &Load) -> Result<(), String> {
    let always = |time_us: u64| DelayRange {
        min: Duration::from_micros(time_us),
        max: Duration::from_micros(time_us),
    };
    let times = Times {
        one_way: always(20),
        write: Duration::from_micros(10),
        flush: Duration::from_micros(1),
        read: Duration::from_micros(10),
    };
    let laboratory = Laboratory::new(4, LARGE_DRIVE_BYTES, times, true);
    let volume = laboratory.create_volume("v", SLABS, 3)?;
    let places = laboratory.places(volume, 1)?;
    // The slab of which the owner has a copy of its own, as nearly all are.
    let place =
        places.iter().find(|place| place.copies_elsewhere < place.copies).ok_or("the owner has no copy")?;
    let device = laboratory.open(place.owner, &place.volume)?;
    let process = laboratory.nodes.process(place.owner).ok_or("the owner is not up")?;
    let target = Target { laboratory: &laboratory, process, first_block: place.offset / BLOCK };
    target.perform(&device, &Load { action: Action::Write, ..*load })?;
    target.perform(&device, load)?;
    laboratory.run_for(Duration::from_secs(1))?;
    counted(&target, &device, load)
}

/// Valgrind counts while this runs. It says whether all went well by more than a call of what is done besides, or the compiler would
/// make one function of the two, and what is not to be counted would be.
#[inline(never)]
fn counted<D: BlockDevice>(target: &Target<'_>, device: &D, load: &Load) -> Result<(), String> {
    let done = target.perform(device, load);
    black_box(&done);
    done
}

struct Target<'laboratory> {
    laboratory: &'laboratory Laboratory,
    /// The owner's.
    process: Process,
    first_block: u64,
}

impl Target<'_> {
    #[inline(never)]
    fn perform<D: BlockDevice>(&self, device: &D, load: &Load) -> Result<(), String> {
        let left = Rc::new(Cell::new(load.outstanding));
        let failure = Rc::new(RefCell::new(None));
        let data = self.process.platform().buffers().take_zeroed(BLOCK_BYTES).freeze();
        let blocks = spandrel_simulator::measurement::SLAB_BYTES / BLOCK;
        for client in 0..load.outstanding {
            let (device, data, load, first) = (device.clone(), data.clone(), *load, self.first_block);
            let (left, failure) = (Rc::clone(&left), Rc::clone(&failure));
            self.process.spawn(async move {
                for turn in 0..load.operations / load.outstanding {
                    // Here and there, and no two at a time in one block.
                    let block = first + (client + turn * load.outstanding) * 37 % blocks;
                    if let Err(error) = once(&device, load.action, block, &data).await {
                        failure.replace(Some(error.to_string()));
                    }
                }
                left.set(left.get() - 1);
            });
        }
        let end = self.laboratory.nodes.world.run_until(|| left.get() == 0);
        match failure.take() {
            None if end == RunEnd::ConditionMet => Ok(()),
            failure => Err(format!("the load ended: {end:?}, {failure:?}")),
        }
    }
}

async fn once<D: BlockDevice>(
    device: &D,
    action: Action,
    block: u64,
    data: &Buffer,
) -> Result<(), spandrel_volume::DeviceError> {
    match action {
        Action::Read => device.read(block * BLOCK, BLOCK as u32).await.map(drop),
        Action::Write => device.write(block * BLOCK, data.clone()).await,
    }
}
