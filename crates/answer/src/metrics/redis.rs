//! Counts of the Redis protocol: commands by outcome, and connections.
//!
//! Reference `metrics`: Redis protocol
//!
//! - `hotrow_redis_commands_total` (`command`, `outcome`): [Commands](redis.md): `hit`, `miss`,
//!   `coalesced`, `stale`, `bypass`; `none` (about no record), `error`.
//! - `hotrow_redis_command_duration_seconds` (`cache`): Histogram, arrival of a command that reads
//!   records to its reply, as `hotrow_http_request_duration_seconds`.
//! - `hotrow_redis_connections`: Open connections of the Redis protocol.
//! - `hotrow_redis_connections_accepted_total`: Connections of the Redis protocol served.
//! - `hotrow_redis_protocol_errors_total`: Connections ended because their input was no command.
//! - `hotrow_redis_tracking_clients`: Connections that [track](redis.md#client-side-caching) what
//!   they read.
//! - `hotrow_redis_tracked_keys`: Keys of which clients may hold copies, by client and spelling,
//!   within 100 ms.
//! - `hotrow_redis_tracking_bytes`: Memory for them; `redis.tracking_bytes` bounds it.
//! - `hotrow_redis_invalidations_total`: Keys sent to clients, which give up their copies.
//! - `hotrow_redis_invalidate_alls_total` (`reason`): Clients gave up all copies: `feed` (lost, or
//!   begun anew), `flush`, `stale` (the feed is behind), `full` (no room), `behind` (the client or
//!   its worker did not keep up), `access`, `expired`, `ended` (the connection that redirects to it
//!   tracks no more).
//! - `hotrow_redis_tracking_slow_total`: Clients that did not take their replies, and were closed.

use std::sync::Arc;

use hotrow_measure::counter::Counter;
use hotrow_measure::histogram::{Histogram, SharedHistogram};
use hotrow_telemetry::exposition::{Exposition, Scale};
use hotrow_telemetry::outcome::CacheOutcome;

use super::WorkerMetrics;
use crate::commands::{IS_READ, LABELS as COMMANDS};

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

const ALL: [RedisOutcome; OUTCOMES.len()] = [
    RedisOutcome::Hit,
    RedisOutcome::Miss,
    RedisOutcome::Coalesced,
    RedisOutcome::Stale,
    RedisOutcome::Bypass,
    RedisOutcome::None,
    RedisOutcome::Error,
];

impl From<RedisOutcome> for CacheOutcome {
    fn from(outcome: RedisOutcome) -> Self {
        match outcome {
            RedisOutcome::Hit => Self::Hit,
            RedisOutcome::Miss => Self::Miss,
            RedisOutcome::Coalesced => Self::Coalesced,
            RedisOutcome::Stale => Self::Stale,
            RedisOutcome::Bypass => Self::Bypass,
            // As the refusals of HTTP.
            RedisOutcome::None | RedisOutcome::Error => Self::None,
        }
    }
}

/// Counters of one worker.
#[derive(Debug, Default)]
pub struct RedisMetrics {
    /// By command, then by outcome.
    commands: [[Counter; OUTCOMES.len()]; COMMANDS.len()],
    /// Commands whose status over HTTP is 4xx, such as those for no record, and 5xx.
    statuses: [Counter; 2],
    /// From the arrival of a command to its reply, in nanoseconds, of those that memory answers.
    pub hit_latency_ns: SharedHistogram,
    /// The same of those that need the database.
    pub miss_latency_ns: SharedHistogram,
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
    pub fn count(&self, command: usize, outcome: RedisOutcome) {
        if let Some(outcomes) = self.commands.get(command) {
            outcomes[outcome as usize].increment();
        }
    }

    /// Counts a reply that would not be a success over HTTP, by that status.
    #[cold]
    pub fn count_status(&self, status: u16) {
        self.statuses[usize::from(status >= 500)].increment();
    }

