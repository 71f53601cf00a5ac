//! What runs of the fleet leave behind: a folder for each run, that other programs can read as well.
//!
//! ```text
//! RUN/
//!   run.json         what was asked for, of which cluster, how far it came: a RunRecord
//!   cells/           a file for each measurement of a cell: a CellRecord, with everything that was measured
//!   xml/             what each client has measured, as DISKSPD writes it
//!   result.tsv       a line for each measurement, with the columns of VMFleet 2
//! ```
//!
//! Reading order: `record` (what is kept), `folder` (how), `diskspd_xml` and `tsv` (for other programs), `measurement` (what
//! reports compare, whoever has measured it).
//!
//! Invariants:
//! - A file is there whole or not at all. What was kept stays, whatever happens to the run.
//! - A folder of a newer version is refused by its number alone.

mod diskspd_import;
mod diskspd_xml;
mod fio_import;
mod folder;
mod histogram;
mod measurement;
mod published;
mod record;
mod stored;
mod tsv;

pub use diskspd_import::read_diskspd;
pub use fio_import::read_fio;
pub use folder::RunFolder;
pub use measurement::{LatencyPoints, Load, MeasuredCell, MeasuredRun, Measurement, NodeShare};
pub use record::{
    CellRecord, ClusterDescription, DriveDescription, FORMAT, GuestDescription, MachineDescription,
    NodeDescription, RunRecord,
};
pub use stored::{import, read_run, write_run};
