//! Pool of the readers' connections: bounded, opened on demand and reused, all to one server.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, MissedTickBehavior, timeout_at};

use crate::SourceError;
use crate::background::Background;
use crate::outage::Outage;

/// Interval between two checks of the idle connections.
const PRUNE_EVERY: Duration = Duration::from_secs(1);
/// Shortest interval between two probes during an outage.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Failure to open a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    /// Reason, for the log.
    pub why: String,
    /// The server refused the credential.
    pub is_login: bool,
}

/// Way of an engine to open the connections of a pool.
pub trait Connector: Send + Sync + 'static {
    /// Server that a connection must lead to.
    type Identity: Clone + Send + Sync + 'static;
    /// An open connection.
    type Connection: Send + 'static;

    /// Opens a connection to that server, on the pool's runtime.
    ///
    /// # Errors
    /// Returns the reason.
    fn open(
        &self,
        identity: &Self::Identity,
    ) -> impl Future<Output = Result<Self::Connection, OpenError>> + Send;

    /// Returns whether the connection is known to be unusable.
    fn is_closed(connection: &Self::Connection) -> bool;

    /// Returns the current generation. Connections of other generations lead to another server or
    /// to an outdated state of this one; the pool closes them.
    fn generation(&self) -> u64;

    /// Returns the server to read at present, with its generation; `None` if nothing can be read.
    fn current(&self) -> Option<(u64, Self::Identity)>;

    /// Returns the longest duration of [`Self::open`] with one host.
    fn connect_timeout(&self) -> Duration;
}

/// Pool of connections.
pub struct Pool<C: Connector> {
    connector: C,
    runtime: Handle,
    /// One permit for each connection that is in use or being opened.
    permits: Arc<Semaphore>,
    /// Idle connections, the most recently used last. That one is used next, so surplus ones stay
    /// idle.
    idle: Mutex<Vec<Idle<C::Connection>>>,
    outage: Outage,
}

struct Idle<T> {
    connection: T,
    generation: u64,
}

impl<C: Connector> fmt::Debug for Pool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("outage", &self.outage).finish_non_exhaustive()
    }
}

impl<C: Connector> Pool<C> {
    /// Creates a pool of at most `connections`, at least one, that `background` drives. `first` is
    /// an open connection of the current generation.
    pub fn start(
        connector: C,
        first: C::Connection,
        connections: usize,
        background: &Background,
    ) -> Arc<Self> {
        Self::start_with(connector, Some(first), connections, background)
    }