    /// Returns the replies that read records or refused something, as requests: by outcome of the
    /// cache, and by class of the status (2xx, 4xx, 5xx).
    pub(crate) fn as_requests(&self) -> ([u64; CacheOutcome::COUNT], [u64; 3]) {
        let [client, server] = [0, 1].map(|class: usize| self.statuses[class].get());
        let mut by_outcome = [0; CacheOutcome::COUNT];
        for (outcomes, is_read) in self.commands.iter().zip(IS_READ) {
            for (outcome, count) in ALL.into_iter().zip(outcomes) {
                if is_read || outcome == RedisOutcome::Error {
                    by_outcome[CacheOutcome::from(outcome) as usize] += count.get();
                }
            }
        }
        let all: u64 = by_outcome.iter().sum();
        (by_outcome, [all.saturating_sub(client + server), client, server])
    }

    /// Returns the approximate number of open connections.
    fn open(&self) -> u64 {
        // `closed` is read first: never fewer than none.
        let closed = self.closed.get();
        self.accepted.get().saturating_sub(closed)
    }
}

/// Returns the open connections of all `workers`.
pub fn open(workers: &[Arc<WorkerMetrics>]) -> u64 {
    workers.iter().map(|worker| worker.redis.open()).sum()
}

/// Writes the sums over `workers`.
pub fn expose(workers: &[Arc<WorkerMetrics>], out: &mut Exposition) {
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
    out.counter(
        "hotrow_redis_commands_total",
        "Commands of the Redis protocol answered, by command and outcome.",
        series,
    );
    let merged = |read: &dyn Fn(&RedisMetrics) -> Histogram| {
        let mut total = Histogram::default();
        workers.iter().for_each(|worker| total.merge(&read(&worker.redis)));
        total
    };
    out.histogram(
        "hotrow_redis_command_duration_seconds",
        "Time from the arrival of a command that reads records to its reply, by hit or miss.",
        Scale::LATENCY,
        [
            ([("cache", "hit")], &merged(&|redis| redis.hit_latency_ns.snapshot())),
            ([("cache", "miss")], &merged(&|redis| redis.miss_latency_ns.snapshot())),
        ],
    );
    out.gauge(
        "hotrow_redis_connections",
        "Connections of the Redis protocol open.",
        [([], open(workers))],
    );
    out.counter(
        "hotrow_redis_connections_accepted_total",
        "Connections of the Redis protocol accepted and served.",
        [([], sum(&|redis: &RedisMetrics| redis.accepted.get()))],
    );
    out.counter(
        "hotrow_redis_protocol_errors_total",
        "Connections of the Redis protocol ended because their input was no command.",
        [([], sum(&|redis: &RedisMetrics| redis.protocol_errors.get()))],
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
            worker.redis.hit_latency_ns.record(1_000);
        }
        let mut page = Exposition::default();
        expose(&workers, &mut page);
        let page = page.into_text();
        for line in [
            "hotrow_redis_commands_total{command=\"get\",outcome=\"hit\"} 2",
            "hotrow_redis_commands_total{command=\"unknown\",outcome=\"error\"} 2",
            "hotrow_redis_command_duration_seconds_count{cache=\"hit\"} 2",
            "hotrow_redis_connections 4",
            "hotrow_redis_connections_accepted_total 6",
        ] {
            assert!(page.contains(line), "{page}");
        }
    }

    #[test]
    fn commands_that_read_or_are_refused_count_as_requests() {
        let metrics = RedisMetrics::default();
        let of = |name| COMMANDS.iter().position(|command| *command == name).unwrap();
        for (command, outcome, status) in [
            ("get", RedisOutcome::Hit, 200),
            ("get", RedisOutcome::Miss, 404),
            ("mget", RedisOutcome::Stale, 200),
            ("pttl", RedisOutcome::Error, 503),
            ("auth", RedisOutcome::Error, 401),
            ("ping", RedisOutcome::None, 200),
        ] {
            metrics.count(of(command), outcome);
            if status >= 400 {
                metrics.count_status(status);
            }
        }
        let (by_outcome, by_status) = metrics.as_requests();
        assert_eq!(by_outcome, [1, 1, 0, 1, 0, 2], "a PING is none");
        assert_eq!(by_status, [2, 2, 1]);
    }
}
