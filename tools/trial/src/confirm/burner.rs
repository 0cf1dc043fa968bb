//! Threads that consume CPU time in short slices.
//!
//! Each sleeps on a timer of its own, so the kernel wakes it on its last CPU; slices on idle CPUs
//! then disturb no other thread. A thread that competes with sixteen others gets a seventeenth of a
//! CPU, so the number of threads grows by half while less time is consumed than due.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Period in which each thread consumes its share.
const PERIOD: Duration = Duration::from_millis(4);
/// Largest share of a CPU per initial thread: many small slices affect all threads, few large ones
/// affect one.
const SHARE_MAX: f64 = 0.25;
/// Most time due at once, in periods. Missed time beyond it is dropped, and shows that there are
/// too few threads.
const DUE_MAX: f64 = 3.0;
/// Periods that new threads get before more are added.
const GROWTH_PERIODS: u32 = 3;
/// Most threads.
const THREADS_MAX: usize = 256;

/// CPU burner; stops when dropped.
pub(super) struct Burner {
    shared: Arc<Shared>,
    started: Instant,
}

/// State shared by its threads.
struct Shared {
    cores: f64,
    /// CPU time of one slice.
    slice: Duration,
    over: AtomicBool,
    used_ns: AtomicU64,
    due: Mutex<Due>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// CPU time due by now, and the last time threads were added.
struct Due {
    time: Duration,
    at: Instant,
    added: Instant,
}

impl Burner {
    /// Starts consuming `cores` CPUs, if available.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn start(cores: f64) -> io::Result<Self> {
        let count = ((cores / SHARE_MAX).ceil() as usize).clamp(1, THREADS_MAX);
        let started = Instant::now();
        let shared = Arc::new(Shared {
            cores,
            slice: PERIOD.mul_f64((cores / count as f64).clamp(0.0, 1.0)),
            over: AtomicBool::new(false),
            used_ns: AtomicU64::new(0),
            due: Mutex::new(Due { time: Duration::ZERO, at: started, added: started }),
            threads: Mutex::default(),
        });
        // From here on, dropping it ends its threads.
        let burner = Self { shared, started };
        burner.shared.add(count)?;
        Ok(burner)
    }

    /// Returns the CPUs consumed so far, on average.
    pub(super) fn taken_cores(&self) -> f64 {
        self.shared.used().as_secs_f64() / self.started.elapsed().as_secs_f64().max(1e-9)
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // Threads are added under the same lock, after a check of `over`.
        let threads = std::mem::take(
            &mut *self.shared.threads.lock().unwrap_or_else(PoisonError::into_inner),
        );
        for thread in threads {
            // They do not panic; one that did would consume nothing more.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn used(&self) -> Duration {
        Duration::from_nanos(self.used_ns.load(Ordering::Relaxed))
    }

    /// Adds threads up to the limit; none after the end.
    fn add(self: &Arc<Self>, more: usize) -> io::Result<()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let room = THREADS_MAX.saturating_sub(threads.len());
        for _ in 0..more.min(room) {
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            let (shared, name) = (self.clone(), format!("burn-{}", threads.len()));
            threads.push(Builder::new().name(name).spawn(move || shared.run())?);
        }
        Ok(())
    }

    /// Consumes due slices, one per period.
    fn run(self: Arc<Self>) {
        while !self.over.load(Ordering::Relaxed) {
            let next = Instant::now() + PERIOD;
            let (slice, missing) = self.claim();
            if missing {
                let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).len();
                // Without more threads these consume what they can, which `taken_cores` reports.
                let _ = self.add((threads / 2).max(1));
            }
            self.burn(slice);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    /// Returns a slice, or the rest of the due time, and whether the caller should add threads.
    fn claim(&self) -> (Duration, bool) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let most = PERIOD.mul_f64(DUE_MAX * self.cores);
        let all = due.time + now.saturating_duration_since(due.at).mul_f64(self.cores);
        let missing =
            all > most && now.saturating_duration_since(due.added) >= PERIOD * GROWTH_PERIODS;
        if missing {
            due.added = now;
        }
        let slice = self.slice.min(all);
        (due.time, due.at) = (all.min(most).saturating_sub(slice), now);
        (slice, missing)
    }

    fn burn(&self, slice: Duration) {
        let started = cpu_time();
        let mut used = Duration::ZERO;
        while used < slice && !self.over.load(Ordering::Relaxed) {
            std::hint::spin_loop();
            used = cpu_time().saturating_sub(started);
        }
        self.used_ns
            .fetch_add(u64::try_from(used.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until the burner has consumed `time`; false after a minute.
    fn used(burner: &Burner, time: Duration) -> bool {
        let started = Instant::now();
        while burner.shared.used_ns.load(Ordering::Relaxed) < time.as_nanos() as u64 {
            if started.elapsed() > Duration::from_secs(60) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// On a busy machine it gets less, never more, except for time that a hypervisor takes during a
    /// slice.
    #[test]
    fn it_consumes_at_most_the_requested_time() {
        let no_more = || {
            let burner = Burner::start(0.3).expect("threads");
            assert!(used(&burner, Duration::from_millis(60)));
            let (taken, took) = (burner.taken_cores(), burner.started.elapsed());
            // Running slices may be slightly longer each.
            let most = 0.3 + 8.0 * PERIOD.as_secs_f64() / took.as_secs_f64();
            println!("{taken} of a CPU in {took:?}");
            taken > 0.0 && taken <= most * 1.3
        };
        assert!((0..5).any(|_| no_more()));
    }

    /// A single thread among many competitors would get a small part of a CPU.
    #[test]
    fn threads_are_added_under_competition() {
        /// Stops the competing threads, also when the test fails.
        struct StopOnDrop<'a>(&'a AtomicBool);
        impl Drop for StopOnDrop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let over = AtomicBool::new(false);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        std::thread::scope(|scope| {
            let _ends = StopOnDrop(&over);
            for _ in 0..cores * 12 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let wanted = 0.2 * cores as f64;
            let burner = Burner::start(wanted).expect("threads");
            // The first moments, while threads are added, do not count. Other processes may compete
            // too.
            let best = (0..40).map(|_| {
                let (before, started) = (burner.shared.used(), Instant::now());
                std::thread::sleep(Duration::from_millis(300));
                (burner.shared.used() - before).as_secs_f64() / started.elapsed().as_secs_f64()
            });
            let enough = best.into_iter().any(|taken| taken > 0.75 * wanted);
            assert!(enough, "never three quarters of {wanted} CPUs");
        });
    }

    #[test]
    fn dropping_it_ends_its_threads() {
        let burner = Burner::start(0.4).expect("threads");
        let shared = burner.shared.clone();
        assert!(!shared.over.load(Ordering::Relaxed));
        drop(burner);
        // Its threads held the other references.
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
