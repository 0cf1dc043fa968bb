//! Parameters of a run.

use std::time::Duration;

use crate::database::{Database, Tables};
use crate::http::Target;
use crate::record_schema::RecordSchema;
use crate::redis::RedisTarget;
use crate::rules::Rule;

/// Most keys; each takes some kilobytes during the run.
pub const KEYS_MAX: u32 = 1_000_000;
/// Consecutive keys that one transaction may change together, and that snapshots read together.
pub(crate) const SET_KEYS: u32 = 5;
/// Most writers; each owns some of these sets.
pub const WRITERS_MAX: u16 = 64;
/// Most readers.
pub const READERS_MAX: u16 = 256;
/// Highest rate in transactions per second, all writers together.
pub const RATE_MAX: f64 = 100_000.0;
/// Highest rate in requests per second, all readers together.
pub const READ_RATE_MAX: f64 = 10_000_000.0;
/// Longest run.
pub const DURATION_MAX: Duration = Duration::from_hours(24 * 7);
/// Most instances, and most balancers.
pub const TARGETS_MAX: usize = 64;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Database to write to.
    pub database: Database,
    /// Tables to write to.
    pub tables: Tables,
    /// Collection that serves them.
    pub schema: RecordSchema,
    /// The contract's bound, from the configuration.
    pub max_staleness: Duration,
    /// Most ids of one batch, at least 1.
    pub batch_ids_max: usize,
    /// Instances; point 1 applies to each by itself.
    pub instances: Vec<Target>,
    /// Balancers in front of several instances.
    pub balancers: Vec<Target>,
    /// Admin APIs in the order of the instances; there may be fewer.
    pub admins: Vec<Target>,
    /// Addresses of the Redis protocol in the order of the instances; there may be fewer.
    pub redis: Vec<RedisTarget>,
    /// The admin APIs' token.
    pub admin_token: Option<String>,
    /// Keys that are written and read: 1 to [`KEYS_MAX`].
    pub keys: u32,
    /// Transactions per second, all writers together.
    pub rate: f64,
    /// Writers, each with a connection of its own.
    pub writers: u16,
    /// Readers, each with a connection to every target.
    pub readers: u16,
    /// Requests per second, all readers over HTTP together; `None`: as many as are answered.
    pub read_rate: Option<f64>,
    /// Duration of the writes.
    pub duration: Duration,
    /// Time limit of a response.
    pub timeout: Duration,
    /// Seed of all random choices.
    pub seed: u64,
    /// Rules that are not checked: [`Rule::Strict`] or [`Rule::Snapshot`].
    pub skip: Vec<Rule>,
    /// True if a missing table is created.
    pub create: bool,
    /// True if foreign rows may exist in the table.
    pub reuse_table: bool,
    /// True if the run continues after a violation.
    pub keep_going: bool,
}
