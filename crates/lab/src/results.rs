//! What an experiment measured: the one thing that running writes and reporting reads. Kept as `results.json` in the
//! experiment's folder; written anew after each measurement, so that nothing measured is lost.

use serde::{Deserialize, Deserializer, Serialize};

/// Version of the file's shape.
pub const SCHEMA: &str = "hotrow.lab/1";
/// Name of the file in the experiment's folder.
pub const FILE: &str = "results.json";

/// All of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was asked, as the experiment's file says it.
    pub experiment: About,
    /// The command line that was given.
    pub command: String,
    /// Hotrow's version.
    pub version: String,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// Machine, kernel, and the versions of what took part.
    pub host: Host,
    /// Rounds that were planned.
    pub rounds: u32,
    /// Length of one measurement, in s; none where a number of requests ends it.
    pub duration_s: Option<f64>,
    /// The rows of the report, in order: every combination of set-up and load that is measured.
    pub rows: Vec<Row>,
    /// Measurements in the order in which they were made.
    pub measurements: Vec<Measurement>,
    /// Whether all that was planned is in it; false for an interrupted run.
    pub complete: bool,
    /// What a reader must know: a limit that could not be set, a core that generator and service shared.
    pub remarks: Vec<String>,
}

/// What an experiment is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Short name, as in `hotrow lab run NAME`.
    pub name: String,
    /// One line.
    pub title: String,
    /// The question that it answers.
    pub question: String,
    /// What to know before reading the figures, in Markdown; may be empty.
    pub note: String,
    /// The pair of rows whose ratio answers the question, by their ids: `(this, compared with that)`; the first is the main one.
    pub compare: Vec<Compare>,
    /// Where the original's figures come from; empty when there is no original.
    pub original: String,
}

/// Two rows whose ratio is of interest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compare {
    /// [`Row::id`].
    pub row: String,
    /// [`Row::id`] of what it is compared with.
    pub with: String,
    /// What the ratio says, as the beginning of a sentence: "Caching for one second makes the date".
    pub says: String,
    /// Name of the further figure that answers the question in place of rate and CPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<String>,
}

/// Where it was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Model of the CPU.
    pub cpu: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Kernel, as `uname` has it.
    pub kernel: String,
    /// Name and version of each program that took part: `("nginx", "1.22.1")`.
    pub programs: Vec<(String, String)>,
    /// How CPU was limited: "cgroup v1, period 10 ms", "pinned", "not at all"; none when nothing was limited.
    pub cpu_limits: Option<String>,
}

/// One row of the report: one load on one set-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `SETUP/LOAD/CONNECTIONS`, unique.
    pub id: String,
    /// Name of the set-up.
    pub setup: String,
    /// Name of the load.
    pub load: String,
    /// Method and path that is asked for.
    pub request: String,
    /// Proxy in front, in words: "nginx, original form"; "none".
    pub proxy: String,
    /// Caching, in words: "1 s in nginx"; "none".
    pub caching: String,
    /// Balancing, in words: "round robin over 3", "weights 4:1:1"; "none".
    pub balancing: String,
    /// Connections of the generator.
    pub connections: u32,
    /// Whether clients kept connections open.
    pub keepalive: bool,
    /// Requests per second that were asked for; none in a closed loop.
    pub rate: Option<f64>,
    /// Further conditions that tell rows apart, name and value: `("TLS", "on")`.
    pub conditions: Vec<(String, String)>,
    /// What the original measured: requests per second.
    pub original_rps: Option<f64>,
    /// More of what the original measured, name and text: `("p95", "48 ms")`.
    pub original_more: Vec<(String, String)>,
}

