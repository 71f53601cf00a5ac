//! Every moment at which a crash finds the drive in another state than before, and what a crash
//! may leave at each.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use spandrel_platform_simulated::{DriveImage, Random, SimulatedDrive, UnflushedWrite};

use super::machine::Machine;

/// Runs `body` to its end, step by step. `at` is called at each moment at which something was
/// submitted to the drive, or has completed there, or `answers` has changed.
pub fn explore(
    machine: &Machine,
    body: impl Future<Output = ()> + 'static,
    answers: impl FnMut() -> u64,
    at: impl FnMut(usize),
) -> usize {
    explore_drives(machine, std::slice::from_ref(&machine.drive), body, answers, at)
}

/// The same with these drives of the machine.
pub fn explore_drives(
    machine: &Machine,
    drives: &[SimulatedDrive],
    body: impl Future<Output = ()> + 'static,
    mut answers: impl FnMut() -> u64,
    mut at: impl FnMut(usize),
) -> usize {
    let done = Rc::new(Cell::new(false));
    let ended = Rc::clone(&done);
    machine.process().spawn(async move {
        body.await;
        ended.set(true);
    });
    let mut moments = 0;
    let mut before = None;
    loop {
        let now = (drives.iter().map(signature).collect::<Vec<_>>(), answers());
        if before.as_ref() != Some(&now) {
            at(moments);
            moments += 1;
            before = Some(now);
        }
        if done.get() {
            return moments;
        }
        assert!(machine.world.step(), "the work does not end");
    }
}

fn signature(drive: &SimulatedDrive) -> (u64, u64, Vec<UnflushedWrite>) {
    let counters = drive.counters();
    (counters.writes, counters.flushes, drive.unflushed_writes())
}

/// How many images of one moment are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// All images, sector by sector, if there are at most this many.
    pub sectors_all: usize,
    /// All images in which each write is whole or absent, if there are at most this many.
    pub writes_all: usize,
    /// Beyond that, so many random ones.
    pub random: usize,
}

impl Budget {
    /// A few images per moment.
    pub const SMALL: Budget = Budget { sectors_all: 4, writes_all: 8, random: 4 };
    /// All images of small moments, and many of others.
    pub const LARGE: Budget = Budget { sectors_all: 1 << 9, writes_all: 1 << 6, random: 10 };

    /// A budget with so many times the images.
    pub fn times(self, factor: usize) -> Self {
        Self {
            sectors_all: self.sectors_all * factor,
            writes_all: self.writes_all * factor,
            random: self.random * factor,
        }
    }
}

/// What a power cut may leave now.
pub fn crash_images(drive: &SimulatedDrive, budget: Budget, random: &Random) -> Vec<DriveImage> {
    let writes = drive.unflushed_writes();
    let sectors: usize = writes.iter().map(|write| write.sectors).sum();
    if sectors < 20 && 1 << sectors <= budget.sectors_all {
        return drive.crash_images(sectors as u32, 0, random);
    }
    let mut images = drive.crash_images(0, budget.random, random);
    if writes.len() < 20 && 1 << writes.len() <= budget.writes_all {
        images.extend(
            (1..(1_u64 << writes.len()) - 1)
                .map(|subset| drive.crash_image(&mut |write, _| subset >> write & 1 == 1)),
        );
    }
    images
}
