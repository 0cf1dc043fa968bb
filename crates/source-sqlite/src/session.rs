//! Session of the feed: polls one connection for its identity, for commits and for the changed
//! rows.

mod rows;
mod watched;

use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::KeySchema;
use hotrow_types::version::Position;
use rusqlite::{Connection, Statement, Transaction, TransactionBehavior};

use self::watched::Watched;
use super::config::Tuning;
use super::config::{Config, Watch};
use super::connect::{IntactFile, Link, PriorState};
use super::error::{Fault, OpenError, fault};
use super::file::{CommitStamp, FILE_REPLACED, FileId, Header, beside, identify};
use super::inspect::{Refused, Table};
use super::log::{OnRefusal, PriorLog, SurveySettings, install};
use super::shared::Shared;
use hotrow_source::looks::Looks;
use hotrow_source::{FlushCause, LossCause, Sink};

/// Number of attempts to read a header before it counts as damaged: a checkpoint may be writing it.
const HEADER_READS: usize = 3;
/// Longest wait of one attempt to restore triggers for the lock; the next poll repeats it.
const INSTALL_LOCK_WAIT: Duration = Duration::from_millis(50);

/// Result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    /// Nothing changed.
    Quiet,
    /// Changes were delivered.
    Changed,
    /// A lock blocks reads, and nothing was committed up to this moment.
    Locked,
    /// A lock blocks reads; commits up to this moment are unknown.
    Busy,
}

/// End of a session with its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) cause: LossCause,
    pub(crate) detail: String,
    /// True if the file may have been replaced.
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

/// Reason for which a step was not finished.
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

/// State that all sessions share.
#[derive(Clone, Copy)]
pub(crate) struct SessionContext<'a> {
    pub(crate) config: &'a Config,
    pub(crate) tuning: &'a Tuning,
    pub(crate) shared: &'a Shared,
    /// Key schemas as they were at the start.
    pub(crate) schemas: &'a [KeySchema],
    pub(crate) sink: &'a dyn Sink,
}

/// Feed on one connection.
pub(crate) struct Session<'a> {
    context: SessionContext<'a>,
    link: &'a Link,
    data_version_sql: Statement<'a>,
    data_version: i64,
    schema_version: i64,
    tables: Vec<Result<Table, OpenError>>,
    watched: Watched,
    wal: Option<FileId>,
    header: Header,
    /// Stamp of a moment up to which all commits are delivered; see [`Session::poll_behind_lock`].
    delivered_stamp: Option<CommitStamp>,
    position: Option<Position>,
    anchor: Option<u64>,
}

impl<'a> Session<'a> {
    /// Publishes the plan to the readers and reports the start of the feed to the sink.
    pub(crate) fn start(context: SessionContext<'a>, link: &'a Link) -> Result<Self, Ended> {
        let data_version_sql = link
            .conn
            .prepare("PRAGMA main.data_version")
            .map_err(|e| Ended::new(LossCause::Unavailable, e.to_string()))?;
        let mut tables = link.tables.clone();
        pin_key_types(&mut tables, context);
        let position = link.log.map(|log| log.end);
        context.shared.publish(link.at.real.clone(), link.at.file, &tables, context.config.watch);
        context.shared.set_delivered(position);
        context.sink.started(position);
        if context.config.watch == Watch::Triggers {
            context.sink.looks().into_iter().for_each(Looks::open);
        }
        Ok(Self {
            context,
            link,
            data_version_sql,
            data_version: link.data_version,
            schema_version: link.schema_version,
            watched: Watched::new(&tables, context.schemas),
            tables,
            wal: link.wal,
            header: link.header,
            delivered_stamp: None,
            position,
            anchor: link.anchor,
        })
    }

    /// Returns the state that the next link needs.
    pub(crate) fn prior_state(&self, ended: &Ended) -> PriorState {
        let prior = PriorLog { position: self.position, file_changed: ended.file_changed };
        let file = Some(IntactFile {
            file: self.link.at.file,
            created_at: self.link.created_at,
            header: self.header,
        });
        PriorState { log: prior, wal: self.wal, file, on_refusal: OnRefusal::Continue }
    }

