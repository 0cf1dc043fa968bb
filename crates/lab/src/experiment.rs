//! What is to be measured, read from a TOML file and checked before anything starts.
//!
//! Reading order: here (what comes out), `file` (every key of the file), `resolve` (from the one to the other, with every rule),
//! `values` (how single values are written), `words` (how a set-up is told in the report), [`placeholder`], [`shipped`].

mod file;
pub mod placeholder;
mod problem;
mod resolve;
pub mod shipped;
mod values;
mod words;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hotrow_load::ids::{Ids, Pick};
use hotrow_load::plan::{Extent, Rate};
use serde::{Deserialize, Serialize};

use crate::nginx::{Balance, Form};
use crate::results::{About, Row};

pub use problem::{ExperimentError, Problem};
pub use values::duration;

/// Largest file of an experiment, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most rounds of an experiment.
pub const ROUNDS_MAX: u32 = 1000;
/// Most instances of a service in one set-up.
pub const INSTANCES_MAX: u32 = 64;
/// Most rows of an experiment: set-ups times loads times connections.
pub const ROWS_MAX: usize = 1000;

/// An experiment that can be carried out, as far as its file tells.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What it is about.
    pub about: About,
    /// The folder of its file, `{here}` in its texts; services run in folders of their own, so that it must be absolute.
    pub here: PathBuf,
    /// How often every row is measured, 1 to [`ROUNDS_MAX`].
    pub rounds: u32,
    /// Services by their names.
    pub services: BTreeMap<String, Service>,
    /// Set-ups in the order of the file; at least one.
    pub setups: Vec<Setup>,
    /// Loads in the order of the file; at least one.
    pub loads: Vec<Load>,
    /// The matrix: every load on every set-up that it is for, with every number of connections.
    pub rows: Vec<Planned>,
}

/// A row of the matrix.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The row as the report shows it.
    pub row: Row,
    /// Index of its set-up.
    pub setup: usize,
    /// Index of its load.
    pub load: usize,
}

/// A program that is started.
#[derive(Clone, Debug)]
pub struct Service {
    /// The port that it always listens on, for what cannot be told one; none: a free one each time.
    pub port: Option<u16>,
    /// The program and its arguments, with placeholders.
    pub command: Vec<String>,
    /// Its environment beside ours, with placeholders.
    pub env: BTreeMap<String, String>,
    /// Files that are written into its folder before it starts, by name, with placeholders in their text.
    pub files: BTreeMap<String, String>,
    /// Placeholders of its own, which set-ups may change.
    pub vars: BTreeMap<String, String>,
    /// Commands that are run one after another before the first set-up that needs it, once.
    pub prepare: Vec<Vec<String>>,
    /// How long each of them may take.
    pub prepare_within: Duration,
    /// The path that answers 2xx when it is ready; none: its port takes connections.
    pub ready: Option<String>,
    /// Whether that path is asked for at `{admin_port}`.
    pub ready_on_admin: bool,
    /// A command that ends with status 0 when it is ready, for what does not speak HTTP.
    pub ready_command: Vec<String>,
    /// How long that may take.
    pub ready_within: Duration,
    /// CPU limit of each instance, in cores.
    pub cores: Option<f64>,
    /// Where an instance tells how many requests it served.
    pub count: Option<Count>,
    /// The path of its metrics in Prometheus' text form.
    pub metrics: Option<String>,
    /// Further figures from those.
    pub figures: Vec<Figure>,
}

/// Where an instance tells how many requests it served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Count {
    /// A path that answers a plain number.
    Path(String),
    /// The sum of these series of its metrics.
    Metric(String),
}

/// A figure from the metrics of all instances together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its name in the report.
    pub name: String,
    /// Its unit; may be empty.
    pub unit: String,
    /// Series that are added up: a name, or a name with labels that must be there: `hits{kind="a"}`.
    pub of: Vec<String>,
    /// Series by whose sum it is divided; none: it is not.
    pub over: Vec<String>,
    /// Whether it is the value at the end, not what was added during the measurement.
    pub at_end: bool,
}

