//! One read: a leased connection, one query, its answer; of a snapshot batch, several queries.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_core::Stream as _;
use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::{Position, Version};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Error;

use super::PostgresSource;
use super::error::full_text;
use super::inspect::{self, Privileges};
use super::json::JsonError;
use super::plan::{ReadPlan, fence};
use super::pool::{Connection, Lease, fault, is_unrepresentable};
use super::shared::Plan;
use hotrow_source::attempts::{ATTEMPTS_MAX, AttemptError, Fault, Repeated};
use hotrow_source::json::Pace;
use hotrow_source::row_index::RowIndex;
use hotrow_source::{
    KeysOfCollection, ReadSet, Room, Row, RowBudget, SourceError, mark_unread, preflight,
};

/// Keys of one collection, and the statement that reads them.
pub(super) struct Part<'a> {
    /// Place of the collection.
    pub(super) index: usize,
    statement: Arc<ReadPlan>,
    pub(super) keys: &'a [Key],
}

impl PostgresSource {
    pub(super) async fn read_keys(
        &self,
        parts: &[KeysOfCollection],
        budget: &RowBudget,
    ) -> Result<ReadSet, SourceError> {
        let deadline = Instant::now() + self.read_timeout;
        let mut repeated = Repeated::default();
        for _ in 0..ATTEMPTS_MAX {
            let plan =
                self.shared.published.plan().map_err(|why| SourceError::unavailable(&*why))?;
            let lease = Lease::new(&self.pool, &plan, deadline).await?;
            // The wait may have been long, and a published plan applies to every query that begins
            // after the flush.
            let plan =
                self.shared.published.plan().map_err(|why| SourceError::unavailable(&*why))?;
            if lease.generation() != Some(plan.generation) {
                lease.discard();
                continue;
            }
            budget.restart();
            match self.attempt(lease, &plan, parts, budget, deadline).await {
                Ok(set) => return Ok(set),
                Err(error) => repeated.once(error)?,
            }
        }
        Err(SourceError::unavailable("the server or the table changed during each attempt"))
    }

    async fn attempt(
        &self,
        mut lease: Lease,
        plan: &Plan,
        parts: &[KeysOfCollection],
        budget: &RowBudget,
        deadline: Instant,
    ) -> Result<ReadSet, AttemptError> {
        let mut planned = Vec::with_capacity(parts.len());
        for (collection, keys) in parts {
            let index = usize::from(collection.0);
            match plan.collections.get(index) {
                Some(Ok(statement)) => {
                    planned.push(Part { index, statement: Arc::clone(statement), keys });
                }
                other => {
                    lease.release();
                    let why = other
                        .and_then(|r| r.as_ref().err())
                        .map_or("there is no such collection", |why| &**why);
                    return Err(AttemptError::Final(SourceError::broken(why)));
                }
            }
        }
        for Part { index, statement, .. } in &planned {
            if self.shared.is_shape_old(*index, Nanos::now()) {
                lease = self.confirmed(lease, *index, statement, deadline).await?;
            }
        }
        let connection = lease.connection().map_err(AttemptError::Final)?;
        let mut reached = 0;
        let queries = self.queries(connection, plan, &planned, budget, &mut reached);
        let Ok(answer) = timeout_at(deadline, queries).await else {
            // The drop of the lease cancels the query.
            let detail = format!("the query took longer than {} ms", self.read_timeout.as_millis());
            return Err(AttemptError::Final(SourceError::timeout(detail)));
        };
        let age = lease.age();
        let fault = match answer {
            Ok(Ok((set, Room::Taken))) => {
                lease.release();
                return Ok(set);
            }
            Ok(Ok((set, Room::QueryFull | Room::NoRoom))) => {
                // The drop of the lease cancels the rest of the query.
                drop(lease);
                return Ok(set);
            }
            Ok(Err(JsonError::Shape | JsonError::TooLarge | JsonError::NoMemory)) => {
                Fault::Stale(SourceError::broken(
                    "the database's answer does not have the table's shape as inspected",
                ))
            }
            Err(e) => fault(&e),
        };
        if !matches!(fault, Fault::Gone(_)) {
            lease.roll_back(deadline).await;
        }
        match (fault, planned.get(reached)) {
            (Fault::Gone(e), _) => {
                lease.discard();
                Err(AttemptError::gone(e, age))
            }
            (Fault::Stale(e), Some(Part { index, statement, .. })) => {
                Err(self.replan(lease, *index, statement, e, deadline).await)
            }
            (Fault::Query(e) | Fault::Stale(e), _) => {
                lease.release();
                Err(AttemptError::Final(e))
            }
        }
    }