    /// Returns whether something was committed since the last poll. It is cheap, and only a hint.
    pub(crate) fn has_changed(&mut self) -> bool {
        self.read_data_version().is_ok_and(|version| version != self.data_version)
    }

    fn read_data_version(&mut self) -> rusqlite::Result<i64> {
        self.data_version_sql.query_row([], |r| r.get(0))
    }

    /// Polls once, delivers the changes, and reports the freshness to the sink.
    ///
    /// # Errors
    /// Fails if the feed has lost its position or its database.
    pub(crate) fn poll(&mut self) -> Result<Polled, Ended> {
        // Before everything else: every commit before this moment is seen by all that follows.
        let sent_at = Nanos::now();
        match self.poll_changes() {
            Ok(Polled::Busy) | Err(Stop::Busy) => Ok(Polled::Busy),
            Ok(polled) => {
                self.context.sink.advance(sent_at, self.position, None);
                if let Some(looks) = self.looks() {
                    looks.sent(sent_at);
                    looks.passed(sent_at);
                }
                Ok(polled)
            }
            Err(Stop::Ended(ended)) => Err(ended),
        }
    }

    /// Returns the looks that polls are; none where every write makes every record stale.
    pub(crate) fn looks(&self) -> Option<&Looks> {
        self.context.sink.looks().filter(|_| self.context.config.watch == Watch::Triggers)
    }

    fn poll_changes(&mut self) -> Result<Polled, Stop> {
        self.check_files()?;
        let (data_version, stamp) = match self.read_versions() {
            Err(e) if fault(&e) == Fault::Busy => return Ok(self.poll_behind_lock()),
            read => read?,
        };
        if data_version == self.data_version {
            self.delivered_stamp = stamp;
            return Ok(Polled::Quiet);
        }
        self.catch_up()?;
        // Commits during the catch-up have yet another data version.
        self.data_version = data_version;
        self.delivered_stamp = stamp;
        self.context.shared.set_delivered(self.position);
        Ok(Polled::Changed)
    }

    /// Decides the result of a poll while a lock blocks reads.
    ///
    /// Outside WAL mode a writer may lock readers out for the whole of its transaction. Its commit
    /// changes the header before it returns. Therefore a header equal to that of the last poll,
    /// read just now and without a lock, proves that nothing was committed since.
    fn poll_behind_lock(&self) -> Polled {
        match self.delivered_stamp {
            Some(_) if self.header.stamp() == self.delivered_stamp => Polled::Locked,
            _ => Polled::Busy,
        }
    }

    /// Reads the data version and, outside WAL mode, the stamp of the same moment.
    ///
    /// The stamp is read under the lock that keeps writers from the file. Without the lock, the
    /// header may show a commit that is rolled back later, and another commit could look the same.
    fn read_versions(&mut self) -> rusqlite::Result<(i64, Option<CommitStamp>)> {
        if self.header.stamp().is_none() {
            return Ok((self.read_data_version()?, None));
        }
        let tx = Transaction::new_unchecked(&self.link.conn, TransactionBehavior::Deferred)?;
        let data_version = self.read_data_version()?;
        // The next poll reports a header that cannot be read.
        let stamp = Header::read(&self.link.conn).ok().and_then(|header| header.stamp());
        tx.finish()?;
        Ok((data_version, stamp))
    }

