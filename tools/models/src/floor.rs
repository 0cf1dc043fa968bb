//! Floors: lower bounds of a model's run time, before the cost of locks and context switches. They
//! follow from the sleeps, the measured CPU time of one request, and the order of the ids.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::work::{Expected, Pause, Scale};

/// Distance between ids that sleep.
const SLEEP_STEP: u64 = 500;

/// Shortest possible run time of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// In s.
    pub seconds: f64,
    /// The reason, in words.
    pub by: String,
}

/// A model's use of threads, as far as its floor depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloorRule {
    /// Groups of so many requests; each is complete before the next starts.
    Batches(u64),
    /// So many threads, each with one request at a time, asleep or not.
    Threads(u64),
    /// As `Threads`, but requests run in any order: the longest sleep may come first.
    AnyOrder(u64),
    /// A sleeping request takes no thread; so many threads run.
    Free(u64),
}

/// Inputs of a floor.
#[derive(Clone, Copy, Debug)]
pub struct FloorInputs {
    /// Requests.
    pub requests: u64,
    /// Length of the sleeps.
    pub scale: Scale,
    /// CPU time of one request.
    pub request_cpu: Duration,
    /// CPUs.
    pub cores: u64,
}

impl FloorRule {
    /// Returns the floor.
    #[must_use]
    pub fn floor(self, inputs: &FloorInputs) -> Floor {
        let cpu_s = inputs.request_cpu.as_secs_f64();
        let work_s = cpu_s * inputs.requests as f64;
        let slept_s = Expected::of(inputs.requests, inputs.scale).slept.as_secs_f64();
        let running = |threads: u64| threads.clamp(1, inputs.cores.max(1)) as f64;
        let floor = |seconds, by: &str| Floor { seconds, by: by.to_owned() };
        let (found, rest) = match self {
            Self::Batches(size) => {
                return floor(inputs.batches_s(size, running(size)), "the slowest of each batch");
            }
            Self::Threads(1) => {
                return floor(slept_s + work_s, "all sleep and all work, one after the other");
            }
            Self::Threads(threads) | Self::AnyOrder(threads) => {
                let shared = floor(
                    (slept_s + work_s) / threads as f64,
                    &format!("all sleep and work / {threads} threads"),
                );
                (shared, threads)
            }
            Self::Free(threads) => (floor(0.0, ""), threads),
        };
        let work = floor(work_s / running(rest), "the work / the CPUs");
        let chain = match self {
            Self::AnyOrder(_) => floor(inputs.longest_s(), "the longest sleep"),
            _ => floor(inputs.chain_s(running(rest)), "the last long sleep, started in order"),
        };
        [found, work, chain]
            .into_iter()
            .max_by(|a, b| a.seconds.total_cmp(&b.seconds))
            .unwrap_or(floor(0.0, ""))
    }
}

impl FloorInputs {
    /// Returns the longest chain, for ids in order: a request that sleeps starts after the work of
    /// all earlier ones, shared by the running threads, and does its own work around its sleep.
    fn chain_s(&self, running: f64) -> f64 {
        let cpu_s = self.request_cpu.as_secs_f64();
        let chain = |id: u64| id as f64 * cpu_s / running + self.sleep_s(id) + cpu_s;
        (0..self.requests).step_by(SLEEP_STEP as usize).map(chain).fold(0.0, f64::max)
    }

    /// Returns the duration of the longest request alone.
    fn longest_s(&self) -> f64 {
        let longest = (0..self.requests)
            .step_by(SLEEP_STEP as usize)
            .map(|id| self.sleep_s(id))
            .fold(0.0, f64::max);
        longest + self.request_cpu.as_secs_f64()
    }

    /// Sums over the batches: its longest sleep, or its work if that takes longer.
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

    fn seconds(bound: FloorRule, cpu_us: u64) -> f64 {
        let request_cpu = Duration::from_micros(cpu_us);
        bound
            .floor(&FloorInputs { requests: 100_000, scale: Scale::FULL, request_cpu, cores: 2 })
            .seconds
    }

    #[test]
    fn without_work_the_floors_are_those_of_the_sleeps() {
        let near = |bound, want: f64| assert!((seconds(bound, 0) - want).abs() < 1e-9, "{bound:?}");
        near(FloorRule::Threads(1), 18.92);
        near(FloorRule::Threads(8), 18.92 / 8.0);
        near(FloorRule::Threads(100), 1.0);
        near(FloorRule::Free(1), 1.0);
        // No two sleeping requests share a batch.
        near(FloorRule::Batches(100), 18.92);
        near(FloorRule::Batches(16), 18.92);
        // Of 1,000 ids one sleeps long and one short; of all, one sleeps a second.
        near(FloorRule::Batches(1_000), 10.0 + 7.92);
        near(FloorRule::Batches(100_000), 1.0);
    }

    #[test]
    fn work_adds_to_the_floor_if_it_cannot_overlap_sleep() {
        let near = |bound, want: f64| {
            assert!((seconds(bound, 10) - want).abs() < 1e-4, "{bound:?} {}", seconds(bound, 10))
        };
        near(FloorRule::Threads(1), 18.92 + 1.0);
        near(FloorRule::Threads(2), (18.92 + 1.0) / 2.0);
        // Request 90,000 starts after 0.9 s of work, on one or two CPUs, and sleeps a second.
        near(FloorRule::Free(1), 0.9 + 1.0);
        near(FloorRule::Free(2), 0.45 + 1.0);
        near(FloorRule::Threads(100_000), 0.45 + 1.0);
        // In any order, that request may be the first.
        near(FloorRule::AnyOrder(100_000), 1.0 + 10e-6);
        near(FloorRule::AnyOrder(2), (18.92 + 1.0) / 2.0);
        // 800 batches without a sleeping request share two CPUs.
        near(FloorRule::Batches(100), 18.92 + 200.0 * 10e-6 + 800.0 * 500e-6);
        let heavy = FloorRule::Free(2).floor(&FloorInputs {
            requests: 400,
            scale: Scale::FULL,
            request_cpu: Duration::from_millis(100),
            cores: 2,
        });
        assert_eq!((heavy.seconds, heavy.by.as_str()), (20.0, "the work / the CPUs"));
    }
}
