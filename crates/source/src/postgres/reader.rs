//! One read: a lease on a connection, one query, its answer.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_core::Stream as _;
use hotrow_cache::key::{CollectionId, Key};
use hotrow_cache::version::{Position, Version};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Error;

use super::PostgresSource;
use super::inspect;
use super::json::JsonError;
use super::plan::{ReadPlan, fence};
use super::pool::{Age, Connection, Fault, Lease, fault, unavailable};
use super::shared::Plan;
use crate::places::Places;
use crate::{ReadError, ReadSet, Row};

/// Attempts of one read: the first, one for a connection that died unnoticed, one for a table that changed, and one more
/// for a change of the server meanwhile.
const ATTEMPTS_MAX: usize = 4;

/// How an attempt ended without an answer.
enum Again {
    /// The connection had died: another one may do.
    Reconnect(ReadError),
    /// The table has changed and was looked at again.
    Replanned(ReadError),
    Final(ReadError),
}

impl PostgresSource {
    pub(super) async fn read_keys(&self, collection: CollectionId, keys: &[Key]) -> Result<ReadSet, ReadError> {
        let deadline = Instant::now() + self.read_timeout;
        let (mut reconnected, mut replanned) = (false, false);
        for _ in 0..ATTEMPTS_MAX {
            let plan = self.shared.plan().map_err(|why| unavailable(&why))?;
            let lease = self.pool.lease(&plan, deadline).await?;
            // Waiting may have taken long: what is published before a flush holds for every query that begins after it.
            let plan = self.shared.plan().map_err(|why| unavailable(&why))?;
            if lease.generation() != Some(plan.generation) {
                lease.discard();
                continue;
            }
            match self.attempt(lease, &plan, collection, keys, deadline).await {
                Ok(set) => return Ok(set),
                Err(Again::Reconnect(_)) if !reconnected => reconnected = true,
                Err(Again::Replanned(_)) if !replanned => replanned = true,
                Err(Again::Reconnect(e) | Again::Replanned(e) | Again::Final(e)) => return Err(e),
            }
        }
        Err(unavailable("the database was being opened again and again"))
    }

    async fn attempt(
        &self,
        mut lease: Lease,
        plan: &Plan,
        collection: CollectionId,
        keys: &[Key],
        deadline: Instant,
    ) -> Result<ReadSet, Again> {
        let index = usize::from(collection.0);
        let statement = match plan.collections.get(index) {
            Some(Ok(statement)) => Arc::clone(statement),
            other => {
                lease.give_back();
                let why = other.and_then(|r| r.as_ref().err()).map_or("there is no such collection", |why| &**why);
                return Err(Again::Final(ReadError::Broken { detail: why.into() }));
            }
        };
        self.hooks.before_read(collection, keys);
        let connection = lease.connection().map_err(Again::Final)?;
        let query = self.query(connection, plan, &statement, collection, keys);
        let Ok(answer) = timeout_at(deadline, query).await else {
            // Dropping the lease cancels the query.
            let detail = format!("the query took longer than {} ms", self.read_timeout.as_millis());
            return Err(Again::Final(ReadError::Timeout { detail }));
        };
        self.hooks.after_read(collection, keys);
        let age = lease.age();
        let fault = match answer {
            Ok(Ok(set)) => {
                lease.give_back();
                return Ok(set);
            }
            Ok(Err(JsonError::Shape | JsonError::TooLarge)) => {
                let detail = "the database's answer does not have the table's shape as it was looked up".into();
                Fault::Stale(ReadError::Broken { detail })
            }
            Err(e) => fault(&e),
        };
        match fault {
            Fault::Gone(e) => {
                lease.discard();
                Err(if age == Age::Used { Again::Reconnect(e) } else { Again::Final(e) })
            }
            Fault::Query(e) => {
                lease.give_back();
                Err(Again::Final(e))
            }
            Fault::Stale(e) => Err(self.replan(lease, index, &statement, e, deadline).await),
        }
    }

