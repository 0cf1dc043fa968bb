//! What the PostgreSQL engine is told at start.

use std::time::Duration;

use super::target::Target;
pub use super::target::TargetError;
pub use crate::spec::{CollectionSpec, Follow, KeyTypeName};

/// Settings of the engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the readers connect: a connection string as libpq takes it (`postgres://…`, `postgresql://…`).
    pub url: String,
    /// Where the feed connects when `url` leads to a pooler, which cannot carry a replication session.
    pub feed_url: Option<String>,
    /// Whether there is a feed.
    pub follow: Follow,
    /// Name of the publication that the feed reads.
    pub publication: String,
    /// Queries sent at once: the bound on connections of readers.
    pub reads_in_flight: usize,
    /// How long one query may take, waiting for a connection included.
    pub read_timeout: Duration,
    /// How long reaching one host may take, TLS and authentication included.
    pub connect_timeout: Duration,
    /// The contract's bound. The log's end is probed every quarter of it.
    pub max_staleness: Duration,
    /// How often the catalogue is looked at for changed tables, which the feed does not tell.
    pub schema_poll: Duration,
    /// In the order of their `CollectionId`s.
    pub collections: Vec<CollectionSpec>,
}

/// Checks a connection string without connecting.
///
/// # Errors
/// What is wrong with it; no password is repeated.
pub fn check_url(url: &str) -> Result<(), TargetError> {
    Target::parse(url).map(drop)
}
