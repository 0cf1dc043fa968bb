//! Database engines. A [`Source`] reads records by key; a feed delivers the changes of records to a
//! [`Sink`].
//!
//! Each engine is a crate of its own. It meets the rest of Hotrow in the types of `hotrow_types`
//! and in the two traits of this module; the other modules are code that engines share.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key, KeySchema};
use hotrow_types::version::{ChangeId, Position, Version};
use hotrow_types::writer_token::WriterToken;

use database_name::DatabaseName;
use field_schema::FieldSchema;
use looks::Looks;
use standby::{StandbyRead, StandbyRefusal, StandbyView};

pub use row::{Row, mark_unread};
pub use row_budget::{Room, RowBudget};

/// Future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Keys of one collection.
pub type KeysOfCollection = (CollectionId, Vec<Key>);

/// Reader of records. One call is one query to the database, regardless of the number of keys.
pub trait Source: Send + Sync + 'static {
    /// Calls [`Source::read_within`] without limits on the rows; for tests and tools.
    fn read(
        &self,
        collection: CollectionId,
        keys: Vec<Key>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        self.read_within(collection, keys, RowBudget::unlimited())
    }

    /// Reads `keys`, all of one collection, in one snapshot.
    ///
    /// Dropping the future abandons the answer; the query itself ends at its own time-out. Each row
    /// is reserved in `rows` before it is kept. When a reservation fails, the query ends, and the
    /// keys not yet read become [`Row::NotRead`] or [`Row::NoRoom`].
    fn read_within(
        &self,
        collection: CollectionId,
        keys: Vec<Key>,
        rows: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>>;

    /// Reads keys of several collections, at least one, in one read transaction, from the primary.
    /// The version is what its snapshot saw. The position is the log's end, read after the snapshot
    /// was opened: nothing past it was seen. The rows are those of the collections, one after the
    /// other. When a reservation in `rows` fails, the rest of them may be missing.
    fn read_snapshot(
        &self,
        mut parts: Vec<KeysOfCollection>,
        rows: Arc<RowBudget>,
    ) -> BoxFuture<'_, Result<ReadSet, SourceError>> {
        match (parts.pop(), parts.is_empty()) {
            (Some((collection, keys)), true) => self.read_within(collection, keys, rows),
            _ => Box::pin(async { Err(SourceError::broken("there are no read transactions")) }),
        }
    }

    /// Returns why this database has no [`Source::read_snapshot`]; `None`: it has.
    fn snapshot_refusal(&self) -> Option<&'static str> {
        None
    }

    /// Returns the key schema of each collection as found in the database, in the order of the
    /// configuration.
    fn schemas(&self) -> &[KeySchema];

    /// Reads `keys` like [`Source::read_within`], but from a standby, which must have replayed the
    /// log up to `floor` before it reads the rows ([`standby`]). Does not wait for one to be ready.
    ///
    /// # Errors
    /// The reason for which no standby answered; the caller reads the primary. It says nothing
    /// about the primary.
    fn read_standby(
        &self,
        _: CollectionId,
        _: Vec<Key>,
        _: Arc<RowBudget>,
        _: Position,
    ) -> BoxFuture<'_, Result<StandbyRead, StandbyRefusal>> {
        Box::pin(async { Err(StandbyRefusal::Unreachable) })
    }

    /// Returns the configured standbys; none where the engine does not support them.
    fn standbys(&self) -> Vec<StandbyView> {
        Vec::new()
    }

    /// Returns the schemas of the fields of a collection's records, in order, as the catalogue was
    /// seen last; `None` where it has none, or cannot be read now.
    fn fields(&self, _: CollectionId) -> Option<Arc<[FieldSchema]>> {
        None
    }

    /// Returns which tokens the database gives its writers.
    fn writer_tokens(&self) -> WriterTokens {
        WriterTokens::None
    }

    /// Returns whether the server that is read has committed the transaction of a writer's token;
    /// only where the server compares them.
    fn has_committed(&self, _: WriterToken) -> BoxFuture<'_, Result<bool, SourceError>> {
        Box::pin(async { Ok(false) })
    }

    /// Returns the number of queries sent since the start.
    fn queries_total(&self) -> u64;

    /// Checks that the database answered the last request. The error text is for the log, not for
    /// clients.
    ///
    /// # Errors
    /// Returns the message of the driver.
    fn health(&self) -> Result<(), String>;

    /// Returns whether several keys may find the same row of the collection ([`Row::Uncacheable`]).
    fn has_aliases(&self, _: CollectionId) -> bool {
        false
    }

    /// Returns the method of change detection by its name in the configuration.
    fn watch(&self) -> &'static str;

    /// Returns how traces name the database.
    fn database(&self) -> DatabaseName {
        DatabaseName::unknown()
    }

    /// Returns the kinds of changes that this engine's feed cannot see, and the page that lists
    /// them. For the log, next to a stale entry that such a change may explain.
    fn unseen_changes(&self) -> &'static str {
        "none (docs/consistency.md)"
    }
}

