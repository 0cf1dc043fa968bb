//! Floors: what no run of a kind can beat, whatever its locks and switches cost. They follow from the sleeps, from the CPU
//! time of one request as it was measured on this machine, and from the order of the ids.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::work::{Expected, Pause, Scale};

/// Ids between two that sleep.
const SLEEP_STEP: u64 = 500;

/// The shortest time that a model can take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// In s.
    pub seconds: f64,
    /// What makes it.
    pub by: String,
}

/// How a model uses threads, as far as its floor depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Groups of so many requests; each must be complete before the next begins.
    Batches(u64),
    /// So many threads, each with one request at a time, asleep or not.
    Threads(u64),
    /// The same, but the requests are taken in any order: the longest sleep may be the first.
    AnyOrder(u64),
    /// A request that sleeps takes no thread; so many threads run.
    Free(u64),
}

/// What the floors follow from.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// Requests.
    pub requests: u64,
    /// Length of the sleeps.
    pub scale: Scale,
    /// CPU time of one request.
    pub request_cpu: Duration,
    /// CPUs.
    pub cores: u64,
}

impl Bound {
    /// The floor.
    #[must_use]
    pub fn floor(self, given: &Given) -> Floor {
        let cpu_s = given.request_cpu.as_secs_f64();
        let work_s = cpu_s * given.requests as f64;
        let slept_s = Expected::of(given.requests, given.scale).slept.as_secs_f64();
        let running = |threads: u64| threads.clamp(1, given.cores.max(1)) as f64;
        let floor = |seconds, by: &str| Floor { seconds, by: by.to_owned() };
        let (found, rest) = match self {
            Self::Batches(size) => return floor(given.batches_s(size, running(size)), "the slowest of each batch"),
            Self::Threads(1) => return floor(slept_s + work_s, "all sleep and all work, one after the other"),
            Self::Threads(threads) | Self::AnyOrder(threads) => {
                let shared =
                    floor((slept_s + work_s) / threads as f64, &format!("all sleep and work / {threads} threads"));
                (shared, threads)
            }
            Self::Free(threads) => (floor(0.0, ""), threads),
        };
        let work = floor(work_s / running(rest), "the work / the CPUs");
        let chain = match self {
            Self::AnyOrder(_) => floor(given.longest_s(), "the longest sleep"),
            _ => floor(given.chain_s(running(rest)), "the last long sleep, begun in its turn"),
        };
        [found, work, chain].into_iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds)).unwrap_or(floor(0.0, ""))
    }
}

impl Given {
    /// Ids come in order: one that sleeps begins after the work of all before it, which so many threads share, and its own work is
    /// done around its sleep. The longest of these chains.
    fn chain_s(&self, running: f64) -> f64 {
        let cpu_s = self.request_cpu.as_secs_f64();
        let chain = |id: u64| id as f64 * cpu_s / running + self.sleep_s(id) + cpu_s;
        (0..self.requests).step_by(SLEEP_STEP as usize).map(chain).fold(0.0, f64::max)
    }

    /// The longest request alone.
    fn longest_s(&self) -> f64 {
        let longest = (0..self.requests).step_by(SLEEP_STEP as usize).map(|id| self.sleep_s(id)).fold(0.0, f64::max);
        longest + self.request_cpu.as_secs_f64()
    }

    /// Batch after batch: its longest sleep, or its work when that takes longer.
    fn batches_s(&self, size: u64, running: f64) -> f64 {
        let (cpu_s, size) = (self.request_cpu.as_secs_f64(), size.max(1));
        let batches = (0..self.requests).step_by(usize::try_from(size).unwrap_or(usize::MAX));
        let batch = |first: u64| {
            let end = first.saturating_add(size).min(self.requests);
            let sleepers = (first.next_multiple_of(SLEEP_STEP)..end).step_by(SLEEP_STEP as usize);
            let sleep_s = sleepers.map(|id| self.sleep_s(id) + cpu_s).fold(0.0, f64::max);
            sleep_s.max((end - first) as f64 * cpu_s / running)
        };
        batches.map(batch).sum()
    }

    fn sleep_s(&self, id: u64) -> f64 {
        match self.scale.pause(id) {
            Pause::Sleep(length) => length.as_secs_f64(),
            Pause::None | Pause::Yield => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(bound: Bound, cpu_us: u64) -> f64 {
        let request_cpu = Duration::from_micros(cpu_us);
        bound.floor(&Given { requests: 100_000, scale: Scale::FULL, request_cpu, cores: 2 }).seconds
    }

    #[test]
    fn without_work_the_floors_are_those_of_the_sleeps() {
        let near = |bound, want: f64| assert!((seconds(bound, 0) - want).abs() < 1e-9, "{bound:?}");
        near(Bound::Threads(1), 18.92);
        near(Bound::Threads(8), 18.92 / 8.0);
        near(Bound::Threads(100), 1.0);
        near(Bound::Free(1), 1.0);
        // No two that sleep are in one batch.
        near(Bound::Batches(100), 18.92);
        near(Bound::Batches(16), 18.92);
        // Of 1,000 ids one sleeps long and one short; of all, one second.
        near(Bound::Batches(1_000), 10.0 + 7.92);
        near(Bound::Batches(100_000), 1.0);
    }

    #[test]
    fn work_comes_on_top_where_it_cannot_hide_behind_sleep() {
        let near =
            |bound, want: f64| assert!((seconds(bound, 10) - want).abs() < 1e-4, "{bound:?} {}", seconds(bound, 10));
        near(Bound::Threads(1), 18.92 + 1.0);
        near(Bound::Threads(2), (18.92 + 1.0) / 2.0);
        // The request 90,000 begins after 0.9 s of work, on one or two CPUs, and sleeps a second.
        near(Bound::Free(1), 0.9 + 1.0);
        near(Bound::Free(2), 0.45 + 1.0);
        near(Bound::Threads(100_000), 0.45 + 1.0);
        // Taken in any order, that request may be the first.
        near(Bound::AnyOrder(100_000), 1.0 + 10e-6);
        near(Bound::AnyOrder(2), (18.92 + 1.0) / 2.0);
        // 800 batches without a sleeper work on two CPUs.
        near(Bound::Batches(100), 18.92 + 200.0 * 10e-6 + 800.0 * 500e-6);
        let heavy = Bound::Free(2).floor(&Given {
            requests: 400,
            scale: Scale::FULL,
            request_cpu: Duration::from_millis(100),
            cores: 2,
        });
        assert_eq!((heavy.seconds, heavy.by.as_str()), (20.0, "the work / the CPUs"));
    }
}
