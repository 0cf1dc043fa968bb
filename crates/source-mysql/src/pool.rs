//! Connection pool of the readers: bounded, opened on demand and reused, all to one server.
//!
//! A query runs to its end on the pool's own runtime, even if its caller is gone: this protocol can
//! cancel a query only by closing the connection.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Row as DatabaseRow, Value};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::connect::{self, ConnectError, Session, Settings, full_text};
use super::plan::Set;
use super::shared::{Plan, Shared};
use super::target::Target;
use hotrow_source::{BoxFuture, Room, RowBudget, SourceError};

/// First delay after a failed attempt to connect. It doubles with each further failure.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// Longest delay, and thus the longest time until a server that is back is found.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Interval between two checks of the idle connections.
const PRUNE_EVERY: Duration = Duration::from_secs(1);
/// Time that a query may run beyond its caller's deadline, because the server ends it by itself.
/// Afterwards its connection is closed.
const GRACE: Duration = Duration::from_secs(2);

/// Connection pool of the readers.
pub(crate) struct Pool {
    target: Target,
    settings: Settings,
    shared: Arc<Shared>,
    runtime: Handle,
    /// One permit for each connection that is in use or being opened.
    permits: Arc<Semaphore>,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// Idle connections, the most recently used last. That one is used next, so surplus ones stay
    /// idle.
    idle: Vec<Connection>,
    outage: Option<Outage>,
}

/// Period in which no connection could be opened.
struct Outage {
    failures: u32,
    /// Time of the next attempt.
    retry_at: Instant,
    /// True if an open connection has answered since the outage began.
    answered: bool,
    why: Arc<str>,
}

pub(crate) struct Connection {
    pub(crate) session: Session,
    generation: u64,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("hosts", &self.target.hosts).finish_non_exhaustive()
    }
}

