use std::collections::BTreeMap;

use super::*;
use crate::meter::NoMeter;
use crate::profile::{Changes, Profile};
use crate::progress::NoProgress;
use crate::testing::{Behaviour, LinuxServer};

/// Keeps rows in memory, and refuses the one behind `room`.
#[derive(Default)]
struct Memory {
    rows: BTreeMap<CellNumber, SweepRow>,
    room: Option<usize>,
    looks_paused: u32,
}

impl ResultKeeper for Memory {
    fn has(&self, number: CellNumber) -> bool {
        self.rows.contains_key(&number)
    }

    fn keep(&mut self, number: CellNumber, row: &SweepRow) -> Result<(), Error> {
        if self.room == Some(self.rows.len()) {
            return Err(Error::new("FULL", "no", "no", "no"));
        }
        self.rows.insert(number, row.clone());
        Ok(())
    }

    fn is_paused(&mut self) -> bool {
        self.looks_paused = self.looks_paused.saturating_sub(1);
        self.looks_paused > 0
    }
}

fn plan(repeat: u32) -> RunPlan {
    let changes = Changes {
        vms: Some(1),
        repeat: Some(repeat),
        write_percents: vec![0, 100],
        outstanding: vec![2],
        working_set_bytes: Some(1 << 20),
        time_scale: 0.0005,
        ..Changes::default()
    };
    Profile::find("micron-sata-4k").expect("it is shipped").plan(&changes).expect("it can be run")
}

fn numbers(memory: &Memory) -> Vec<(u32, u32)> {
    memory.rows.keys().map(|number| (number.cell, number.repeat)).collect()
}

#[test]
fn all_cells_are_measured_once_before_any_is_measured_again() {
    let order: Vec<(u32, u32)> = order(&plan(2)).map(|number| (number.repeat, number.cell)).collect();
    assert_eq!(order, [(0, 0), (0, 1), (1, 0), (1, 1)]);
}

#[test]
fn a_run_that_was_broken_off_goes_on_where_it_was() {
    let server = LinuxServer::start(Behaviour::default());
    let targets = server.targets(1);
    let mut memory = Memory { room: Some(3), looks_paused: 3, ..Memory::default() };
    let ended =
        run_plan(&plan(2), &targets, &mut NoMeter, &mut memory, |_| Ok(targets.clone()), &mut NoProgress);
    assert_eq!(ended.expect_err("there was no room").code, "FULL");
    assert_eq!(memory.looks_paused, 0, "it has paused, and looked until it was to go on");
    let mut seeds: Vec<u64> = memory.rows.values().map(|row| row.cell.spec.seed).collect();
    seeds.dedup();
    assert_eq!(seeds.len(), 3, "no cell goes where another one has been");
    assert_eq!(numbers(&memory), [(0, 0), (0, 1), (1, 0)]);
    let first = memory.rows.clone();
    memory.room = None;
    run_plan(&plan(2), &targets, &mut NoMeter, &mut memory, |_| Ok(targets.clone()), &mut NoProgress)
        .expect("nothing is in the way");
    assert_eq!(numbers(&memory), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    for (number, row) in first {
        assert_eq!(memory.rows[&number], row, "it was not measured again");
    }
    assert!(memory.rows.values().all(|row| row.cell.total.count > 0 && !row.cell.has_failures()));
    assert!(memory.rows.values().all(|row| row.layers.is_none()), "the meter knows of none");
}
