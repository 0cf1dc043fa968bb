//! State that writers, readers and the test share while they run.

use std::net::SocketAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::contract::rows::Random;
use hotrow_testkit::harness::{SOON, await_until};
use hotrow_verify::history::Ns;

/// Number of changed keys that readers follow.
const RECENT: usize = 8;

/// State shared by all threads of a run.
pub(crate) struct Board {
    start: Instant,
    recent: [AtomicU32; RECENT],
    cursor: AtomicUsize,
    /// The change log's end after the newest commit that returned.
    pub(crate) newest_at: AtomicU64,
    /// Added to the sequence numbers of a log that restarted at 0, so that positions still grow.
    pub(crate) log_base: AtomicU64,
    /// The log's id as read from the first answer; 0 before.
    pub(crate) log: AtomicU64,
    /// Reads over HTTP.
    pub(crate) reads: AtomicU64,
    /// Reads over the Redis protocol, copies included.
    pub(crate) redis_reads: AtomicU64,
    /// Reads that near caches answered, by mode: default, broadcast.
    pub(crate) copies: [AtomicU64; 2],
    /// Connections of near caches that ended.
    pub(crate) connections_lost: AtomicU64,
    pub(crate) changes: AtomicU64,
    stop_writers: AtomicBool,
    stop_readers: AtomicBool,
    pause: AtomicBool,
    paused: AtomicUsize,
    instances: RwLock<Vec<Instance>>,
}

/// An instance that readers may query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instance {
    /// Grows with each start, because a new process makes no promise about an old one's answers.
    pub(crate) id: u16,
    pub(crate) data: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// `None`: it does not serve the Redis protocol.
    pub(crate) redis: Option<SocketAddr>,
}

impl Board {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            recent: Default::default(),
            cursor: AtomicUsize::new(0),
            newest_at: AtomicU64::new(0),
            log_base: AtomicU64::new(0),
            log: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            redis_reads: AtomicU64::new(0),
            copies: Default::default(),
            connections_lost: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            stop_writers: AtomicBool::new(false),
            stop_readers: AtomicBool::new(false),
            pause: AtomicBool::new(false),
            paused: AtomicUsize::new(0),
            instances: RwLock::default(),
        }
    }

    /// Returns the time since the run began.
    pub(crate) fn now(&self) -> Ns {
        // 64 bits of nanoseconds are more than 500 years.
        self.start.elapsed().as_nanos() as Ns
    }

    /// Records a key that a writer is about to change, or has just changed.
    pub(crate) fn mark_recent(&self, key: u32) {
        let at = self.cursor.fetch_add(1, Ordering::Relaxed) % RECENT;
        self.recent[at].store(key, Ordering::Relaxed);
    }

    /// Returns a key that was just changed or is about to change.
    pub(crate) fn recent(&self, random: &mut Random) -> u32 {
        let back = random.below(4).min(random.below(4)) as usize + 1;
        let at = self.cursor.load(Ordering::Relaxed) + RECENT - back;
        self.recent[at % RECENT].load(Ordering::Relaxed)
    }

    pub(crate) fn add_instance(&self, instance: Instance) {
        self.instances.write().expect("no panics here").push(instance);
    }

    pub(crate) fn instances(&self) -> Vec<Instance> {
        self.instances.read().expect("no panics here").clone()
    }

    pub(crate) fn stop_writers(&self) {
        self.stop_writers.store(true, Ordering::Release);
    }

    pub(crate) fn stop_readers(&self) {
        self.stop_readers.store(true, Ordering::Release);
    }

    pub(crate) fn readers_stopped(&self) -> bool {
        self.stop_readers.load(Ordering::Acquire)
    }

    /// Called between two transactions of a writer: waits while writers are paused. Returns false
    /// when the writer must end.
    pub(crate) fn may_write(&self) -> bool {
        if self.pause.load(Ordering::Acquire) {
            self.paused.fetch_add(1, Ordering::AcqRel);
            while self.pause.load(Ordering::Acquire) && !self.stop_writers.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.paused.fetch_sub(1, Ordering::AcqRel);
        }
        !self.stop_writers.load(Ordering::Acquire)
    }

    /// Waits until all of `writers` are between transactions; they start no new one until resumed.
    pub(crate) fn pause_writers(&self, writers: usize) {
        self.pause.store(true, Ordering::Release);
        await_until("the writers to pause", SOON, || {
            self.paused.load(Ordering::Acquire) == writers
        });
    }

    pub(crate) fn resume_writers(&self) {
        self.pause.store(false, Ordering::Release);
    }
}