    /// Inspects a table whose statement failed, and publishes the result to the other readers.
    async fn replan(
        &self,
        mut lease: Lease,
        index: usize,
        failed: &Arc<ReadPlan>,
        e: SourceError,
        deadline: Instant,
    ) -> AttemptError {
        // Another reader was faster.
        let current =
            self.shared.published.plan().ok().and_then(|plan| plan.collections.get(index).cloned());
        if current
            .is_some_and(|current| !current.is_ok_and(|current| Arc::ptr_eq(&current, failed)))
        {
            lease.release();
            return AttemptError::Replanned(e);
        }
        let (Ok(connection), Some(spec)) = (lease.connection(), self.specs.get(index)) else {
            return AttemptError::Final(e);
        };
        connection.drop_prepared(index);
        let inspection_sent_at = Nanos::now();
        // Collections are numbered with 16 bits.
        let (client, number) = (&connection.session.client, CollectionId(index as u16));
        let inspection = inspect::table(client, number, spec, Privileges::Checked, self.follow);
        match timeout_at(deadline, inspection).await {
            Ok(Ok(table)) => {
                let table = table.map_err(|findings| preflight::one_line(&findings));
                let is_other = self.shared.set_table(index, failed, &table);
                self.shared.confirm_shape(index, inspection_sent_at);
                lease.release();
                match e {
                    // The same statement would fail again.
                    SourceError::Data { .. } if !is_other => AttemptError::Final(e),
                    _ => AttemptError::Replanned(e),
                }
            }
            Ok(Err(_)) => {
                lease.discard();
                AttemptError::Final(e)
            }
            Err(_) => AttemptError::Final(e),
        }
    }

    /// Inspects a table whose shape was not confirmed within the bound, because the feed's session
    /// hangs or has ended. Returns the lease if `statement` still fits the table.
    async fn confirmed(
        &self,
        mut lease: Lease,
        index: usize,
        statement: &ReadPlan,
        deadline: Instant,
    ) -> Result<Lease, AttemptError> {
        let age = lease.age();
        let (Ok(connection), Some(spec)) = (lease.connection(), self.specs.get(index)) else {
            return Ok(lease);
        };
        let inspection_sent_at = Nanos::now();
        // Collections are numbered with 16 bits.
        let (client, number) = (&connection.session.client, CollectionId(index as u16));
        let inspection = inspect::table(client, number, spec, Privileges::Checked, self.follow);
        let table = match timeout_at(deadline, inspection).await {
            Ok(Ok(table)) => table.map_err(|findings| preflight::one_line(&findings)),
            Ok(Err(e)) => {
                lease.discard();
                let e = SourceError::unavailable(full_text(&e));
                return Err(AttemptError::gone(e, age));
            }
            // The drop of the lease cancels the query.
            Err(_) => {
                let detail = "the table's shape was not confirmed within the read's time";
                return Err(AttemptError::Final(SourceError::timeout(detail)));
            }
        };
        let is_other = self.shared.set_table(index, statement, &table);
        self.shared.confirm_shape(index, inspection_sent_at);
        if !is_other {
            return Ok(lease);
        }
        lease.release();
        Err(AttemptError::Replanned(SourceError::broken("the table changed its shape")))
    }

