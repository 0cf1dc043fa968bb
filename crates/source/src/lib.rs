//! Databases: a [`Source`] reads records by key, a `Feed` delivers what changed. One folder per engine.
//!
//! Both sides meet the rest of Hotrow in the types of `hotrow_cache` and in the two small interfaces here.

use std::future::Future;
use std::pin::Pin;

use hotrow_cache::key::{CollectionId, Key, KeySchema};
use hotrow_cache::version::{Mark, Position, Version};
use hotrow_measure::clock::Nanos;

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Reads records. One call is one query at the database, whatever the number of keys.
pub trait Source: Send + Sync + 'static {
    /// Reads `keys`, all of one collection, in one snapshot. Dropping the future gives the answer up; the query itself
    /// ends by its own time-out.
    fn read(&self, collection: CollectionId, keys: Vec<Key>) -> BoxFuture<'_, Result<ReadSet, ReadError>>;

    /// The shape of each collection's keys as the database has it, in the order of the configuration.
    fn schemas(&self) -> &[KeySchema];

    /// Queries run since the start, counted where they are sent.
    fn queries_total(&self) -> u64;

    /// Whether the database answered when it was last asked; the text is for the log, not for a client.
    ///
    /// # Errors
    /// What the driver said.
    fn health(&self) -> Result<(), String>;

    /// Whether a row of the collection may be found by several keys ([`Row::Passing`]).
    fn has_aliases(&self, _: CollectionId) -> bool {
        false
    }

    /// How changes are noticed, as the configuration names it.
    fn watch(&self) -> &'static str;
}

/// What one query brought.
#[derive(Debug)]
pub struct ReadSet {
    /// What the read saw.
    pub version: Version,
    /// The log's end, read with the rows; none where the engine runs without a change log.
    pub position: Option<Position>,
    /// One per key asked, in the same order.
    pub rows: Vec<Row>,
}

/// One key's part of a query's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// The record as JSON.
    Found(Vec<u8>),
    /// There is no such row.
    Missing,
    /// The row, or that there is none, asked for by a spelling of the key that the feed would not tell when it changes: an
    /// answer, but nothing to keep.
    Passing(Option<Vec<u8>>),
    /// The row is there and cannot be turned into JSON; the others of the query are not harmed. The text is for the log.
    Unreadable(String),
}

/// Why a query failed as a whole. `detail` is for the log, never for a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The database cannot be reached or refuses to work at present (locked, gone, damaged).
    #[error("the database is not available: {detail}")]
    Unavailable {
        /// What the driver said.
        detail: String,
    },
    /// It did not answer in time.
    #[error("the database did not answer in time: {detail}")]
    Timeout {
        /// Which limit ran out.
        detail: String,
    },
    /// The query cannot work until somebody changes something (table or column gone).
    #[error("the collection cannot be read: {detail}")]
    Broken {
        /// What the driver said.
        detail: String,
    },
}

/// One change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whose record; the collection is part of the key.
    pub key: Key,
    /// What identifies the change.
    pub mark: Mark,
}

/// Why entries of a collection must go without a list of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushCause {
    /// TRUNCATE, a dropped table, or more changed keys than are worth listing.
    Bulk,
    /// The table's shape changed, so every record may look different.
    Schema,
    /// No change log: the database changed somewhere (`watch = "none"`).
    Unlisted,
}

/// Why the feed lost its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// The log no longer holds what comes after our position.
    LogPruned,
    /// The log went back or is another one.
    OtherLog,
    /// Another database file or server answers now.
    OtherDatabase,
    /// The database cannot be read.
    Unavailable,
    /// The triggers or the log were missing for a while.
    NotWatched,
}

/// Where a feed delivers. Calls come from the feed's own thread or task, in the order of the log; each returns when the
/// cache has taken it in, so that a later [`Sink::advance`] tells the truth.
pub trait Sink: Send + Sync + 'static {
    /// These records changed.
    fn changes(&self, changes: &[Change]);
    /// Any record of the collection may have changed. `mark` identifies the change where a log delivered it, so that no read
    /// that does not see it yet is kept; `None` where the change was visible before the flush.
    fn flush(&self, collection: CollectionId, cause: FlushCause, mark: Option<Mark>);
    /// Changes may have been missed: everything is stale at once. `detail` is for the log.
    fn loss(&self, cause: LossCause, detail: &str);
    /// A feed (again) starts to deliver from here: whatever was read before is stale, what is read from now on is not.
    fn started(&self, position: Option<Position>);
    /// Every change that was committed before `probe_sent_at` has been delivered, up to `position`. `visible`, where the
    /// engine's feed can run ahead of what readers see, is what a read sent now sees at least: marks that it sees need no
    /// fence any more.
    fn advance(&self, probe_sent_at: Nanos, position: Option<Position>, visible: Option<&Version>);
}

mod background;
mod backoff;
pub mod findings;
pub mod hooks;
mod json;
mod life;
pub mod mongodb;
pub mod mysql;
mod places;
pub mod postgres;
pub mod spec;
pub mod sqlite;
#[cfg(test)]
mod testkit;
