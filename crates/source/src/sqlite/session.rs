//! The feed's work on one connection: is it still the database, did it change, and what changed.

mod rows;

use std::time::Duration;

use hotrow_cache::key::KeySchema;
use hotrow_cache::version::Position;
use hotrow_measure::clock::Nanos;
use rusqlite::{Connection, Statement, Transaction, TransactionBehavior};

use self::rows::Watched;
pub(crate) use self::rows::anchor;
use super::config::{Config, Watch};
use super::connect::{Before, Link, Sound};
use super::error::{Fault, OpenError, fault};
use super::file::{FileId, Header, beside, identify};
use super::inspect::{Refused, Table};
use super::log::{Past, Refusals, Wanted, mend};
use super::shared::Shared;
use super::tuning::Tuning;
use crate::{FlushCause, LossCause, Sink};

/// Times a header is read again before it counts as damaged: a checkpoint may be writing it.
const HEADER_READS: usize = 3;
/// How long one attempt to put triggers back waits for the lock; the next poll tries again.
const MEND_WAIT: Duration = Duration::from_millis(50);

/// What one look brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    /// Nothing changed.
    Quiet,
    /// Changes were delivered.
    Changed,
    /// A lock is in the way; nothing is known about this moment.
    Busy,
}

/// Why the feed cannot go on here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) cause: LossCause,
    pub(crate) detail: String,
    /// The file may be another one by now.
    pub(crate) file_changed: bool,
}

impl Ended {
    fn new(cause: LossCause, detail: impl Into<String>) -> Self {
        Self { cause, detail: detail.into(), file_changed: false }
    }

    fn other_file(cause: LossCause, detail: impl Into<String>) -> Self {
        Self { cause, detail: detail.into(), file_changed: true }
    }
}

/// Why a step was not finished.
enum Stop {
    Busy,
    Ended(Ended),
}

impl From<Ended> for Stop {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}

impl From<rusqlite::Error> for Stop {
    fn from(e: rusqlite::Error) -> Self {
        match fault(&e) {
            Fault::Busy => Self::Busy,
            _ => Self::Ended(Ended::new(LossCause::Unavailable, e.to_string())),
        }
    }
}

/// What stays the same from session to session.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) config: &'a Config,
    pub(crate) tuning: &'a Tuning,
    pub(crate) shared: &'a Shared,
    /// As they were at the start.
    pub(crate) schemas: &'a [KeySchema],
    pub(crate) sink: &'a dyn Sink,
}

/// One connection's worth of feed.
pub(crate) struct Session<'a> {
    around: Around<'a>,
    link: &'a Link,
    data_version_sql: Statement<'a>,
    data_version: i64,
    schema_version: i64,
    tables: Vec<Result<Table, OpenError>>,
    watched: Watched,
    wal: Option<FileId>,
    header: Header,
    position: Option<Position>,
    anchor: Option<u64>,
}

impl<'a> Session<'a> {
    /// Lets the readers in and tells the sink that the feed starts here.
    pub(crate) fn start(around: Around<'a>, link: &'a Link) -> Result<Self, Ended> {
        let data_version_sql = link
            .conn
            .prepare("PRAGMA main.data_version")
            .map_err(|e| Ended::new(LossCause::Unavailable, e.to_string()))?;
        let mut tables = link.tables.clone();
        hold_to(&mut tables, around);
        let position = link.log.map(|log| log.end);
        around.shared.publish(link.at.real.clone(), link.at.file, &tables, around.config.watch);
        around.shared.set_delivered(position);
        around.sink.started(position);
        Ok(Self {
            around,
            link,
            data_version_sql,
            data_version: link.data_version,
            schema_version: link.schema_version,
            watched: Watched::new(&tables, around.schemas),
            tables,
            wal: link.wal,
            header: link.header,
            position,
            anchor: link.anchor,
        })
    }

    /// What the next link must know.
    pub(crate) fn before(&self, ended: &Ended) -> Before {
        let past = Past { position: self.position, file_changed: ended.file_changed };
        let file = Some(Sound { file: self.link.at.file, born: self.link.born, header: self.header });
        Before { past, wal: self.wal, file, refusals: Refusals::Keep }
    }

    /// Whether something was committed since the last poll. Cheap, and nothing is promised by it.
    pub(crate) fn has_changed(&mut self) -> bool {
        self.read_data_version().is_ok_and(|version| version != self.data_version)
    }

    fn read_data_version(&mut self) -> rusqlite::Result<i64> {
        self.data_version_sql.query_row([], |r| r.get(0))
    }

    /// Looks once, delivers what changed, and tells the sink how fresh it is.
    ///
    /// # Errors
    /// When the feed has lost its place or its database.
    pub(crate) fn poll(&mut self) -> Result<Polled, Ended> {
        // Before everything else: what was committed before this moment is seen by all that follows.
        let sent_at = Nanos::now();
        match self.look() {
            Ok(polled) => {
                self.around.sink.advance(sent_at, self.position, None);
                Ok(polled)
            }
            Err(Stop::Busy) => Ok(Polled::Busy),
            Err(Stop::Ended(ended)) => Err(ended),
        }
    }

    fn look(&mut self) -> Result<Polled, Stop> {
        self.check_files()?;
        let data_version = self.read_data_version()?;
        if data_version == self.data_version {
            return Ok(Polled::Quiet);
        }
        self.catch_up()?;
        // What was committed while we caught up has yet another number.
        self.data_version = data_version;
        self.around.shared.set_delivered(self.position);
        Ok(Polled::Changed)
    }

