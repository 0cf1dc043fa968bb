//! Configuration of the PostgreSQL engine.

use std::time::Duration;

use hotrow_source::feed_loop;

use super::target::Target;

pub use super::target::TargetError;
pub use hotrow_source::spec::{CollectionConfig, Follow, KeyTypeName, ServerConfig};

/// Settings of the engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connections, limits and collections.
    pub server: ServerConfig,
    /// Name of the publication that the feed reads.
    pub publication: String,
    /// `true`: the publication is created or completed where the account may.
    pub completes_publication: bool,
    /// A trial of a start: the publication is checked and stays as it is.
    pub is_trial: bool,
    /// Slot that keeps the feed's place; `None`: a temporary one for each session. Only a feed with
    /// a [`hotrow_source::place::Place`] uses it.
    pub slot: Option<KeptSlot>,
}

/// A replication slot that outlives its sessions. It is created if it is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSlot {
    /// Name: lower-case letters, digits and underscores.
    pub name: String,
    /// Standbys synchronize it, so that a new primary has it. PostgreSQL 17 and later.
    pub has_failover: bool,
}

/// Checks a connection string without connecting.
///
/// # Errors
/// The fault found in it. No password is repeated.
pub fn check_url(url: &str) -> Result<(), TargetError> {
    Target::parse(url).map(drop)
}

/// Times of the feed. Tests have other values.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    /// Interval of the probes of the log's end.
    pub(crate) probe_every: Duration,
    /// Bound on the age of the shapes in use; see [`hotrow_source::catalog_watermark`].
    pub(crate) schema_poll: Duration,
    /// Bound on staleness.
    pub(crate) max_staleness: Duration,
    /// Time without an answer after which the server is given up and a new session begins.
    pub(crate) silence_max: Duration,
    /// Limit of the wait for other transactions while a slot is created, before the next attempt.
    pub(crate) slot_wait_max: Duration,
    /// Wait after which the log names the blockers; again after 30 times this wait.
    pub(crate) blockers_after: Duration,
    /// Interval of the fence's polls.
    pub(crate) fence_every: Duration,
}

impl Tuning {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            probe_every: feed_loop::probe_every(config.server.max_staleness),
            schema_poll: config.server.schema_poll,
            max_staleness: config.server.max_staleness,
            silence_max: feed_loop::silence_max(config.server.max_staleness),
            slot_wait_max: Duration::from_secs(600),
            blockers_after: Duration::from_secs(1),
            fence_every: Duration::from_millis(5),
        }
    }
}
