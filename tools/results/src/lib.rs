//! Results of an experiment, written by a run and read by the report. Stored as `results.json` in
//! the run's folder, and rewritten after each measurement.
//!
//! Reference `results`: `hotrow.lab/2`
//!
//! `schema` is `hotrow.lab/2`, with `experiment`, `command`, `rows`, `host`, `warnings` and, per
//! row and round, `measurements`:
//!
//! - `row`, `round`, `began_unix_s`: which measurement, and when.
//! - `failed`: the reason, or null.
//! - `load`: `rps`, `ok`, `errors`, `timeouts`, latencies in µs with `lower_bounds` (names) and
//!   `unbounded` (requests), `generator_limited`, `verdict`.
//! - `machine`: `interval_s` of CPU time, `others_cores`, `stolen_cores`.
//! - `tiers[]`: `kind` (service, proxy, database, generator), `name`, `cpu_s`, `limit_cores`,
//!   `throttled`, `rss_bytes`.
//! - `findings[]`: as in [load](#hotrowload2).
//! - `observer_cpu_s`, `backends[]`, `cache[]`, `figures[]`, `io`: what else was measured.
//! - `phases[]`, with events: `name`, `seconds`, `instances` (number that run), `backends[]`,
//!   `figures[]`. `experiment.goals[]`: `row`, `figure`, `claim`, `at_most` or `at_least`.

pub mod host;
pub mod report_files;

use serde::{Deserialize, Deserializer, Serialize};

/// Version of the file format.
pub const SCHEMA: &str = "hotrow.lab/2";
/// Name of the file in the run's folder.
pub const FILE: &str = "results.json";

/// Results of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// Title, question and comparisons, from the experiment's file.
    pub experiment: ExperimentInfo,
    /// The command line.
    pub command: String,
    /// Hotrow's version.
    pub version: String,
    /// Start of the run, in seconds since 1970.
    pub began_unix_s: u64,
    /// Machine, kernel and program versions.
    pub host: Host,
    /// Planned rounds.
    pub rounds: u32,
    /// Length of one measurement, in s; `None` if a number of requests ends it.
    pub duration_s: Option<f64>,
    /// Rows of the report, in order: every measured combination of deployment and load.
    pub rows: Vec<Row>,
    /// Measurements in chronological order.
    pub measurements: Vec<Measurement>,
    /// True if it has every planned measurement; false for an interrupted run.
    pub complete: bool,
    /// Warnings for the reader, such as a limit that could not be set.
    pub warnings: Vec<String>,
}

/// Title, question and comparisons of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentInfo {
    /// Short name, as in `hotrow-lab run NAME`.
    pub name: String,
    /// Title, one line.
    pub title: String,
    /// Question.
    pub question: String,
    /// Background in Markdown; may be empty.
    pub note: String,
    /// Pairs of rows whose ratio answers the question; the first is the main one.
    pub compare: Vec<Compare>,
    /// Goals of single figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<Goal>,
    /// Source of the published figures; empty without any.
    pub published_source: String,
}

/// Goal of a figure of one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// [`Row::id`].
    pub row: String,
    /// Name of the further figure.
    pub figure: String,
    /// What the goal is, in words: "Keys read again after a loss".
    pub claim: String,
    /// Largest value that reaches it; `None` if a smallest one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// Smallest value that reaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
}

/// Comparison of two rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compare {
    /// [`Row::id`].
    pub row: String,
    /// [`Row::id`] of the base.
    pub with: String,
    /// Beginning of the sentence that states the ratio: "Caching for one second makes the date".
    pub claim: String,
    /// Name of the further figure to compare, instead of rate and CPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<String>,
}

