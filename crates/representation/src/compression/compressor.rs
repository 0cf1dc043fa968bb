//! The thread that compresses, and its queue.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use hotrow_cache::{Attached, Cache, ContentCoding, Record};
use hotrow_source::ReadFailure;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::encode::encode;

/// Most bytes of bodies that wait or are being compressed. They may have left the cache, so that
/// their memory is bounded here. At least the largest record.
const QUEUE_BYTES_MAX: u64 = 32 << 20;

/// What became of a variant that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compressed {
    /// Its entry has it.
    Stored,
    /// It would save too little.
    NotSmaller,
    /// Its record is gone.
    Superseded,
    /// The entry with it is larger than any shard of the cache accepts.
    TooLarge,
    /// The queue was full; the next request may ask again.
    Dropped,
}

impl Compressed {
    const ALL: [Self; 5] =
        [Self::Stored, Self::NotSmaller, Self::Superseded, Self::TooLarge, Self::Dropped];

    fn label(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::NotSmaller => "not_smaller",
            Self::Superseded => "superseded",
            Self::TooLarge => "too_large",
            Self::Dropped => "dropped",
        }
    }
}

/// Queue of records to compress, with counts.
#[derive(Debug, Default)]
pub struct Compressor {
    jobs: Mutex<VecDeque<Job>>,
    /// Of all jobs, the one in progress included. Changed with the lock held when it grows.
    queued_bytes: AtomicU64,
    bell: Notify,
    /// By [`Compressed`].
    counts: [AtomicU64; Compressed::ALL.len()],
}

/// A variant to make.
#[derive(Debug)]
struct Job {
    record: Record,
    coding: ContentCoding,
}

impl Job {
    fn bytes(&self) -> u64 {
        self.record.body().len() as u64
    }
}

impl Compressor {
    /// Queues the making of a variant, or drops it if there is no room.
    pub fn offer(&self, record: &Record, coding: ContentCoding) {
        let job = Job { record: record.clone(), coding };
        let bytes = job.bytes();
        let has_room = || self.queued_bytes.load(Ordering::Relaxed) + bytes <= QUEUE_BYTES_MAX;
        // Without the lock first: many workers may find the queue full.
        if has_room() {
            let mut jobs = self.jobs.lock();
            if has_room() {
                self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
                jobs.push_back(job);
                drop(jobs);
                self.bell.notify_one();
                return;
            }
        }
        record.postpone_variant(coding);
        self.count(Compressed::Dropped);
    }

    fn count(&self, outcome: Compressed) {
        self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the bytes that wait or are being compressed.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes.load(Ordering::Relaxed)
    }

    /// Returns the counts with their labels.
    pub fn counts(&self) -> [(&'static str, u64); Compressed::ALL.len()] {
        Compressed::ALL
            .map(|outcome| (outcome.label(), self.counts[outcome as usize].load(Ordering::Relaxed)))
    }

    /// Carries out the oldest job. `false` if there is none.
    fn step(&self, cache: &Cache<ReadFailure>) -> bool {
        let Some(job) = self.jobs.lock().pop_front() else { return false };
        let _taken = JobBytes { queued_bytes: &self.queued_bytes, bytes: job.bytes() };
        self.count(make(cache, &job));
        true
    }
}

/// Returns the bytes of a job when it ends, however it ends.
struct JobBytes<'a> {
    queued_bytes: &'a AtomicU64,
    bytes: u64,
}

impl Drop for JobBytes<'_> {
    fn drop(&mut self) {
        self.queued_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn make(cache: &Cache<ReadFailure>, job: &Job) -> Compressed {
    let Job { record, coding } = job;
    let Some(bytes) = encode(record.body(), *coding) else {
        record.refuse_variant(*coding);
        return Compressed::NotSmaller;
    };
    match cache.attach_variant(record, *coding, &bytes) {
        Attached::Stored => Compressed::Stored,
        Attached::Superseded => Compressed::Superseded,
        Attached::TooLarge => {
            record.refuse_variant(*coding);
            Compressed::TooLarge
        }
    }
}

/// Starts the thread that compresses until everything must end.
pub fn start(
    compressor: Arc<Compressor>,
    cache: Arc<Cache<ReadFailure>>,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<JoinHandle<Option<()>>> {
    let ending = shutdown.clone();
    let shutdown = shutdown.clone();
    let failed = Arc::clone(&compressor);
    let after_failure = move || failed.bell.notify_one();
    supervisor.spawn(
        "compress",
        move || ending.is_ending(),
        after_failure,
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            runtime.block_on(async {
                tokio::select! {
                    () = shutdown.ending() => {}
                    never = serve(&compressor, &cache) => match never {},
                }
            });
            Ok(())
        },
    )
}

async fn serve(compressor: &Compressor, cache: &Cache<ReadFailure>) -> Infallible {
    loop {
        supervisor::turn();
        if compressor.step(cache) {
            // The end may have been requested.
            tokio::task::yield_now().await;
        } else {
            compressor.bell.notified().await;
        }
    }
}

#[cfg(test)]
mod tests;