/// Tokens that a database gives its writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterTokens {
    /// None that Hotrow knows.
    None,
    /// Points of the feed's log: [`WriterToken::Lsn`].
    Lsns,
    /// The same: [`WriterToken::Optime`].
    Optimes,
    /// Numbers of transactions, which the server compares: [`WriterToken::MariaDbGtid`].
    MariaDbGtids,
    /// The same: [`WriterToken::MySqlGtid`].
    MySqlGtids,
}

/// Answer to one query.
#[derive(Debug)]
pub struct ReadSet {
    /// Changes that the read has seen.
    pub version: Version,
    /// End of the log, read in the same snapshot as the rows; `None` without a change log.
    pub position: Option<Position>,
    /// One row per requested key, in the same order.
    pub rows: Vec<Row>,
}

/// Failure of a whole query. `detail` is for the log, never for a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The database cannot be reached, or refuses to work at present (locked, missing, damaged).
    #[error("the database is not available: {detail}")]
    Unavailable {
        /// Message of the driver.
        detail: String,
    },
    /// The database did not answer in time.
    #[error("the database did not answer in time: {detail}")]
    Timeout {
        /// The limit that was exceeded.
        detail: String,
    },
    /// The query fails until an operator corrects the schema or the configuration (for example a
    /// missing table or column).
    #[error("the collection cannot be read: {detail}")]
    Broken {
        /// Message of the driver.
        detail: String,
    },
    /// The database answered that it cannot evaluate or read the data of at least one of the keys
    /// (damage of a row, an overflow in a view). The connection and other keys are not affected, so
    /// that a query for fewer keys may succeed.
    #[error("a record cannot be read: {detail}")]
    Data {
        /// Message of the driver.
        detail: String,
    },
}

impl SourceError {
    /// Creates an [`Self::Unavailable`].
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::Unavailable { detail: detail.into() }
    }

    /// Creates a [`Self::Timeout`].
    pub fn timeout(detail: impl Into<String>) -> Self {
        Self::Timeout { detail: detail.into() }
    }

    /// Creates a [`Self::Broken`].
    pub fn broken(detail: impl Into<String>) -> Self {
        Self::Broken { detail: detail.into() }
    }

    /// Creates a [`Self::Data`].
    pub fn data(detail: impl Into<String>) -> Self {
        Self::Data { detail: detail.into() }
    }
}

/// Class of a failed read of one key: as much of its cause as a client may know. All waiters of the
/// read share it; the log has the rest ([`SourceError`], [`Row::Unreadable`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFailure {
    /// See [`SourceError::Unavailable`].
    Unavailable,
    /// See [`SourceError::Timeout`].
    Timeout,
    /// See [`SourceError::Broken`].
    Broken,
    /// See [`Row::Unreadable`] and [`SourceError::Data`].
    Unreadable,
    /// See [`Row::NoRoom`].
    NoRoom,
    /// Not sent: the circuit breaker is open because the database failed too often.
    CircuitOpen {
        /// Seconds until it probes the database again; at least 1.
        retry_after_s: u32,
    },
}

impl From<&SourceError> for ReadFailure {
    fn from(error: &SourceError) -> Self {
        match error {
            SourceError::Unavailable { .. } => Self::Unavailable,
            SourceError::Timeout { .. } => Self::Timeout,
            SourceError::Broken { .. } => Self::Broken,
            SourceError::Data { .. } => Self::Unreadable,
        }
    }
}

/// Change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Key of the record; includes the collection.
    pub key: Key,
    /// Identifier of the change.
    pub mark: ChangeId,
}

/// Reason to flush a whole collection without a list of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushCause {
    /// TRUNCATE, a dropped table, or more changed keys than are worth listing.
    Bulk,
    /// The schema of the table changed, so every record may look different.
    Schema,
    /// The database changed, and without a change log the keys are unknown (`watch = "none"`).
    Unlisted,
    /// Changes of this collection alone may have been missed ([`Sink::open_gap`]).
    Gap,
}

