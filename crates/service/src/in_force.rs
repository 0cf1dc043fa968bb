//! The settings in force: one immutable [`Snapshot`], replaced as a whole.
//!
//! Each worker has a handler of its own for the snapshot (`current.rs`), so that a hit looks at
//! nothing that another thread writes. A thread without requests takes the newest snapshot when it
//! needs one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hotrow_config::Config;
use hotrow_source::sources::Sources;
use hotrow_supervisor::shutdown::{Shutdown, Stage};
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use crate::shared::Shared;

/// Interval of looking for a stop while the workers are awaited.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Settings, and the parts of the service that follow from them. Immutable.
pub struct Snapshot {
    /// The parts.
    pub shared: Shared,
    /// The settings.
    pub config: Config,
    /// Number of the snapshot, from 1.
    generation: u64,
}

/// The newest snapshot, and how far the workers are.
pub struct InForce {
    newest: Mutex<Arc<Snapshot>>,
    published: watch::Sender<u64>,
    /// By worker, the number of the snapshot by which it answers.
    taken: Box<[AtomicU64]>,
    lock: Mutex<()>,
    moved: Condvar,
}

/// Reason for which a change was not awaited to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotEverywhere {
    /// The process ends.
    #[error("the process ends")]
    Ending,
    /// A worker did not take it over in time.
    #[error(
        "worker {worker} has not taken it over within {limit:?}; it does so before its next \
             request"
    )]
    Late {
        /// The worker.
        worker: usize,
        /// The time allowed.
        limit: Duration,
    },
}

impl InForce {
    /// Puts the first settings in force.
    #[must_use]
    pub fn new(config: Config, shared: Shared) -> Arc<Self> {
        let taken = (0..config.workers).map(|_| AtomicU64::new(0)).collect();
        let snapshot = Snapshot { shared, config, generation: 1 };
        Arc::new(Self {
            newest: Mutex::new(Arc::new(snapshot)),
            published: watch::Sender::new(1),
            taken,
            lock: Mutex::default(),
            moved: Condvar::new(),
        })
    }

    /// Returns the newest snapshot.
    pub fn newest(&self) -> Arc<Snapshot> {
        Arc::clone(&self.newest.lock())
    }

    /// Returns the newest settings.
    #[must_use]
    pub fn config(&self) -> Config {
        self.newest().config.clone()
    }

    /// Returns the sources.
    pub fn sources(&self) -> Sources {
        self.newest().shared.sources.clone()
    }

    /// Returns the bytes of all entries.
    pub fn cached_bytes(&self) -> u64 {
        let Shared { collections, cache, .. } = &self.newest().shared;
        collections.ids().map(|id| cache.stats(id).bytes).sum()
    }

    /// Returns a notice of each replacement.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.published.subscribe()
    }

    /// Notes that a worker answers by this snapshot.
    pub(crate) fn taken(&self, worker: usize, snapshot: &Snapshot) {
        if let Some(taken) = self.taken.get(worker) {
            taken.store(snapshot.generation, Ordering::Release);
            let _moved = self.lock.lock();
            self.moved.notify_all();
        }
    }

    /// Replaces the settings. Wakes the workers, which take them over on their own. Called by one
    /// thread.
    pub(crate) fn replace(&self, config: Config, shared: Shared) -> u64 {
        let generation = {
            let mut newest = self.newest.lock();
            let generation = newest.generation + 1;
            *newest = Arc::new(Snapshot { shared, config, generation });
            generation
        };
        self.published.send_replace(generation);
        generation
    }

    /// Waits until every worker answers by the snapshot of this number or by a newer one.
    ///
    /// # Errors
    /// The process ends, or `limit` is over.
    pub fn everywhere(
        &self,
        generation: u64,
        limit: Duration,
        shutdown: &Shutdown,
    ) -> Result<(), NotEverywhere> {
        let until = std::time::Instant::now() + limit;
        let mut lock = self.lock.lock();
        loop {
            let behind = |taken: &AtomicU64| taken.load(Ordering::Acquire) < generation;
            let Some(worker) = self.taken.iter().position(behind) else { return Ok(()) };
            if shutdown.stage() >= Stage::Drain {
                return Err(NotEverywhere::Ending);
            }
            if std::time::Instant::now() >= until {
                return Err(NotEverywhere::Late { worker, limit });
            }
            self.moved.wait_for(&mut lock, LOOK_INTERVAL);
        }
    }
}
