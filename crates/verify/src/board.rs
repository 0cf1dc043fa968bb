//! What writers and readers tell each other while they run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::observation::Position;
use crate::random::Random;

/// Changed keys that readers follow.
const RECENT: usize = 8;
/// Positions of commits that readers may ask for.
const COMMITS_MAX: usize = 32;
/// Longest sleep without a look at the stop signs.
const NAP: Duration = Duration::from_millis(20);

/// Shared by all threads of a run.
#[derive(Debug, Default)]
pub(crate) struct Board {
    recent: [AtomicU32; RECENT],
    cursor: AtomicUsize,
    /// The log that positions belong to, once an answer has told it; 0 before.
    log: AtomicU64,
    commits: Mutex<VecDeque<(u64, u32)>>,
    writers_stop: AtomicBool,
    readers_stop: AtomicBool,
}

impl Board {
    /// A writer is about to change the key, or just has.
    pub(crate) fn touched(&self, key: u32) {
        let at = self.cursor.fetch_add(1, Ordering::Relaxed) % RECENT;
        self.recent[at].store(key, Ordering::Relaxed);
    }

    /// A key that was changed a moment ago or is about to be; none before the first.
    pub(crate) fn recent(&self, random: &mut Random) -> Option<u32> {
        let back = random.below(4).min(random.below(4)) as usize + 1;
        let at = self.cursor.load(Ordering::Relaxed).wrapping_add(RECENT - back);
        Some(self.recent[at % RECENT].load(Ordering::Relaxed)).filter(|key| *key != 0)
    }

    /// An answer named this log.
    pub(crate) fn saw_log(&self, log: u64) {
        self.log.store(log, Ordering::Relaxed);
    }

    /// A commit of this key is in the log up to this point.
    pub(crate) fn committed(&self, at: u64, key: u32) {
        let mut commits = lock(&self.commits);
        if commits.len() == COMMITS_MAX {
            commits.pop_front();
        }
        commits.push_back((at, key));
    }

    /// The position of a recent commit, and a key that it changed.
    pub(crate) fn commit(&self, random: &mut Random) -> Option<(Position, u32)> {
        let log = Some(self.log.load(Ordering::Relaxed)).filter(|log| *log != 0)?;
        let commits = lock(&self.commits);
        let (at, key) = *commits.get(random.below(commits.len() as u64) as usize)?;
        Some((Position { log, at }, key))
    }

    pub(crate) fn stop_writers(&self) {
        self.writers_stop.store(true, Ordering::Release);
    }

    pub(crate) fn stop_readers(&self) {
        self.readers_stop.store(true, Ordering::Release);
    }

    pub(crate) fn writers_stopped(&self) -> bool {
        self.writers_stop.load(Ordering::Acquire)
    }

    pub(crate) fn readers_stopped(&self) -> bool {
        self.readers_stop.load(Ordering::Acquire)
    }

    /// Sleeps until then, or until `stopped` says so.
    pub(crate) fn sleep_until(until: Instant, stopped: impl Fn() -> bool) {
        while !stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(NAP));
        }
    }
}

/// What a panicking thread left is still whole: no lock is held across anything that can fail half-way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pause that doubles with each failure in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackOff {
    next: Duration,
}

/// The first pause, and the longest.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(10)..Duration::from_millis(500);

impl BackOff {
    pub(crate) fn new() -> Self {
        Self { next: PAUSE.start }
    }

    pub(crate) fn succeeded(&mut self) {
        self.next = PAUSE.start;
    }

    /// The end of the pause that begins now.
    pub(crate) fn failed(&mut self) -> Instant {
        let until = Instant::now() + self.next;
        self.next = (self.next * 2).min(PAUSE.end);
        until
    }
}