/// What stands while loads run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its name, unique.
    pub name: String,
    /// Name of its service.
    pub service: String,
    /// Name of the service that is its database, started before it.
    pub database: Option<String>,
    /// Weight at the balancer of each instance; as many as there are instances.
    pub weights: Vec<u32>,
    /// What stands in front.
    pub proxy: Option<Proxy>,
    /// Round-trip time that is added in front of all.
    pub delay: Option<Duration>,
    /// Arguments after those of the service.
    pub args: Vec<String>,
    /// Its service's environment, over what the service says.
    pub env: BTreeMap<String, String>,
    /// Its service's placeholders, over what the service says.
    pub vars: BTreeMap<String, String>,
    /// CPU limit of each instance, over what the service says.
    pub cores: Option<f64>,
    /// Environment variables without which it is left out.
    pub needs_env: Vec<String>,
}

/// nginx in front of services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Which of our configurations.
    pub form: Form,
    /// How it chooses a backend.
    pub balance: Balance,
    /// How long it keeps answers that may be kept; none: no cache.
    pub cache: Option<Duration>,
    /// Idle connections that it keeps to backends, 0 for none; none: as the form has it.
    pub upstream_keepalive: Option<u32>,
    /// Whether it writes a line per request.
    pub access_log: bool,
    /// Whether clients speak TLS to it.
    pub tls: bool,
    /// The user's own configuration, instead of ours.
    pub template: Option<PathBuf>,
}

/// What is asked, and how hard.
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
    pub ids: Option<(Ids, Pick)>,
    /// The environment variable that ought to name the file of its ids and is not set: it cannot be measured here.
    pub missing_env: Option<String>,
    /// Numbers of connections, each a row of its own.
    pub connections: Vec<u32>,
    /// Threads of the generator; none: as many as suit the machine.
    pub threads: Option<usize>,
    /// Whether connections stay open.
    pub keepalive: bool,
    /// Requests per second; none: as fast as answers come.
    pub rate: Option<Rate>,
    /// What ends a measurement.
    pub extent: Extent,
    /// What is not measured before.
    pub warmup: Duration,
    /// After this time a request is given up.
    pub timeout: Duration,
    /// What a right answer is.
    pub expect: Expect,
    /// Name of a load that runs beside it, unmeasured.
    pub beside: Option<String>,
    /// Whether it only runs beside others.
    pub background: bool,
    /// Whether it must find everything cold: nothing is asked before it, neither to check answers nor to warm up.
    pub cold: bool,
}

/// What a right answer is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// Its status; none: any 2xx.
    pub status: Option<u16>,
    /// What its body contains; empty: anything.
    pub body_contains: String,
    /// Least and most bytes of its body.
    pub body_bytes: Option<(usize, usize)>,
}

/// What the command line sets over the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overrides {
    /// `--rounds`.
    pub rounds: Option<u32>,
    /// `--duration`, in s: of every measurement, those that a number of requests ends too.
    pub duration_s: Option<f64>,
    /// `--only`: names of set-ups; empty: all.
    pub only: Vec<String>,
    /// `--quick`: a short form, to see that all works.
    pub quick: bool,
}

impl Experiment {
    /// Reads an experiment. `name` stands for it in the report, `file` in messages; `folder` is where names of files in it begin.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(
        name: &str,
        file: &str,
        text: &str,
        folder: &std::path::Path,
        overrides: &Overrides,
    ) -> Result<Self, ExperimentError> {
        resolve::resolve(name, file, text, folder, overrides)
    }

    /// The rows of a set-up.
    pub fn rows_of(&self, setup: usize) -> impl Iterator<Item = &Planned> {
        self.rows.iter().filter(move |planned| planned.setup == setup)
    }

    /// A load by its name.
    #[must_use]
    pub fn load(&self, name: &str) -> Option<&Load> {
        self.loads.iter().find(|load| load.name == name)
    }
}