    /// Like [`Pool::start`]; without a connection the first lease opens one.
    pub fn start_with(
        connector: C,
        first: Option<C::Connection>,
        connections: usize,
        background: &Background,
    ) -> Arc<Self> {
        let generation = connector.generation();
        let first = first.map(|connection| Idle { connection, generation });
        let permits = Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS));
        let pool = Arc::new(Self {
            connector,
            runtime: background.handle(),
            permits: Arc::new(permits),
            idle: Mutex::new(first.into_iter().collect()),
            outage: Outage::default(),
        });
        let pruned = Arc::downgrade(&pool);
        background.keep(move || Self::keep_pruned(Weak::clone(&pruned)));
        let probed = Arc::downgrade(&pool);
        background.keep(move || Self::keep_probing(Weak::clone(&probed)));
        pool
    }

    /// Returns a connection of this generation to that server, an idle one if possible.
    ///
    /// # Errors
    /// [`SourceError::Timeout`] at the deadline, and [`SourceError::Unavailable`] at once during an
    /// outage.
    pub async fn lease(
        self: &Arc<Self>,
        generation: u64,
        identity: &C::Identity,
        deadline: Instant,
    ) -> Result<Lease<C>, SourceError> {
        let permit = match timeout_at(deadline, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(stopped()),
            Err(_) => return Err(SourceError::timeout("no connection was free in time")),
        };
        let lease = move |pool: &Arc<Self>, connection, age| Lease {
            pool: Arc::clone(pool),
            connection,
            generation,
            age,
            _permit: permit,
        };
        if let Some(connection) = self.take_idle(generation) {
            return Ok(lease(self, connection, Age::Used));
        }
        self.outage.may_connect(self.connector.connect_timeout())?;
        let (reply_tx, reply_rx) = oneshot::channel();
        let pool = Arc::clone(self);
        let identity = identity.clone();
        self.runtime.spawn(async move {
            let opened = pool.open(&identity).await;
            let leased = opened.map(|connection| lease(&pool, connection, Age::New));
            // If the caller is gone, the connection becomes idle.
            drop(reply_tx.send(leased).map_err(|refused| refused.map(Lease::release)));
        });
        match timeout_at(deadline, reply_rx).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => Err(stopped()),
            Err(_) => Err(SourceError::timeout("no connection could be opened in time")),
        }
    }

    /// Returns the outage of the pool's server.
    pub fn outage(&self) -> &Outage {
        &self.outage
    }

    /// Returns the connector.
    pub fn connector(&self) -> &C {
        &self.connector
    }

    /// Returns the runtime that drives the connections.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Closes idle connections of other generations until the pool is dropped. Runs on the
    /// pool's runtime, as closing a connection may require.
    async fn keep_pruned(pool: Weak<Self>) {
        let mut every = tokio::time::interval(PRUNE_EVERY);
        loop {
            every.tick().await;
            match pool.upgrade() {
                Some(pool) => pool.prune(),
                None => return,
            }
        }
    }

    /// Ends an outage without a request: a balancer sends none to an instance that is not ready.
    ///
    /// An answer on the feed's connection would not prove that readers can log in.
    async fn keep_probing(pool: Weak<Self>) {
        let mut every = tokio::time::interval(PROBE_EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            match pool.upgrade() {
                Some(pool) => pool.probe().await,
                None => return,
            }
        }
    }

    /// Opens a connection as a read would, if an outage lasts and no other caller is connecting.
    /// Reads in progress that hold all permits are probes themselves.
    async fn probe(&self) {
        if self.outage.health().is_ok() {
            return;
        }
        let Some((generation, identity)) = self.connector.current() else { return };
        let Ok(_permit) = self.permits.try_acquire() else { return };
        if self.outage.may_connect(self.connector.connect_timeout()).is_err() {
            return;
        }
        // In its place, so that the pool stays within its bound. It may be dead anyway.
        drop(self.take_idle(generation));
        if let Ok(connection) = self.open(&identity).await {
            self.keep(Idle { connection, generation });
        }
    }

    fn prune(&self) {
        let generation = self.connector.generation();
        self.idle.lock().retain(|idle| idle.is_usable::<C>(generation));
    }

    fn take_idle(&self, generation: u64) -> Option<C::Connection> {
        // Connections of older generations are left to `prune`, which runs where they can be
        // closed.
        let mut idle = self.idle.lock();
        let at = idle.iter().rposition(|idle| idle.is_usable::<C>(generation))?;
        Some(idle.remove(at).connection)
    }

    async fn open(&self, identity: &C::Identity) -> Result<C::Connection, SourceError> {
        let opened = self.connector.open(identity).await;
        match &opened {
            Ok(_) => self.outage.connected(),
            Err(OpenError { why, is_login: true }) => self.outage.login_refused(why),
            Err(OpenError { why, .. }) => self.outage.failed(why),
        }
        opened.map_err(|error| SourceError::unavailable(error.why))
    }

    fn keep(&self, idle: Idle<C::Connection>) {
        if idle.is_usable::<C>(self.connector.generation()) {
            self.outage.answered();
            self.idle.lock().push(idle);
        }
    }
}

impl<T> Idle<T> {
    fn is_usable<C: Connector<Connection = T>>(&self, generation: u64) -> bool {
        self.generation == generation && !C::is_closed(&self.connection)
    }
}

fn stopped() -> SourceError {
    SourceError::unavailable("the readers have stopped")
}

/// History of a leased connection. One that was used before may have died unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Opened for this lease.
    New,
    /// Used before.
    Used,
}

/// Connection that is leased for one task. Dropping the lease closes it.
pub struct Lease<C: Connector> {
    pool: Arc<Pool<C>>,
    /// The connection.
    pub connection: C::Connection,
    generation: u64,
    age: Age,
    /// Held until the connection is idle again or closed.
    _permit: OwnedSemaphorePermit,
}

impl<C: Connector> Lease<C> {
    /// Returns the pool of the connection.
    pub fn pool(&self) -> &Arc<Pool<C>> {
        &self.pool
    }

    /// Returns the generation of the connection.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the history of the connection.
    pub fn age(&self) -> Age {
        self.age
    }

    /// Returns the connection to the pool. Requires that every query on it has ended well.
    pub fn release(self) {
        self.pool.keep(Idle { connection: self.connection, generation: self.generation });
    }
}

#[cfg(test)]
mod tests;
