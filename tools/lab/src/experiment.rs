//! An experiment, read from a TOML file and checked before anything starts.
//!
//! Reading order: this file (the validated experiment), `file` (every key of the file), `read`
//! (from text to keys), `resolve` (from keys to experiment, with every rule), `values` (syntax of
//! single values), `event`, [`placeholder`].

mod event;
mod file;
pub mod placeholder;
mod read;
mod resolve;
mod values;
mod words;

/// A built-in experiment.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name, as in `hotrow-lab run NAME`.
    pub name: &'static str,
    /// Other names: its workload numbers.
    pub also: &'static [&'static str],
    /// Its file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal $also:expr),* $(,)?) => {
        /// All built-in experiments.
        pub const SHIPPED: &[Shipped] = &[$(Shipped {
            name: $name,
            also: &$also,
            text: include_str!(concat!("../../../experiments/", $name, ".toml")),
        }),*];
    };
}

shipped![
    "small-responses" ["w1"],
    "cache-or-database" ["w3", "w4"],
    "balancer-hit-ratio" ["w5"],
    "cold-record-burst" ["w7"],
    "missing-ids" [],
    "backends-shared-cpu" ["w10a", "w8", "w9", "w10", "w11", "w12", "w13"],
    "backends-limited-cpu" [],
    "backends-gunicorn" ["w10b"],
    "failing-backend" [],
    "balancer-choice" [],
    "routing" [],
    "compression" [],
    "instances-and-ttl" [],
    "preloading" [],
    "connection-cost" ["w19"],
    "orm-cost" ["w20"],
    "database-connections" [],
    "proxy-cost" ["w21"],
    "worker-count" ["workers"],
    "round-trip-time" ["rtt"],
    "tls-cost" ["tls"],
];

/// Finds an experiment by name or alias, ignoring case.
pub fn find_shipped(name: &str) -> Option<&'static Shipped> {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    SHIPPED.iter().find(|shipped| is(shipped.name) || shipped.also.iter().any(|also| is(also)))
}

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

pub use hotrow_cli::problem::{ConfigError, Problem};
use hotrow_load::ids::{Distribution, Ids};
use hotrow_load::plan::{Rate, StopCondition};
use serde::{Deserialize, Serialize};

use hotrow_proxies::nginx::{Balance, Failover, ProxyProfile};
use hotrow_results::{ExperimentInfo, Row};

pub use event::{EVENT_FIGURES, Event, EventKind};
pub use values::duration;
pub(crate) use words::duration_text;

/// Largest experiment file, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most rounds of an experiment.
pub const ROUNDS_MAX: u32 = 1000;
/// Most instances of a service in one deployment.
pub const INSTANCES_MAX: u32 = 64;
/// Most rows of an experiment: deployments times loads times connections.
pub const ROWS_MAX: usize = 1000;

/// A validated experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Title, question and comparisons.
    pub info: ExperimentInfo,
    /// Absolute folder of its file, `{here}` in its texts; services run in folders of their own.
    pub here: PathBuf,
    /// Measurements of each row, 1 to [`ROUNDS_MAX`].
    pub rounds: u32,
    /// Services by name.
    pub services: BTreeMap<String, Service>,
    /// Deployments in the order of the file; at least one.
    pub deployments: Vec<DeploymentSpec>,
    /// Loads in the order of the file; at least one.
    pub loads: Vec<Load>,
    /// The matrix: every load on each of its deployments, with each number of connections.
    pub rows: Vec<Planned>,
}

/// A row of the matrix.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The row as the report shows it.
    pub row: Row,
    /// Index of its deployment.
    pub deployment: usize,
    /// Index of its load.
    pub load: usize,
}

