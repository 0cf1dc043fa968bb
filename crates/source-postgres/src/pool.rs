//! Connections of the readers: opened on demand, pooled up to a bound, all to one server.

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
use hotrow_source::SourceError;

/// First wait after a failed connect, doubled with each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// Longest wait: a server that returns is found within that time.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Interval of the checks for idle connections that are closed or lead to another server.
const PRUNE_EVERY: Duration = Duration::from_secs(1);
/// Time limit for the reuse of a connection whose query was cancelled; after that it is closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

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
    /// Used as a stack, so that connections not needed stay idle.
    idle: Vec<Connection>,
    outage: Option<Outage>,
}

/// A period in which no connection can be opened.
struct Outage {
    failures: u32,
    /// No connect before this time.
    retry_at: Instant,
    /// An open connection has answered since.
    answered: bool,
    why: Arc<str>,
}

/// One connection and its prepared statements.
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
    /// Returns a pool of at most `connections`, driven by `runtime`.
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

    /// Returns a connection for the plan, an idle one if possible.
    ///
    /// # Errors
    /// [`SourceError::Timeout`] at the deadline; [`SourceError::Unavailable`], at once during an
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
            return Ok(Lease::new(self, connection, permit, Age::Used));
        }
        self.may_connect()?;
        let (sender, receiver) = oneshot::channel();
        let pool = Arc::clone(self);
        let plan = plan.clone();
        self.runtime.spawn(async move {
            let opened = pool
                .open(&plan)
                .await
                .map(|connection| Lease::new(&pool, connection, permit, Age::New));
            // A caller may have left; the connection is then put back as idle.
            drop(sender.send(opened).map_err(|opened| opened.map(Lease::release)));
        });
        match timeout_at(deadline, receiver).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => Err(unavailable("the readers have stopped")),
            Err(_) => {
                Err(SourceError::Timeout { detail: "no connection could be opened in time".into() })
            }
        }
    }

    /// Adds a connection that was opened elsewhere, at the start.
    pub(crate) fn add(&self, session: Session) {
        let generation = self.shared.generation();
        self.state.lock().idle.push(Connection { session, generation, prepared: Vec::new() });
    }

    /// Closes idle connections to another server than the current one, for the lifetime of the
    /// pool.
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

    /// Returns the cause of the current outage.
    pub(crate) fn outage(&self) -> Option<Arc<str>> {
        let state = self.state.lock();
        state
            .outage
            .as_ref()
            .filter(|outage| !outage.answered)
            .map(|outage| Arc::clone(&outage.why))
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

    /// Returns an error during an outage, except to one caller at a time, which tries to connect.
    fn may_connect(&self) -> Result<(), SourceError> {
        let mut state = self.state.lock();
        let Some(outage) = &mut state.outage else { return Ok(()) };
        let now = Instant::now();
        if now < outage.retry_at {
            return Err(unavailable(&outage.why));
        }
        // The caller that tries delays the others for as long as trying may take.
        outage.retry_at = now + self.settings.connect_timeout;
        Ok(())
    }

    async fn open(&self, plan: &Plan) -> Result<Connection, SourceError> {
        match connect::primary(&self.target, self.settings, Some(&plan.identity)).await {
            Ok(session) => {
                self.state.lock().outage = None;
                Ok(Connection { session, generation: plan.generation, prepared: Vec::new() })
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
        // One pool makes one attempt at a time, but instances could synchronise. The process's own
        // clock spreads them.
        let jitter = 0.5 + f64::from(hotrow_measure::clock::Nanos::now().0 as u32 % 512) / 1024.0;
        let retry_at = Instant::now() + wait.mul_f64(jitter);
        state.outage = Some(Outage { failures, retry_at, answered: false, why: why.into() });
    }
}

/// Use of a connection: a used one may have died unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    New,
    Used,
}

/// A connection for one query. A drop before the query is complete cancels the query; the
/// connection is kept if it becomes usable in time.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    leased: Option<(Connection, OwnedSemaphorePermit)>,
    age: Age,
}

