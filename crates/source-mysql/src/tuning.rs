//! Timings of the feed that are not in the configuration.

use std::time::Duration;

use super::config::Config;
use hotrow_source::{catalog_watermark, feed_loop};

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
            probe_every: feed_loop::probe_every(config.max_staleness),
            catalog_check_every: catalog_watermark::look_every(config.schema_poll),
            silence_max: feed_loop::silence_max(config.max_staleness),
            heartbeat: Duration::from_secs(1),
            fence_every: Duration::from_millis(5),
        }
    }
}
