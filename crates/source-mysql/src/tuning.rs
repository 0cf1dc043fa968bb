//! Timings of the feed that are not in the configuration.

use std::time::Duration;

use super::config::Config;
use hotrow_source::catalog_watermark;

/// Probes per staleness bound. Four leave room for a late probe.
const PROBES_PER_STALENESS: u32 = 4;

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
        let probe_every =
            (config.max_staleness / PROBES_PER_STALENESS).max(Duration::from_millis(1));
        Self {
            probe_every,
            catalog_check_every: catalog_watermark::look_every(config.schema_poll),
            silence_max: (config.max_staleness * 10)
                .clamp(Duration::from_secs(10), Duration::from_secs(60)),
            heartbeat: Duration::from_secs(1),
            fence_every: Duration::from_millis(5),
        }
    }
}
