//! Configuration of the engine.

use std::time::Duration;

use hotrow_source::spec::ServerConfig;
use hotrow_source::{catalog_watermark, feed_loop};

use super::embedded_rules::EmbeddedRules;
use super::resume_rules::ResumeRules;
use super::target::{Target, TargetError};

/// Connection settings of a MySQL or MariaDB server and the collections to serve from it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connections, limits and collections.
    pub server: ServerConfig,
    /// Replica number of the feed, unique among the server's replicas. `None` means a random
    /// number.
    pub server_id: Option<u32>,
    /// Rules in force for a feed with a place: all of them, but for tests.
    pub resume_rules: ResumeRules,
    /// Rules in force for embedded rows: all of them, but for tests.
    pub embedded_rules: EmbeddedRules,
}

/// Checks that a text is a valid connection string. It does not connect.
///
/// # Errors
/// See [`TargetError`]; no message contains the password.
pub fn check_url(url: &str) -> Result<(), TargetError> {
    Target::parse(url).map(drop)
}

/// Timings of the feed. Tests use other values.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    /// Interval between two probes of the log's end.
    pub(crate) probe_every: Duration,
    /// Interval between two checks of the catalogue.
    pub(crate) catalog_check_every: Duration,
    /// Silence after which a session is abandoned and a new one is tried: an unanswered query, or a
    /// stream without a heartbeat.
    pub(crate) silence_max: Duration,
    /// Silence on the stream after which the server sends a heartbeat.
    pub(crate) heartbeat: Duration,
    /// Interval between two checks for transactions that were in commit at the start.
    pub(crate) fence_every: Duration,
}

impl Tuning {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            probe_every: feed_loop::probe_every(config.server.max_staleness),
            catalog_check_every: catalog_watermark::check_interval(config.server.schema_poll),
            silence_max: feed_loop::silence_max(config.server.max_staleness),
            heartbeat: Duration::from_secs(1),
            fence_every: Duration::from_millis(5),
        }
    }
}
