//! Threads that take CPU time from everybody, in short slices.
//!
//! Each sleeps by a timer of its own, so that the kernel wakes it where it was: on CPUs that are idle the slices then disturb
//! nobody. A thread that competes with sixteen others gets a seventeenth of a CPU; while less is taken than is due, there are half
//! as many threads more.

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
/// What may be due at most, in stretches: what was missed before is a part of the time, not a debt. Beyond it there are too few threads.
const DUE_MAX: f64 = 3.0;
/// New threads get so much time, in stretches, before there are more.
const LOOK: u32 = 3;
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

/// CPU time that is to be taken by now, and when threads were last found to be too few.
struct Due {
    time: Duration,
    at: Instant,
    added: Instant,
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
            due: Mutex::new(Due { time: Duration::ZERO, at: begun, added: begun }),
            threads: Mutex::default(),
        });
        // From here on it ends its threads when it is dropped.
        let burner = Self { shared, begun };
        burner.shared.add(count)?;
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
        // Who adds others looks at `over` under the same lock.
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

    /// More threads, up to the bound; none once it is over.
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

    /// Uses what is due of its slices, one in each stretch.
    fn run(self: Arc<Self>) {
        while !self.over.load(Ordering::Relaxed) {
            let next = Instant::now() + STRETCH;
            let (slice, missing) = self.claim();
            if missing {
                let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).len();
                // Without more of them these take what they can, which `taken_cores` tells.
                let _ = self.add((threads / 2).max(1));
            }
            self.burn(slice);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    /// A slice, or what is left of what is due; and whether whoever claims should add threads.
    fn claim(&self) -> (Duration, bool) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let most = STRETCH.mul_f64(DUE_MAX * self.cores);
        let all = due.time + now.saturating_duration_since(due.at).mul_f64(self.cores);
        let missing = all > most && now.saturating_duration_since(due.added) >= STRETCH * LOOK;
        if missing {
            due.added = now;
        }
        let slice = self.slice.min(all);
        (due.time, due.at) = (all.min(most).saturating_sub(slice), now);
        (slice, missing)
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

    /// On a busy machine it gets less, never more, but for what a hypervisor takes in the middle of a slice and calls ours.
    #[test]
    fn it_takes_no_more_than_it_was_asked_to() {
        let no_more = || {
            let burner = Burner::start(0.3).expect("threads");
            assert!(used(&burner, Duration::from_millis(60)));
            let (taken, took) = (burner.taken_cores(), burner.begun.elapsed());
            // Slices that are under way may be a little longer each.
            let most = 0.3 + 8.0 * STRETCH.as_secs_f64() / took.as_secs_f64();
            println!("{taken} of a CPU in {took:?}");
            taken > 0.0 && taken <= most * 1.3
        };
        assert!((0..5).any(|_| no_more()));
    }

    /// One among many who want the same CPUs would get a small part of one.
    #[test]
    fn among_many_it_becomes_many() {
        /// Ends those who want the CPUs, also when the test fails.
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let over = AtomicBool::new(false);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        std::thread::scope(|scope| {
            let _ends = Ends(&over);
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
