//! SQLite: the embedded default.
//!
//! A change log filled by triggers tells which records changed; any process may write to the file with any tool. A row
//! and the log's end are read by one statement, so an answer always knows what it reflects, and the feed is never ahead
//! of what readers see. docs/sqlite.md tells what is added to a database and what cannot be seen.
//!
//! Reading order: [`config`], `inspect` (what the table is), `triggers` and `log` (what is added), `plan`, `reader` and
//! [`json`] (a read), `connect`, `feed`, `session` (changes), `prune`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hotrow_cache::key::KeySchema;

use self::config::{Config, Watch};
use self::connect::{Before, link};
use self::inspect::Table;
use self::reader::Queue;
use self::shared::Shared;
use self::tuning::Tuning;

pub use self::error::OpenError;
pub use self::feed::SqliteFeed;
pub use self::log::Removed;
pub use crate::hooks::{Hook, Hooks};

pub mod config;
mod connect;
mod error;
mod feed;
mod file;
mod inspect;
pub mod json;
mod log;
mod names;
mod plan;
mod prune;
mod reader;
mod session;
mod shared;
mod triggers;
mod tuning;
mod wake;

/// How long [`unwatch`] waits for a lock.
const UNWATCH_BUSY: Duration = Duration::from_secs(5);

/// Both sides of one database.
#[derive(Debug)]
pub struct Sqlite {
    /// Reads records. It answers from the start, but freshness is told only while the feed runs.
    pub source: Arc<SqliteSource>,
    /// Delivers changes; run it once.
    pub feed: SqliteFeed,
}

/// Reads records from a pool of threads.
pub struct SqliteSource {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    schemas: Arc<[KeySchema]>,
    read_timeout: Duration,
    readers: usize,
    watch: Watch,
}

impl fmt::Debug for SqliteSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteSource").field("schemas", &self.schemas).finish_non_exhaustive()
    }
}

/// Opens a database, checks the configuration against it, and, with `watch = "triggers"`, puts log and triggers in place.
///
/// # Errors
/// The first problem found; see [`OpenError`].
pub fn open(config: Config, hooks: Hooks) -> Result<Sqlite, OpenError> {
    open_tuned(config, hooks, Tuning::default())
}

// The hooks are handed over: each reader keeps a copy.
#[allow(clippy::needless_pass_by_value)]
fn open_tuned(config: Config, hooks: Hooks, tuning: Tuning) -> Result<Sqlite, OpenError> {
    let first = link(&config, &tuning, Before::nothing())?;
    let schemas = first.tables.iter().map(|t| t.as_ref().map(Table::schema).map_err(Clone::clone));
    let schemas: Arc<[KeySchema]> = schemas.collect::<Result<_, _>>()?;
    let shared = Arc::new(Shared::new());
    shared.publish(first.at.real.clone(), first.at.file, &first.tables, config.watch);
    let queue = Arc::new(Queue::default());
    let readers = config.reads_in_flight.max(1);
    reader::start(readers, &shared, &queue, &hooks)?;
    let source = SqliteSource {
        shared: Arc::clone(&shared),
        queue: Arc::clone(&queue),
        schemas: Arc::clone(&schemas),
        read_timeout: config.read_timeout,
        readers,
        watch: config.watch,
    };
    let feed = SqliteFeed { config: Arc::new(config), tuning, shared, schemas, queue, first: Some(first) };
    Ok(Sqlite { source: Arc::new(source), feed })
}

/// Takes everything of ours out of a database. No instance may watch it meanwhile: it would put it back.
///
/// # Errors
/// When the file is missing, is no database, cannot be written to or is locked for longer than five seconds.
pub fn unwatch(path: &Path) -> Result<Removed, OpenError> {
    let at = connect::locate(path)?;
    let driver = |e: rusqlite::Error| OpenError::from_driver(path, &e);
    let conn = connect::open(&at, UNWATCH_BUSY)?;
    let owned = || PathBuf::from(path);
    file::Header::read(&conn).map_err(|detail| OpenError::NotADatabase { path: owned(), detail })?;
    log::remove(&conn).map_err(driver)
}

#[cfg(test)]
mod tests;
