//! What a study has found, as people and programs read it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use spandrel_shared::CacheMode;
use spandrel_shared::duration::format_duration;
use spandrel_shared::size::format_size;

use super::cluster::StudyClusterSpec;
use super::comparison::Comparison;
use super::machine::MachineUse;
use super::shape::{self, Shape};
use crate::meter::{CacheReading, Usage};
use crate::output::{count_text, doubts_of, short};
use crate::result::CellResult;
use crate::text::{aligned, counted};

/// From here on the processor may have set the shape, and not the media.
const BUSY_PERCENT_MAX: f64 = 50.0;

/// From here on others disturb what is measured in turns.
const OTHERS_PERCENT_MAX: f64 = 25.0;

/// A study, its measurements and its judgement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyReport {
    /// The study's name.
    pub study: String,
    /// The clusters that it was run on.
    pub clusters: Vec<StudyClusterSpec>,
    /// How many clients put load on each.
    pub clients: u32,
    /// One for each question.
    pub tables: Vec<StudyTable>,
    /// The same, where two clusters are measured in turns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
    /// What was expected, and whether it was found.
    pub shapes: Vec<Shape>,
    /// How long all of it took, in seconds.
    pub took_seconds: f64,
}

/// Measurements that belong side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyTable {
    /// What was measured.
    pub title: String,
    /// What tells the rows apart.
    pub rows_are: String,
    /// The rows; the first is what the others are compared with.
    pub rows: Vec<StudyRow>,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyRow {
    /// What tells it from the others.
    pub name: String,
    /// What the cache drives were used for.
    pub cache_mode: CacheMode,
    /// The working set of all clients together.
    pub working_set_bytes: u64,
    /// What the clients saw.
    pub cell: CellResult,
    /// What it took.
    pub usage: Usage,
    /// What the cache drives held in the end, and did meanwhile.
    pub cache: CacheReading,
    /// How busy the machine was, whoever made it so.
    pub machine: MachineUse,
    /// Whether its rate had settled before it was measured.
    pub is_steady: bool,
    /// Whether the caches had: they held what they will, or were emptied as fast as they were filled, whichever the row is to
    /// show.
    pub are_caches_settled: bool,
}

impl StudyRow {
    /// I/Os per second; none if any failed.
    pub fn iops(&self) -> Option<f64> {
        (!self.cell.has_failures()).then_some(self.cell.total.iops)
    }

    /// MiB per second; none if any I/O failed.
    pub fn mib_per_second(&self) -> Option<f64> {
        (!self.cell.has_failures()).then_some(self.cell.total.mib_per_second)
    }

    /// The mean latency in microseconds; none without I/Os, or if any failed.
    pub fn mean_us(&self) -> Option<f64> {
        self.cell.total.latency.filter(|_| !self.cell.has_failures()).map(|latency| latency.mean_us)
    }

    /// The processor time of the cluster for an I/O, in microseconds; none without I/Os, or if any failed.
    pub fn cluster_cpu_us(&self) -> Option<f64> {
        self.of_each_io(self.usage.cpu_seconds? - self.usage.generator_cpu_seconds)
    }

    /// That of the clients for an I/O.
    pub fn clients_cpu_us(&self) -> Option<f64> {
        self.of_each_io(self.usage.generator_cpu_seconds)
    }

    fn of_each_io(&self, seconds: f64) -> Option<f64> {
        let count = self.cell.total.count;
        (count > 0 && !self.cell.has_failures()).then(|| seconds * 1e6 / count as f64)
    }

    /// What was moved from cache drives for each byte that clients wrote: as much as there are copies, if all is moved. None
    /// if there is no cache drive or nothing was written.
    pub(super) fn moved_ratio(&self) -> Option<f64> {
        let may_move = self.cache.room_bytes > 0 && self.cell.write.bytes > 0;
        may_move.then(|| self.cache.destaged_bytes as f64 / self.cell.write.bytes as f64)
    }

    /// How much of the cache drives' room holds what stands there alone; none if there are none.
    pub(super) fn dirty_percent(&self) -> Option<f64> {
        let room = self.cache.room_bytes;
        (room > 0).then(|| self.cache.dirty_bytes as f64 * 100.0 / room as f64)
    }

    /// How much of the time of all the machine's cores the study itself used, cluster and clients together.
    fn own_percent(&self) -> Option<f64> {
        self.usage.busy_cores.map(|cores| cores * 100.0 / f64::from(self.machine.cores.max(1)))
    }
}

impl StudyReport {
    /// Whether all that was expected was found.
    pub fn all_hold(&self) -> bool {
        !self.shapes.is_empty() && self.shapes.iter().all(|shape| shape.holds)
    }

