//! What the engine needs to be told.

use std::time::Duration;

use super::target::{Target, TargetError};
use crate::spec::{CollectionSpec, Follow};

/// How to reach a MySQL or MariaDB server and what to serve of it.
#[derive(Clone, Debug)]
pub struct Config {
    /// `mysql:` connection string of the readers, and of the feed unless `feed_url` says otherwise.
    pub url: String,
    /// Connection string of the feed; `None`: `url`.
    pub feed_url: Option<String>,
    /// Whether there is a feed.
    pub follow: Follow,
    /// The replica number that the feed gives itself, which no other replica of the server may have; `None`: random.
    pub server_id: Option<u32>,
    /// Queries at the same time, and so connections for reading.
    pub reads_in_flight: usize,
    /// Longest time for one read.
    pub read_timeout: Duration,
    /// Longest time to establish a connection, from resolving the name to the end of authentication.
    pub connect_timeout: Duration,
    /// The contract's bound; the feed probes the log's end four times as often.
    pub max_staleness: Duration,
    /// How often the catalogue is looked at for changes of shape.
    pub schema_poll: Duration,
    /// What to serve.
    pub collections: Vec<CollectionSpec>,
}

/// Whether a text is a connection string that the engine understands; nothing is connected to.
///
/// # Errors
/// See [`TargetError`]; no message contains the password.
pub fn check_url(url: &str) -> Result<(), TargetError> {
    Target::parse(url).map(drop)
}