    /// Looks at a table again whose statement failed, and tells the other readers what it found.
    async fn replan(
        &self,
        mut lease: Lease,
        index: usize,
        failed: &Arc<ReadPlan>,
        e: ReadError,
        deadline: Instant,
    ) -> Again {
        // Somebody else was quicker.
        let current = self.shared.plan().ok().and_then(|plan| plan.collections.get(index).cloned());
        if current.is_some_and(|current| !current.is_ok_and(|current| Arc::ptr_eq(&current, failed))) {
            lease.give_back();
            return Again::Replanned(e);
        }
        let (Ok(connection), Some(spec)) = (lease.connection(), self.specs.get(index)) else { return Again::Final(e) };
        connection.forget(index);
        // Collections are numbered with 16 bits.
        let look = inspect::table(&connection.session.client, CollectionId(index as u16), spec);
        match timeout_at(deadline, look).await {
            Ok(Ok(table)) => {
                self.shared.set_table(index, &table.map_err(|findings| inspect::told(&findings)));
                lease.give_back();
                Again::Replanned(e)
            }
            Ok(Err(_)) => {
                lease.discard();
                Again::Final(e)
            }
            Err(_) => Again::Final(e),
        }
    }

    /// The query and its answer. An error of the shape means that the table is not what it was.
    async fn query(
        &self,
        connection: &mut Connection,
        plan: &Plan,
        statement: &Arc<ReadPlan>,
        collection: CollectionId,
        keys: &[Key],
    ) -> Result<Result<ReadSet, JsonError>, Error> {
        let index = usize::from(collection.0);
        let prepared = connection.prepared(index, statement).await?;
        self.shared.queries.fetch_add(1, Ordering::Relaxed);
        let rows = connection.session.client.query_raw(&prepared, statement.arguments(keys)).await?;
        let mut rows = pin!(rows);
        let mut answer = Answer::new(self, plan, statement, index, keys);
        let mut shape = Ok(());
        // Read to the end even after an error of the shape: the connection is to be used again.
        while let Some(row) = poll_fn(|cx| rows.as_mut().poll_next(cx)).await {
            let row = row?;
            if shape.is_ok() {
                shape = answer.take(&row);
            }
        }
        Ok(shape.and_then(|()| answer.finish()))
    }
}

/// Collects the rows of an answer.
struct Answer<'a> {
    source: &'a PostgresSource,
    incarnation: u64,
    statement: &'a ReadPlan,
    collection: usize,
    /// Not needed for a single key.
    places: Option<Places<'a>>,
    fence: Option<(Version, Position)>,
    rows: Vec<Row>,
}

impl<'a> Answer<'a> {
    fn new(
        source: &'a PostgresSource,
        plan: &Plan,
        statement: &'a ReadPlan,
        collection: usize,
        keys: &'a [Key],
    ) -> Self {
        Self {
            source,
            incarnation: plan.identity.incarnation(),
            statement,
            collection,
            places: (keys.len() > 1).then(|| Places::new(keys)),
            fence: None,
            rows: vec![Row::Missing; keys.len()],
        }
    }

    fn take(&mut self, row: &tokio_postgres::Row) -> Result<(), JsonError> {
        if self.fence.is_none() {
            let (snapshot, at) = fence(row)?;
            let position = Position { incarnation: self.incarnation, at };
            self.fence = Some((Version::Snapshot(Arc::new(snapshot)), position));
        }
        let place = match &self.places {
            None => self.statement.found(row)?.then_some(0),
            Some(places) => {
                let schema = self.source.shared.schemas().get(self.collection).ok_or(JsonError::Shape)?;
                self.statement.key_of(schema, row)?.and_then(|key| places.of(&key))
            }
        };
        if let Some(answer) = place.and_then(|place| self.rows.get_mut(place)) {
            *answer = self.statement.record(row)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<ReadSet, JsonError> {
        if let Some(places) = &self.places {
            places.spread(&mut self.rows);
        }
        // The query has a row even when nothing is found.
        let (version, position) = self.fence.ok_or(JsonError::Shape)?;
        Ok(ReadSet { version, position: Some(position), rows: self.rows })
    }
}
