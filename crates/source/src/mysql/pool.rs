//! Connections of the readers: opened when needed, kept, never more than the bound, and all to one server.
//!
//! A query runs on the pool's own runtime to its end, whether or not somebody still waits for it: in this protocol the
//! only way to give a query up is to give the connection up.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::connect::{self, ConnectError, Session, Settings, full_text};
use super::plan::Set;
use super::shared::{Plan, Shared};
use super::target::Target;
use crate::{BoxFuture, ReadError};

/// First wait after a failed connect, doubled with each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// Longest wait: a server that is back is found again within that.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// How often idle connections are looked through.
const PRUNE_EVERY: Duration = Duration::from_secs(1);
/// How long a query may go on that nobody waits for any more; the server ends it by its own limit. After that its
/// connection is closed.
const GRACE: Duration = Duration::from_secs(2);

/// The readers' connections.
pub(crate) struct Pool {
    target: Target,
    settings: Settings,
    shared: Arc<Shared>,
    runtime: Handle,
    /// One for each connection that is in use or being opened.
    permits: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The one used last is used next, so that what is not needed stays cold.
    idle: Vec<Connection>,
    outage: Option<Outage>,
}

/// Since when no connection could be opened.
struct Outage {
    failures: u32,
    /// Nobody tries before.
    retry_at: Instant,
    /// Whether a connection that is open already has answered since.
    answered: bool,
    why: Arc<str>,
}

/// One connection and the generation it was opened for.
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
    /// A pool of at most `connections`, driven by `runtime`.
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

    /// The database whose tables are named without one.
    pub(crate) fn database(&self) -> &str {
        &self.target.database
    }

    /// A connection for the plan, an idle one if there is one.
    ///
    /// # Errors
    /// [`ReadError::Timeout`] at the deadline; [`ReadError::Unavailable`], at once while the server is known to be gone.
    pub(crate) async fn lease(self: &Arc<Self>, plan: &Plan, deadline: Instant) -> Result<Lease, ReadError> {
        let permit = match timeout_at(deadline, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(unavailable("the readers have stopped")),
            Err(_) => return Err(ReadError::Timeout { detail: "no connection was free in time".into() }),
        };
        if let Some(connection) = self.take_idle(plan.generation) {
            return Ok(Lease { pool: Arc::clone(self), connection, _permit: permit, age: Age::Used });
        }
        self.may_connect()?;
        let (give, take) = oneshot::channel();
        let (pool, plan) = (Arc::clone(self), plan.clone());
        self.runtime.spawn(async move {
            let opened = pool.open(&plan).await;
            let leased =
                opened.map(|connection| Lease { pool: Arc::clone(&pool), connection, _permit: permit, age: Age::New });
            // Whoever asked may be gone; the connection then goes to the idle ones.
            drop(give.send(leased).map_err(|refused| refused.map(Lease::give_back)));
        });
        match timeout_at(deadline, take).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => Err(unavailable("the readers have stopped")),
            Err(_) => Err(ReadError::Timeout { detail: "no connection could be opened in time".into() }),
        }
    }

    /// Takes in a connection that was opened elsewhere, at the start.
    pub(crate) fn adopt(&self, session: Session) {
        let generation = self.shared.generation();
        self.state.lock().idle.push(Connection { session, generation });
    }

    /// Closes idle connections that lead to another server than the current one, as long as there is a pool. What closes
    /// a connection runs on the pool's runtime.
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
        self.state.lock().idle.retain(|c| c.generation == generation && !c.session.conn.is_disconnected());
    }

    /// Why the database was out of reach when it was last asked.
    pub(crate) fn outage(&self) -> Option<Arc<str>> {
        let state = self.state.lock();
        state.outage.as_ref().filter(|outage| !outage.answered).map(|outage| Arc::clone(&outage.why))
    }

    fn take_idle(&self, generation: u64) -> Option<Connection> {
        // Those of the past are left to `prune`, which closes them where that can be done.
        let mut state = self.state.lock();
        let at = state.idle.iter().rposition(|c| c.generation == generation && !c.session.conn.is_disconnected())?;
        Some(state.idle.remove(at))
    }

    /// Whether it is worth while to try. During an outage one at a time does, the others are told at once.
    fn may_connect(&self) -> Result<(), ReadError> {
        let mut state = self.state.lock();
        let Some(outage) = &mut state.outage else { return Ok(()) };
        let now = Instant::now();
        if now < outage.retry_at {
            return Err(unavailable(&outage.why));
        }
        // Whoever tries now moves the time on for the others, for as long as trying may take.
        outage.retry_at = now + self.settings.connect_timeout;
        Ok(())
    }

    async fn open(&self, plan: &Plan) -> Result<Connection, ReadError> {
        match connect::primary(&self.target, self.settings, Some(&plan.identity)).await {
            Ok(session) => {
                self.state.lock().outage = None;
                Ok(Connection { session, generation: plan.generation })
            }
            Err(errors) => {
                let why = errors.iter().map(ConnectError::to_string).collect::<Vec<_>>().join("; ");
                self.note_outage(&why);
                Err(unavailable(&why))
            }
        }
    }

    fn note_outage(&self, why: &str) {
        let mut state = self.state.lock();
        let failures = state.outage.as_ref().map_or(0, |outage| outage.failures) + 1;
        let wait = BACKOFF_MAX.min(BACKOFF_FIRST * (1 << failures.min(8).saturating_sub(1)));
        // One pool tries once at a time, so instances alone could fall into step; the process's own clock tells them
        // apart.
        let jitter = 0.5 + f64::from(hotrow_measure::clock::Nanos::now().0 as u32 % 512) / 1024.0;
        let retry_at = Instant::now() + wait.mul_f64(jitter);
        state.outage = Some(Outage { failures, retry_at, answered: false, why: why.into() });
    }

    fn keep(&self, connection: Connection) {
        if connection.generation == self.shared.generation() && !connection.session.conn.is_disconnected() {
            let mut state = self.state.lock();
            if let Some(outage) = &mut state.outage {
                outage.answered = true;
            }
            state.idle.push(connection);
        }
    }
}

