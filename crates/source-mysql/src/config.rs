//! Configuration of the engine.

use std::time::Duration;

use super::target::{Target, TargetError};
use hotrow_source::spec::{CollectionConfig, Follow};

/// Connection settings of a MySQL or MariaDB server and the collections to serve from it.
#[derive(Clone, Debug)]
pub struct Config {
    /// `mysql:` connection string of the readers. The feed uses it too if `feed_url` is not set.
    pub url: String,
    /// Connection string of the feed. `None` means `url`.
    pub feed_url: Option<String>,
    /// Changes to follow.
    pub follow: Follow,
    /// Replica number of the feed, unique among the server's replicas. `None` means a random
    /// number.
    pub server_id: Option<u32>,
    /// Maximum of concurrent queries, and thus of connections for reading.
    pub reads_in_flight: usize,
    /// Time limit of one read.
    pub read_timeout: Duration,
    /// Time limit for a new connection, from name resolution to the end of authentication.
    pub connect_timeout: Duration,
    /// Staleness bound of the contract. The feed probes the log's end four times per bound.
    pub max_staleness: Duration,
    /// Interval between checks of the catalogue for schema changes.
    pub schema_poll: Duration,
    /// Collections to serve.
    pub collections: Vec<CollectionConfig>,
}

/// Checks that a text is a valid connection string. It does not connect.
///
/// # Errors
/// See [`TargetError`]; no message contains the password.
pub fn check_url(url: &str) -> Result<(), TargetError> {
    Target::parse(url).map(drop)
}
