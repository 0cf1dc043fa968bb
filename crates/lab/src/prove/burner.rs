//! Threads that take CPU time from everybody, in short slices.
//!
//! Slices fall due at an even pace, whoever else wants the CPUs. A thread that competes with sixteen others gets a
//! seventeenth of a CPU, so a slice may take long; while one is due and nobody is free to take it, there is one thread more.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// CPU time that is taken at once: many small slices meet everybody, few large ones meet one thread.
const SLICE: Duration = Duration::from_micros(800);
/// How often slices fall due.
const TICK: Duration = Duration::from_millis(2);
/// A pause of the pacing thread that is longer is not made up for.
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// What one thread takes of a CPU that nobody else wants.
const SHARE_EACH: f64 = 0.25;
/// Most threads that take slices.
const THREADS_MAX: usize = 256;

/// Burns until it is dropped.
pub(super) struct Burner {
    shared: Arc<Shared>,
    pacing: Option<JoinHandle<()>>,
    begun: Instant,
}

/// What the threads have in common.
struct Shared {
    cores: f64,
    queue: Mutex<Queue>,
    changed: Condvar,
    over: AtomicBool,
    used_ns: AtomicU64,
}

/// Slices that nobody has taken yet, and who waits for one.
#[derive(Default)]
struct Queue {
    due: usize,
    waiting: usize,
}

impl Burner {
    /// Takes so many CPUs, if it can be had.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(super) fn start(cores: f64) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            cores,
            queue: Mutex::default(),
            changed: Condvar::new(),
            over: AtomicBool::new(false),
            used_ns: AtomicU64::new(0),
        });
        let mut burner = Self { shared: shared.clone(), pacing: None, begun: Instant::now() };
        let mut threads = Vec::new();
        for index in 0..((cores / SHARE_EACH).ceil() as usize).clamp(1, THREADS_MAX) {
            match shared.worker(index) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    shared.end(threads);
                    return Err(error);
                }
            }
        }
        burner.pacing = Some(Builder::new().name("burn-pace".to_owned()).spawn(move || shared.pace(threads))?);
        Ok(burner)
    }

    /// What it has taken until now, in CPUs.
    pub(super) fn taken_cores(&self) -> f64 {
        let used = Duration::from_nanos(self.shared.used_ns.load(Ordering::Relaxed));
        used.as_secs_f64() / self.begun.elapsed().as_secs_f64().max(1e-9)
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(pacing) = self.pacing.take() {
            // It does not panic, and if it did it would burn no more.
            let _ = pacing.join();
        }
        self.shared.end(Vec::new());
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // It is whole after each of its changes.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn worker(self: &Arc<Self>, index: usize) -> io::Result<JoinHandle<()>> {
        let shared = self.clone();
        Builder::new().name(format!("burn-{index}")).spawn(move || while shared.take() {})
    }

    /// Waits for a slice and uses it; false when it is over.
    fn take(&self) -> bool {
        let mut queue = self.queue();
        queue.waiting += 1;
        while queue.due == 0 && !self.over.load(Ordering::Relaxed) {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.waiting -= 1;
        queue.due = queue.due.saturating_sub(1);
        drop(queue);
        if self.over.load(Ordering::Relaxed) {
            return false;
        }
        let begun = cpu_time();
        let mut used = Duration::ZERO;
        while used < SLICE && !self.over.load(Ordering::Relaxed) {
            std::hint::spin_loop();
            used = cpu_time().saturating_sub(begun);
        }
        self.used_ns.fetch_add(u64::try_from(used.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        true
    }

    /// Lets slices fall due, and starts threads for those that nobody takes.
    fn pace(self: Arc<Self>, mut threads: Vec<JoinHandle<()>>) {
        let (mut last, mut credit) = (Instant::now(), Duration::ZERO);
        while !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
            let now = Instant::now();
            credit += now.saturating_duration_since(last).min(PAUSE_MAX).mul_f64(self.cores);
            last = now;
            let slices = (credit.as_nanos() / SLICE.as_nanos()) as usize;
            credit -= SLICE * u32::try_from(slices).unwrap_or(u32::MAX);
            let mut queue = self.queue();
            // What nobody can take in time is lost, not a debt: at most a slice for each thread waits.
            queue.due = (queue.due + slices).min(threads.len());
            let missing = queue.due > queue.waiting && threads.len() < THREADS_MAX;
            drop(queue);
            self.changed.notify_all();
            if missing {
                // Without one more the others take what they can, which `taken_cores` tells.
                threads.extend(self.worker(threads.len()));
            }
        }
        self.end(threads);
    }

    /// Ends the threads.
    fn end(&self, threads: Vec<JoinHandle<()>>) {
        self.over.store(true, Ordering::Relaxed);
        // Who looked before waits by now: looking and waiting happen under the lock.
        drop(self.queue());
        self.changed.notify_all();
        for thread in threads {
            // They do not panic, and if one did it would burn no more.
            let _ = thread.join();
        }
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
        let most = 0.3 + 4.0 * SLICE.as_secs_f64() / took.as_secs_f64();
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
            let mut burner = Burner::start(wanted).expect("threads");
            // The first moments, until there are enough of them, do not count. Others may want the CPUs too.
            let best = (0..40).map(|_| {
                burner.begun = Instant::now();
                burner.shared.used_ns.store(0, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(300));
                burner.taken_cores()
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
