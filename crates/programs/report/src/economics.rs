//! What follows from what was measured and from prices, heights and endurances that the reader gives.

use spandrel_results::{MeasuredCell, MeasuredRun};

use crate::metric::{DRIVE_WRITES, IOPS};

/// What the reader knows of the hardware. What is not given is not told of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Economics {
    /// What a node costs, in whichever currency.
    pub node_price: Option<f64>,
    /// How many rack units a node takes.
    pub node_rack_units: Option<f64>,
    /// How many TB may be written to a drive within its warranty.
    pub drive_endurance_tbw: Option<f64>,
    /// How long that warranty is, in years.
    pub warranty_years: Option<f64>,
}

/// Warranties of drives are for so many years, as a rule.
const WARRANTY_YEARS: f64 = 5.0;

/// How many hours a day a load lasts.
pub(crate) const DUTY_HOURS: [u32; 3] = [24, 12, 8];

/// Manufacturers count in powers of ten.
const TB: f64 = 1e12;
const MIB: f64 = 1024.0 * 1024.0;
const DAY_HOURS: f64 = 24.0;
const YEAR_SECONDS: f64 = 365.0 * 24.0 * 3600.0;

impl Economics {
    /// What a drive may write in the mean so that its warranty lasts as long as its endurance, if the load lasts so many hours a
    /// day: in MiB a second of the load.
    pub(crate) fn warranty_mib_per_second(&self, duty_hours: u32) -> Option<f64> {
        let years = self.warranty_years.unwrap_or(WARRANTY_YEARS);
        let all_day = self.drive_endurance_tbw? * TB / (years * YEAR_SECONDS) / MIB;
        Some(all_day * DAY_HOURS / f64::from(duty_hours))
    }

    /// What an I/O a second costs.
    pub(crate) fn price_per_iops(&self, run: &MeasuredRun, cell: &MeasuredCell) -> Option<f64> {
        let iops = IOPS.mean(cell).filter(|iops| *iops > 0.0)?;
        Some(self.node_price? * f64::from(run.nodes?) / iops)
    }

    /// Virtual machines of a rack unit.
    pub(crate) fn vms_per_rack_unit(&self, run: &MeasuredRun) -> Option<f64> {
        let units = self.node_rack_units.filter(|units| *units > 0.0)? * f64::from(run.nodes?);
        Some(f64::from(run.vms?) / units)
    }
}

/// What each drive of a run wrote in the mean, in MiB a second.
pub(crate) fn writes_of_a_drive(run: &MeasuredRun, cell: &MeasuredCell) -> Option<f64> {
    Some(DRIVE_WRITES.mean(cell)? / f64::from(run.drives.filter(|drives| *drives > 0)?))
}

/// I/Os that are under way at each drive if all that clients keep in flight were there: what queues are compared with.
pub(crate) fn expected_queue(run: &MeasuredRun, cell: &MeasuredCell) -> Option<f64> {
    let in_flight = u64::from(run.vms?) * u64::from(cell.load.threads) * u64::from(cell.load.outstanding);
    Some(in_flight as f64 / f64::from(run.drives.filter(|drives| *drives > 0)?))
}

#[cfg(test)]
#[path = "economics_tests.rs"]
mod tests;
