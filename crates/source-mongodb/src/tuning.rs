//! Times of the feed that no configuration sets.

use std::time::Duration;

use super::config::Config;

/// Probes per staleness bound. A quarter of the bound leaves room for a late probe.
const PROBES_PER_STALENESS: u32 = 4;

/// Times of the feed. Tests use other values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// Interval of probes of the log's end.
    pub(crate) probe_every: Duration,
    /// Longest time that the server waits for events before it answers with an empty batch and its
    /// progress.
    pub(crate) wait_max: Duration,
    /// Time without an answer after which a session is abandoned and a new one is tried.
    pub(crate) silence_max: Duration,
}

impl Tuning {
    pub(crate) fn new(config: &Config) -> Self {
        let probe_every =
            (config.max_staleness / PROBES_PER_STALENESS).max(Duration::from_millis(2));
        Self {
            probe_every,
            wait_max: probe_every / 2,
            silence_max: (config.max_staleness * 10)
                .clamp(Duration::from_secs(10), Duration::from_secs(60)),
        }
    }
}
