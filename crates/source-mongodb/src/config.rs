//! Configuration of the MongoDB engine.

use std::time::Duration;

use hotrow_source::feed_loop;

use super::target::Target;

pub use super::target::TargetError;
pub use hotrow_source::spec::{CollectionConfig, Follow, KeyTypeName, ServerConfig};

/// Address of a MongoDB deployment, and the collections to serve.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connections, limits and collections.
    pub server: ServerConfig,
    /// Conversion of BSON to JSON.
    pub json: JsonForm,
}

/// Conversion of BSON to JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonForm {
    /// Form for readers without knowledge of BSON: dates in RFC 3339, ObjectIds as hexadecimal
    /// text, Decimal128 with its own digits, Int64 as a number.
    #[default]
    Plain,
    /// MongoDB's relaxed Extended JSON (v2).
    RelaxedExtended,
}

/// Checks a connection string without connecting or resolving a name.
///
/// # Errors
/// Returns the problem; no message repeats a password.
pub fn check_url(url: &str) -> Result<(), TargetError> {
    Target::parse(url).map(drop)
}

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
            feed_loop::probe_every(config.server.max_staleness).max(Duration::from_millis(2));
        Self {
            probe_every,
            wait_max: probe_every / 2,
            silence_max: feed_loop::silence_max(config.server.max_staleness),
        }
    }
}
