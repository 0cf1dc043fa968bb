//! Read transaction of a snapshot batch: rows of several tables in one snapshot of the engine.
//!
//! The snapshot is not tied to the binary log: MySQL has no point for it, and MariaDB's is in
//! variables that all sessions fill. So what is visible is asked for before the snapshot, and the
//! log's end after it: the snapshot has all of the first and nothing past the second. The caller
//! decides whether it lacks a change between the two.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hotrow_types::version::Position;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};
use tokio::time::Instant;

use super::MysqlSource;
use super::plan::{Form, Observed, ReadPlan, Records, observed};
use super::pool::{self, Lease, Work, sets};
use super::record_rows::{RecordForm, Set};
use super::server::Flavor;
use super::shared::Plan;
use hotrow_source::attempts::{ATTEMPTS_MAX, AttemptError, Fault, Repeated};
use hotrow_source::{KeysOfCollection, ReadSet, Room, Row, RowBudget, SourceError};

/// In a session of the readers, whose isolation is repeatable read.
const BEGIN: &str = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";
/// Index of no statement: none of the sets has records.
const NO_RECORDS: Records = Records { at: usize::MAX, form: RecordForm::Row };

/// Statements of a transaction, and what they found.
struct Answered {
    before: Set,
    /// Per collection, the sets of its statements, and whether all rows had room.
    parts: Vec<(Vec<Set>, Room)>,
    end: Set,
}

impl MysqlSource {
    pub(super) async fn read_transaction(
        &self,
        parts: &[KeysOfCollection],
        budget: &Arc<RowBudget>,
    ) -> Result<ReadSet, SourceError> {
        let deadline = Instant::now() + self.read_timeout;
        let mut repeated = Repeated::default();
        let unavailable = |why: Arc<str>| SourceError::unavailable(&*why);
        for _ in 0..ATTEMPTS_MAX {
            let plan = self.shared.published.plan().map_err(unavailable)?;
            let lease = self.lease(&plan, deadline).await?;
            // The wait may have been long, as in a read of one collection.
            let plan = self.shared.published.plan().map_err(unavailable)?;
            if lease.generation() != plan.generation {
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
        lease: Lease,
        plan: &Plan,
        parts: &[KeysOfCollection],
        budget: &Arc<RowBudget>,
        deadline: Instant,
    ) -> Result<ReadSet, AttemptError> {
        let mut planned: Vec<Arc<ReadPlan>> = Vec::with_capacity(parts.len());
        for (collection, _) in parts {
            match plan.collections.get(usize::from(collection.0)) {
                Some(Ok(statement)) => planned.push(Arc::clone(statement)),
                other => {
                    lease.release();
                    let why = other.and_then(|own| own.as_ref().err());
                    let why = why.map_or("there is no such collection", |why| &**why);
                    return Err(AttemptError::Final(SourceError::broken(why)));
                }
            }
        }
        let age = lease.age();
        let flavor = plan.identity.flavor;
        let form = match flavor {
            Flavor::MariaDb => Form::SnapshotPoint,
            Flavor::MySql => Form::Gtids,
        };
        let statement = |(plan, (_, keys)): (&Arc<ReadPlan>, &KeysOfCollection)| {
            (plan.sql(keys, Form::Rows), plan.records(Form::Rows))
        };
        let statements: Vec<_> = planned.iter().zip(parts).map(statement).collect();
        let visible = flavor.visible_sql();
        let end = plan.identity.log_end_sql();
        self.shared.queries.fetch_add(parts.len() as u64, Ordering::Relaxed);
        parts.iter().for_each(|(collection, keys)| self.hooks.before_read(*collection, keys));
        let of_query = Arc::clone(budget);
        let work: Work<Answered> =
            Box::new(move |conn| Box::pin(transaction(conn, visible, statements, end, of_query)));
        let answered = pool::run(lease, work, deadline).await;
        parts.iter().for_each(|(collection, keys)| self.hooks.after_read(*collection, keys));
        let stale = |why: &str| Fault::Stale(SourceError::broken(why));
        let read = match answered {
            Ok(Answered { before, parts: read, end }) => {
                let sets = [before, (None, Vec::new()), end];
                match observed(&sets, form, plan.identity.incarnation) {
                    Some(observed) => self.rows(&planned, parts, read, observed).await,
                    None => Err(stale("the database's answer has no end of the log")),
                }
            }
            Err(fault) => Err(fault),
        };
        match read {
            Ok(set) => Ok(set),
            Err(Fault::Gone(e)) => Err(AttemptError::gone(e, age)),
            Err(Fault::Query(e)) => Err(AttemptError::Final(e)),
            Err(Fault::Stale(e)) => {
                // Which of the tables has changed is not known: all are inspected.
                let mut last = AttemptError::Final(e.clone());
                for ((collection, _), statement) in parts.iter().zip(&planned) {
                    let index = usize::from(collection.0);
                    last = self.replan(plan, index, statement, e.clone(), deadline).await;
                }
                Err(last)
            }
        }
    }

    async fn rows(
        &self,
        planned: &[Arc<ReadPlan>],
        parts: &[KeysOfCollection],
        answered: Vec<(Vec<Set>, Room)>,
        Observed { version, position }: Observed,
    ) -> Result<ReadSet, Fault> {
        let other_shape = || {
            Fault::Stale(SourceError::broken(
                "the database's answer does not match the table's definition",
            ))
        };
        let mut rows: Vec<Row> = Vec::new();
        for ((plan, (collection, keys)), (sets, room)) in planned.iter().zip(parts).zip(answered) {
            let schema = self.shared.schemas().get(usize::from(collection.0));
            let schema = schema.ok_or_else(other_shape)?;
            let incarnation = position.map_or(0, |Position { incarnation, .. }| incarnation);
            let read = plan.answer(sets, keys, schema, Form::Rows, incarnation, room).await;
            rows.extend(read.map_err(|_| other_shape())?.0);
        }
        Ok(ReadSet { version, position, rows })
    }
}

/// Runs the transaction. A session whose statements fail is rolled back by the pool.
async fn transaction(
    conn: &mut Conn,
    visible: &'static str,
    statements: Vec<(String, Records)>,
    end: &'static str,
    budget: Arc<RowBudget>,
) -> Result<Answered, Error> {
    let one = |(mut sets, _): (Vec<Set>, Room)| sets.pop().unwrap_or((None, Vec::new()));
    let before = one(sets(conn, visible.into(), NO_RECORDS, Arc::clone(&budget)).await?);
    conn.query_drop(BEGIN).await?;
    let mut parts = Vec::with_capacity(statements.len());
    for (sql, records) in statements {
        parts.push(sets(conn, sql, records, Arc::clone(&budget)).await?);
    }
    conn.query_drop("COMMIT").await?;
    let end = one(sets(conn, end.into(), NO_RECORDS, budget).await?);
    Ok(Answered { before, parts, end })
}
