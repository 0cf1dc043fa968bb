//! Prefetch: hot records are read again as soon as they change, before the next request.
//!
//! The feed's thread queues the reads in the cache and notifies; a separate thread executes them,
//! merged like all reads. Requests that arrive in the meantime join them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use hotrow_supervisor::{self as supervisor, Supervisor};
use hotrow_types::key::CollectionId;
use tokio::sync::Notify;

use crate::read::{Fetcher, lead};

/// Collections with queued reads that have no leader yet.
#[derive(Debug)]
pub(crate) struct Refresh {
    wanted: Box<[AtomicBool]>,
    bell: Notify,
    ended: AtomicBool,
}

impl Refresh {
    pub(crate) fn new(collections: usize) -> Self {
        let wanted = (0..collections).map(|_| AtomicBool::new(false)).collect();
        Self { wanted, bell: Notify::new(), ended: AtomicBool::new(false) }
    }

    /// Requests a leader for the queued reads of the collection.
    pub(crate) fn want(&self, CollectionId(id): CollectionId) {
        self.wanted[usize::from(id)].store(true, Ordering::Release);
        self.bell.notify_one();
    }

    /// Requests a leader for every collection.
    fn want_all(&self) {
        self.wanted.iter().for_each(|wanted| wanted.store(true, Ordering::Release));
        self.bell.notify_one();
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.bell.notify_one();
    }
}

/// Starts the thread that executes requested reads until [`Refresh::end`].
pub(crate) fn start(
    refresh: Arc<Refresh>,
    fetcher: Arc<Fetcher>,
    supervisor: &Supervisor,
) -> io::Result<JoinHandle<Option<()>>> {
    let ending = Arc::clone(&refresh);
    let failed = Arc::clone(&refresh);
    let is_stopping = move || ending.has_ended();
    // Reads that the thread had begun have lost their leader.
    let after_failure = move || failed.want_all();
    supervisor.spawn("refresh", is_stopping, after_failure, move || {
        // A new runtime for each run: tasks of a failed run end, and pass on their leases.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(serve(&refresh, &fetcher));
        Ok(())
    })
}

async fn serve(refresh: &Refresh, fetcher: &Arc<Fetcher>) {
    while !refresh.has_ended() {
        supervisor::turn();
        for (id, wanted) in (0..).zip(&refresh.wanted) {
            if wanted.swap(false, Ordering::AcqRel) {
                lead(fetcher, CollectionId(id));
            }
        }
        refresh.bell.notified().await;
    }
}
