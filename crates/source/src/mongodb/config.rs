//! What the engine needs to be told.

use std::time::Duration;

use super::target::Target;
pub use super::target::TargetError;
pub use crate::spec::{CollectionSpec, Follow, KeyTypeName};

/// How to reach a MongoDB deployment and what to serve of it.
#[derive(Clone, Debug)]
pub struct Config {
    /// `mongodb:` connection string of the readers, and of the feed unless `feed_url` says otherwise.
    pub url: String,
    /// Connection string of the feed; `None`: `url`.
    pub feed_url: Option<String>,
    /// Whether there is a feed.
    pub follow: Follow,
    /// How BSON becomes JSON.
    pub json: JsonForm,
    /// Queries at the same time, and so connections for reading.
    pub reads_in_flight: usize,
    /// Longest time for one read.
    pub read_timeout: Duration,
    /// Longest time to establish a connection, from resolving the name to the end of authentication.
    pub connect_timeout: Duration,
    /// The contract's bound; the feed probes the log's end four times as often.
    pub max_staleness: Duration,
    /// How often the deployment is looked at for changes of shape.
    pub schema_poll: Duration,
    /// What to serve.
    pub collections: Vec<CollectionSpec>,
}

/// How BSON becomes JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonForm {
    /// As a reader without knowledge of BSON expects: dates in RFC 3339, ObjectIds as hexadecimal text, Decimal128 as
    /// written, Int64 as a number.
    #[default]
    Plain,
    /// MongoDB's relaxed Extended JSON (v2).
    RelaxedExtended,
}

/// Checks a connection string without connecting or looking up a name.
///
/// # Errors
/// What is wrong with it; no password is repeated.
pub fn check_url(url: &str) -> Result<(), TargetError> {
    Target::parse(url).map(drop)
}
