//! State shared by feed and readers: the server to read from, and per collection the statement, or
//! the reason that there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::KeySchema;

use super::inspect::Table;
use super::plan::ReadPlan;
use super::server::Identity;
use hotrow_source::origin::Origins;
use hotrow_source::published::{Published, key_is_unchanged};

/// Server and statements of the readers.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Number of the server's state. A connection opened in another generation leads to another
    /// server, or to an earlier state of the same one.
    pub(crate) generation: u64,
    /// Server and database that a connection must lead to.
    pub(crate) identity: Identity,
    /// Distinguishes positions before and after the log was seen to go backwards.
    pub(crate) history: u64,
    /// Per collection the statement, or the reason that there is none.
    pub(crate) collections: Vec<Result<Arc<ReadPlan>, Arc<str>>>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    schemas: Arc<[KeySchema]>,
    pub(crate) published: Published<Plan>,
    /// See [`Plan::history`].
    history: AtomicU64,
    /// Newest position in any answer or probe.
    log_end: AtomicU64,
    /// Per collection the time at which the newest check that confirmed its shape was sent.
    confirmed_at: Box<[AtomicU64]>,
    /// A reader confirms a shape that is older.
    shape_age_max: Duration,
    /// Database of the feed's sessions, for a feed from elsewhere.
    pub(crate) origins: Arc<Origins>,
    /// Queries sent since the start.
    pub(crate) queries: AtomicU64,
}

impl Shared {
    /// Returns a state in which nothing can be read until [`Shared::publish`]. `schemas` are the
    /// keys at the start; a table whose key differs from them cannot be read.
    pub(crate) fn new(schemas: Arc<[KeySchema]>, shape_age_max: Duration) -> Self {
        Self {
            confirmed_at: schemas.iter().map(|_| AtomicU64::new(Nanos::ZERO.0)).collect(),
            shape_age_max,
            history: AtomicU64::new(0),
            log_end: AtomicU64::new(0),
            schemas,
            origins: Arc::default(),
            published: Published::nothing("the database has not been inspected yet"),
            queries: AtomicU64::new(0),
        }
    }

    /// Sets the server and the tables of all reads from now on. Connections to another server
    /// expire.
    pub(crate) fn publish(&self, identity: Identity, tables: &[Result<Table, String>]) {
        let mut current = self.published.write();
        if current.as_ref().is_ok_and(|plan| plan.identity != identity) {
            self.published.next_generation();
        }
        let collections =
            tables.iter().enumerate().map(|(i, table)| self.statement(i, table)).collect();
        let history = self.history.load(Ordering::Acquire);
        let generation = self.published.generation();
        *current = Ok(Arc::new(Plan { generation, identity, history, collections }));
    }

    /// Sets the table of one collection, or the reason that it cannot be read. Does nothing if the
    /// collection is no longer read by `before`, because the feed may have looked later than the
    /// caller. Returns whether the collection's statement differs from `before` now.
    pub(crate) fn set_table(
        &self,
        collection: usize,
        before: &ReadPlan,
        table: &Result<Table, String>,
    ) -> bool {
        let statement = self.statement(collection, table);
        let mut current = self.published.write();
        let Ok(plan) = current.as_mut() else { return true };
        let Some(read_by) = plan.collections.get(collection) else { return true };
        if read_by.as_ref().map_or(true, |read_by| **read_by != *before) {
            return true;
        }
        if *read_by == statement {
            return false;
        }
        Arc::make_mut(plan).collections[collection] = statement;
        true
    }

    /// Has tables read again that a reader found unreadable, and that the catalogue check has found
    /// unchanged: the reader has looked while a change was soon undone, and without a plan nothing
    /// is read that could find a better one. If it still cannot be read, the next read says so.
    pub(crate) fn restore(&self, tables: &[Result<Table, String>]) {
        let is_lost = |collections: &[Result<Arc<ReadPlan>, Arc<str>>]| {
            collections.iter().zip(tables).any(|(read_by, table)| read_by.is_err() && table.is_ok())
        };
        if !self.published.plan().is_ok_and(|plan| is_lost(&plan.collections)) {
            return;
        }
        let mut current = self.published.write();
        let Ok(plan) = current.as_mut() else { return };
        let collections = &mut Arc::make_mut(plan).collections;
        for (i, (read_by, table)) in collections.iter_mut().zip(tables).enumerate() {
            if read_by.is_err() && table.is_ok() {
                *read_by = self.statement(i, table);
            }
        }
    }

    /// Records a catalogue check, sent at that time, that confirmed all shapes or whose changes are
    /// published.
    pub(crate) fn confirm_shapes(&self, check_sent_at: Nanos) {
        for confirmed_at in &self.confirmed_at {
            confirmed_at.fetch_max(check_sent_at.0, Ordering::AcqRel);
        }
        self.origins.confirm_shapes(check_sent_at);
    }

    /// Records such a check of one collection.
    pub(crate) fn confirm_shape(&self, collection: usize, check_sent_at: Nanos) {
        if let Some(confirmed_at) = self.confirmed_at.get(collection) {
            confirmed_at.fetch_max(check_sent_at.0, Ordering::AcqRel);
        }
    }

    /// Returns whether the shape of a collection has been unconfirmed for longer than the bound.
    pub(crate) fn is_shape_old(&self, collection: usize, now: Nanos) -> bool {
        let confirmed_at =
            self.confirmed_at.get(collection).map_or(0, |at| at.load(Ordering::Acquire));
        now.since(Nanos(confirmed_at)) > self.shape_age_max
    }

    /// Records a position of the log from an answer or a probe.
    pub(crate) fn record_log_end(&self, at: u64) {
        self.log_end.fetch_max(at, Ordering::AcqRel);
    }

    /// Returns the newest recorded position. Call it before the server is asked for the end of its
    /// log.
    pub(crate) fn log_end(&self) -> u64 {
        self.log_end.load(Ordering::Acquire)
    }

    /// Sets the log's end after a restart of the server, or for another server: positions count
    /// from `end`.
    pub(crate) fn begin_log(&self, end: u64) {
        self.log_end.store(end, Ordering::Release);
    }

    /// Records that the log went backwards without a restart of the server. From now on positions
    /// belong to another history, which `random` distinguishes.
    pub(crate) fn begin_history(&self, end: u64, random: u64) {
        self.begin_log(end);
        self.history.store(random, Ordering::Release);
    }

    /// See [`Plan::history`].
    pub(crate) fn history(&self) -> u64 {
        self.history.load(Ordering::Acquire)
    }

    pub(crate) fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    fn statement(
        &self,
        collection: usize,
        table: &Result<Table, String>,
    ) -> Result<Arc<ReadPlan>, Arc<str>> {
        let table = table.as_ref().map_err(|why| Arc::<str>::from(why.as_str()))?;
        key_is_unchanged(self.schemas.get(collection), &table.key_schema(), &table.name)?;
        Ok(Arc::new(ReadPlan::new(table)))
    }
}
