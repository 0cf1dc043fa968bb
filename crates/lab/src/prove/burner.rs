//! Threads that take CPU time from everybody, in short slices.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A thread takes its share of each stretch of this length.
const STRETCH: Duration = Duration::from_millis(4);
/// Most of a CPU that one thread takes.
const SHARE_MAX: f64 = 0.5;
/// Most threads.
const THREADS_MAX: usize = 256;

/// Burns until it is dropped.
pub(super) struct Burner {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Burner {
    /// Takes so many CPUs, at most 128.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(super) fn start(cores: f64) -> io::Result<Self> {
        // A quarter of a CPU each: many small slices meet everybody, few large ones meet one thread.
        let count = ((cores / 0.25).ceil() as usize).clamp(1, THREADS_MAX);
        let share = (cores / count as f64).clamp(0.0, SHARE_MAX);
        let mut burner = Self { over: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        for index in 0..count {
            let over = burner.over.clone();
            let thread = Builder::new().name(format!("burn-{index}")).spawn(move || burn(share, &over))?;
            burner.threads.push(thread);
        }
        Ok(burner)
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It does not panic, and if it did it would burn no more.
            let _ = thread.join();
        }
    }
}

/// Uses its share of each stretch, or as much of it as the others leave until the stretch is over.
fn burn(share: f64, over: &AtomicBool) {
    let slice = STRETCH.mul_f64(share);
    let mut next = Instant::now();
    while !over.load(Ordering::Relaxed) {
        let (begun, until) = (cpu_time(), next + STRETCH);
        while cpu_time().saturating_sub(begun) < slice && Instant::now() < until {
            std::hint::spin_loop();
        }
        // What was missed is not made up for: it is a part of the time, not a debt.
        next = until.max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a busy machine it gets less, never more.
    #[test]
    fn it_takes_no_more_than_its_share_and_ends() {
        let before = process_cpu_time();
        let begun = Instant::now();
        let burner = Burner::start(0.4).expect("threads");
        std::thread::sleep(Duration::from_millis(500));
        drop(burner);
        let (used, took) = (process_cpu_time().saturating_sub(before), begun.elapsed());
        // Other tests of this process run beside it: only that there was something can be said of the least.
        assert!(used >= Duration::from_millis(5), "{used:?} in {took:?}");
    }

    fn process_cpu_time() -> Duration {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
    }
}