impl Pool {
    /// Creates a pool of at most `connections`, driven by `runtime`.
    pub(crate) fn new(
        target: Target,
        settings: Settings,
        shared: Arc<Shared>,
        runtime: Handle,
        connections: usize,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS)));
        Self { target, settings, shared, runtime, permits, state: Mutex::default() }
    }

    /// Returns the database of tables that are named without one.
    pub(crate) fn database(&self) -> &str {
        &self.target.database
    }

    /// Returns a connection for the plan, an idle one if possible.
    ///
    /// # Errors
    /// [`SourceError::Timeout`] at the deadline, and [`SourceError::Unavailable`] at once during an
    /// outage.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        plan: &Plan,
        deadline: Instant,
    ) -> Result<Lease, SourceError> {
        let permit = match timeout_at(deadline, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(unavailable("the readers have stopped")),
            Err(_) => {
                return Err(SourceError::Timeout {
                    detail: "no connection was free in time".into(),
                });
            }
        };
        if let Some(connection) = self.take_idle(plan.generation) {
            return Ok(Lease {
                pool: Arc::clone(self),
                connection,
                _permit: permit,
                age: Age::Used,
            });
        }
        self.check_backoff()?;
        let (reply_tx, reply_rx) = oneshot::channel();
        let pool = Arc::clone(self);
        let plan = plan.clone();
        self.runtime.spawn(async move {
            let opened = pool.open(&plan).await;
            let leased = opened.map(|connection| Lease {
                pool: Arc::clone(&pool),
                connection,
                _permit: permit,
                age: Age::New,
            });
            // If the caller is gone, the connection becomes idle.
            drop(reply_tx.send(leased).map_err(|refused| refused.map(Lease::release)));
        });
        match timeout_at(deadline, reply_rx).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => Err(unavailable("the readers have stopped")),
            Err(_) => {
                Err(SourceError::Timeout { detail: "no connection could be opened in time".into() })
            }
        }
    }

    /// Adds a connection that was opened at the start.
    pub(crate) fn adopt(&self, session: Session) {
        let generation = self.shared.generation();
        self.state.lock().idle.push(Connection { session, generation });
    }

    /// Closes idle connections to other servers than the current one until the pool is dropped. The
    /// task runs on the pool's runtime, as closing a connection requires.
    pub(crate) async fn keep_pruned(pool: Weak<Self>) {
        let mut every = tokio::time::interval(PRUNE_EVERY);
        loop {
            every.tick().await;
            match pool.upgrade() {
                Some(pool) => pool.prune(),
                None => return,
            }
        }
    }

    fn prune(&self) {
        let generation = self.shared.generation();
        self.state
            .lock()
            .idle
            .retain(|c| c.generation == generation && !c.session.conn.is_disconnected());
    }

    /// Returns the reason of the current outage.
    pub(crate) fn outage(&self) -> Option<Arc<str>> {
        let state = self.state.lock();
        state
            .outage
            .as_ref()
            .filter(|outage| !outage.answered)
            .map(|outage| Arc::clone(&outage.why))
    }

    fn take_idle(&self, generation: u64) -> Option<Connection> {
        // Connections of older generations are left to `prune`, which runs where they can be
        // closed.
        let mut state = self.state.lock();
        let at = state
            .idle
            .iter()
            .rposition(|c| c.generation == generation && !c.session.conn.is_disconnected())?;
        Some(state.idle.remove(at))
    }

    /// Fails at once during an outage, but for one attempt at a time.
    fn check_backoff(&self) -> Result<(), SourceError> {
        let mut state = self.state.lock();
        let Some(outage) = &mut state.outage else { return Ok(()) };
        let now = Instant::now();
        if now < outage.retry_at {
            return Err(unavailable(&outage.why));
        }
        // The attempt defers those of other callers for as long as it may take.
        outage.retry_at = now + self.settings.connect_timeout;
        Ok(())
    }

    async fn open(&self, plan: &Plan) -> Result<Connection, SourceError> {
        match connect::primary(&self.target, self.settings, Some(&plan.identity)).await {
            Ok(session) => {
                self.state.lock().outage = None;
                Ok(Connection { session, generation: plan.generation })
            }
            Err(errors) => {
                let why = errors.iter().map(ConnectError::to_string).collect::<Vec<_>>().join("; ");
                self.record_outage(&why);
                Err(unavailable(&why))
            }
        }
    }

    fn record_outage(&self, why: &str) {
        let mut state = self.state.lock();
        let failures = state.outage.as_ref().map_or(0, |outage| outage.failures) + 1;
        let wait = BACKOFF_MAX.min(BACKOFF_FIRST * (1 << failures.min(8).saturating_sub(1)));
        // Spreads instances over time. A pool makes only one attempt at a time.
        let jitter = 0.5 + f64::from(hotrow_measure::clock::Nanos::now().0 as u32 % 512) / 1024.0;
        let retry_at = Instant::now() + wait.mul_f64(jitter);
        state.outage = Some(Outage { failures, retry_at, answered: false, why: why.into() });
    }

    fn keep(&self, connection: Connection) {
        if connection.generation == self.shared.generation()
            && !connection.session.conn.is_disconnected()
        {
            let mut state = self.state.lock();
            if let Some(outage) = &mut state.outage {
                outage.answered = true;
            }
            state.idle.push(connection);
        }
    }
}

/// History of a leased connection. One that was used before may have died unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    New,
    Used,
}

/// Connection that is leased for one task.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    connection: Connection,
    /// Held until the connection is idle again or closed.
    _permit: OwnedSemaphorePermit,
    pub(crate) age: Age,
}

/// Task on a leased connection.
type Work<T> = Box<dyn for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<T, Error>> + Send>;

impl Lease {
    pub(crate) fn generation(&self) -> u64 {
        self.connection.generation
    }

    /// Returns the connection to the pool. Requires that every query on it has ended well.
    pub(crate) fn release(self) {
        self.pool.keep(self.connection);
    }

    /// Sends the statements and collects the rows of each. Of the set at `rows_at` only rows within
    /// `budget` are kept. The others are dropped on arrival, because the sets after them are
    /// needed.
    ///
    /// # Errors
    /// See [`Fault`]. [`SourceError::Timeout`] at the deadline.
    pub(crate) async fn query(
        self,
        sql: String,
        (rows_at, budget): (usize, Arc<RowBudget>),
        deadline: Instant,
    ) -> Result<(Vec<Set>, Room), Fault> {
        self.run(Box::new(move |conn| Box::pin(sets(conn, sql, rows_at, budget))), deadline).await
    }

