//! Times of the feed that are not configurable.

use std::time::Duration;

use super::config::Config;

/// A quarter of the bound leaves room for a late probe.
const PROBES_PER_STALENESS: u32 = 4;

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
        let probe_every =
            (config.max_staleness / PROBES_PER_STALENESS).max(Duration::from_millis(1));
        Self {
            probe_every,
            schema_poll: config.schema_poll,
            max_staleness: config.max_staleness,
            silence_max: (config.max_staleness * 10)
                .clamp(Duration::from_secs(10), Duration::from_secs(60)),
            slot_wait_max: Duration::from_secs(600),
            blockers_after: Duration::from_secs(1),
            fence_every: Duration::from_millis(5),
        }
    }
}
