//! Configuration of the PostgreSQL engine.

use std::time::Duration;

use super::target::Target;
pub use super::target::TargetError;
pub use hotrow_source::spec::{CollectionConfig, Follow, KeyTypeName};

/// Settings of the engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Connection string of the readers, in libpq's syntax (`postgres://…`, `postgresql://…`).
    pub url: String,
    /// Connection string of the feed if `url` leads to a pooler, which cannot carry a replication
    /// session.
    pub feed_url: Option<String>,
    /// Selects whether there is a feed.
    pub follow: Follow,
    /// Name of the publication that the feed reads.
    pub publication: String,
    /// Most queries in flight: the bound on the readers' connections.
    pub reads_in_flight: usize,
    /// Time limit of one query, waiting for a connection included.
    pub read_timeout: Duration,
    /// Time limit of connecting to one host, TLS and authentication included.
    pub connect_timeout: Duration,
    /// Bound on staleness. The log's end is probed every quarter of it.
    pub max_staleness: Duration,
    /// Bound on the age of the tables' confirmed shapes; the feed does not report changes of the
    /// shape.
    pub schema_poll: Duration,
    /// In the order of the `CollectionId`s.
    pub collections: Vec<CollectionConfig>,
}

/// Checks a connection string without connecting.
///
/// # Errors
/// The fault found in it. No password is repeated.
pub fn check_url(url: &str) -> Result<(), TargetError> {
    Target::parse(url).map(drop)
}
