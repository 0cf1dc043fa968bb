//! Read transaction of a snapshot batch: rows of several tables in one snapshot of the engine.
//!
//! The snapshot is not tied to the binary log: MySQL has no point for it, and MariaDB's is in
//! variables that all sessions fill. So what is visible is asked for before the snapshot, and the
//! log's end after it: the snapshot has all of the first and nothing past the second. The caller
//! decides whether it lacks a change between the two.

use std::sync::Arc;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};
use tokio::time::Instant;

use super::MysqlSource;
use super::plan::{Form, Records, observed};
use super::pool::{self, Lease, Work, sets};
use super::reader::{Part, other_shape};
use super::record_rows::{RecordForm, Set};
use super::server::Flavor;
use super::shared::Plan;
use hotrow_source::attempts::Fault;
use hotrow_source::{ReadSet, Room, RowBudget};

/// In a session of the readers, whose isolation is repeatable read.
const BEGIN: &str = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";
/// Index of no statement: none of the sets has records.
const NO_RECORDS: Records = Records { at: usize::MAX, form: RecordForm::Row };

/// What the statements of a transaction found.
struct Answered {
    before: Set,
    /// Per collection, the sets of its statements, and whether all rows had room.
    parts: Vec<(Vec<Set>, Room)>,
    end: Set,
}

impl MysqlSource {
    pub(super) async fn transaction(
        &self,
        lease: Lease,
        plan: &Plan,
        parts: &[Part<'_>],
        budget: &Arc<RowBudget>,
        deadline: Instant,
    ) -> Result<ReadSet, Fault> {
        let flavor = plan.identity.flavor;
        let statement = |Part { statement, keys, .. }: &Part<'_>| {
            (statement.sql(keys, Form::Rows), statement.records(Form::Rows))
        };
        let statements: Vec<_> = parts.iter().map(statement).collect();
        let (visible, end) = (flavor.visible_sql(), plan.identity.log_end_sql());
        let of_queries = Arc::clone(budget);
        let work: Work<Answered> =
            Box::new(move |conn| Box::pin(run(conn, visible, statements, end, of_queries)));
        let Answered { before, parts: read, end } = pool::run(lease, work, deadline).await?;
        let form = match flavor {
            Flavor::MariaDb => Form::SnapshotPoint,
            Flavor::MySql => Form::Gtids,
        };
        let incarnation = plan.identity.incarnation;
        let sets = [before, (None, Vec::new()), end];
        let observed = observed(&sets, form, incarnation).ok_or_else(other_shape)?;
        let mut rows = Vec::new();
        for (Part { statement, schema, keys, .. }, (sets, room)) in parts.iter().zip(read) {
            let answer = statement.answer(sets, keys, schema, Form::Rows, incarnation, room).await;
            rows.extend(answer.map_err(|_| other_shape())?.0);
        }
        Ok(ReadSet { version: observed.version, position: observed.position, rows })
    }
}

/// Runs the transaction. A session whose statements fail is rolled back by the pool.
async fn run(
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
