//! Times of the feed that no configuration sets.

use std::time::Duration;

use super::config::Config;
use hotrow_source::feed_loop;

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
        // At least 2 ms, so that `wait_max` is at least 1 ms.
        let probe_every =
            feed_loop::probe_every(config.max_staleness).max(Duration::from_millis(2));
        Self {
            probe_every,
            wait_max: probe_every / 2,
            silence_max: feed_loop::silence_max(config.max_staleness),
        }
    }
}
