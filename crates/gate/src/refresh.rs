//! Prefetch: hot records are read again as soon as they change, before the next request.
//!
//! The feed's thread queues the reads in the cache and notifies; a separate thread executes them,
//! merged like all reads. Requests that arrive in the meantime join them.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};
use hotrow_types::key::CollectionId;
use tokio::sync::Notify;

use crate::read::{Fetcher, lead};

/// Collections with queued reads that have no leader yet.
#[derive(Debug)]
pub struct Refresh {
    wanted: Box<[AtomicBool]>,
    bell: Notify,
}

impl Refresh {
    /// Creates it without records to read.
    pub fn new(collections: usize) -> Self {
        let wanted = (0..collections).map(|_| AtomicBool::new(false)).collect();
        Self { wanted, bell: Notify::new() }
    }

    /// Requests a leader for the queued reads of the collection.
    pub fn want(&self, CollectionId(id): CollectionId) {
        self.wanted[usize::from(id)].store(true, Ordering::Release);
        self.bell.notify_one();
    }

    /// Requests a leader for every collection.
    fn want_all(&self) {
        self.wanted.iter().for_each(|wanted| wanted.store(true, Ordering::Release));
        self.bell.notify_one();
    }
}

/// Starts the thread that executes requested reads until everything must end.
pub fn start(
    refresh: Arc<Refresh>,
    fetcher: Arc<Fetcher>,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<JoinHandle<Option<()>>> {
    let failed = Arc::clone(&refresh);
    let ending = shutdown.clone();
    let shutdown = shutdown.clone();
    let is_stopping = move || ending.is_ending();
    // Reads that the thread had begun have lost their leader.
    let after_failure = move || failed.want_all();
    supervisor.spawn("refresh", is_stopping, after_failure, move || {
        // A new runtime for each run: tasks of a failed run end, and pass on their leases.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            tokio::select! {
                () = shutdown.ending() => {}
                never = serve(&refresh, &fetcher) => match never {},
            }
        });
        Ok(())
    })
}

async fn serve(refresh: &Refresh, fetcher: &Arc<Fetcher>) -> Infallible {
    loop {
        supervisor::turn();
        for (id, wanted) in (0..).zip(&refresh.wanted) {
            if wanted.swap(false, Ordering::AcqRel) {
                lead(fetcher, CollectionId(id));
            }
        }
        refresh.bell.notified().await;
    }
}
