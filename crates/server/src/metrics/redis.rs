//! Counts of the Redis protocol: commands by outcome, and connections.

use std::sync::Arc;

use hotrow_measure::counter::Counter;

use super::{CacheOutcome, Exposition, Labels, WorkerMetrics};
use crate::redis::COMMAND_LABELS as COMMANDS;

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisOutcome {
    /// All records came from memory.
    Hit,
    /// A record was read from the database for it.
    Miss,
    /// It shared another request's read.
    Coalesced,
    /// A record was past its bound, and `redis.allow_stale` is set.
    Stale,
    /// A record was read past the cache.
    Bypass,
    /// It has nothing to do with records.
    None,
    /// An error.
    Error,
}

const OUTCOMES: [&str; 7] = ["hit", "miss", "coalesced", "stale", "bypass", "none", "error"];

impl From<CacheOutcome> for RedisOutcome {
    fn from(outcome: CacheOutcome) -> Self {
        match outcome {
            CacheOutcome::Hit => Self::Hit,
            CacheOutcome::Miss => Self::Miss,
            CacheOutcome::Coalesced => Self::Coalesced,
            CacheOutcome::Stale => Self::Stale,
            CacheOutcome::Bypass => Self::Bypass,
            CacheOutcome::None => Self::None,
        }
    }
}

/// Counters of one worker.
#[derive(Debug, Default)]
pub struct RedisMetrics {
    /// By command, then by outcome.
    commands: [[Counter; OUTCOMES.len()]; COMMANDS.len()],
    /// Connections that were opened.
    pub accepted: Counter,
    /// Those of them that have ended.
    pub closed: Counter,
    /// Connections that ended because their input was no command.
    pub protocol_errors: Counter,
}

impl RedisMetrics {
    /// Counts one reply. `command`: its index in the order of the labels.
    #[inline]
    pub(crate) fn count(&self, command: usize, outcome: RedisOutcome) {
        if let Some(outcomes) = self.commands.get(command) {
            outcomes[outcome as usize].increment();
        }
    }

    /// Returns the approximate number of open connections.
    fn open(&self) -> u64 {
        // `closed` is read first: never fewer than none.
        let closed = self.closed.get();
        self.accepted.get().saturating_sub(closed)
    }
}

/// Returns the open connections of all `workers`.
pub(crate) fn open(workers: &[Arc<WorkerMetrics>]) -> u64 {
    workers.iter().map(|worker| worker.redis.open()).sum()
}

/// Writes the sums over `workers`.
pub(crate) fn expose(workers: &[Arc<WorkerMetrics>], out: &mut Exposition) {
    let sum = |read: &dyn Fn(&RedisMetrics) -> u64| {
        workers.iter().map(|worker| read(&worker.redis)).sum::<u64>()
    };
    let mut series = Vec::new();
    for (i, command) in COMMANDS.iter().enumerate() {
        for (j, outcome) in OUTCOMES.iter().enumerate() {
            let count = sum(&|redis: &RedisMetrics| redis.commands[i][j].get());
            if count > 0 {
                series.push(([("command", *command), ("outcome", *outcome)], count));
            }
        }
    }
    let series: Vec<(Labels<'_>, u64)> =
        series.iter().map(|(labels, count)| (&labels[..], *count)).collect();
    out.counter(
        "hotrow_redis_commands_total",
        "Commands of the Redis protocol answered, by command and outcome.",
        &series,
    );
    out.gauge(
        "hotrow_redis_connections",
        "Connections of the Redis protocol open.",
        &[(&[], open(workers))],
    );
    out.counter(
        "hotrow_redis_connections_accepted_total",
        "Connections of the Redis protocol accepted and served.",
        &[(&[], sum(&|redis: &RedisMetrics| redis.accepted.get()))],
    );
    out.counter(
        "hotrow_redis_protocol_errors_total",
        "Connections of the Redis protocol ended because their input was no command.",
        &[(&[], sum(&|redis: &RedisMetrics| redis.protocol_errors.get()))],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_by_name_and_outcome() {
        let workers = [Arc::new(WorkerMetrics::default()), Arc::new(WorkerMetrics::default())];
        let get = COMMANDS.iter().position(|command| *command == "get").unwrap();
        for worker in &workers {
            worker.redis.count(get, CacheOutcome::Hit.into());
            worker.redis.count(COMMANDS.len() - 1, RedisOutcome::Error);
            worker.redis.count(COMMANDS.len(), RedisOutcome::Error);
            (0..3).for_each(|_| worker.redis.accepted.increment());
            worker.redis.closed.increment();
        }
        let mut page = Exposition::default();
        expose(&workers, &mut page);
        let page = page.into_text();
        for line in [
            "hotrow_redis_commands_total{command=\"get\",outcome=\"hit\"} 2",
            "hotrow_redis_commands_total{command=\"unknown\",outcome=\"error\"} 2",
            "hotrow_redis_connections 4",
            "hotrow_redis_connections_accepted_total 6",
        ] {
            assert!(page.contains(line), "{page}");
        }
    }
}
