//! Hot records are read again as soon as they change, before somebody asks.
//!
//! The feed's thread queues the reads in the cache and rings; a thread of their own carries them out, merged as all reads
//! are. Requests that come meanwhile join them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use hotrow_cache::key::CollectionId;
use tokio::sync::Notify;

use crate::read::lead;
use crate::shared::Shared;

/// Which collections have reads queued that nobody leads yet.
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

    /// Reads of the collection are queued: somebody has to lead them.
    pub(crate) fn want(&self, CollectionId(id): CollectionId) {
        self.wanted[usize::from(id)].store(true, Ordering::Release);
        self.bell.notify_one();
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.bell.notify_one();
    }
}

/// Starts the thread that carries out what is wanted until [`Refresh::end`].
pub(crate) fn start(shared: Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("refresh".to_owned()).spawn(move || {
        runtime.block_on(serve(&shared));
    })
}

async fn serve(shared: &Arc<Shared>) {
    loop {
        shared.refresh.bell.notified().await;
        if shared.refresh.ended.load(Ordering::Acquire) {
            return;
        }
        for (id, wanted) in (0..).zip(&shared.refresh.wanted) {
            if wanted.swap(false, Ordering::AcqRel) {
                lead(shared, CollectionId(id));
            }
        }
    }
}