    /// Runs the task on the pool's runtime. The connection returns to the pool or is closed, even
    /// if this future is dropped.
    ///
    /// # Errors
    /// Same as [`Self::query`].
    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: Work<T>,
        deadline: Instant,
    ) -> Result<T, Fault> {
        let (reply_tx, reply_rx) = oneshot::channel();
        let runtime = self.pool.runtime.clone();
        runtime.spawn(async move {
            let mut lease = self;
            let done = timeout_at(deadline + GRACE, work(&mut lease.connection.session.conn)).await;
            let outcome = match done {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(e)) => Err(fault(&e)),
                Err(_) => {
                    lease.pool.record_outage(
                        "the server does not answer, and it did not end a query at its time limit",
                    );
                    Err(Fault::Connection(timed_out("the server did not answer")))
                }
            };
            let usable = match &outcome {
                Ok(_) => true,
                Err(Fault::Connection(_)) => false,
                // The statements after the failed one did not run, so a transaction may be open.
                Err(Fault::Query(_) | Fault::Stale(_)) => {
                    let conn = &mut lease.connection.session.conn;
                    matches!(timeout(GRACE, conn.query_drop("ROLLBACK")).await, Ok(Ok(())))
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
            Ok(Err(_)) => Err(Fault::Connection(unavailable("the readers have stopped"))),
            Err(_) => Err(Fault::Query(timed_out("the query exceeded its time limit"))),
        }
    }
}

async fn sets(
    conn: &mut Conn,
    sql: String,
    rows_at: usize,
    budget: Arc<RowBudget>,
) -> Result<(Vec<Set>, Room), Error> {
    let mut result = conn.query_iter(sql).await?;
    let mut sets: Vec<Set> = Vec::with_capacity(4);
    let mut room = Room::Taken;
    loop {
        let columns = result.columns();
        let mut rows = Vec::new();
        while let Some(row) = result.next().await? {
            let is_counted = sets.len() == rows_at;
            if is_counted && room == Room::Taken {
                room = budget.take(bytes_of(&row));
            }
            if !is_counted || room == Room::Taken {
                rows.push(row);
            }
        }
        sets.push((columns, rows));
        if result.is_empty() {
            return Ok((sets, room));
        }
    }
}

/// Returns the bytes of a row's values, which arrive as text.
fn bytes_of(row: &DatabaseRow) -> usize {
    let value = |at: usize| match row.as_ref(at) {
        Some(Value::Bytes(bytes)) => bytes.len(),
        _ => 0,
    };
    (0..row.len()).map(value).sum()
}

pub(crate) fn unavailable(why: &str) -> SourceError {
    SourceError::Unavailable { detail: why.into() }
}

fn timed_out(what: &str) -> SourceError {
    SourceError::Timeout { detail: what.into() }
}

/// Consequence of a driver error for a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection is unusable.
    Connection(SourceError),
    /// The statement no longer fits the table, which must be inspected again.
    Stale(SourceError),
    /// Only this query failed.
    Query(SourceError),
}

/// Classifies an error of the driver. Source: MySQL 8.0 error reference; MariaDB documentation,
/// "MariaDB Error Codes".
pub(crate) fn fault(e: &Error) -> Fault {
    let detail = full_text(e);
    let Error::Server(server) = e else {
        return Fault::Connection(SourceError::Unavailable { detail });
    };
    match server.code {
        // Time limit (MariaDB, MySQL); interrupted; lock wait timeout.
        1969 | 3024 | 1317 | 1205 => Fault::Query(SourceError::Timeout { detail }),
        // Unknown database, table, column or index; no privilege to read a table or a column;
        // illegal mix of collations; the definition changed after the snapshot.
        1049 | 1146 | 1054 | 1176 | 1142 | 1143 | 1267 | 1271 | 1412 => {
            Fault::Stale(SourceError::Broken { detail })
        }
        // Shutting down; killed; too many connections; out of resources; deadlock.
        1053 | 1927 | 1928 | 1040 | 1041 | 1037 | 1038 | 1152 | 1159 | 1161 | 1213 | 3169 => {
            Fault::Connection(SourceError::Unavailable { detail })
        }
        _ => Fault::Query(SourceError::Broken { detail }),
    }
}
