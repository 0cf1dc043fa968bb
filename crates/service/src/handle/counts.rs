//! Metrics of answers, whatever protocol they are written in.

use std::cell::Cell;
use std::sync::Arc;

use hotrow_answer::metrics::{RedisOutcome, WorkerMetrics};
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::outcome::CacheOutcome;

/// Counts of one worker's answers, and of the hits of its turn.
pub struct AnswerCounts {
    pub(crate) metrics: Arc<WorkerMetrics>,
    hits_of_turn: HitsOfTurn,
    /// The same of commands.
    redis_hits_of_turn: HitsOfTurn,
}

/// Hits since the turn began, and its beginning.
#[derive(Default)]
struct HitsOfTurn(Cell<(u64, Nanos)>);

impl HitsOfTurn {
    #[inline]
    fn add(&self, since: Nanos) {
        let (hits, begun) = self.0.get();
        // A hit that waited for its turn of another kind has begun earlier.
        let begun = if hits == 0 { since } else { begun.min(since) };
        self.0.set((hits + 1, begun));
    }

    /// Ends the turn. `record` takes the time of each hit, and their number.
    fn end(&self, record: impl FnOnce(u64, u64)) {
        let (hits, since) = self.0.replace((0, Nanos(0)));
        if hits > 0 {
            record(Nanos::now().0.saturating_sub(since.0), hits);
        }
    }
}

impl AnswerCounts {
    pub(crate) fn new(metrics: Arc<WorkerMetrics>) -> Self {
        Self {
            metrics,
            hits_of_turn: HitsOfTurn::default(),
            redis_hits_of_turn: HitsOfTurn::default(),
        }
    }

    /// Hits that arrived together took the same time: one reading of the clock covers them.
    pub(crate) fn turn_ended(&self) {
        self.hits_of_turn.end(|took_ns, hits| self.metrics.hit_latency_ns.record_n(took_ns, hits));
        let redis = &self.metrics.redis;
        self.redis_hits_of_turn.end(|took_ns, hits| redis.hit_latency_ns.record_n(took_ns, hits));
    }

    /// Counts an answer over HTTP.
    #[inline]
    pub(crate) fn answered(&self, status: u16, outcome: CacheOutcome, since: Nanos) {
        self.metrics.answered(status, outcome);
        match outcome {
            CacheOutcome::Hit | CacheOutcome::Stale => self.hits_of_turn.add(since),
            CacheOutcome::Miss | CacheOutcome::Coalesced | CacheOutcome::Bypass => {
                let took_ns = Nanos::now().0.saturating_sub(since.0);
                self.metrics.miss_latency_ns.record(took_ns);
            }
            CacheOutcome::None => {}
        }
    }

    /// Counts a command: its number, and the status that it would have over HTTP.
    #[inline]
    pub(crate) fn command(&self, command: usize, status: u16, outcome: RedisOutcome, since: Nanos) {
        self.metrics.redis.count(command, outcome);
        if status >= 400 {
            self.metrics.redis.count_status(status);
        }
        match outcome {
            RedisOutcome::Hit | RedisOutcome::Stale => self.redis_hits_of_turn.add(since),
            RedisOutcome::Miss | RedisOutcome::Coalesced | RedisOutcome::Bypass => {
                let took_ns = Nanos::now().0.saturating_sub(since.0);
                self.metrics.redis.miss_latency_ns.record(took_ns);
            }
            RedisOutcome::None | RedisOutcome::Error => {}
        }
    }
}
