//! What a run consists of.

use std::time::Duration;

use crate::database::{Database, Table};
use crate::http::Target;

/// Most keys: each costs some kilobytes while the run lasts.
pub const KEYS_MAX: u32 = 1_000_000;
/// Most writers; each owns a part of the keys.
pub const WRITERS_MAX: u16 = 64;
/// Most readers.
pub const READERS_MAX: u16 = 256;
/// Most transactions a second, all writers together.
pub const RATE_MAX: f64 = 100_000.0;
/// Longest run.
pub const DURATION_MAX: Duration = Duration::from_hours(24 * 7);
/// Most instances, and most balancers.
pub const TARGETS_MAX: usize = 64;

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to write.
    pub database: Database,
    /// To what.
    pub table: Table,
    /// The collection that serves it.
    pub collection: String,
    /// The contract's bound, from the configuration.
    pub max_staleness: Duration,
    /// Most ids of one batch, at least 1.
    pub batch_ids_max: usize,
    /// Instances: each is held to point 1 by itself.
    pub instances: Vec<Target>,
    /// Ways to several instances.
    pub balancers: Vec<Target>,
    /// Admin APIs in the order of the instances; there may be fewer.
    pub admins: Vec<Target>,
    /// The admin APIs' token.
    pub admin_token: Option<String>,
    /// Keys that are written and read: 1 to [`KEYS_MAX`].
    pub keys: u32,
    /// Transactions a second, all writers together.
    pub rate: f64,
    /// Writers, each on a connection of its own.
    pub writers: u16,
    /// Readers, each with a connection to every target.
    pub readers: u16,
    /// How long writers write.
    pub duration: Duration,
    /// Longest time to wait for an answer.
    pub timeout: Duration,
    /// What random choices follow from.
    pub seed: u64,
    /// Whether a missing table is created.
    pub create: bool,
    /// Whether rows of somebody else may stand in the table.
    pub adopt: bool,
    /// Whether the run goes on after a violation.
    pub keep_going: bool,
}
