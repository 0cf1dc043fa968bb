//! What a run of the models came to: `models.json`, which the report is written from.

use serde::{Deserialize, Serialize};

use super::floor::Floor;
use super::limits::{Evidence, Limit};
use super::timeline::Row;
use crate::results::Host;

/// Version of the file's shape.
pub const SCHEMA: &str = "hotrow.models/1";
/// Name of the file in the run's folder.
pub const FILE: &str = "models.json";

/// All of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// The command line that was given.
    pub command: String,
    /// Hotrow's version.
    pub version: String,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// Where it was measured.
    pub host: Host,
    /// CPUs that the models could use.
    pub cores: usize,
    /// Requests of each model.
    pub requests: u64,
    /// Length of the sleeps, as a share of the original's.
    pub scale: f64,
    /// CPU time of one request without sleep or yield, on a warm cache, in µs; the floors are made with it.
    pub request_cpu_us: f64,
    /// The models, in the order of the list.
    pub models: Vec<Measured>,
    /// What a reader must know.
    pub remarks: Vec<String>,
}

/// What came of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// As in `hotrow lab models NAME`.
    pub name: String,
    /// The workload that it is, W14 to W18; empty for those that the original did not have.
    pub workload: String,
    /// Threads that serve requests at a time, at most.
    pub threads: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Requests that are known to be done.
    pub done: u64,
    /// What no run of this kind can beat.
    pub floor: Floor,
    /// Wall time over the floor; none unless it finished.
    pub distance: Option<f64>,
    /// Requests per second; none unless it finished and did all its work.
    pub throughput_tps: Option<f64>,
    /// Most threads that were seen in its process, its main thread included.
    pub threads_peak: Option<u64>,
    /// What its process measured; none when it could not tell.
    pub figures: Option<Figures>,
    /// System calls that tell its cost.
    pub calls: Calls,
}

/// How a model ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// All requests were served, and every check is right.
    Finished,
    /// It ended, but some of its work is not as it must be.
    Wrong,
    /// The system refused it a thread.
    Died {
        /// Threads that it had started.
        started: u64,
        /// Which limit it was.
        limit: Limit,
        /// The same in a sentence.
        why: String,
        /// What would let it finish.
        remedy: String,
        /// What the kernel said.
        evidence: Box<Evidence>,
    },
    /// It was not begun, for it could not finish.
    Refused {
        /// Which limit stands in the way.
        limit: Limit,
        /// The prediction, with its formula.
        why: String,
        /// What would let it finish.
        remedy: String,
    },
    /// Its process ended without a result.
    Lost {
        /// How.
        why: String,
    },
}

/// What a model's process measured of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// From the first request to the last thread's end, in s.
    pub wall_s: f64,
    /// CPU time in user mode, in s.
    pub user_s: f64,
    /// CPU time in the kernel, in s.
    pub system_s: f64,
    /// CPU time over wall time × cores.
    pub utilisation: f64,
    /// CPU time that its cores had and it did not use, in s.
    pub idle_s: f64,
    /// Context switches because a thread waited.
    pub switches_voluntary: u64,
    /// Context switches because the kernel preferred another thread.
    pub switches_involuntary: u64,
    /// Most memory that was resident, in bytes; what the program takes before the run included.
    pub rss_peak_bytes: u64,
    /// Memory that was resident before the run, in bytes.
    pub rss_before_bytes: u64,
    /// From being handed over to the first step.
    pub queue_us: Latency,
    /// From the first step to the last, sleep included.
    pub processing_us: Latency,
    /// Was the work done?
    pub checks: Vec<Check>,
    /// The first moments.
    pub timeline: Vec<Row>,
}

/// How long something took, in µs; percentiles are at most 1.6 % too high.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// Nine of ten took no longer.
    pub p90: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1,000.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// One value that was to come out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What.
    pub what: String,
    /// What came out.
    pub found: f64,
    /// What was to.
    pub expected: f64,
    /// How far they may be apart.
    pub tolerance: f64,
    /// Whether they are not further apart.
    pub right: bool,
}

/// System calls of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Calls {
    /// They were counted in a run of their own, for counting disturbs.
    Counted {
        /// `perf` or `strace`.
        by: String,
        /// The scale of that run.
        scale: f64,
        /// Waits for and wake-ups of other threads.
        futex: u64,
        /// Threads that were started.
        clone: u64,
        /// Memory that was asked for.
        mmap: u64,
        /// Memory whose protection was changed: guard pages, heaps that grow.
        mprotect: u64,
    },
    /// They were not.
    NotCounted {
        /// Why.
        why: String,
    },
}

impl Check {
    /// Must be the same but for the rounding of a double.
    #[must_use]
    pub fn exact(what: &str, found: f64, expected: f64) -> Self {
        Self::within(what, found, expected, expected.abs() * 1e-12)
    }

    /// Must be this close.
    #[must_use]
    pub fn within(what: &str, found: f64, expected: f64, tolerance: f64) -> Self {
        Self { what: what.to_owned(), found, expected, tolerance, right: (found - expected).abs() <= tolerance }
    }
}

impl Latency {
    /// From a histogram of ns.
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
