//! Settings of a run: configuration of the cache and of the environment, chosen by the seed.

use std::time::Duration;

use hotrow_admission::breaker;
use hotrow_admission::concurrency::limit;
use hotrow_admission::rate::value::{Period, Rate};
use hotrow_cache::config::{CollectionPolicy, Config, InvalidationMode, WhenStale, queue};

use crate::engine::{Engine, FeedKind};
use crate::random::Random;

/// Typical round trip of a read whose database is far away.
pub(crate) const FAR_ROUND_TRIP: Duration = Duration::from_millis(150);

/// Settings of one run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) engine: Engine,
    pub(crate) cache: Config,
    pub(crate) policy: CollectionPolicy,
    /// Instances of the service over one database.
    pub(crate) instances: usize,
    /// Rows of a collection.
    pub(crate) ids: usize,
    /// Whether rows of the second collection have a second spelling of their key.
    pub(crate) has_aliases: bool,
    pub(crate) schema_poll: Duration,
    /// Longest wait of a request.
    pub(crate) request_timeout: Duration,
    /// Longest wait for the feed of a request with a minimal position.
    pub(crate) position_wait: Duration,
    pub(crate) query_timeout: Duration,
    pub(crate) breaker: Option<breaker::Config>,
    pub(crate) limiter: limit::Config,
    /// Requests a client may send: rate and burst.
    pub(crate) rate: Option<(Rate, u32)>,
    pub(crate) typical: Latencies,
}

/// Typical times of the environment; each is exceeded many times over now and then.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    /// Between two groups of requests.
    pub(crate) requests: Duration,
    /// Between two transactions.
    pub(crate) transactions: Duration,
    /// From a transaction's beginning to its end.
    pub(crate) transaction: Duration,
    /// From the log to visibility.
    pub(crate) visibility: Duration,
    /// From visibility to the answer to COMMIT.
    pub(crate) answer: Duration,
    /// From the log to the feed, and of the feed's questions.
    pub(crate) feed: Duration,
    /// Half of a query.
    pub(crate) query: Duration,
    /// Until a task that was woken runs.
    pub(crate) task: Duration,
    /// Between two faults.
    pub(crate) faults: Duration,
}

impl Settings {
    pub(crate) fn of(engine: Engine, random: &mut Random) -> Self {
        let bound = match engine.is_far {
            true => Duration::from_secs(1),
            false => Duration::from_millis(random.pick(&[30, 60, 120])),
        };
        // Beside far readers everything but the feed is slow, so that a run lasts for many reads.
        let slowed = if engine.is_far { 16 } else { 1 };
        let us = Duration::from_micros;
        let mode = match engine.feed {
            FeedKind::Off => InvalidationMode::TtlOnly,
            FeedKind::Changes | FeedKind::Flushes => InvalidationMode::Feed,
        };
        let cache = Config {
            enabled: !random.one_in(24),
            capacity_bytes: random.pick(&[2_500, 6_000, 100_000]),
            negative_share: 0.1,
            entry_bytes_estimate: 64,
            invalidation_mode: mode,
            prefetch_on_change: random.one_in(2),
            isolate_scans: !random.one_in(4),
            max_staleness: bound,
            when_stale: random.pick(&[
                WhenStale::Bypass,
                WhenStale::Bypass,
                WhenStale::Stale,
                WhenStale::Refuse,
            ]),
            ttl_jitter: 0.2,
            error_ttl: bound.mul_f64(random.pick(&[0.0, 0.3, 1.0])),
            stale_while_revalidate: bound * random.pick(&[0, 1, 4]),
            stale_if_error: bound * random.pick(&[0, 2, 6]),
            reads_in_flight: 1 + random.below(4),
            query_keys: 1 + random.below(8),
            query_bytes: random.pick(&[12, 60, 1_000]),
            waiting_keys: 4 + random.below(24),
            queue: queue::Config {
                adaptive: random.one_in(3),
                target: bound / 10,
                interval: bound / 5,
                query_target: bound / 10,
            },
            seed: random.number(),
        };
        let policy = CollectionPolicy {
            ttl: bound * random.pick(&[2, 6, 40]),
            negative_ttl: bound * random.pick(&[1, 3, 20]),
            has_tenants: false,
            has_views: false,
        };
        let breaker = (!random.one_in(3)).then(|| breaker::Config {
            failures: 3 + random.below(6) as u32,
            window: bound * 4,
            failure_rate: 0.5,
            calls_min: 8,
            open_for: bound / 2,
            open_for_max: bound * 8,
            probes: 1 + random.below(2) as u32,
        });
        let limiter = limit::Config {
            kind: random.pick(&[limit::Kind::Gradient, limit::Kind::Aimd, limit::Kind::Fixed]),
            max: cache.reads_in_flight,
            tolerance: 2.0,
            probe_interval: bound * 20,
        };
        Self {
            engine,
            policy,
            instances: 1 + usize::from(random.one_in(3)),
            ids: random.pick(&[2, 5, 12]),
            has_aliases: random.one_in(4),
            schema_poll: bound.mul_f64(random.pick(&[0.3, 1.0, 3.0])),
            request_timeout: bound * random.pick(&[1, 3]),
            position_wait: bound.mul_f64(random.pick(&[0.2, 1.0])),
            query_timeout: bound,
            breaker,
            limiter,
            rate: Rate::new(20_000, Period::Second)
                .ok()
                .filter(|_| random.one_in(6))
                .map(|rate| (rate, 8 + random.below(32) as u32)),
            typical: Latencies {
                requests: us(random.pick(&[80, 300, 1_500])) * slowed,
                transactions: us(random.pick(&[300, 2_000, 10_000])) * slowed,
                transaction: us(random.pick(&[20, 400])),
                visibility: us(random.pick(&[10, 200, 2_000])) * slowed,
                answer: us(random.pick(&[10, 200])),
                feed: us(random.pick(&[20, 200, 1_000])),
                query: match engine.is_far {
                    true => FAR_ROUND_TRIP / 2,
                    false => us(random.pick(&[30, 200, 1_000])),
                },
                task: us(random.pick(&[1, 20])),
                faults: bound.mul_f64(random.pick(&[0.1, 0.5, 4.0])),
            },
            cache,
        }
    }
}