/// Machine of the measurements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Model of the CPU.
    pub cpu: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Kernel, from `uname`.
    pub kernel: String,
    /// Name and version of each program: `("nginx", "1.22.1")`.
    pub programs: Vec<(String, String)>,
    /// Method of the CPU limits: "cgroup v1, period 10 ms", "pinned", "not possible"; `None`
    /// without limits.
    pub cpu_limits: Option<String>,
    /// CPU weights of deployment and generator; `None` in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_weights: Option<String>,
}

/// A row of the report: one load on one deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `DEPLOYMENT/LOAD/CONNECTIONS`, unique.
    pub id: String,
    /// Name of the deployment.
    pub deployment: String,
    /// Name of the load.
    pub load: String,
    /// Method and path.
    pub request: String,
    /// Description of the proxy: "nginx, tuned profile"; "none".
    pub proxy: String,
    /// Description of the cache: "1 s in nginx"; "none".
    pub caching: String,
    /// Description of the balancing: "round robin over 3", "weights 4:1:1"; "none".
    pub balancing: String,
    /// Connections of the generator.
    pub connections: u32,
    /// True if clients kept connections open.
    pub keepalive: bool,
    /// Requested rate per second; `None` in a closed loop.
    pub rate: Option<f64>,
    /// True if events happen during its measurements, such as the end of an instance: requests may
    /// then fail, and are counted as a figure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fault: bool,
    /// Further conditions that distinguish rows, name and value: `("TLS", "on")`.
    pub conditions: Vec<(String, String)>,
    /// Published requests per second.
    pub published_rps: Option<f64>,
    /// Further published figures, name and text: `("p95", "48 ms")`.
    pub published_more: Vec<(String, String)>,
}

/// One measurement of one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// [`Row::id`].
    pub row: String,
    /// Its round, from 0.
    pub round: u32,
    /// Start, in seconds since 1970.
    pub began_unix_s: u64,
    /// Reason it is invalid, such as an unexpected response; `None` if valid.
    pub failed: Option<String>,
    /// Result of the generator; `None` if it has none.
    pub load: Option<Load>,
    /// CPU per tier and process group, during the measurement.
    pub tiers: Vec<Tier>,
    /// Requests of each backend, if there are several or a proxy.
    pub backends: Vec<Backend>,
    /// Responses by cache outcome, from the proxy or the read server: `("HIT", 812)`.
    pub cache: Vec<(String, u64)>,
    /// Bytes over the network (with loopback) and to disks.
    pub io: Io,
    /// Further figures, name, value and unit: `("hit ratio", 0.83, "")`, `("entries", 30000.0,
    /// "")`.
    #[serde(deserialize_with = "figures")]
    pub figures: Vec<(String, f64, String)>,
    /// Parts of the measurement, divided by its events; empty without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// Suspected bottlenecks, the most certain first; empty without observation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// CPU time of the observation, in s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observer_cpu_s: Option<f64>,
    /// CPU use of the rest of the machine; `None` in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineUse>,
}

/// Part of a measurement, from one event to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// The event with which it begins: "instance 2 killed"; "before" of the first.
    pub name: String,
    /// Its length, in s.
    pub seconds: f64,
    /// Instances that run in it.
    pub instances: u32,
    /// Requests of each instance in it, none of those that do not run; empty without counts.
    pub backends: Vec<Backend>,
    /// Figures of the service in it, as in [`Measurement::figures`].
    #[serde(deserialize_with = "figures")]
    pub figures: Vec<(String, f64, String)>,
}

/// CPU use of the rest of the machine during a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineUse {
    /// Time over which CPU time was counted, in s: here, and of services, proxies and databases.
    /// Longer than the measured window by the wait for the last responses.
    pub interval_s: f64,
    /// Cores in use by processes other than deployment, generator and lab; without interrupts.
    pub others_cores: f64,
    /// Cores that the hypervisor took.
    pub stolen_cores: f64,
}

