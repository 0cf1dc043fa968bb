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
    threads: Vec<JoinHandle<Duration>>,
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

/// Uses its share of each stretch, or as much of it as the others leave until the stretch is over. Returns the CPU time that it used.
fn burn(share: f64, over: &AtomicBool) -> Duration {
    let slice = STRETCH.mul_f64(share);
    let (first, mut next) = (cpu_time(), Instant::now());
    let mut begun = first;
    loop {
        let until = next + STRETCH;
        while cpu_time().saturating_sub(begun) < slice && Instant::now() < until {
            std::hint::spin_loop();
        }
        // What it costs to sleep and to wake is a part of the next slice.
        begun = cpu_time();
        // What was missed is not made up for: it is a part of the time, not a debt.
        next = until.max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        if over.load(Ordering::Relaxed) {
            return cpu_time().saturating_sub(first);
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

    /// On a busy machine it gets less, never more.
    #[test]
    fn it_takes_no_more_than_its_share() {
        let (share, over) = (0.25, AtomicBool::new(false));
        let (used, took) = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(200));
                over.store(true, Ordering::Relaxed);
            });
            let begun = Instant::now();
            (burn(share, &over), begun.elapsed())
        });
        let most = took.mul_f64(share) + STRETCH.mul_f64(share);
        assert!(used > Duration::ZERO && used <= most, "{used:?} in {took:?}");
    }

    #[test]
    fn it_ends_when_it_is_dropped() {
        let burner = Burner::start(0.4).expect("threads");
        let over = burner.over.clone();
        assert!(burner.threads.len() == 2 && !over.load(Ordering::Relaxed));
        drop(burner);
        // Its threads held the others.
        assert_eq!(Arc::strong_count(&over), 1);
    }
}
