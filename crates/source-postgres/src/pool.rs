//! Connections of the readers, and their prepared statements.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::{Error, Statement};

use super::connect::{self, Session, Settings};
use super::error::full_text;
use super::plan::ReadPlan;
use super::server::Identity;
use super::shared::{Plan, Shared};
use super::stream::ConnectError;
use super::target::Target;
use hotrow_source::attempts::Fault;
use hotrow_source::pool::{self, Age, OpenError};
use hotrow_source::{SourceError, preflight};

/// Time limit for the reuse of a connection whose query was cancelled; after that it is closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Server of the readers' connections: the primary, or a standby of it.
pub(crate) struct Connector {
    pub(crate) target: Target,
    pub(crate) settings: Settings,
    pub(crate) shared: Arc<Shared>,
    pub(crate) is_standby: bool,
}

pub(crate) type Pool = pool::Pool<Connector>;

/// One connection and its prepared statements.
pub(crate) struct Connection {
    pub(crate) session: Session,
    prepared: Vec<Option<(Arc<ReadPlan>, Statement)>>,
    is_of_standby: bool,
    /// A transaction of several statements is open: the connection must not be used again.
    pub(crate) is_in_transaction: bool,
}

impl pool::Connector for Connector {
    type Identity = Identity;
    type Connection = Connection;

    async fn open(&self, identity: &Identity) -> Result<Connection, OpenError> {
        let Self { target, settings, is_standby, .. } = self;
        let opened = match is_standby {
            false => connect::primary(target, *settings, Some(identity)).await.map(Connection::new),
            true => connect::standby(target, *settings, identity).await.map(Connection::of_standby),
        };
        opened.map_err(|errors| OpenError {
            is_login: errors.iter().any(ConnectError::is_login),
            why: preflight::joined(&errors),
        })
    }

    fn is_closed(connection: &Connection) -> bool {
        connection.session.is_closed()
    }

    fn generation(&self) -> u64 {
        self.shared.published.generation()
    }

    fn current(&self) -> Option<(u64, Identity)> {
        let plan = self.shared.published.plan().ok()?;
        Some((plan.generation, plan.identity))
    }

    fn connect_timeout(&self) -> Duration {
        self.settings.connect_timeout
    }
}

/// A connection for one query. A drop before the query is complete cancels the query; the
/// connection is kept if it becomes usable in time.
pub(crate) struct Lease(Option<pool::Lease<Connector>>);

impl Lease {
    /// Leases a connection to the server of the plan.
    ///
    /// # Errors
    /// Same as [`pool::Pool::lease`].
    pub(crate) async fn new(
        pool: &Arc<Pool>,
        plan: &Plan,
        deadline: Instant,
    ) -> Result<Self, SourceError> {
        let lease = pool.lease(plan.generation, &plan.identity, deadline).await?;
        Ok(Self(Some(lease)))
    }

    pub(crate) fn age(&self) -> Age {
        self.0.as_ref().map_or(Age::New, pool::Lease::age)
    }

    pub(crate) fn connection(&mut self) -> Result<&mut Connection, SourceError> {
        // Only `release` and `discard` take it; both consume the lease.
        let lease = self.0.as_mut();
        lease
            .map(|lease| &mut lease.connection)
            .ok_or_else(|| SourceError::unavailable("the connection is gone"))
    }

    pub(crate) fn generation(&self) -> Option<u64> {
        self.0.as_ref().map(pool::Lease::generation)
    }

    /// Ends the transaction of a snapshot batch after an error. A connection on which that fails
    /// is not used again.
    pub(crate) async fn roll_back(&mut self, deadline: Instant) {
        if let Ok(connection) = self.connection()
            && connection.is_in_transaction
        {
            let ended = connection.session.client.batch_execute("ROLLBACK");
            connection.is_in_transaction = !matches!(timeout_at(deadline, ended).await, Ok(Ok(())));
        }
    }

    /// Returns the connection to the pool. Nothing may run on it.
    pub(crate) fn release(mut self) {
        if let Some(lease) = self.0.take().filter(|lease| !lease.connection.is_in_transaction) {
            lease.release();
        }
    }

    pub(crate) fn discard(mut self) {
        self.0 = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(lease) = self.0.take() {
            let runtime = lease.pool().runtime().clone();
            runtime.spawn(drain(lease));
        }
    }
}

/// Cancels a running query and keeps the connection if that succeeds in time.
async fn drain(lease: pool::Lease<Connector>) {
    let session = &lease.connection.session;
    let drained = async {
        session.cancel(&lease.pool().connector().target).await;
        // Answered after everything that was sent before it.
        session.client.simple_query("").await.map(drop)
    };
    match timeout(DRAIN_TIMEOUT, drained).await {
        // Dropped, it ends its transaction.
        Ok(_) if lease.connection.is_in_transaction => {}
        Ok(Ok(())) => lease.release(),
        // A late cancel hit the empty query.
        Ok(Err(e)) if e.as_db_error().is_some() && !session.is_closed() => lease.release(),
        Ok(Err(_)) => {}
        Err(_) => {
            let why = "the server neither answers nor ends a cancelled query";
            lease.pool().outage().failed(why);
        }
    }
}