/// A suspected bottleneck of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Its class, as in the JSON of `hotrow load`: `Throttled`. Readers must accept unknown
    /// classes.
    pub class: String,
    /// Description in words.
    pub description: String,
    /// Confidence, 0 to 1.
    #[serde(deserialize_with = "number")]
    pub confidence: f64,
    /// Evidence, in words and numbers.
    pub evidence: Vec<String>,
    /// Predicted effect of a change that removes the bottleneck.
    pub counterfactual: String,
}

/// Result of the generator. Times in µs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Length of the measured window, in s.
    #[serde(deserialize_with = "number")]
    pub window_s: f64,
    /// Expected responses in the window.
    pub ok: u64,
    /// Lost, broken or unexpected responses.
    pub errors: u64,
    /// Timed-out requests.
    pub timeouts: u64,
    /// Expected responses per second.
    #[serde(deserialize_with = "number")]
    pub rps: f64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Mean latency from the intended time; `None` without samples.
    pub mean_us: Option<f64>,
    /// Median.
    pub p50_us: Option<f64>,
    /// 90th percentile.
    pub p90_us: Option<f64>,
    /// 95th percentile.
    pub p95_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// Largest.
    pub max_us: Option<f64>,
    /// Which of these are lower bounds, by their names: `"p99"`, `"max"`. The requests behind them
    /// had no expected response.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lower_bounds: Vec<String>,
    /// Requests without the expected response, behind all others in `distribution`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unbounded: u64,
    /// Latencies as (upper bound in µs, requests up to it), for plots; at most 200, ascending.
    /// Lower bounds for the last `unbounded` requests.
    #[serde(deserialize_with = "distribution")]
    pub distribution: Vec<(f64, u64)>,
    /// True if the generator was the bottleneck; the rate is then a lower bound.
    pub generator_limited: bool,
    /// The generator's verdict on itself, in words.
    pub verdict: String,
}

/// Tier of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TierKind {
    /// The measured service.
    Service,
    /// The proxy in front of it.
    Proxy,
    /// The database behind it, started by the lab.
    Database,
    /// The generator.
    Generator,
}

/// Resource usage of one process group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    /// Its tier.
    pub kind: TierKind,
    /// Name, with a number if there are several: `date-2`.
    pub name: String,
    /// User and system CPU time of all its processes, in s.
    #[serde(deserialize_with = "number")]
    pub cpu_s: f64,
    /// CPU limit in cores; `None` without a limit.
    pub limit_cores: Option<f64>,
    /// Share of throttled periods (`nr_throttled` over `nr_periods`), 0 to 1; `None` without a
    /// limit.
    pub throttled: Option<f64>,
    /// Resident memory at the end, in bytes.
    pub rss_bytes: u64,
}

/// Requests of a backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// Name, as in [`Tier::name`].
    pub name: String,
    /// Weight at the balancer; 1 if all are equal.
    pub weight: u32,
    /// Requests by its own count, or sent to it by the proxy.
    pub requests: u64,
}

/// Bytes moved during the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Io {
    /// Sent over all network interfaces.
    pub net_sent_bytes: u64,
    /// Written to block devices.
    pub disk_written_bytes: u64,
    /// Read from block devices.
    pub disk_read_bytes: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Deserialises a number. JSON has no NaN, which is written as null; it must not make the other
/// figures unreadable.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::<f64>::deserialize(deserializer).map(|value| value.unwrap_or(f64::NAN))
}

/// Deserialises figures, without those that are not numbers.
fn figures<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(String, f64, String)>, D::Error> {
    let all = Vec::<(String, Option<f64>, String)>::deserialize(deserializer)?;
    Ok(all.into_iter().filter_map(|(name, value, unit)| Some((name, value?, unit))).collect())
}

/// Deserialises bounds, without those that are not numbers.
fn distribution<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(f64, u64)>, D::Error> {
    let all = Vec::<(Option<f64>, u64)>::deserialize(deserializer)?;
    Ok(all.into_iter().filter_map(|(bound, requests)| Some((bound?, requests))).collect())
}