/// One measurement of one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// [`Row::id`].
    pub row: String,
    /// Its round, from 0.
    pub round: u32,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// Why it does not count: a failed or unexpected answer, a service that died. None when it counts.
    pub failed: Option<String>,
    /// What the generator saw; none when it did not come to that.
    pub load: Option<Load>,
    /// CPU per tier and process group, during the measurement.
    pub tiers: Vec<Tier>,
    /// What each backend served, where there are several or there is a proxy.
    pub backends: Vec<Backend>,
    /// Answers by what the proxy's cache or the read server said: `("HIT", 812)`.
    pub cache: Vec<(String, u64)>,
    /// Bytes over the network (loopback included) and to the disk.
    pub io: Io,
    /// Further figures of a set-up, name, value and unit: `("hit ratio", 0.83, "")`, `("entries", 30000.0, "")`.
    #[serde(deserialize_with = "figures")]
    pub figures: Vec<(String, f64, String)>,
    /// What limited, as far as the machine showed it, the most certain first; empty when nobody looked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// CPU time that looking took meanwhile, in s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looking_cpu_s: Option<f64>,
}

/// A suspicion of what limited a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Its class by name, as in the JSON of `hotrow load`: `Throttled`. A reader must expect names that it does not know.
    pub class: String,
    /// The same in words.
    pub words: String,
    /// How sure that is, 0 to 1.
    #[serde(deserialize_with = "number")]
    pub confidence: f64,
    /// What it was seen by, in words and numbers.
    pub evidence: Vec<String>,
    /// What to change by how much, so that the limit moves.
    pub counterfactual: String,
}

/// What the generator saw. Times in µs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Length of the measured window, in s.
    #[serde(deserialize_with = "number")]
    pub window_s: f64,
    /// Requests answered as expected in the window.
    pub ok: u64,
    /// Lost, broken or unexpected answers.
    pub errors: u64,
    /// Requests that were given up.
    pub timeouts: u64,
    /// Answers as expected per second.
    #[serde(deserialize_with = "number")]
    pub rps: f64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Latency from the intended time: mean; none without samples. Percentiles that fall among time-outs are their lower bounds.
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
    /// Latencies as (upper bound in µs, requests up to it), for plots; at most 200, ascending.
    #[serde(deserialize_with = "distribution")]
    pub distribution: Vec<(f64, u64)>,
    /// Whether the generator was the limit: then the rate is a lower bound.
    pub generator_limited: bool,
    /// The generator's own verdict, in words.
    pub verdict: String,
}

/// A tier of a set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// What was measured: the user's service, or ours.
    Service,
    /// What stands in front of it.
    Proxy,
    /// What stands behind it: a database that the lab started.
    Database,
    /// The generator.
    Generator,
}

/// What a process group of a tier used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    /// Which tier.
    pub part: Part,
    /// Name, with its number where there are several: `date-2`.
    pub name: String,
    /// CPU time, user and system, of all its processes, in s.
    #[serde(deserialize_with = "number")]
    pub cpu_s: f64,
    /// The CPUs that it may use at most, in cores; none without a limit.
    pub limit_cores: Option<f64>,
    /// Share of its time in which the limit held it up (`nr_throttled` over `nr_periods`), 0 to 1; none without a limit.
    pub throttled: Option<f64>,
    /// Resident memory at the end, in bytes.
    pub rss_bytes: u64,
}

/// What a backend served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// Name, as in [`Tier::name`].
    pub name: String,
    /// Its weight at the balancer; 1 when all are equal.
    pub weight: u32,
    /// Requests that it counted itself, or that the proxy sent there.
    pub requests: u64,
}

/// Bytes moved while it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Io {
    /// Sent over all network interfaces.
    pub net_sent_bytes: u64,
    /// Written to block devices.
    pub disk_written_bytes: u64,
    /// Read from block devices.
    pub disk_read_bytes: u64,
}

/// JSON has no NaN: what was none is written as null. One such figure must not make all others unreadable.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::<f64>::deserialize(deserializer).map(|value| value.unwrap_or(f64::NAN))
}

/// Figures, without those that are no numbers.
fn figures<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, f64, String)>, D::Error> {
    let all = Vec::<(String, Option<f64>, String)>::deserialize(deserializer)?;
    Ok(all.into_iter().filter_map(|(name, value, unit)| Some((name, value?, unit))).collect())
}

/// Bounds, without those that are no numbers.
fn distribution<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(f64, u64)>, D::Error> {
    let all = Vec::<(Option<f64>, u64)>::deserialize(deserializer)?;
    Ok(all.into_iter().filter_map(|(bound, requests)| Some((bound?, requests))).collect())
}