/// Reason for which the feed lost its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// The log no longer holds the changes after the feed's position.
    LogPruned,
    /// The log was reset to an earlier state or replaced.
    OtherLog,
    /// Another database file or server answers.
    OtherDatabase,
    /// The database cannot be read.
    Unavailable,
    /// The triggers or the log were missing for a time.
    NotWatched,
    /// The feed itself failed: by a panic, because the system has no event loop left, or because it
    /// cannot read what the log has. Changes that it had not delivered are lost.
    FeedFailed,
    /// The change hub lost messages, another relay began, or the hub cannot be reached.
    Hub,
}

impl LossCause {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::LogPruned,
        Self::OtherLog,
        Self::OtherDatabase,
        Self::Unavailable,
        Self::NotWatched,
        Self::FeedFailed,
        Self::Hub,
    ];

    /// Returns its name in metrics and traces.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::LogPruned => "log_pruned",
            Self::OtherLog => "other_log",
            Self::OtherDatabase => "other_database",
            Self::Unavailable => "unavailable",
            Self::NotWatched => "not_watched",
            Self::FeedFailed => "feed_failed",
            Self::Hub => "hub",
        }
    }
}

/// Receiver of a feed's changes. Calls come from the feed's own thread or task, in the order of the
/// log. Each call returns after the cache has applied the change, so that a later [`Sink::advance`]
/// holds.
pub trait Sink: Send + Sync + 'static {
    /// Reports changed records.
    fn changes(&self, changes: &[Change]);
    /// Reports that any record of the collection may have changed. `mark` identifies the change if
    /// a log delivered it: reads that do not see it yet are not cached. It is `None` if the change
    /// was visible before the flush.
    fn flush(&self, collection: CollectionId, cause: FlushCause, mark: Option<ChangeId>);
    /// Reports that changes of this collection may be missed from now on, and may have been missed
    /// before. The collection's entries are stale, and rows read before [`Sink::close_gap`] are not
    /// cached. Other collections are not affected. `detail` is for the log.
    fn open_gap(&self, collection: CollectionId, detail: &str);
    /// Reports that changes of this collection are delivered again. A read sent from now on sees
    /// every change that was not delivered.
    fn close_gap(&self, collection: CollectionId);
    /// Reports that changes of any collection may have been missed: all entries are stale at once.
    /// `detail` is for the log.
    fn loss(&self, cause: LossCause, detail: &str);
    /// Reports that a feed starts or resumes here: rows read before are stale, rows read from now
    /// on are not.
    fn started(&self, position: Option<Position>);
    /// Reports that every change committed before `probe_sent_at` has been delivered, up to
    /// `position`.
    ///
    /// `visible` is set by engines whose feed can run ahead of readers. It is the least that a read
    /// sent now sees; changes that it contains need no fence any more.
    fn advance(&self, probe_sent_at: Nanos, position: Option<Position>, visible: Option<&Version>);
    /// Returns whether something waits for the proof that delivered changes are visible. A feed
    /// that probes for it may then do so before the next probe is due.
    fn wants_visibility(&self) -> bool {
        false
    }
    /// Returns the looks at the log's end that requests wait for; `None`: none may. A session of
    /// the feed that makes them calls [`Looks::open`], [`Looks::sent`] with each probe, and
    /// [`Looks::passed`] after [`Sink::advance`]; a loss closes them. Required, because a sink that
    /// wraps another one must pass them on.
    fn looks(&self) -> Option<&Looks>;
    /// Reports where the log ended at a look that was sent at `sent_at`, to a sink whose changes
    /// come from elsewhere: it knows when they have passed that point.
    fn looked(&self, _sent_at: Nanos, _end: Position) {}
}

pub mod attempts;
pub mod background;
pub mod catalog_watermark;
pub mod connection_string;
pub mod database_name;
pub mod default_key;
pub mod discovery;
pub mod feed_loop;
pub mod field_schema;
mod finding;
pub mod hooks;
pub mod json;
pub mod looks;
pub mod origin;
pub mod outage;
pub mod place;
pub mod pool;
pub mod preflight;
pub mod published;
mod row;
pub mod row_budget;
pub mod row_index;
pub mod sources;
pub mod spec;
pub mod standby;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod view_text;