impl Connection {
    pub(crate) fn new(session: Session) -> Self {
        Self { session, prepared: Vec::new(), is_of_standby: false, is_in_transaction: false }
    }

    pub(crate) fn of_standby(session: Session) -> Self {
        Self { is_of_standby: true, ..Self::new(session) }
    }

    /// Returns the statement of a collection, prepared on this connection for exactly this plan.
    ///
    /// # Errors
    /// An error of the driver.
    pub(crate) async fn prepared(
        &mut self,
        collection: usize,
        plan: &Arc<ReadPlan>,
    ) -> Result<Statement, Error> {
        if self.prepared.len() <= collection {
            self.prepared.resize_with(collection + 1, || None);
        }
        if let Some(Some((prepared_plan, statement))) = self.prepared.get(collection)
            && Arc::ptr_eq(prepared_plan, plan)
        {
            return Ok(statement.clone());
        }
        // The driver closes the old statement on the server when it is dropped.
        self.prepared[collection] = None;
        let sql = if self.is_of_standby { &plan.standby_sql } else { &plan.sql };
        let statement = self.session.client.prepare_typed(sql, &plan.parameters).await?;
        self.prepared[collection] = Some((Arc::clone(plan), statement.clone()));
        Ok(statement)
    }

    /// Drops the prepared statement of a collection.
    pub(crate) fn drop_prepared(&mut self, collection: usize) {
        if let Some(slot) = self.prepared.get_mut(collection) {
            *slot = None;
        }
    }
}

/// Classifies an error of the driver.
pub(crate) fn fault(e: &Error) -> Fault {
    let detail = full_text(e);
    match e.code() {
        Some(state) => answered(state.code(), detail),
        None => Fault::Gone(SourceError::unavailable(detail)),
    }
}

/// Classifies an error that the server answered, by its SQLSTATE.
///
/// Source: PostgreSQL documentation, "Error Codes".
fn answered(state: &str, detail: String) -> Fault {
    match state {
        // Query cancelled (its time-out), lock not available.
        "57014" | "55P03" => Fault::Query(SourceError::timeout(detail)),
        // Cached plan must not change result type; the prepared statement is gone; unknown schema.
        "0A000" | "26000" | "3F000" => Fault::Stale(SourceError::broken(detail)),
        // Unknown column, table, function or type; other types; a renamed label of an enum. If the
        // table has not changed, an expression of its row is the cause.
        "42703" | "42P01" | "42883" | "42704" | "42804" | "42809" | "22P02" => {
            Fault::Stale(SourceError::data(detail))
        }
        // The user lacks a privilege, which concerns all rows.
        "42501" => Fault::Query(SourceError::broken(detail)),
        // A server in recovery has no end of the log.
        "55000" => Fault::Gone(SourceError::unavailable(detail)),
        // A damaged row or entry of an index. The rest of the class is unknown.
        "XX001" | "XX002" => Fault::Query(SourceError::data(detail)),
        _ => match state.get(..2).unwrap_or_default() {
            // Cardinality, data, constraint; routines; definitions; errors raised in PL/pgSQL.
            "21" | "22" | "23" | "2F" | "38" | "39" | "42" | "P0" => {
                Fault::Query(SourceError::data(detail))
            }
            // Connection, resources, intervention, system, internal; conflict with recovery.
            "08" | "53" | "57" | "58" | "XX" | "40" => {
                Fault::Gone(SourceError::unavailable(detail))
            }
            _ => Fault::Query(SourceError::broken(detail)),
        },
    }
}

/// Returns whether the server rejected a key because no text of the database's encoding has its
/// characters: untranslatable character, character not in the repertoire.
pub(crate) fn is_unrepresentable(e: &Error) -> bool {
    e.code().is_some_and(|state| matches!(state.code(), "22P05" | "22021"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_errors_has_its_consequence() {
        let detail = || "as the test says".to_owned();
        let gone = Fault::Gone(SourceError::unavailable(detail()));
        let stale = Fault::Stale(SourceError::broken(detail()));
        let stale_data = Fault::Stale(SourceError::data(detail()));
        let data = Fault::Query(SourceError::data(detail()));
        let broken = Fault::Query(SourceError::broken(detail()));
        let table: [(&Fault, &[&str]); 6] = [
            (&Fault::Query(SourceError::timeout(detail())), &["57014", "55P03"]),
            (&stale, &["0A000", "26000", "3F000"]),
            (&stale_data, &["42703", "42P01", "42883", "42704", "42804", "42809", "22P02"]),
            (
                &data,
                &[
                    "XX001", "XX002", "21000", "22003", "22012", "22P05", "22021", "23502",
                    "2F003", "38000", "39000", "42846", "42P22", "P0001",
                ],
            ),
            (
                &gone,
                &[
                    "08006", "53100", "53200", "53300", "57P01", "57P03", "58030", "XX000",
                    "40001", "55000",
                ],
            ),
            // Privileges, limits of the program, and what is unknown.
            (&broken, &["42501", "54001", "0L000", "ZZ999", ""]),
        ];
        for (expected, states) in table {
            for state in states {
                assert_eq!(&answered(state, detail()), expected, "{state}");
            }
        }
    }
}