/// Whether a connection was used before: then it may have died unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    New,
    Used,
}

/// A connection for one piece of work.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    connection: Connection,
    /// Held until the connection is idle again or closed.
    _permit: OwnedSemaphorePermit,
    pub(crate) age: Age,
}

/// Work that a lease is for.
type Work<T> = Box<dyn for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<T, Error>> + Send>;

impl Lease {
    pub(crate) fn generation(&self) -> u64 {
        self.connection.generation
    }

    /// Nothing ran on it, or all that ran has ended well.
    pub(crate) fn give_back(self) {
        self.pool.keep(self.connection);
    }

    /// Sends the statements and collects what they bring, each one's rows by itself.
    ///
    /// # Errors
    /// See [`Fault`]; [`ReadError::Timeout`] at the deadline.
    pub(crate) async fn query(self, sql: String, deadline: Instant) -> Result<Vec<Set>, Fault> {
        self.run(Box::new(move |conn| Box::pin(sets(conn, sql))), deadline).await
    }

    /// Does the work on the pool's runtime. The connection goes back to the pool, or is closed, even if this is dropped.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub(crate) async fn run<T: Send + 'static>(self, work: Work<T>, deadline: Instant) -> Result<T, Fault> {
        let (give, take) = oneshot::channel();
        let runtime = self.pool.runtime.clone();
        runtime.spawn(async move {
            let mut lease = self;
            let done = timeout_at(deadline + GRACE, work(&mut lease.connection.session.conn)).await;
            let outcome = match done {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(e)) => Err(fault(&e)),
                Err(_) => {
                    lease.pool.note_outage("the server does not answer, nor does it end a query at its limit");
                    Err(Fault::Gone(timed_out("the server did not answer")))
                }
            };
            let usable = match &outcome {
                Ok(_) => true,
                Err(Fault::Gone(_)) => false,
                // What was sent after the statement that failed did not run: a transaction may be open.
                Err(Fault::Query(_) | Fault::Stale(_)) => {
                    let conn = &mut lease.connection.session.conn;
                    matches!(timeout(GRACE, conn.query_drop("ROLLBACK")).await, Ok(Ok(())))
                }
            };
            if usable {
                lease.give_back();
            }
            // Whoever asked may have given up.
            drop(give.send(outcome));
        });
        match timeout_at(deadline, take).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(Fault::Gone(unavailable("the readers have stopped"))),
            Err(_) => Err(Fault::Query(timed_out("the query took longer than it may"))),
        }
    }
}

async fn sets(conn: &mut Conn, sql: String) -> Result<Vec<Set>, Error> {
    let mut result = conn.query_iter(sql).await?;
    let mut sets = Vec::with_capacity(4);
    loop {
        let columns = result.columns();
        let mut rows = Vec::new();
        while let Some(row) = result.next().await? {
            rows.push(row);
        }
        sets.push((columns, rows));
        if result.is_empty() {
            return Ok(sets);
        }
    }
}

pub(crate) fn unavailable(why: &str) -> ReadError {
    ReadError::Unavailable { detail: why.into() }
}

fn timed_out(what: &str) -> ReadError {
    ReadError::Timeout { detail: what.into() }
}

/// What an error of the driver means for a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection is of no more use.
    Gone(ReadError),
    /// The statement no longer fits the table: look at it again.
    Stale(ReadError),
    /// This one query.
    Query(ReadError),
}

/// Sorts an error of the driver.
/// Source: MySQL 8.0 error reference; MariaDB documentation, "MariaDB Error Codes".
pub(crate) fn fault(e: &Error) -> Fault {
    let detail = full_text(e);
    let Error::Server(server) = e else { return Fault::Gone(ReadError::Unavailable { detail }) };
    match server.code {
        // A time limit (MariaDB, MySQL), interrupted, waited too long for a lock.
        1969 | 3024 | 1317 | 1205 => Fault::Query(ReadError::Timeout { detail }),
        // Unknown database, table, column, index; not allowed to read a table or a column; collations do not go together;
        // the definition changed after the snapshot.
        1049 | 1146 | 1054 | 1176 | 1142 | 1143 | 1267 | 1271 | 1412 => Fault::Stale(ReadError::Broken { detail }),
        // Shutting down; killed; too many connections; out of resources; deadlock.
        1053 | 1927 | 1928 | 1040 | 1041 | 1037 | 1038 | 1152 | 1159 | 1161 | 1213 | 3169 => {
            Fault::Gone(ReadError::Unavailable { detail })
        }
        _ => Fault::Query(ReadError::Broken { detail }),
    }
}
