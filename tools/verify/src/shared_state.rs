//! State shared by writers and readers during a run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::observation::Position;
use crate::random::Random;

/// Recently changed keys that readers prefer.
const RECENT: usize = 8;
/// Most commit positions offered to readers.
const COMMITS_MAX: usize = 32;
/// Longest sleep without checking the stop flags.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// Keys or values that were changed last.
#[derive(Debug, Default)]
struct RecentIds {
    ids: [AtomicU32; RECENT],
    cursor: AtomicUsize,
}

impl RecentIds {
    fn add(&self, id: u32) {
        let at = self.cursor.fetch_add(1, Ordering::Relaxed) % RECENT;
        self.ids[at].store(id, Ordering::Relaxed);
    }

    fn one(&self, random: &mut Random) -> Option<u32> {
        let back = random.below(4).min(random.below(4)) as usize + 1;
        let at = self.cursor.load(Ordering::Relaxed).wrapping_add(RECENT - back);
        Some(self.ids[at % RECENT].load(Ordering::Relaxed)).filter(|id| *id != 0)
    }
}

/// State shared by all threads of a run.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    recent: RecentIds,
    recent_values: RecentIds,
    /// The log of positions, known from a response; 0 before.
    log: AtomicU64,
    commits: Mutex<VecDeque<(u64, u32)>>,
    log_went_back: AtomicBool,
    writers_stop: AtomicBool,
    readers_stop: AtomicBool,
}

impl SharedState {
    /// Records that a writer is about to change the key, or just has.
    pub(crate) fn touched(&self, key: u32) {
        self.recent.add(key);
    }

    /// Records the same of a value of the alias.
    pub(crate) fn touched_value(&self, value: u32) {
        self.recent_values.add(value);
    }

    /// Returns a key that was or will be changed about now; `None` before the first.
    pub(crate) fn recent(&self, random: &mut Random) -> Option<u32> {
        self.recent.one(random)
    }

    /// Returns such a value.
    pub(crate) fn recent_value(&self, random: &mut Random) -> Option<u32> {
        self.recent_values.one(random)
    }

    /// Records the log named by a response.
    pub(crate) fn saw_log(&self, log: u64) {
        self.log.store(log, Ordering::Relaxed);
    }

    /// Records that the database's log began anew: positions of two logs do not compare, and
    /// instances may follow the old one still. From here on no commit has a position.
    pub(crate) fn log_went_back(&self) {
        let mut commits = lock(&self.commits);
        self.log_went_back.store(true, Ordering::Relaxed);
        commits.clear();
    }

    /// Returns whether it did.
    pub(crate) fn has_log_gone_back(&self) -> bool {
        self.log_went_back.load(Ordering::Relaxed)
    }

    /// Records that the log up to this point contains a commit of this key.
    pub(crate) fn committed(&self, at: u64, key: u32) {
        let mut commits = lock(&self.commits);
        if self.has_log_gone_back() {
            return;
        }
        if commits.len() == COMMITS_MAX {
            commits.pop_front();
        }
        commits.push_back((at, key));
    }

    /// Returns the position of a recent commit, and a key that it changed.
    pub(crate) fn commit(&self, random: &mut Random) -> Option<(Position, u32)> {
        let log = Some(self.log.load(Ordering::Relaxed)).filter(|log| *log != 0)?;
        let commits = lock(&self.commits);
        let (at, key) = *commits.get(random.below(commits.len() as u64) as usize)?;
        Some((Position { log, at }, key))
    }

    /// Returns the position of the newest commit, if one is known.
    pub(crate) fn newest_commit(&self) -> Option<u64> {
        lock(&self.commits).iter().map(|(at, _)| *at).max()
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

    /// Sleeps until a time, or until `stopped` returns true.
    pub(crate) fn sleep_until(until: Instant, stopped: impl Fn() -> bool) {
        while !stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(SLEEP_MAX));
        }
    }
}

/// Locks. After a panic the data is consistent: no lock is held across a fallible operation.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Back-off that doubles with each consecutive failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackOff {
    next: Duration,
}

/// Range of the pause.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(10)..Duration::from_millis(500);

impl BackOff {
    pub(crate) fn new() -> Self {
        Self { next: PAUSE.start }
    }

    pub(crate) fn succeeded(&mut self) {
        self.next = PAUSE.start;
    }

    /// Returns the end of the pause that starts now.
    pub(crate) fn failed(&mut self) -> Instant {
        let until = Instant::now() + self.next;
        self.next = (self.next * 2).min(PAUSE.end);
        until
    }
}