    /// Everything that was measured, as JSON that [`StudyReport::from_json`] reads.
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("a report is numbers, texts and lists, all of which JSON has") + "\n"
    }

    /// Reads what [`StudyReport::json`] has written.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// All of it for people: the clusters, a table for each question, the shapes, and what to mind.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for cluster in &self.clusters {
            text += &format!("{}\n", describe_cluster(cluster));
        }
        let tables = self.tables.iter().map(StudyTable::render);
        for table in tables.chain(self.comparisons.iter().map(Comparison::render)) {
            text += &format!("\n{table}");
        }
        let took = format_duration(Duration::from_secs(self.took_seconds.round() as u64));
        text += &format!("\n{}\n{}; all of it took {took}\n", shape::render(&self.shapes), self.load_text());
        for note in self.notes() {
            text += &format!("{note}\n");
        }
        text
    }

    /// Who put load on the machine.
    fn load_text(&self) -> String {
        let clients = counted(self.clients.into(), "client");
        let Some((percent, row)) = self.busiest() else { return clients };
        let cores = counted(row.machine.cores.into(), "core");
        let own =
            self.own_percent_max().map_or(String::new(), |own| format!(", this study alone {own:.0} %"));
        format!("{clients}; the machine's {cores} were busy up to {percent:.0} %{own}")
    }

    /// The row in which the machine had most to do, and how much that was.
    fn busiest(&self) -> Option<(f64, &StudyRow)> {
        let busy = self.rows().filter_map(|(_, row)| Some((row.machine.busy_percent?, row)));
        busy.max_by(|one, other| one.0.total_cmp(&other.0))
    }

    /// The most that the study itself used in any row.
    fn own_percent_max(&self) -> Option<f64> {
        self.rows().filter_map(|(_, row)| row.own_percent()).reduce(f64::max)
    }

    /// The most that others used in any row.
    fn others_percent_max(&self) -> f64 {
        let others = self.rows().filter_map(|(_, row)| Some(row.machine.busy_percent? - row.own_percent()?));
        others.fold(0.0, f64::max)
    }

    /// All rows, each with the title of its table.
    fn rows(&self) -> impl Iterator<Item = (&str, &StudyRow)> {
        let single = self.tables.iter().flat_map(|table| table.rows.iter().map(|row| (&*table.title, row)));
        let paired = self.comparisons.iter().flat_map(|comparison| {
            let sides = comparison.rounds.iter().flat_map(|round| [&round.base, &round.row]);
            sides.map(|row| (&*comparison.title, row))
        });
        single.chain(paired)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let are_simulated = self.clusters.iter().any(|cluster| cluster.media.is_some());
        if are_simulated && self.busiest().is_some_and(|(percent, _)| percent > BUSY_PERCENT_MAX) {
            let next = match self.own_percent_max() {
                Some(own) if own > BUSY_PERCENT_MAX => "run it again with a smaller --media-scale",
                _ => "others kept it busy: run it again when they do not",
            };
            notes.push(format!(
                "warning: the machine was busy more than {BUSY_PERCENT_MAX:.0} %, so its processor may have set the shape and not \
                 the media; {next}"
            ));
        }
        if !self.comparisons.is_empty() && self.others_percent_max() > OTHERS_PERCENT_MAX {
            notes.push(format!(
                "warning: others used the machine up to {:.0} %, so chance has its part in the ratios: see how far their rounds are \
                 apart, and run it again with more --rounds or when others do not",
                self.others_percent_max()
            ));
        }
        for (title, row) in self.rows() {
            let unsteady = (!row.is_steady).then_some("it was not steady yet when it was measured");
            let unsettled =
                (!row.are_caches_settled).then_some("the caches were not settled yet when it was measured");
            let unready = unsteady.into_iter().chain(unsettled).map(str::to_owned);
            let doubts = doubts_of(&row.cell).into_iter().chain(unready);
            notes.extend(doubts.map(|doubt| format!("{title}, {}: {doubt}", row.name)));
        }
        notes
    }
}

impl StudyTable {
    fn render(&self) -> String {
        let heads =
            [&*self.rows_are, "IOPS", "ratio", "mean us", "MiB/s", "from cache", "machine busy", "by study"];
        let mut lines = vec![heads.map(str::to_owned).to_vec()];
        let base = self.rows.first().and_then(StudyRow::iops);
        for row in &self.rows {
            let percent = |percent: f64| format!("{percent:.0} %");
            let cells = [
                Some(row.name.clone()),
                Some(count_text(row.cell.total.iops)),
                shape::ratio(row.iops(), base).map(|ratio| format!("{ratio:.2} x")),
                row.cell.total.latency.map(|latency| short(latency.mean_us)),
                Some(short(row.cell.total.mib_per_second)),
                row.cache.hit_percent().map(percent),
                row.machine.busy_percent.map(percent),
                row.own_percent().map(percent),
            ];
            lines.push(cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned())).to_vec());
        }
        format!("{}\n{}", self.title, aligned(&lines, &[0]))
    }
}

/// A cluster in a line.
fn describe_cluster(cluster: &StudyClusterSpec) -> String {
    let kind = match (cluster.media, cluster.cache_drive_size_bytes) {
        (Some(media), Some(_)) => format!("NVMe in front of {}", media.capacity_media.plural()),
        (Some(media), None) => media.capacity_media.plural().to_owned(),
        (None, Some(_)) => "Memory in front of memory".to_owned(),
        (None, None) => "Memory".to_owned(),
    };
    let like = |name: &str| cluster.media.map_or(String::new(), |_| format!(" like {name}"));
    let capacity = like(cluster.media.map_or("", |media| media.capacity_media.plural()));
    let cache = cluster
        .cache_drive_size_bytes
        .map_or(String::new(), |bytes| format!(" and one of {}{}", format_size(bytes), like("NVMe")));
    format!(
        "{kind}: {}, each with {} of {}{capacity}{cache}{}",
        counted(cluster.nodes.into(), "node"),
        counted(cluster.drives.into(), "drive"),
        format_size(cluster.drive_size_bytes),
        cluster.media.map_or(String::new(), |media| format!(", at {} of their speed", media.scale)),
    )
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
