//! SQLite engine, the embedded default.
//!
//! A change log filled by triggers records which rows changed; any process may write to the file
//! with any tool. One statement reads a row and the log's end, so an answer always knows which
//! changes it reflects, and the feed is never ahead of readers. docs/sqlite.md lists the additions
//! to a database and the changes that cannot be seen.
//!
//! Reading order: [`config`], `inspect` (table definitions), `triggers` and `log` (additions to the
//! database), `plan`, `queue`, `reader` and [`json`] (a read), `connect`, `feed`, `session`
//! (changes), `prune`; the tables for a first configuration (`discover`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hotrow_types::key::KeySchema;

use self::config::{Config, Tuning, Watch};
use self::connect::{PriorState, link};
use self::feed::Next;
use self::inspect::Table;
use self::queue::Queue;
use self::shared::Shared;
use hotrow_source::database_name::DatabaseName;
use hotrow_supervisor::Supervisor;

pub use self::discover::{apply, default_keys, discover};
pub use self::error::OpenError;
pub use self::feed::SqliteFeed;
pub use self::log::Removed;
pub use hotrow_source::hooks::{Hook, Hooks};

pub mod config;
mod connect;
mod discover;
mod error;
mod feed;
mod file;
mod inspect;
pub mod json;
mod log;
mod names;
mod plan;
mod prune;
mod queue;
mod reader;
mod session;
mod shared;
mod triggers;
mod wake;

/// Longest wait of [`uninstall_triggers`] for a lock.
const UNINSTALL_LOCK_WAIT: Duration = Duration::from_secs(5);

/// Source and feed of one database.
#[derive(Debug)]
pub struct Sqlite {
    /// Reads records. It answers from the start, but freshness is reported only while the feed
    /// runs.
    pub source: Arc<SqliteSource>,
    /// Delivers changes; run it on a thread of its own.
    pub feed: SqliteFeed,
}

/// Source that reads records by a pool of threads.
pub struct SqliteSource {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    schemas: Arc<[KeySchema]>,
    read_timeout: Duration,
    readers: usize,
    watch: Watch,
    name: DatabaseName,
}

impl fmt::Debug for SqliteSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteSource").field("schemas", &self.schemas).finish_non_exhaustive()
    }
}

/// Opens a database and checks the configuration against it. With `watch = "triggers"` it also
/// installs the log and the triggers. Its threads run under `supervisor`.
///
/// # Errors
/// Returns the first problem found; see [`OpenError`].
pub fn open(config: Config, hooks: Hooks, supervisor: &Supervisor) -> Result<Sqlite, OpenError> {
    open_with(config, hooks, Tuning::default(), supervisor)
}

// By value: the caller has no use for the hooks afterwards; each reader keeps a copy.
#[allow(clippy::needless_pass_by_value)]
fn open_with(
    config: Config,
    hooks: Hooks,
    tuning: Tuning,
    supervisor: &Supervisor,
) -> Result<Sqlite, OpenError> {
    let first = link(&config, &tuning, PriorState::none())?;
    let schemas = first.tables.iter().map(|t| t.as_ref().map(Table::schema).map_err(Clone::clone));
    let schemas: Arc<[KeySchema]> = schemas.collect::<Result<_, _>>()?;
    let shared = Arc::new(Shared::new());
    shared.publish(first.at.real.clone(), first.at.file, &first.tables, config.watch);
    let queue = Arc::new(Queue::default());
    let readers = config.reads_in_flight.max(1);
    reader::start(readers, &shared, &queue, &hooks, supervisor)?;
    let source = SqliteSource {
        shared: Arc::clone(&shared),
        queue: Arc::clone(&queue),
        schemas: Arc::clone(&schemas),
        read_timeout: config.read_timeout,
        readers,
        watch: config.watch,
        name: database_name(&config),
    };
    let feed = SqliteFeed {
        config: Arc::new(config),
        tuning,
        shared,
        schemas,
        queue,
        next: Next::Opened(Box::new(first)),
        supervisor: supervisor.clone(),
    };
    Ok(Sqlite { source: Arc::new(source), feed })
}

/// Names the file without its folder, which is no property of the database.
fn database_name(config: &Config) -> DatabaseName {
    let file = config.path.file_name().map(|name| name.to_string_lossy().into_owned());
    DatabaseName::new(("sqlite", "SELECT"), file, &config.collections)
}

/// Removes everything of Hotrow from a database. No instance may watch the database at that time,
/// because it would install the triggers again.
///
/// # Errors
/// Fails if the file is missing, is no database, cannot be written to, or is locked for longer than
/// five seconds.
pub fn uninstall_triggers(path: &Path) -> Result<Removed, OpenError> {
    let at = connect::locate(path)?;
    let driver = |e: rusqlite::Error| OpenError::from_driver(path, &e);
    let conn = connect::open(&at, UNINSTALL_LOCK_WAIT)?;
    let owned = || PathBuf::from(path);
    file::Header::read(&conn)
        .map_err(|detail| OpenError::NotADatabase { path: owned(), detail })?;
    log::remove(&conn).map_err(driver)
}

/// Tests against real files. The writer is another connection, and in one test the sqlite3 program.
///
/// No test may open a database file by itself (`std::fs::copy` and the like): closing it would drop
/// the locks of all connections in this process. Other processes copy and truncate files.
#[cfg(test)]
mod tests {
    mod bench;
    mod changes;
    mod files;
    mod harness;
    mod locks;
    mod log;
    mod open;
    mod reads;
    mod schema;
    mod views;
}
