//! Read transaction of a snapshot batch: rows of several tables in one snapshot.
//!
//! Each statement reads the snapshot and the end of the log beside its rows. The snapshot is that
//! of the transaction, opened by the first statement, which reads the end after it: what committed
//! later is in neither.

use std::sync::Arc;

use hotrow_measure::clock::Nanos;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Error;

use super::PostgresSource;
use super::json::JsonError;
use super::plan::ReadPlan;
use super::pool::{Connection, Lease, fault};
use super::shared::Plan;
use hotrow_source::attempts::{ATTEMPTS_MAX, AttemptError, Fault, Repeated};
use hotrow_source::{KeysOfCollection, ReadSet, Room, Row, RowBudget, SourceError};

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Keys of one collection, its place, and the statement that reads it.
type Part<'a> = (&'a KeysOfCollection, usize, Arc<ReadPlan>);

/// Failure of a statement of the transaction: its place among the parts, and the error.
type Failed = (usize, Fault);

impl PostgresSource {
    pub(super) async fn read_transaction(
        &self,
        parts: &[KeysOfCollection],
        budget: &RowBudget,
    ) -> Result<ReadSet, SourceError> {
        let deadline = Instant::now() + self.read_timeout;
        let mut repeated = Repeated::default();
        let unavailable = |why: Arc<str>| SourceError::unavailable(&*why);
        for _ in 0..ATTEMPTS_MAX {
            let plan = self.shared.published.plan().map_err(unavailable)?;
            let lease = Lease::new(&self.pool, &plan, deadline).await?;
            // The wait may have been long, as in a read of one collection.
            let plan = self.shared.published.plan().map_err(unavailable)?;
            if lease.generation() != Some(plan.generation) {
                lease.discard();
                continue;
            }
            budget.restart();
            match self.attempt_transaction(lease, &plan, parts, budget, deadline).await {
                Ok(set) => return Ok(set),
                Err(error) => repeated.once(error)?,
            }
        }
        Err(SourceError::unavailable("the server or a table changed during each attempt"))
    }

    async fn attempt_transaction(
        &self,
        mut lease: Lease,
        plan: &Plan,
        parts: &[KeysOfCollection],
        budget: &RowBudget,
        deadline: Instant,
    ) -> Result<ReadSet, AttemptError> {
        let mut planned: Vec<Part<'_>> = Vec::with_capacity(parts.len());
        for part in parts {
            let index = usize::from(part.0.0);
            match plan.collections.get(index) {
                Some(Ok(statement)) => planned.push((part, index, Arc::clone(statement))),
                other => {
                    lease.release();
                    let why = other.and_then(|own| own.as_ref().err());
                    let why = why.map_or("there is no such collection", |why| &**why);
                    return Err(AttemptError::Final(SourceError::broken(why)));
                }
            }
        }
        for (_, index, statement) in &planned {
            if self.shared.is_shape_old(*index, Nanos::now()) {
                lease = self.confirmed(lease, *index, statement, deadline).await?;
            }
        }
        let connection = lease.connection().map_err(AttemptError::Final)?;
        // Until its end a drop of the lease closes the connection.
        connection.is_in_transaction = true;
        let work = self.statements_of_transaction(connection, plan, &planned, budget);
        let Ok(done) = timeout_at(deadline, work).await else {
            let detail = format!("the reads took longer than {} ms", self.read_timeout.as_millis());
            return Err(AttemptError::Final(SourceError::timeout(detail)));
        };
        let age = lease.age();
        match done {
            Ok((set, Room::Taken)) => {
                lease.release();
                Ok(set)
            }
            // The drop of the lease ends the transaction and the rest of the query.
            Ok((set, Room::QueryFull | Room::NoRoom)) => Ok(set),
            Err((_, Fault::Gone(e))) => {
                lease.discard();
                Err(AttemptError::gone(e, age))
            }
            Err((_, Fault::Query(e))) => Err(AttemptError::Final(e)),
            Err((place, Fault::Stale(e))) => {
                let Some((_, index, statement)) = planned.get(place) else {
                    return Err(AttemptError::Final(e));
                };
                let connection = lease.connection().map_err(AttemptError::Final)?;
                let ended = connection.session.client.batch_execute("ROLLBACK");
                if !matches!(timeout_at(deadline, ended).await, Ok(Ok(()))) {
                    lease.discard();
                    return Err(AttemptError::Final(e));
                }
                connection.is_in_transaction = false;
                Err(self.replan(lease, *index, statement, e, deadline).await)
            }
        }
    }

    /// Runs the transaction up to its end, or up to the first part without room for its rows.
    async fn statements_of_transaction(
        &self,
        connection: &mut Connection,
        plan: &Plan,
        parts: &[Part<'_>],
        budget: &RowBudget,
    ) -> Result<(ReadSet, Room), Failed> {
        let driver = |place: usize| move |e: Error| (place, fault(&e));
        connection.session.client.batch_execute(BEGIN).await.map_err(driver(0))?;
        let mut all: Option<ReadSet> = None;
        let mut ended = Room::Taken;
        for (place, ((collection, keys), _, statement)) in parts.iter().enumerate() {
            if ended != Room::Taken {
                let unread = if ended == Room::NoRoom { Row::NoRoom } else { Row::NotRead };
                all.iter_mut().for_each(|set| set.rows.extend(keys.iter().map(|_| unread.clone())));
                continue;
            }
            self.hooks.before_read(*collection, keys);
            let query = self.query(connection, plan, statement, *collection, keys, budget);
            let read = query.await.map_err(driver(place))?;
            self.hooks.after_read(*collection, keys);
            let (set, room) = read.map_err(|_: JsonError| {
                let detail = "the database's answer does not have the table's shape as inspected";
                (place, Fault::Stale(SourceError::broken(detail)))
            })?;
            ended = room;
            match &mut all {
                None => all = Some(set),
                Some(all) => all.rows.extend(set.rows),
            }
        }
        if ended == Room::Taken {
            connection.session.client.batch_execute("COMMIT").await.map_err(driver(0))?;
            connection.is_in_transaction = false;
        }
        let none = || (0, Fault::Query(SourceError::broken("a transaction without keys")));
        Ok((all.ok_or_else(none)?, ended))
    }
}
