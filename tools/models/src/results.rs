//! Results of a run of the models: `models.json`, the source of the report.

use serde::{Deserialize, Serialize};

use super::floor::Floor;
use super::limits::{Evidence, Limit};
use hotrow_report::plot::Lane;
use hotrow_results::Host;

/// Version of the file format.
pub const SCHEMA: &str = "hotrow.models/2";
/// Name of the file in the run's folder.
pub const FILE: &str = "models.json";

/// Results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// The command line.
    pub command: String,
    /// Hotrow's version.
    pub version: String,
    /// Start of the run, in seconds since 1970.
    pub began_unix_s: u64,
    /// Machine of the measurement.
    pub host: Host,
    /// CPUs available to the models.
    pub cores: usize,
    /// Requests per model.
    pub requests: u64,
    /// Length of the sleeps relative to the published ones.
    pub scale: f64,
    /// CPU time of one request without sleep or yield, on a warm cache, in µs; the floors use it.
    pub request_cpu_us: f64,
    /// Results of the models, in the order of the list.
    pub models: Vec<Measured>,
    /// Warnings for the reader.
    pub warnings: Vec<String>,
}

/// Result of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Name, as in `hotrow-lab models NAME`.
    pub name: String,
    /// Its published workload, W14 to W18; empty if there is none.
    pub workload: String,
    /// Most threads that serve requests at a time.
    pub threads: u64,
    /// End of the model's run.
    pub outcome: Outcome,
    /// Requests known to be done.
    pub done: u64,
    /// Lower bound of the run time.
    pub floor: Floor,
    /// Wall time over the floor; `None` unless it finished.
    pub distance: Option<f64>,
    /// Requests per second; `None` unless it finished and did all its work.
    pub throughput_tps: Option<f64>,
    /// Most threads observed in its process, with its main thread.
    pub threads_peak: Option<u64>,
    /// Figures measured by its process; `None` if it could not report.
    pub figures: Option<Figures>,
    /// System calls, as a measure of its cost.
    pub calls: Calls,
}

/// End of a model's run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// All requests were served and every check passed.
    Finished,
    /// It ended, but a check failed.
    Wrong,
    /// The system refused it a thread.
    Died {
        /// Threads started before.
        started: u64,
        /// The limit.
        limit: Limit,
        /// The evidence in a sentence.
        why: String,
        /// Remedy that would let it finish.
        remedy: String,
        /// Kernel counters.
        evidence: Box<Evidence>,
    },
    /// It was not started because it could not finish.
    Refused {
        /// The limit in its way.
        limit: Limit,
        /// The prediction, with its formula.
        why: String,
        /// Remedy that would let it finish.
        remedy: String,
    },
    /// Its process ended without a result.
    Lost {
        /// The reason.
        why: String,
    },
}

/// Figures that a model's process measured of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Time from the first request to the last thread's end, in s.
    pub wall_s: f64,
    /// CPU time in user mode, in s.
    pub user_s: f64,
    /// CPU time in the kernel, in s.
    pub system_s: f64,
    /// CPU time over wall time × cores, 0 to 1.
    pub utilisation: f64,
    /// CPU time of its cores that it did not use, in s.
    pub idle_s: f64,
    /// Voluntary context switches: the thread waited.
    pub switches_voluntary: u64,
    /// Involuntary context switches: the kernel preempted the thread.
    pub switches_involuntary: u64,
    /// Peak resident memory in bytes, with that of the program before the run.
    pub rss_peak_bytes: u64,
    /// Resident memory before the run, in bytes.
    pub rss_before_bytes: u64,
    /// Time from hand-over to the first step.
    pub queue_us: Latency,
    /// Time from the first step to the last, sleep included.
    pub processing_us: Latency,
    /// Checks of the work.
    pub checks: Vec<Check>,
    /// Timeline of the first moments.
    pub timeline: Vec<Lane>,
}

/// Latencies in µs; percentiles are at most 1.6 % too high.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// A check of one value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The checked quantity.
    pub what: String,
    /// Actual value.
    pub found: f64,
    /// Expected value.
    pub expected: f64,
    /// Largest allowed difference.
    pub tolerance: f64,
    /// True if the check passed.
    pub right: bool,
}

/// System calls of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Calls {
    /// They were counted in a separate run, because counting slows it.
    Counted {
        /// `perf` or `strace`.
        by: String,
        /// Scale of that run.
        scale: f64,
        /// Waits for other threads and wake-ups of them.
        futex: u64,
        /// Started threads.
        clone: u64,
        /// Memory mappings.
        mmap: u64,
        /// Changes of memory protection: guard pages, growing heaps.
        mprotect: u64,
    },
    /// They were not counted.
    NotCounted {
        /// The reason.
        why: String,
    },
}

impl Check {
    /// Creates a check for equality up to the rounding of a double.
    #[must_use]
    pub fn exact(what: &str, found: f64, expected: f64) -> Self {
        Self::within(what, found, expected, expected.abs() * 1e-12)
    }

    /// Creates a check with a tolerance.
    #[must_use]
    pub fn within(what: &str, found: f64, expected: f64, tolerance: f64) -> Self {
        Self {
            what: what.to_owned(),
            found,
            expected,
            tolerance,
            right: (found - expected).abs() <= tolerance,
        }
    }
}

impl Latency {
    /// Summarises a histogram of ns.
    #[must_use]
    pub fn of(histogram: &hotrow_measure::histogram::Histogram) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile).unwrap_or_default() as f64 / 1e3;
        Self {
            mean: histogram.mean().unwrap_or_default() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1e3,
        }
    }
}