    /// Is the path still this file, is its log still the one we read through, and does it look sound?
    fn check_files(&mut self) -> Result<(), Ended> {
        let at = &self.link.at;
        match identify(&self.around.config.path) {
            Ok(file) if file == at.file => {}
            Ok(_) => return Err(Ended::other_file(LossCause::OtherDatabase, "the file was replaced by another")),
            Err(e) => {
                let detail = format!("{} cannot be found: {e}", self.around.config.path.display());
                return Err(Ended::other_file(LossCause::Unavailable, detail));
            }
        }
        if self.link.in_wal_mode || self.wal.is_some() {
            // Writers that find no log make a new one, and we would read on from the one that has no name any more.
            let wal = identify(&beside(&at.real, "-wal")).ok();
            if self.wal.is_some() && wal != self.wal {
                let detail = "the -wal file was removed or replaced while it was in use";
                return Err(Ended::other_file(LossCause::Unavailable, detail));
            }
            self.wal = wal;
        }
        self.check_header()
    }

    fn check_header(&mut self) -> Result<(), Ended> {
        let mut wrong = String::new();
        for _ in 0..HEADER_READS {
            match Header::read(&self.link.conn).and_then(|now| now.follows(&self.header).map(|()| now)) {
                Ok(now) => {
                    self.header = now;
                    return Ok(());
                }
                Err(why) => wrong = why,
            }
            std::thread::yield_now();
        }
        Err(Ended::other_file(LossCause::Unavailable, format!("the file was damaged: {wrong}")))
    }

    fn catch_up(&mut self) -> Result<(), Stop> {
        // Each round sees a schema that the one before did not; nobody alters tables for ever.
        loop {
            let tx = Transaction::new_unchecked(&self.link.conn, TransactionBehavior::Deferred)?;
            let schema_version: i64 = tx.query_row("PRAGMA main.schema_version", [], |r| r.get(0))?;
            if schema_version != self.schema_version {
                drop(tx);
                self.follow_schema()?;
                continue;
            }
            return match self.around.config.watch {
                Watch::Triggers => self.deliver_log(&tx),
                Watch::None => {
                    for schema in self.around.schemas {
                        self.around.sink.flush(schema.collection(), FlushCause::Unlisted, None);
                    }
                    Ok(())
                }
            };
        }
    }

    /// Looks at the tables again, puts triggers back, and flushes what changed its shape or was not watched.
    fn follow_schema(&mut self) -> Result<(), Stop> {
        let Around { config, tuning, shared, schemas, sink } = self.around;
        let (collections, watch, refusals) = (&*config.collections, config.watch, Refusals::Keep);
        let wanted = Wanted { collections, watch, tuning, refusals };
        if config.watch == Watch::Triggers && !self.log_is_there()? {
            return Err(Ended::new(LossCause::NotWatched, "the change log is gone").into());
        }
        // Until the triggers are back nothing can be promised, so here the feed may wait for a writer to finish.
        self.link.conn.busy_timeout(MEND_WAIT)?;
        let mended = mend(&self.link.conn, wanted, Past::default(), self.link.at.file);
        self.link.conn.busy_timeout(Duration::ZERO)?;
        let mended = match mended {
            Ok(mended) => mended,
            Err(Refused::Driver(e)) => return Err(e.into()),
            Err(Refused::Rule(e)) => return Err(Ended::new(LossCause::NotWatched, e.to_string()).into()),
        };
        let mut tables = mended.survey.tables;
        hold_to(&mut tables, self.around);
        let rewatched = |i: usize| mended.rewatched.contains(&i);
        let changed = |i: usize| tables.get(i) != self.tables.get(i) || rewatched(i);
        let flushed: Vec<usize> = (0..schemas.len()).filter(|i| changed(*i)).collect();
        self.watched = Watched::new(&tables, schemas);
        self.tables = tables;
        self.schema_version = mended.survey.schema_version;
        // First the readers, then the flush: a read that begins after it reads by the new shape.
        if !flushed.is_empty() {
            shared.publish(self.link.at.real.clone(), self.link.at.file, &self.tables, config.watch);
        }
        for i in flushed {
            let name = &config.collections[i].name;
            match &self.tables[i] {
                Ok(_) if rewatched(i) => {
                    tracing::warn!(collection = %name, "triggers were missing and are back in place")
                }
                Ok(_) => tracing::info!(collection = %name, "the table changed its shape"),
                Err(e) => tracing::error!(collection = %name, error = %e, "the collection cannot be served any more"),
            }
            sink.flush(schemas[i].collection(), FlushCause::Schema, None);
        }
        Ok(())
    }

    fn log_is_there(&self) -> rusqlite::Result<bool> {
        log_is_there(&self.link.conn)
    }
}

fn log_is_there(conn: &Connection) -> rusqlite::Result<bool> {
    let tables: i64 = conn.query_row(
        "SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name IN (?1, ?2)",
        [super::names::LOG_TABLE, super::names::META_TABLE],
        |r| r.get(0),
    )?;
    Ok(tables == 2)
}

/// Ids are parsed by the schemas of the start; a table whose key is of another type now cannot be served by them.
fn hold_to(tables: &mut [Result<Table, OpenError>], around: Around<'_>) {
    let specs = around.schemas.iter().zip(&around.config.collections);
    for (table, (schema, spec)) in tables.iter_mut().zip(specs) {
        if table.as_ref().is_ok_and(|t| t.schema().types() != schema.types()) {
            *table = Err(OpenError::KeyChanged { collection: spec.name.clone(), table: spec.table.clone() });
        }
    }
}
