//! What reports compare of a cell, and how it is written.

use spandrel_fleet::Spread;
use spandrel_results::{MeasuredCell, Measurement};
use spandrel_shared::number::group_thousands;

/// Which values of a metric are the good ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
    /// Neither: it depends on the load.
    Neither,
}

/// A number that measurements have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    /// Its name, as in heads of columns and at axes.
    pub(crate) name: &'static str,
    /// Its unit; empty if it has none.
    pub(crate) unit: &'static str,
    /// Digits behind the point.
    pub(crate) digits: usize,
    pub(crate) better: Better,
    pub(crate) of: fn(&Measurement) -> Option<f64>,
}

/// A latency, in milliseconds with so many digits behind the point.
const fn latency(name: &'static str, digits: usize, of: fn(&Measurement) -> Option<f64>) -> Metric {
    Metric { name, unit: "ms", digits, better: Better::Lower, of }
}

pub(crate) const IOPS: Metric =
    Metric { name: "IOPS", unit: "", digits: 0, better: Better::Higher, of: |measured| measured.iops };

pub(crate) const THROUGHPUT: Metric = Metric {
    name: "throughput",
    unit: "MiB/s",
    digits: 0,
    better: Better::Higher,
    of: |measured| measured.mib_per_second,
};

pub(crate) const MEAN: Metric = latency("mean latency", 2, |measured| measured.total.mean_us.map(ms));

pub(crate) const READ_MEAN: Metric =
    latency("mean latency of reads", 2, |measured| measured.read.mean_us.map(ms));

pub(crate) const WRITE_MEAN: Metric =
    latency("mean latency of writes", 2, |measured| measured.write.mean_us.map(ms));

pub(crate) const P99: Metric = latency("99 %", 2, |measured| measured.total.p99_us.map(ms));

pub(crate) const P99_9: Metric = latency("99.9 %", 2, |measured| measured.total.p99_9_us.map(ms));

pub(crate) const P99_999: Metric = latency("99.999 %", 1, |measured| measured.total.p99_999_us.map(ms));

pub(crate) const CPU: Metric =
    Metric { name: "CPU", unit: "%", digits: 1, better: Better::Lower, of: |measured| measured.cpu_percent };

pub(crate) const PER_CORE: Metric = Metric {
    name: "IOPS per busy core",
    unit: "",
    digits: 0,
    better: Better::Higher,
    of: |measured| Some(measured.iops? / measured.busy_cores.filter(|cores| *cores > 0.0)?),
};

pub(crate) const AMPLIFICATION: Metric = Metric {
    name: "write amplification",
    unit: "",
    digits: 3,
    better: Better::Lower,
    of: |measured| measured.write_amplification,
};

pub(crate) const QUEUE: Metric = Metric {
    name: "queue of a drive",
    unit: "",
    digits: 2,
    better: Better::Neither,
    of: |measured| measured.drive_queue,
};

pub(crate) const CACHE_HITS: Metric = Metric {
    name: "cache hits",
    unit: "%",
    digits: 0,
    better: Better::Higher,
    of: |measured| measured.cache_hit_percent,
};

pub(crate) const LITTLES_LAW: Metric = Metric {
    name: "Little's law",
    unit: "%",
    digits: 1,
    better: Better::Neither,
    of: |measured| measured.littles_law_percent,
};

pub(crate) const DRIVE_WRITES: Metric = Metric {
    name: "writes of all drives",
    unit: "MiB/s",
    digits: 1,
    better: Better::Neither,
    of: |measured| measured.drive_write_mib_per_second,
};

pub(crate) const AT_CAP: Metric = Metric {
    name: "clients at their cap",
    unit: "%",
    digits: 1,
    better: Better::Higher,
    of: |measured| measured.clients_at_cap_percent,
};

pub(crate) const MEAN_TO_CAP: Metric = Metric {
    name: "mean of clients to their cap",
    unit: "%",
    digits: 2,
    better: Better::Neither,
    of: |measured| measured.mean_to_cap_percent,
};

/// How unevenly nodes served: the standard deviation of what a client of each had, in percent of the mean.
pub(crate) const NODE_UNEVENNESS: Metric = Metric {
    name: "nodes differ by",
    unit: "%",
    digits: 1,
    better: Better::Lower,
    of: |measured| {
        let spread = Spread::of(measured.nodes.iter().map(|node| node.iops / f64::from(node.clients.max(1))));
        (measured.nodes.len() > 1 && spread.mean > 0.0)
            .then(|| 100.0 * spread.standard_deviation / spread.mean)
    },
};

fn ms(us: f64) -> f64 {
    us / 1000.0
}

/// A metric over the repeats of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Values {
    pub(crate) count: usize,
    pub(crate) spread: Spread,
}

impl Metric {
    /// The metric over all repeats of a cell; none if one does not have it: what is left would stand for another number of I/Os than
    /// its neighbours.
    pub(crate) fn values(&self, cell: &MeasuredCell) -> Option<Values> {
        let values: Vec<f64> = cell.measurements.iter().filter_map(self.of).collect();
        let count = values.len();
        (count > 0 && count == cell.measurements.len())
            .then(|| Values { count, spread: Spread::of(values.into_iter()) })
    }

    /// Its mean over all repeats.
    pub(crate) fn mean(&self, cell: &MeasuredCell) -> Option<f64> {
        self.values(cell).map(|values| values.spread.mean)
    }

    /// A value as it is written.
    pub(crate) fn text(&self, value: f64) -> String {
        grouped(value, self.digits)
    }

    /// Its name with its unit.
    pub(crate) fn title(&self) -> String {
        if self.unit.is_empty() { self.name.to_owned() } else { format!("{} ({})", self.name, self.unit) }
    }
}

/// A number with so many digits behind the point, its thousands set apart.
pub(crate) fn grouped(value: f64, digits: usize) -> String {
    group_thousands(&format!("{value:.digits$}"))
}

#[cfg(test)]
#[path = "metric_tests.rs"]
mod tests;