/// A program to start.
#[derive(Clone, Debug)]
pub struct Service {
    /// Fixed port, for a program whose port cannot be set; `None`: a free one for each start.
    pub port: Option<u16>,
    /// The program and its arguments, with placeholders.
    pub command: Vec<String>,
    /// Its environment in addition to the lab's, with placeholders.
    pub env: BTreeMap<String, String>,
    /// Files written into its folder before the start, by name, with placeholders in their text.
    pub files: BTreeMap<String, String>,
    /// Its own placeholders, which deployments may override.
    pub vars: BTreeMap<String, String>,
    /// Commands run in order, once, before the first deployment that needs it.
    pub prepare: Vec<Vec<String>>,
    /// Time limit of each of them.
    pub prepare_within: Duration,
    /// Path that answers 2xx when the service is ready; `None`: its port accepts connections.
    pub ready: Option<String>,
    /// True if that path is requested at `{admin_port}`.
    pub ready_on_admin: bool,
    /// Command that exits with status 0 when the service is ready, for services without HTTP.
    pub ready_command: Vec<String>,
    /// Time limit until it is ready.
    pub ready_within: Duration,
    /// CPU limit of each instance, in cores.
    pub cores: Option<f64>,
    /// How it is reached.
    pub access: Access,
    /// Source of an instance's count of served requests.
    pub count: Option<Count>,
    /// Path of its metrics in the Prometheus text format.
    pub metrics: Option<String>,
    /// Series of those metrics that count the keys read from the database.
    pub reads_metric: Option<String>,
    /// Further figures from those metrics.
    pub figures: Vec<Figure>,
    /// Commands that must succeed; otherwise its deployments are skipped.
    pub needs_commands: Vec<Vec<String>>,
}

/// How a service is reached, if not in cleartext at its port by anyone. Paths, with placeholders.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Access {
    /// Certificates that sign the service's, which is of `localhost`; `None`: it speaks cleartext.
    pub cacert: Option<String>,
    /// Certificate of its clients.
    pub cert: Option<String>,
    /// The key of that.
    pub key: Option<String>,
    /// Unix socket on which it listens.
    pub unix: Option<String>,
    /// File of a token, which clients send as `Authorization: Bearer`.
    pub token_file: Option<String>,
    /// File of header fields, one a line.
    pub headers_file: Option<String>,
}

impl Access {
    /// Returns the paths that are set, to fill their placeholders.
    pub fn paths_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let Self { cacert, cert, key, unix, token_file, headers_file } = self;
        [cacert, cert, key, unix, token_file, headers_file].into_iter().flatten()
    }

    /// Returns the paths that are set.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let Self { cacert, cert, key, unix, token_file, headers_file } = self;
        [cacert, cert, key, unix, token_file, headers_file]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }
}

/// Source of an instance's count of served requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Count {
    /// A path whose response is a plain number.
    Path(String),
    /// The sum of these series of its metrics.
    Metric(String),
}

/// A figure from the metrics of all instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its name in the report.
    pub name: String,
    /// Its unit; may be empty.
    pub unit: String,
    /// Series that are summed: a name, or a name with required labels: `hits{kind="a"}`.
    pub of: Vec<String>,
    /// Series by whose sum it is divided; empty: no division.
    pub over: Vec<String>,
    /// True if it is the value at the end, not the increase during the measurement.
    pub at_end: bool,
}

/// A deployment: a service, its database and its proxy.
#[derive(Clone, Debug)]
pub struct DeploymentSpec {
    /// Its name, unique.
    pub name: String,
    /// Name of its service.
    pub service: String,
    /// Name of the service that is its database, started before it.
    pub database: Option<String>,
    /// Weight of each instance at the balancer; one entry per instance, spares included.
    pub weights: Vec<u32>,
    /// Number of instances, the last ones, that only an event starts.
    pub spares: usize,
    /// Proxy in front of the service.
    pub proxy: Option<Proxy>,
    /// Added round-trip time in front of everything.
    pub delay: Option<Duration>,
    /// Arguments after those of the service.
    pub args: Vec<String>,
    /// Environment of its service; overrides the service's.
    pub env: BTreeMap<String, String>,
    /// Placeholders of its service; override the service's.
    pub vars: BTreeMap<String, String>,
    /// CPU limit of each instance; overrides the service's.
    pub cores: Option<f64>,
    /// Environment variables that must be set; otherwise the deployment is skipped.
    pub needs_env: Vec<String>,
}