impl Lease {
    fn new(
        pool: &Arc<Pool>,
        connection: Connection,
        permit: OwnedSemaphorePermit,
        age: Age,
    ) -> Self {
        Self { pool: Arc::clone(pool), leased: Some((connection, permit)), age }
    }

    pub(crate) fn age(&self) -> Age {
        self.age
    }

    pub(crate) fn connection(&mut self) -> Result<&mut Connection, SourceError> {
        // Only `release` and `discard` take it; both consume the lease.
        self.leased
            .as_mut()
            .map(|(connection, _)| connection)
            .ok_or_else(|| unavailable("the connection is gone"))
    }

    pub(crate) fn generation(&self) -> Option<u64> {
        self.leased.as_ref().map(|(connection, _)| connection.generation)
    }

    /// Returns the connection to the pool. Nothing may run on it.
    pub(crate) fn release(mut self) {
        if let Some((connection, permit)) = self.leased.take() {
            self.pool.put_back(connection);
            drop(permit);
        }
    }

    pub(crate) fn discard(mut self) {
        self.leased = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some((connection, permit)) = self.leased.take() {
            let pool = Arc::clone(&self.pool);
            self.pool.runtime.spawn(async move {
                pool.drain(connection).await;
                drop(permit);
            });
        }
    }
}

impl Pool {
    fn put_back(&self, connection: Connection) {
        if connection.generation == self.shared.generation() && !connection.session.is_closed() {
            let mut state = self.state.lock();
            if let Some(outage) = &mut state.outage {
                outage.answered = true;
            }
            state.idle.push(connection);
        }
    }

    /// Cancels a running query and keeps the connection if that succeeds in time.
    async fn drain(&self, connection: Connection) {
        let drained = async {
            connection.session.cancel(&self.target).await;
            // Answered after everything that was sent before it.
            connection.session.client.simple_query("").await.map(drop)
        };
        match timeout(DRAIN_TIMEOUT, drained).await {
            Ok(Ok(())) => self.put_back(connection),
            // A late cancel hit the empty query.
            Ok(Err(e)) if e.as_db_error().is_some() && !connection.session.is_closed() => {
                self.put_back(connection)
            }
            Ok(Err(_)) => {}
            Err(_) => self.record_outage("the server neither answers nor ends a cancelled query"),
        }
    }
}

impl Connection {
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
        let statement = self.session.client.prepare_typed(&plan.sql, &plan.parameters).await?;
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

pub(crate) fn unavailable(why: &str) -> SourceError {
    SourceError::Unavailable { detail: why.into() }
}

/// Class of a driver's error for a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection cannot be used any more.
    Gone(SourceError),
    /// The statement no longer fits the table, which must be inspected again.
    Stale(SourceError),
    /// An error of this query only.
    Query(SourceError),
}

/// Classifies an error of the driver. Source: PostgreSQL documentation, "Error Codes".
pub(crate) fn fault(e: &Error) -> Fault {
    let detail = full_text(e);
    let Some(db) = e.as_db_error() else { return Fault::Gone(SourceError::Unavailable { detail }) };
    match db.code().code() {
        // Query cancelled (its time-out), lock not available.
        "57014" | "55P03" => Fault::Query(SourceError::Timeout { detail }),
        // Cached plan must not change result type; unknown column, table, function, type, schema;
        // no such operator for the changed types; the prepared statement is gone; a renamed label
        // of an enum.
        "22P02" | "0A000" | "42703" | "42P01" | "42883" | "42704" | "3F000" | "42804" | "26000"
        | "42809" => Fault::Stale(SourceError::Broken { detail }),
        // A server in recovery has no end of the log.
        "55000" => Fault::Gone(SourceError::Unavailable { detail }),
        // Connection, resources, intervention, system, internal; serialization with recovery.
        code if ["08", "53", "57", "58", "XX", "40"]
            .iter()
            .any(|class| code.starts_with(class)) =>
        {
            Fault::Gone(SourceError::Unavailable { detail })
        }
        _ => Fault::Query(SourceError::Broken { detail }),
    }
}
