//! Connections of the readers.
//!
//! A query runs to its end on the pool's own runtime, even if its caller is gone: this protocol can
//! cancel a query only by closing the connection.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::connect::{self, ROLLBACK, Session, Settings};
use super::error::{ConnectError, full_text};
use super::plan::Records;
use super::record_rows::{RecordRows, Set};
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
pub(crate) type Work<T> =
    Box<dyn for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<T, Error>> + Send>;

/// Sends the statements and collects the rows of each. Of the set with records only those within
/// `budget` are kept. The others are dropped on arrival, because the sets after them are needed.
///
/// # Errors
/// See [`Fault`]. [`SourceError::Timeout`] at the deadline.
pub(crate) async fn query(
    lease: Lease,
    sql: String,
    records: Records,
    budget: Arc<RowBudget>,
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
            Ok(Ok(value)) => match unfit(&lease.connection.conn) {
                None => Ok(value),
                Some(why) => Err(Fault::Gone(SourceError::unavailable(why))),
            },
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
                let rollback = lease.connection.conn.query_drop(ROLLBACK);
                matches!(timeout(GRACE, rollback).await, Ok(Ok(())))
                    && unfit(&lease.connection.conn).is_none()
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

pub(crate) async fn sets(
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
            // The driver keeps the error of a later statement until it is asked for a row.
            result.next().await?;
            return Ok((sets, room));
        }
    }
}

/// Returns why a session whose statements have succeeded cannot be used, by the status of its last
/// answer. Rows that were read in an open transaction may be of any time before.
fn unfit(conn: &Conn) -> Option<&'static str> {
    let in_transaction =
        StatusFlags::SERVER_STATUS_IN_TRANS | StatusFlags::SERVER_STATUS_IN_TRANS_READONLY;
    match conn.last_ok_packet().map(mysql_async::OkPacket::status_flags) {
        Some(status) if status.intersects(in_transaction) => {
            Some("the session has an open transaction")
        }
        Some(status) if !status.contains(StatusFlags::SERVER_MORE_RESULTS_EXISTS) => None,
        Some(_) | None => Some("the server's answer was not read to its end"),
    }
}

/// Classifies an error of the driver.
pub(crate) fn fault(e: &Error) -> Fault {
    let detail = full_text(e);
    match e {
        Error::Server(server) => answered(server.code, detail),
        _ => Fault::Gone(SourceError::unavailable(detail)),
    }
}

/// Classifies an error that the server answered. One that is not listed counts as an outage.
///
/// Source: MySQL 9.7 error reference; MariaDB documentation, "MariaDB Error Codes".
fn answered(code: u16, detail: String) -> Fault {
    match code {
        // Time limit (MariaDB, MySQL); interrupted; lock wait timeout.
        1969 | 3024 | 1317 | 1205 => Fault::Query(SourceError::timeout(detail)),
        // Unknown database, table, column, function or index; no privilege to read a table, a
        // column or a view; illegal mix of collations; the definition changed after the snapshot;
        // a view whose tables or definer are gone.
        1049 | 1146 | 1054 | 1305 | 1176 | 1142 | 1143 | 1370 | 1267 | 1270 | 1271 | 1412 | 1356
        | 1449 => Fault::Stale(SourceError::broken(detail)),
        // Statements that the server does not accept at all: syntax, arguments, size of a join.
        1064 | 1582 | 1104 => Fault::Query(SourceError::broken(detail)),
        // A value that is out of range, divided by zero, truncated, wrong for its type or too long;
        // a key that a character set does not have (both servers, MariaDB, MySQL, MySQL).
        1264 | 1690 | 1365 | 1292 | 1366 | 1411 | 1406 | 1300 | 1977 | 3854 | 3988
        // Several rows where one is expected; a condition that a function or view raises; a packet
        // that is too large.
        | 1172 | 1242 | 1642..=1644 | 1153 | 1301
        // JSON that cannot be read; geometry that is damaged or out of range.
        | 3140..=3147 | 3150 | 3156 | 3157 | 1416 | 3037 | 3055 | 3616 | 3617 | 3732
        // A damaged index or table.
        | 1034 | 1194 | 1712 => Fault::Query(SourceError::data(detail)),
        // Shutting down; killed; too many connections, also of the account; out of resources, disk
        // or quota; deadlock; another primary; offline; idle for too long.
        1053 | 1927 | 1928 | 3169 | 1040 | 1203 | 1226 | 1021 | 1037 | 1038 | 1041 | 1114 | 1135
        | 1152 | 1159 | 1161 | 1213 | 1290 | 1836 | 3032 | 4031 => {
            Fault::Gone(SourceError::unavailable(detail))
        }
        _ => Fault::Query(SourceError::unavailable(detail)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_the_server_has_its_class() {
        let detail = || "as the test says".to_owned();
        let table: [(Fault, &[u16]); 6] = [
            (Fault::Query(SourceError::timeout(detail())), &[1205, 1317, 1969, 3024]),
            (
                Fault::Stale(SourceError::broken(detail())),
                &[
                    1049, 1054, 1142, 1143, 1146, 1176, 1267, 1270, 1271, 1305, 1356, 1370, 1412,
                    1449,
                ],
            ),
            (Fault::Query(SourceError::broken(detail())), &[1064, 1104, 1582]),
            (
                Fault::Query(SourceError::data(detail())),
                &[
                    1034, 1153, 1172, 1194, 1242, 1264, 1292, 1300, 1301, 1365, 1366, 1406, 1411,
                    1416, 1642, 1643, 1644, 1690, 1712, 1977, 3037, 3055, 3140, 3141, 3143, 3144,
                    3146, 3147, 3150, 3156, 3157, 3616, 3617, 3732, 3854, 3988,
                ],
            ),
            (
                Fault::Gone(SourceError::unavailable(detail())),
                &[
                    1021, 1037, 1038, 1040, 1041, 1053, 1114, 1135, 1152, 1159, 1161, 1203, 1213,
                    1226, 1290, 1836, 1927, 1928, 3032, 3169, 4031,
                ],
            ),
            // Storage engine, internal, key of encryption, not known here.
            (Fault::Query(SourceError::unavailable(detail())), &[1030, 1105, 1815, 3185, 9999]),
        ];
        for (expected, codes) in table {
            for code in codes {
                assert_eq!(answered(*code, detail()), expected, "{code}");
            }
        }
    }
}
