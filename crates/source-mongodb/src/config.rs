//! Configuration of the MongoDB engine.

use std::time::Duration;

use super::target::Target;
pub use super::target::TargetError;
pub use hotrow_source::spec::{CollectionConfig, Follow, KeyTypeName};

/// Address of a MongoDB deployment, and the collections to serve.
#[derive(Clone, Debug)]
pub struct Config {
    /// `mongodb:` connection string of the readers, and of the feed unless `feed_url` is set.
    pub url: String,
    /// Connection string of the feed; `None`: `url`.
    pub feed_url: Option<String>,
    /// Extent of change detection.
    pub follow: Follow,
    /// Conversion of BSON to JSON.
    pub json: JsonForm,
    /// Maximum number of concurrent queries, and of connections for reading.
    pub reads_in_flight: usize,
    /// Time limit of one read.
    pub read_timeout: Duration,
    /// Time limit to establish a connection, from resolving the name to the end of authentication.
    pub connect_timeout: Duration,
    /// Bound on staleness; the feed probes the log's end four times as often.
    pub max_staleness: Duration,
    /// Interval of checks for another deployment.
    pub schema_poll: Duration,
    /// Collections to serve.
    pub collections: Vec<CollectionConfig>,
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