    /// Runs the query and reads its answer. A [`JsonError`] means that the table has changed.
    pub(super) async fn query(
        &self,
        connection: &mut Connection,
        plan: &Plan,
        &Part { index, ref statement, keys }: &Part<'_>,
        budget: &RowBudget,
    ) -> Result<Result<(ReadSet, Room), JsonError>, Error> {
        let prepared = connection.prepared(index, statement).await?;
        self.shared.queries.fetch_add(1, Ordering::Relaxed);
        let client = &connection.session.client;
        let rows = match client.query_raw(&prepared, statement.arguments(keys)).await {
            // No row has this key: what is left to read is the snapshot.
            Err(e) if keys.len() == 1 && is_unrepresentable(&e) => {
                client.query_raw(&prepared, statement.arguments(&[])).await?
            }
            sent => sent?,
        };
        let mut rows = pin!(rows);
        // Another run of the server has its own positions, also before the feed has reached it.
        let incarnation = connection.session.incarnation ^ plan.history;
        let mut answer = Answer::new(self, Some(incarnation), statement, index, keys);
        let mut pace = Pace::default();
        let mut shape = Ok(());
        // Read to the end even after an error of the shape, so that the connection can be reused.
        while let Some(row) = poll_fn(|cx| rows.as_mut().poll_next(cx)).await {
            let row = row?;
            if shape.is_ok() {
                match answer.take(&row, budget) {
                    Ok((Room::Taken, bytes)) => pace.wrote(bytes).await,
                    Ok((ended, _)) => return Ok(answer.finish(ended)),
                    Err(error) => shape = Err(error),
                }
            }
        }
        Ok(shape.and_then(|()| answer.finish(Room::Taken)))
    }
}

/// Collected rows of an answer.
pub(super) struct Answer<'a> {
    source: &'a PostgresSource,
    /// `None`: a standby is read, and its rows carry no fence.
    incarnation: Option<u64>,
    statement: &'a ReadPlan,
    collection: usize,
    /// Not needed for a single key.
    places: Option<RowIndex<'a>>,
    fence: Option<(Version, Position)>,
    rows: Vec<Row>,
}

impl<'a> Answer<'a> {
    pub(super) fn new(
        source: &'a PostgresSource,
        incarnation: Option<u64>,
        statement: &'a ReadPlan,
        collection: usize,
        keys: &'a [Key],
    ) -> Self {
        Self {
            source,
            incarnation,
            statement,
            collection,
            places: (keys.len() > 1).then(|| RowIndex::new(keys)),
            fence: None,
            rows: vec![Row::Missing; keys.len()],
        }
    }

    /// Adds a row if there is room for it. Returns its size.
    pub(super) fn take(
        &mut self,
        row: &tokio_postgres::Row,
        budget: &RowBudget,
    ) -> Result<(Room, usize), JsonError> {
        if let (None, Some(incarnation)) = (&self.fence, self.incarnation) {
            let (snapshot, at) = fence(row)?;
            let position = Position { incarnation, at };
            let version = Version::Snapshot { incarnation, snapshot: Arc::new(snapshot) };
            self.fence = Some((version, position));
        }
        let schema = self.source.shared.schemas().get(self.collection).ok_or(JsonError::Shape)?;
        let place = match &self.places {
            None => self.statement.found(row)?.then_some(0),
            Some(places) => self.statement.key_of(schema, row)?.and_then(|key| places.of(&key)),
        };
        if let Some(answer) = place.and_then(|place| self.rows.get_mut(place)) {
            let record = match self.statement.record(row)? {
                Row::Found(body) if self.statement.is_alias(schema, row)? => {
                    Row::Uncacheable(Some(body))
                }
                record => record,
            };
            let bytes = record.bytes();
            let room = if record == Row::NoRoom { Room::NoRoom } else { budget.take(bytes) };
            if room == Room::Taken {
                *answer = record;
            }
            return Ok((room, bytes));
        }
        Ok((Room::Taken, 0))
    }

    /// Returns the rows of an answer that ended for this reason.
    pub(super) fn into_rows(mut self, ended: Room) -> Vec<Row> {
        // Without all rows the missing keys are unknown.
        mark_unread(&mut self.rows, &Row::Missing, ended);
        if self.statement.has_aliases() {
            // The feed would report such a row under its own spelling.
            for row in self.rows.iter_mut().filter(|row| **row == Row::Missing) {
                *row = Row::Uncacheable(None);
            }
        }
        if let Some(places) = &self.places {
            places.spread(&mut self.rows);
        }
        self.rows
    }

    fn finish(mut self, ended: Room) -> Result<(ReadSet, Room), JsonError> {
        // The query returns a row even if it finds nothing.
        let (version, position) = self.fence.take().ok_or(JsonError::Shape)?;
        self.source.shared.record_log_end(position.at);
        Ok((ReadSet { version, position: Some(position), rows: self.into_rows(ended) }, ended))
    }
}
