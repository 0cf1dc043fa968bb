//! Connections of the readers.
//!
//! A query runs to its end on the pool's own runtime, even if its caller is gone: this protocol can
//! cancel a query only by closing the connection.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::connect::{self, ConnectError, Session, Settings, full_text};
use super::plan::{Records, Set};
use super::record_rows::RecordRows;
use super::server::Identity;
use super::shared::Shared;
use super::target::Target;
use hotrow_source::attempts::Fault;
use hotrow_source::pool::OpenError;
use hotrow_source::{BoxFuture, Room, RowBudget, SourceError, pool, preflight};

/// Time that a query may run beyond its caller's deadline, because the server ends it by itself.
/// Afterwards its connection is closed.
const GRACE: Duration = Duration::from_secs(2);

/// Server of the readers' connections.
pub(crate) struct Connector {
    pub(crate) target: Target,
    pub(crate) settings: Settings,
    pub(crate) shared: Arc<Shared>,
}

pub(crate) type Pool = pool::Pool<Connector>;
pub(crate) type Lease = pool::Lease<Connector>;

impl pool::Connector for Connector {
    type Identity = Identity;
    type Connection = Session;

    async fn open(&self, identity: &Identity) -> Result<Session, OpenError> {
        let opened = connect::primary(&self.target, self.settings, Some(identity)).await;
        opened.map_err(|errors| OpenError {
            is_login: errors.iter().any(ConnectError::is_login),
            why: preflight::joined(&errors),
        })
    }

    fn is_closed(session: &Session) -> bool {
        session.conn.is_disconnected()
    }

    fn generation(&self) -> u64 {
        self.shared.published.generation()
    }

    fn current(&self) -> Option<(u64, Identity)> {
        let plan = self.shared.published.plan().ok()?;
        Some((plan.generation, plan.identity.clone()))
    }

    fn connect_timeout(&self) -> Duration {
        self.settings.connect_timeout
    }
}

/// Task on a leased connection.
type Work<T> = Box<dyn for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<T, Error>> + Send>;

/// Sends the statements and collects the rows of each. Of the set with records only those within
/// `budget` are kept. The others are dropped on arrival, because the sets after them are needed.
///
/// # Errors
/// See [`Fault`]. [`SourceError::Timeout`] at the deadline.
pub(crate) async fn query(
    lease: Lease,
    sql: String,
    (records, budget): (Records, Arc<RowBudget>),
    deadline: Instant,
) -> Result<(Vec<Set>, Room), Fault> {
    run(lease, Box::new(move |conn| Box::pin(sets(conn, sql, records, budget))), deadline).await
}

/// Runs the task on the pool's runtime. The connection returns to the pool or is closed, even if
/// this future is dropped.
///
/// # Errors
/// Same as [`query`].
pub(crate) async fn run<T: Send + 'static>(
    mut lease: Lease,
    work: Work<T>,
    deadline: Instant,
) -> Result<T, Fault> {
    let (reply_tx, reply_rx) = oneshot::channel();
    let runtime = lease.pool().runtime().clone();
    runtime.spawn(async move {
        let done = timeout_at(deadline + GRACE, work(&mut lease.connection.conn)).await;
        let outcome = match done {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(e)) => Err(fault(&e)),
            Err(_) => {
                lease.pool().outage().failed(
                    "the server does not answer, and it did not end a query at its time limit",
                );
                Err(Fault::Gone(SourceError::timeout("the server did not answer")))
            }
        };
        let usable = match &outcome {
            Ok(_) => true,
            Err(Fault::Gone(_)) => false,
            // The statements after the failed one did not run, so a transaction may be open.
            Err(Fault::Query(_) | Fault::Stale(_)) => {
                let rollback = lease.connection.conn.query_drop("ROLLBACK");
                matches!(timeout(GRACE, rollback).await, Ok(Ok(())))
            }
        };
        if usable {
            lease.release();
        }
        // The send fails if the caller is gone.
        drop(reply_tx.send(outcome));
    });
    match timeout_at(deadline, reply_rx).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(Fault::Gone(SourceError::unavailable("the readers have stopped"))),
        Err(_) => Err(Fault::Query(SourceError::timeout("the query exceeded its time limit"))),
    }
}

async fn sets(
    conn: &mut Conn,
    sql: String,
    records: Records,
    budget: Arc<RowBudget>,
) -> Result<(Vec<Set>, Room), Error> {
    let mut result = conn.query_iter(sql).await?;
    let mut sets: Vec<Set> = Vec::with_capacity(4);
    let mut room = Room::Taken;
    loop {
        let columns = result.columns();
        let mut rows = Vec::new();
        if sets.len() == records.at {
            let mut kept = RecordRows::new(&budget, records.form);
            while let Some(row) = result.next().await? {
                kept.push(row);
            }
            (rows, room) = kept.end();
        } else {
            while let Some(row) = result.next().await? {
                rows.push(row);
            }
        }
        sets.push((columns, rows));
        if result.is_empty() {
            return Ok((sets, room));
        }
    }
}

/// Classifies an error of the driver. Source: MySQL 8.0 error reference; MariaDB documentation,
/// "MariaDB Error Codes".
pub(crate) fn fault(e: &Error) -> Fault {
    let detail = full_text(e);
    let Error::Server(server) = e else { return Fault::Gone(SourceError::unavailable(detail)) };
    match server.code {
        // Time limit (MariaDB, MySQL); interrupted; lock wait timeout.
        1969 | 3024 | 1317 | 1205 => Fault::Query(SourceError::timeout(detail)),
        // Unknown database, table, column or index; no privilege to read a table or a column;
        // illegal mix of collations; the definition changed after the snapshot.
        1049 | 1146 | 1054 | 1176 | 1142 | 1143 | 1267 | 1271 | 1412 => {
            Fault::Stale(SourceError::broken(detail))
        }
        // Shutting down; killed; too many connections; out of resources; deadlock.
        1053 | 1927 | 1928 | 1040 | 1041 | 1037 | 1038 | 1152 | 1159 | 1161 | 1213 | 3169 => {
            Fault::Gone(SourceError::unavailable(detail))
        }
        _ => Fault::Query(SourceError::broken(detail)),
    }
}
