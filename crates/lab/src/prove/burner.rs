//! Threads that take CPU time from everybody, in short slices.
//!
//! Each sleeps by a timer of its own, so that the kernel wakes it where it was: on CPUs that are idle the slices then disturb
//! nobody. A thread that competes with sixteen others gets a seventeenth of a CPU; while less is taken than is due, there is one thread
//! more.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A thread takes its share of each stretch of this length.
const STRETCH: Duration = Duration::from_millis(4);
/// Most of a CPU that one of the first threads takes: many small slices meet everybody, few large ones meet one thread.
const SHARE_MAX: f64 = 0.25;
/// What may be due at most, in stretches: what was missed before is a part of the time, not a debt.
const DUE_MAX: f64 = 2.0;
/// How often it is looked whether enough is taken, in stretches.
const LOOK: u32 = 3;
/// Less than this part of what was to be taken since the last look is not enough.
const ENOUGH: f64 = 0.85;
/// Most threads.
const THREADS_MAX: usize = 256;

/// Burns until it is dropped.
pub(super) struct Burner {
    shared: Arc<Shared>,
    begun: Instant,
}

/// What the threads have in common.
struct Shared {
    cores: f64,
    /// What a thread takes at once.
    slice: Duration,
    over: AtomicBool,
    used_ns: AtomicU64,
    due: Mutex<Due>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// CPU time that is to be taken by now.
struct Due {
    time: Duration,
    at: Instant,
}

impl Burner {
    /// Takes so many CPUs, if they can be had.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(super) fn start(cores: f64) -> io::Result<Self> {
        let count = ((cores / SHARE_MAX).ceil() as usize).clamp(1, THREADS_MAX);
        let begun = Instant::now();
        let shared = Arc::new(Shared {
            cores,
            slice: STRETCH.mul_f64((cores / count as f64).clamp(0.0, 1.0)),
            over: AtomicBool::new(false),
            used_ns: AtomicU64::new(0),
            due: Mutex::new(Due { time: Duration::ZERO, at: begun }),
            threads: Mutex::default(),
        });
        // From here on it ends its threads when it is dropped.
        let burner = Self { shared, begun };
        for first in (0..count).map(|index| index == 0) {
            burner.shared.add(first)?;
        }
        Ok(burner)
    }

    /// What it has taken until now, in CPUs.
    pub(super) fn taken_cores(&self) -> f64 {
        self.shared.used().as_secs_f64() / self.begun.elapsed().as_secs_f64().max(1e-9)
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // The first, which adds others, looks at `over` under the same lock.
        let threads = std::mem::take(&mut *self.shared.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // They do not panic, and if one did it would burn no more.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn used(&self) -> Duration {
        Duration::from_nanos(self.used_ns.load(Ordering::Relaxed))
    }

    /// One thread more, of those that look (`first`) or of the others. None is added once it is over.
    fn add(self: &Arc<Self>, first: bool) -> io::Result<()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if self.over.load(Ordering::Relaxed) || threads.len() >= THREADS_MAX {
            return Ok(());
        }
        let (shared, name) = (self.clone(), format!("burn-{}", threads.len()));
        threads.push(Builder::new().name(name).spawn(move || shared.run(first))?);
        Ok(())
    }

    /// Uses what is due of its slices, one in each stretch.
    fn run(self: Arc<Self>, first: bool) {
        let (mut looked, mut used_before) = (Instant::now(), Duration::ZERO);
        while !self.over.load(Ordering::Relaxed) {
            let next = Instant::now() + STRETCH;
            self.burn(self.claim());
            if first && looked.elapsed() >= STRETCH * LOOK {
                let used = self.used();
                let wanted = looked.elapsed().mul_f64(self.cores * ENOUGH);
                if used.saturating_sub(used_before) < wanted {
                    // Without it the others take what they can, which `taken_cores` tells.
                    let _ = self.add(false);
                }
                (looked, used_before) = (Instant::now(), used);
            }
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    /// A slice, or what is left of what is due.
    fn claim(&self) -> Duration {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let most = STRETCH.mul_f64(DUE_MAX * self.cores);
        due.time = (due.time + now.saturating_duration_since(due.at).mul_f64(self.cores)).min(most);
        due.at = now;
        let slice = self.slice.min(due.time);
        due.time -= slice;
        slice
    }

    fn burn(&self, slice: Duration) {
        let begun = cpu_time();
        let mut used = Duration::ZERO;
        while used < slice && !self.over.load(Ordering::Relaxed) {
            std::hint::spin_loop();
            used = cpu_time().saturating_sub(begun);
        }
        self.used_ns.fetch_add(u64::try_from(used.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until the burner has used so much; false after a minute.
    fn used(burner: &Burner, time: Duration) -> bool {
        let begun = Instant::now();
        while burner.shared.used_ns.load(Ordering::Relaxed) < time.as_nanos() as u64 {
            if begun.elapsed() > Duration::from_secs(60) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// On a busy machine it gets less, never more.
    #[test]
    fn it_takes_no_more_than_it_was_asked_to() {
        let burner = Burner::start(0.3).expect("threads");
        assert!(used(&burner, Duration::from_millis(60)));
        let (taken, took) = (burner.taken_cores(), burner.begun.elapsed());
        // Slices that are under way may be a little longer each.
        let most = 0.3 + 4.0 * STRETCH.as_secs_f64() / took.as_secs_f64();
        assert!(taken > 0.0 && taken <= most * 1.1, "{taken} of a CPU in {took:?}");
    }

    /// One among many who want the same CPUs would get a small part of one.
    #[test]
    fn among_many_it_becomes_many() {
        let over = AtomicBool::new(false);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        std::thread::scope(|scope| {
            for _ in 0..cores * 12 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let wanted = 0.2 * cores as f64;
            let burner = Burner::start(wanted).expect("threads");
            // The first moments, until there are enough of them, do not count. Others may want the CPUs too.
            let best = (0..40).map(|_| {
                let (before, begun) = (burner.shared.used(), Instant::now());
                std::thread::sleep(Duration::from_millis(300));
                (burner.shared.used() - before).as_secs_f64() / begun.elapsed().as_secs_f64()
            });
            let enough = best.into_iter().any(|taken| taken > 0.75 * wanted);
            over.store(true, Ordering::Relaxed);
            assert!(enough, "never three quarters of {wanted} CPUs");
        });
    }

    #[test]
    fn it_ends_when_it_is_dropped() {
        let burner = Burner::start(0.4).expect("threads");
        let shared = burner.shared.clone();
        assert!(!shared.over.load(Ordering::Relaxed));
        drop(burner);
        // Its threads held the others.
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
