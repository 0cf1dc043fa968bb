//! Times of the feed that no configuration sets.

use std::time::Duration;

use super::config::Config;

/// A quarter of the bound leaves room for a probe that comes late.
const PROBES_PER_STALENESS: u32 = 4;

/// How the feed behaves in time. Tests have other values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// Between two probes of the log's end.
    pub(crate) probe_every: Duration,
    /// How long the server waits for events before it answers with none, and says how far it has looked.
    pub(crate) wait_max: Duration,
    /// A server that was asked and says nothing for so long is given up, and a new session is tried.
    pub(crate) silence_max: Duration,
}

impl Tuning {
    pub(crate) fn new(config: &Config) -> Self {
        let probe_every = (config.max_staleness / PROBES_PER_STALENESS).max(Duration::from_millis(2));
        Self {
            probe_every,
            wait_max: probe_every / 2,
            silence_max: (config.max_staleness * 10).clamp(Duration::from_secs(10), Duration::from_secs(60)),
        }
    }
}
