//! Times of the feed that no configuration sets.

use std::time::Duration;

use super::config::Config;

/// A quarter of the bound leaves room for a probe that comes late.
const PROBES_PER_STALENESS: u32 = 4;

/// How the feed behaves in time. Tests have other values.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    /// Between two probes of the log's end.
    pub(crate) probe_every: Duration,
    /// Between two looks at the catalogue.
    pub(crate) schema_poll: Duration,
    /// A server that was asked, or that owes a heartbeat, and says nothing for so long is given up, and a new session is
    /// tried.
    pub(crate) silence_max: Duration,
    /// After how much silence the server says on the stream that it is there.
    pub(crate) heartbeat: Duration,
    /// Between two looks whether transactions that were being committed at the start are done.
    pub(crate) fence_every: Duration,
}

impl Tuning {
    pub(crate) fn new(config: &Config) -> Self {
        let probe_every = (config.max_staleness / PROBES_PER_STALENESS).max(Duration::from_millis(1));
        Self {
            probe_every,
            schema_poll: config.schema_poll,
            silence_max: (config.max_staleness * 10).clamp(Duration::from_secs(10), Duration::from_secs(60)),
            heartbeat: Duration::from_secs(1),
            fence_every: Duration::from_millis(5),
        }
    }
}