/// The program of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyKind {
    /// nginx.
    Nginx,
    /// HAProxy, of whose settings only balance and retry can be chosen.
    Haproxy,
}

/// A proxy in front of services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Its program.
    pub kind: ProxyKind,
    /// Most open requests of an instance in percent of the average, beyond which a record goes to
    /// the next one on the ring; HAProxy's.
    pub load_bound: Option<u32>,
    /// Built-in configuration profile.
    pub profile: ProxyProfile,
    /// Balancing policy.
    pub balance: Balance,
    /// Lifetime of cacheable responses; `None`: no cache.
    pub cache: Option<Duration>,
    /// Level at which it compresses responses; `None`: not at all.
    pub gzip: Option<u32>,
    /// Most bytes per second of one response; `None`: without a limit.
    pub response_rate: Option<u32>,
    /// Detection and handling of failed backends.
    pub failover: Failover,
    /// Idle connections kept to backends, 0 for none; `None`: the profile's default.
    pub upstream_keepalive: Option<u32>,
    /// True if it logs a line per request.
    pub access_log: bool,
    /// True if it serves TLS to clients.
    pub tls: bool,
    /// The user's own configuration, instead of a profile.
    pub template: Option<PathBuf>,
}

/// A load: requests, their rate and their expected responses.
#[derive(Clone, Debug)]
pub struct Load {
    /// Its name, unique.
    pub name: String,
    /// The method.
    pub method: String,
    /// Path and query; every `{id}` is filled.
    pub path: String,
    /// Header fields.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<Vec<u8>>,
    /// Ids that fill `{id}`.
    pub ids: Option<(Ids, Distribution)>,
    /// Unset environment variable that should name the file of its ids; the load cannot run here.
    pub missing_env: Option<String>,
    /// Numbers of connections, one row each.
    pub connections: Vec<u32>,
    /// Threads of the generator; `None`: as many as suit the machine.
    pub threads: Option<usize>,
    /// True if connections stay open.
    pub keepalive: bool,
    /// Requests per second; `None`: closed loop.
    pub rate: Option<Rate>,
    /// End condition of a measurement.
    pub stop_condition: StopCondition,
    /// Load before the measurement, not counted.
    pub warmup: Duration,
    /// Time limit of a request.
    pub timeout: Duration,
    /// Expected response.
    pub expect: Expect,
    /// Name of a load that runs at the same time and is not measured.
    pub background_load: Option<String>,
    /// True if it only runs beside other loads.
    pub background: bool,
    /// True if it needs a cold start: no request precedes it, neither a check nor a warm-up.
    pub cold: bool,
    /// Events during its measurements, in the order of their times.
    pub events: Vec<Event>,
}

/// Expected response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// Its status; `None`: any 2xx.
    pub status: Option<u16>,
    /// Text that its body contains; empty: any.
    pub body_contains: String,
    /// Least and most bytes of its body.
    pub body_bytes: Option<(usize, usize)>,
}

/// Settings of the command line that override the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overrides {
    /// `--rounds`.
    pub rounds: Option<u32>,
    /// `--duration`, in s; replaces a number of requests too.
    pub duration_s: Option<f64>,
    /// `--only`: names of deployments; empty: all.
    pub only: Vec<String>,
    /// `--quick`: a short form, for a functional check.
    pub quick: bool,
}

impl Experiment {
    /// Parses an experiment. `name` identifies it in the report and `file` in messages; relative
    /// file names start at `folder`.
    ///
    /// # Errors
    /// All problems of the file.
    pub fn parse(
        name: &str,
        file: &str,
        text: &str,
        folder: &std::path::Path,
        overrides: &Overrides,
    ) -> Result<Self, ConfigError> {
        resolve::resolve(name, file, text, folder, overrides)
    }

    /// Returns the rows of a deployment.
    pub fn rows_of(&self, deployment: usize) -> impl Iterator<Item = &Planned> {
        self.rows.iter().filter(move |planned| planned.deployment == deployment)
    }

    /// Returns a load by its name.
    pub fn load(&self, name: &str) -> Option<&Load> {
        self.loads.iter().find(|load| load.name == name)
    }
}