    /// Checks that the path still names this file, that the log is still the open one, and that the
    /// header is intact.
    fn check_files(&mut self) -> Result<(), Ended> {
        let at = &self.link.at;
        match identify(&self.context.config.path) {
            Ok(file) if file == at.file => {}
            Ok(_) => {
                return Err(Ended::other_file(LossCause::OtherDatabase, FILE_REPLACED));
            }
            Err(e) => {
                let detail = format!("{} cannot be found: {e}", self.context.config.path.display());
                return Err(Ended::other_file(LossCause::Unavailable, detail));
            }
        }
        if self.link.in_wal_mode || self.wal.is_some() {
            // Writers that find no log create a new one, and this connection would continue to read
            // the unlinked one.
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
            match Header::read(&self.link.conn)
                .and_then(|now| now.follows(&self.header).map(|()| now))
            {
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
        // Each round sees a schema that the round before did not; tables are not altered for ever.
        loop {
            let tx = Transaction::new_unchecked(&self.link.conn, TransactionBehavior::Deferred)?;
            let schema_version: i64 =
                tx.query_row("PRAGMA main.schema_version", [], |r| r.get(0))?;
            if schema_version != self.schema_version {
                drop(tx);
                self.follow_schema()?;
                continue;
            }
            return match self.context.config.watch {
                Watch::Triggers => self.deliver_log(&tx),
                Watch::None => {
                    for schema in self.context.schemas {
                        self.context.sink.flush(schema.collection(), FlushCause::Unlisted, None);
                    }
                    Ok(())
                }
            };
        }
    }

    /// Inspects the tables again, restores triggers, and flushes the collections whose schema
    /// changed or whose triggers were missing.
    fn follow_schema(&mut self) -> Result<(), Stop> {
        let SessionContext { config, tuning, shared, schemas, sink } = self.context;
        let collections = &*config.collections;
        let watch = config.watch;
        let settings = SurveySettings {
            collections,
            watch,
            tuning,
            on_refusal: OnRefusal::Continue,
            is_trial: false,
        };
        if config.watch == Watch::Triggers && !self.log_is_there()? {
            return Err(Ended::new(LossCause::NotWatched, "the change log is missing").into());
        }
        // Without triggers no freshness can be reported, so here the feed may wait for a writer to
        // finish.
        self.link.conn.busy_timeout(INSTALL_LOCK_WAIT)?;
        let installed = install(&self.link.conn, settings, PriorLog::default(), self.link.at.file);
        self.link.conn.busy_timeout(Duration::ZERO)?;
        let installed = match installed {
            Ok(installed) => installed,
            Err(Refused::Driver(e)) => return Err(e.into()),
            Err(Refused::Rule(e)) => {
                return Err(Ended::new(LossCause::NotWatched, e.to_string()).into());
            }
        };
        let mut tables = installed.survey.tables;
        pin_key_types(&mut tables, self.context);
        let reinstalled = |i: usize| installed.reinstalled.contains(&i);
        let changed = |i: usize| tables.get(i) != self.tables.get(i) || reinstalled(i);
        let flushed: Vec<usize> = (0..schemas.len()).filter(|i| changed(*i)).collect();
        self.watched = Watched::new(&tables, schemas);
        self.tables = tables;
        self.schema_version = installed.survey.schema_version;
        // The readers first: a read that begins after the flush uses the new schema.
        if !flushed.is_empty() {
            shared.publish(
                self.link.at.real.clone(),
                self.link.at.file,
                &self.tables,
                config.watch,
            );
        }
        for i in flushed {
            let name = &config.collections[i].name;
            match &self.tables[i] {
                Ok(_) if reinstalled(i) => {
                    tracing::warn!(
                        collection = %name,
                        "triggers were missing and are installed again"
                    )
                }
                Ok(_) => tracing::info!(collection = %name, "the schema of the table changed"),
                Err(e) => {
                    tracing::error!(
                        collection = %name,
                        error = %e,
                        "the collection cannot be served any more"
                    )
                }
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

/// Refuses tables whose key type has changed, because ids are parsed by the schemas of the start.
fn pin_key_types(tables: &mut [Result<Table, OpenError>], context: SessionContext<'_>) {
    let specs = context.schemas.iter().zip(&context.config.collections);
    for (table, (schema, spec)) in tables.iter_mut().zip(specs) {
        if table.as_ref().is_ok_and(|t| t.schema().types() != schema.types()) {
            *table = Err(OpenError::KeyChanged {
                collection: spec.name.clone(),
                table: spec.table.clone(),
            });
        }
    }
}
