//! Sums over all workers, for the history.

use std::sync::Arc;

use hotrow_admission::shed::{Kind, Level, Priority};
use hotrow_measure::histogram::Histogram;

use super::{AccessOutcome, LIMITS, OUTCOMES, STATUSES, WorkerMetrics};

/// Counts of all workers since the start.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Requests by outcome, in the order of [`super::CacheOutcome`]. Commands of the Redis protocol
    /// that read records, or are refused, count as requests.
    pub by_outcome: [u64; OUTCOMES.len()],
    /// Requests by class of the status: 2xx, 3xx, 4xx, 5xx, another.
    pub by_status: [u64; 5],
    /// Latency of answers from memory.
    pub hits: Histogram,
    /// Latency of answers that needed the database.
    pub misses: Histogram,
    /// Bytes taken by clients.
    pub bytes_sent: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open.
    pub open: u64,
    /// Requests refused under load.
    pub shed: u64,
    /// Connections refused for their number.
    pub refused_connections: u64,
    /// Requests refused at a limit of HTTP, or as malformed.
    pub refused_requests: u64,
    /// Requests refused for their credential, or for the lack of one.
    pub refused_access: u64,
}

impl Totals {
    /// Adds up the counters of `workers`.
    pub fn of(workers: &[Arc<WorkerMetrics>]) -> Self {
        let mut totals = Self::default();
        workers.iter().for_each(|worker| totals.add(worker));
        totals
    }

    fn add(&mut self, worker: &WorkerMetrics) {
        for (i, row) in worker.requests.iter().enumerate() {
            let class = match STATUSES.get(i).map_or(0, |(status, _)| status / 100) {
                class @ 2..=5 => usize::from(class) - 2,
                _ => 4,
            };
            for (outcome, count) in row.iter().enumerate() {
                self.by_outcome[outcome] += count.get();
                self.by_status[class] += count.get();
            }
        }
        let (by_outcome, [successes, client_errors, server_errors]) = worker.redis.as_requests();
        self.by_outcome.iter_mut().zip(by_outcome).for_each(|(sum, count)| *sum += count);
        let classes = [successes, 0, client_errors, server_errors, 0];
        self.by_status.iter_mut().zip(classes).for_each(|(sum, count)| *sum += count);
        for hits in [&worker.hit_latency_ns, &worker.redis.hit_latency_ns] {
            self.hits.merge(&hits.snapshot());
        }
        for misses in [&worker.miss_latency_ns, &worker.redis.miss_latency_ns] {
            self.misses.merge(&misses.snapshot());
        }
        self.bytes_sent += worker.bytes_sent.get();
        self.accepted += worker.accepted.get();
        self.open += worker.open();
        for level in [Level::Elevated, Level::Critical] {
            for kind in Kind::ALL {
                for priority in Priority::ALL {
                    self.shed += worker.shed.get(level, kind, priority);
                }
            }
        }
        for (limit, count) in LIMITS.iter().zip(&worker.refused) {
            if limit.starts_with("connections") {
                self.refused_connections += count.get();
            } else {
                self.refused_requests += count.get();
            }
        }
        self.refused_requests += worker.redis.protocol_errors.get();
        for outcome in [
            AccessOutcome::Missing,
            AccessOutcome::Refused,
            AccessOutcome::Limited,
            AccessOutcome::NoKeys,
            AccessOutcome::Forbidden,
        ] {
            self.refused_access += worker.access.get(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::RedisOutcome;
    use hotrow_telemetry::outcome::CacheOutcome;

    #[test]
    fn requests_are_counted_once_by_outcome_and_once_by_class() {
        let workers = [Arc::new(WorkerMetrics::default()), Arc::new(WorkerMetrics::default())];
        for (status, outcome) in [
            (200, CacheOutcome::Hit),
            (304, CacheOutcome::Hit),
            (404, CacheOutcome::Miss),
            (429, CacheOutcome::None),
            (503, CacheOutcome::None),
            (505, CacheOutcome::None),
        ] {
            workers.iter().for_each(|worker| worker.answered(status, outcome));
        }
        // A command that is not served.
        workers[0].redis.count(crate::commands::LABELS.len() - 1, RedisOutcome::Error);
        workers[0].redis.count_status(405);
        workers[0].redis.hit_latency_ns.record(1);
        let totals = Totals::of(&workers);
        assert_eq!(totals.by_outcome, [4, 2, 0, 0, 0, 7]);
        // 505 is not counted by its status.
        assert_eq!(totals.by_status, [2, 2, 5, 2, 2]);
        assert_eq!(totals.hits.count(), 1);
    }
}
