//! Connections of the readers: opened when needed, kept, never more than the bound, and all to one server.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::{Error, Statement};

use super::connect::{self, Session, Settings, full_text};
use super::plan::ReadPlan;
use super::shared::{Plan, Shared};
use super::stream::ConnectError;
use super::target::Target;
use crate::ReadError;

/// First wait after a failed connect, doubled with each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// Longest wait: a server that is back is found again within that.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// How often idle connections are looked through.
const PRUNE_EVERY: Duration = Duration::from_secs(1);
/// How long a connection whose query was given up may take until it can be used again; after that it is closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

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

/// One connection with what is prepared on it.
pub(crate) struct Connection {
    pub(crate) session: Session,
    generation: u64,
    prepared: Vec<Option<(Arc<ReadPlan>, Statement)>>,
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
            return Ok(Lease::new(self, connection, permit, Age::Used));
        }
        self.may_connect()?;
        let (give, take) = oneshot::channel();
        let (pool, plan) = (Arc::clone(self), plan.clone());
        self.runtime.spawn(async move {
            let opened = pool.open(&plan).await.map(|connection| Lease::new(&pool, connection, permit, Age::New));
            // Whoever asked may be gone; the connection then goes to the idle ones.
            drop(give.send(opened).map_err(|refused| refused.map(Lease::give_back)));
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
        self.state.lock().idle.push(Connection { session, generation, prepared: Vec::new() });
    }

    /// Closes idle connections that lead to another server than the current one, as long as there is a pool.
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
        self.state.lock().idle.retain(|c| c.generation == generation && !c.session.is_closed());
    }

    /// Why the database was out of reach when it was last asked.
    pub(crate) fn outage(&self) -> Option<Arc<str>> {
        let state = self.state.lock();
        state.outage.as_ref().filter(|outage| !outage.answered).map(|outage| Arc::clone(&outage.why))
    }

    fn take_idle(&self, generation: u64) -> Option<Connection> {
        let mut state = self.state.lock();
        while let Some(connection) = state.idle.pop() {
            if connection.generation == generation && !connection.session.is_closed() {
                return Some(connection);
            }
        }
        None
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
                Ok(Connection { session, generation: plan.generation, prepared: Vec::new() })
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
}

/// Whether a connection was used before: then it may have died unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    New,
    Used,
}

/// A connection for one query. Dropped before its query is done, the query is cancelled, and the connection is kept if
/// it becomes usable again in time.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    held: Option<(Connection, OwnedSemaphorePermit)>,
    age: Age,
}

impl Lease {
    fn new(pool: &Arc<Pool>, connection: Connection, permit: OwnedSemaphorePermit, age: Age) -> Self {
        Self { pool: Arc::clone(pool), held: Some((connection, permit)), age }
    }

    pub(crate) fn age(&self) -> Age {
        self.age
    }

    pub(crate) fn connection(&mut self) -> Result<&mut Connection, ReadError> {
        // Only `give_back` and `discard` take it, and they take the lease too.
        self.held.as_mut().map(|(connection, _)| connection).ok_or_else(|| unavailable("the connection is gone"))
    }

    pub(crate) fn generation(&self) -> Option<u64> {
        self.held.as_ref().map(|(connection, _)| connection.generation)
    }

    /// Nothing runs on it any more.
    pub(crate) fn give_back(mut self) {
        if let Some((connection, permit)) = self.held.take() {
            self.pool.keep(connection);
            drop(permit);
        }
    }

    /// It is of no more use.
    pub(crate) fn discard(mut self) {
        self.held = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((connection, permit)) = self.held.take() {
            let pool = Arc::clone(&self.pool);
            self.pool.runtime.spawn(async move {
                pool.drain(connection).await;
                drop(permit);
            });
        }
    }
}

impl Pool {
    fn keep(&self, connection: Connection) {
        if connection.generation == self.shared.generation() && !connection.session.is_closed() {
            let mut state = self.state.lock();
            if let Some(outage) = &mut state.outage {
                outage.answered = true;
            }
            state.idle.push(connection);
        }
    }

    /// Ends what still runs and keeps the connection when that succeeds in time.
    async fn drain(&self, connection: Connection) {
        let drained = async {
            connection.session.cancel(&self.target).await;
            // Answered after everything that was sent before it.
            connection.session.client.simple_query("").await.map(drop)
        };
        match timeout(DRAIN_TIMEOUT, drained).await {
            Ok(Ok(())) => self.keep(connection),
            // A cancel that came late hit the empty query.
            Ok(Err(e)) if e.as_db_error().is_some() && !connection.session.is_closed() => self.keep(connection),
            Ok(Err(_)) => {}
            Err(_) => self.note_outage("the server does not answer, nor does it end a query that was cancelled"),
        }
    }
}

impl Connection {
    /// The statement of a collection, prepared here for exactly this plan.
    ///
    /// # Errors
    /// Of the driver.
    pub(crate) async fn prepared(&mut self, collection: usize, plan: &Arc<ReadPlan>) -> Result<Statement, Error> {
        if self.prepared.len() <= collection {
            self.prepared.resize_with(collection + 1, || None);
        }
        if let Some(Some((for_plan, statement))) = self.prepared.get(collection)
            && Arc::ptr_eq(for_plan, plan)
        {
            return Ok(statement.clone());
        }
        // The old one is closed on the server when it is dropped.
        self.prepared[collection] = None;
        let statement = self.session.client.prepare_typed(&plan.sql, &plan.parameters).await?;
        self.prepared[collection] = Some((Arc::clone(plan), statement.clone()));
        Ok(statement)
    }

    /// Forgets what is prepared for a collection.
    pub(crate) fn forget(&mut self, collection: usize) {
        if let Some(slot) = self.prepared.get_mut(collection) {
            *slot = None;
        }
    }
}

pub(crate) fn unavailable(why: &str) -> ReadError {
    ReadError::Unavailable { detail: why.into() }
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
/// Source: PostgreSQL documentation, "Error Codes".
pub(crate) fn fault(e: &Error) -> Fault {
    let detail = full_text(e);
    let Some(db) = e.as_db_error() else { return Fault::Gone(ReadError::Unavailable { detail }) };
    match db.code().code() {
        // Query cancelled (its time-out), lock not available.
        "57014" | "55P03" => Fault::Query(ReadError::Timeout { detail }),
        // Cached plan must not change result type; unknown column, table, function, type, schema; no such operator for
        // the changed types; the prepared statement is gone.
        "0A000" | "42703" | "42P01" | "42883" | "42704" | "3F000" | "42804" | "26000" | "42809" => {
            Fault::Stale(ReadError::Broken { detail })
        }
        // A server in recovery has no end of the log.
        "55000" => Fault::Gone(ReadError::Unavailable { detail }),
        // Connection, resources, intervention, system, internal; serialization with recovery.
        code if ["08", "53", "57", "58", "XX", "40"].iter().any(|class| code.starts_with(class)) => {
            Fault::Gone(ReadError::Unavailable { detail })
        }
        _ => Fault::Query(ReadError::Broken { detail }),
    }
}
