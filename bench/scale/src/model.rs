//! What a number of instances costs, and what breaks first.
//!
//! Instances are alike, so one simulated cache serves for all of them: with consistent hashing each
//! key is in one instance, and together they are one cache of the sum of their capacities; with
//! requests spread evenly each is a cache of its own. The cache is simulated request by request;
//! the rest follows from its misses and from measured costs.

use crate::cache::{Policy, S3Fifo};
use crate::inputs::{
    APPLY, CATALOGUE, CHANGE, CHANGE_BYTES, CONNECTIONS, DELIVERY, HIT, JOIN_S, LIMITS,
    MERGED_FROM, MISS, PROBE_INTERVAL_S, PROBES, READ_ALONE, READ_MERGED, ROW_BYTES,
};
use crate::random::{Random, Zipf};

/// How requests are divided among instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    Consistent,
    Spread,
}

#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub instances: usize,
    /// Of all clients together.
    pub requests_per_s: f64,
    /// Changes, of records as popular as those of the requests.
    pub writes_per_s: f64,
    /// Entries of one instance.
    pub capacity: usize,
    pub routing: Routing,
    /// Losses of the feed: take-overs of the relay, restarts of NATS.
    pub losses_per_h: f64,
    /// Simulated requests, half of them to warm up.
    pub events: usize,
}

/// What comes out for one scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub hit_ratio: f64,
    /// Keys read from the database per second, prefetch included.
    pub reads_per_s: f64,
    /// In the first second after a loss.
    pub reads_after_loss: f64,
    pub primary_cores: f64,
    /// Of these, what the instances cost without a request: feed, probes, looks at the tables.
    pub primary_idle_cores: f64,
    pub connections: f64,
    pub nats_bits: f64,
    pub nats_cores: f64,
    /// Of the instance with the largest share of the requests.
    pub busiest_cores: f64,
    /// `None`: changes arrive faster than they are passed on.
    pub staleness_p99_s: Option<f64>,
    /// What each part uses of what there is, the most first.
    pub used: Vec<(&'static str, f64)>,
}

/// How a key is known to the cache.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Time at which the entry was last seen to be current.
    seen_at: Option<f64>,
    hits: u8,
}

/// Hits from which a changed record is read again at once.
const HOT_HITS: u8 = 2;

struct Reads {
    hits: usize,
    /// Requests that waited for the database.
    misses: usize,
    /// Reads without a request.
    prefetched: usize,
}

impl Reads {
    fn requests(&self) -> f64 {
        (self.hits + self.misses) as f64
    }
}

/// Simulates one cache that gets `rate` requests per second.
fn reads(
    (rate, writes): (f64, f64),
    capacity: usize,
    zipf: &Zipf,
    random: &mut Random,
    events: usize,
) -> Reads {
    let mut cache = S3Fifo::full(zipf.ranks(), capacity);
    let mut known = vec![Known::default(); zipf.ranks()];
    let mut counted = Reads { hits: 0, misses: 0, prefetched: 0 };
    let mut now = 0.0;
    // Three requests in a row without a change make a record hot.
    let hot_at_first = (rate / (rate + writes)).powi(3);
    for event in 0..events {
        now += random.exponential(rate);
        let rank = zipf.rank(random);
        let share = zipf.share(rank);
        let own = known[rank];
        let seen_at = own.seen_at.unwrap_or_else(|| now - random.exponential(rate * share));
        let hits = match own.seen_at {
            Some(_) => own.hits,
            None if random.unit() < hot_at_first => HOT_HITS,
            None => 0,
        };
        let changes = random.poisson(writes * share * (now - seen_at));
        let is_held = cache.ask(rank);
        let is_hot = hits >= HOT_HITS;
        // A hot record is read again after its first change, and is not hot then.
        let prefetched = usize::from(is_held && is_hot && changes > 0);
        let is_hit = is_held && (changes == 0 || is_hot && changes == 1);
        let hits_of_entry = if changes > 0 { 0 } else { hits };
        known[rank] = Known {
            seen_at: Some(now),
            hits: if is_hit { hits_of_entry.saturating_add(1) } else { 0 },
        };
        if event >= events / 2 {
            counted.hits += usize::from(is_hit);
            counted.misses += usize::from(!is_hit);
            counted.prefetched += prefetched;
        }
    }
    counted
}

/// Returns the 99th percentile of the staleness at random times.
fn staleness_p99(scenario: &Scenario, random: &mut Random) -> Option<f64> {
    let Scenario { instances, writes_per_s, losses_per_h, .. } = *scenario;
    // A change goes to all instances before the next one does; each applies it.
    let passing = instances as f64 * DELIVERY.value * 1e-6 / LIMITS.nats_cores;
    let applying = APPLY.value * 1e-6;
    if writes_per_s * passing.max(applying) >= 1.0 {
        return None;
    }
    let lost = losses_per_h / 3_600.0 * JOIN_S;
    let (mut passed, mut applied) = (0.0_f64, 0.0_f64);
    let mut now = 0.0;
    let mut samples = Vec::with_capacity(100_000);
    for _ in 0..100_000 {
        now += random.exponential(writes_per_s.max(1.0));
        passed = passed.max(now) + passing;
        applied = applied.max(passed) + applying;
        // The answer to a probe that was sent now waits behind this change.
        let delay = applied - now;
        let since_probe = random.unit() * PROBE_INTERVAL_S;
        let is_lost = random.unit() < lost;
        samples.push(if is_lost { f64::INFINITY } else { since_probe + delay });
    }
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() * 99 / 100).copied().filter(|p99| p99.is_finite())
}

/// Simulates one scenario.
pub fn simulate(scenario: &Scenario, zipf: &Zipf, seed: u64) -> Outcome {
    let Scenario { instances, requests_per_s, writes_per_s, capacity, routing, events, .. } =
        *scenario;
    let n = instances as f64;
    let random = &mut Random::new(seed);
    let (rate, room, caches) = match routing {
        Routing::Consistent => (requests_per_s, capacity.saturating_mul(instances), 1.0),
        Routing::Spread => (requests_per_s / n, capacity, n),
    };
    let counted = reads((rate, writes_per_s), room, zipf, random, events);
    let per_request = 1.0 / counted.requests();
    let hit_ratio = counted.hits as f64 * per_request;
    let misses_per_s = (1.0 - hit_ratio) * requests_per_s;
    let prefetched_per_s = counted.prefetched as f64 * per_request * requests_per_s;
    let reads_per_s = misses_per_s + prefetched_per_s;
    let is_merged = reads_per_s / n > MERGED_FROM;
    let read_us = if is_merged { READ_MERGED.value } else { READ_ALONE.value };
    let idle_us = writes_per_s * CHANGE.value + PROBES.value + n * CATALOGUE.value;
    let largest = match routing {
        Routing::Consistent => zipf.largest_share(instances),
        Routing::Spread => 1.0 / n,
    };
    let own_us = HIT.value * hit_ratio + MISS.value * (1.0 - hit_ratio);
    let busiest_us = largest * requests_per_s * own_us
        + prefetched_per_s / n * MISS.value
        + writes_per_s * APPLY.value;
    let deliveries = writes_per_s * n;
    let mut outcome = Outcome {
        hit_ratio,
        reads_per_s,
        reads_after_loss: caches * zipf.distinct(rate),
        primary_cores: (reads_per_s * read_us + idle_us) * 1e-6,
        primary_idle_cores: idle_us * 1e-6,
        connections: n * CONNECTIONS,
        nats_bits: deliveries * CHANGE_BYTES.value * 8.0,
        nats_cores: deliveries * DELIVERY.value * 1e-6,
        busiest_cores: busiest_us * 1e-6,
        staleness_p99_s: staleness_p99(scenario, random),
        used: Vec::new(),
    };
    let row_bits = reads_per_s * ROW_BYTES.value * 8.0;
    let mut used = vec![
        ("instance: CPU", outcome.busiest_cores / LIMITS.instance_cores),
        ("database: CPU", outcome.primary_cores / LIMITS.primary_cores),
        ("database: connections", outcome.connections / LIMITS.primary_connections),
        ("database: network", row_bits / LIMITS.network_bits),
        ("NATS: CPU", outcome.nats_cores / LIMITS.nats_cores),
        ("NATS: network", outcome.nats_bits / LIMITS.network_bits),
    ];
    used.sort_by(|one, other| other.1.total_cmp(&one.1));
    outcome.used = used;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Scenario = Scenario {
        instances: 1,
        requests_per_s: 10_000.0,
        writes_per_s: 200.0,
        capacity: 100_000,
        routing: Routing::Spread,
        losses_per_h: 0.0,
        events: 200_000,
    };

    #[test]
    fn the_same_seed_gives_the_same_outcome() {
        let zipf = Zipf::new(100_000, 0.915);
        let first = simulate(&ONE, &zipf, 1);
        assert_eq!(first, simulate(&ONE, &zipf, 1));
        assert_ne!(first.hit_ratio, simulate(&ONE, &zipf, 2).hit_ratio);
    }

    /// What the run of the hub measured for one instance: walsender, probes and catalogue.
    #[test]
    fn one_instance_costs_what_was_measured() {
        let zipf = Zipf::new(1_000, 0.915);
        let idle = simulate(&ONE, &zipf, 1).primary_idle_cores;
        let measured = (13_007.0 + 4_022.0 + 3_361.0) * 1e-6;
        assert!((idle / measured - 1.0).abs() < 0.05, "{idle} and {measured}");
        let twenty = simulate(&Scenario { instances: 20, ..ONE }, &zipf, 1).primary_idle_cores;
        let measured = (14_820.0 + 3_276.0 + 54_097.0) * 1e-6;
        assert!((twenty / measured - 1.0).abs() < 0.05, "{twenty} and {measured}");
    }

    /// The run `2026-11-26-0102-routing`: five instances, 100,000 records, Zipf 0.915, 12 MiB each,
    /// of which an entry takes 319 bytes, its key and 108 more.
    #[test]
    fn five_instances_hit_as_often_as_measured() {
        let zipf = Zipf::new(100_000, 0.915);
        let capacity = (12 << 20) / (319 + 108 + 11);
        let five = Scenario {
            instances: 5,
            requests_per_s: 41_910.0,
            writes_per_s: 0.0,
            capacity,
            events: 1_000_000,
            ..ONE
        };
        let spread = simulate(&five, &zipf, 1).hit_ratio;
        assert!((spread - 0.808).abs() < 0.02, "{spread}");
        let consistent = Scenario { routing: Routing::Consistent, ..five };
        let consistent = simulate(&consistent, &zipf, 1).hit_ratio;
        assert!((0.988..=1.0).contains(&consistent), "the run also counts first reads");
    }

    #[test]
    fn staleness_is_that_of_the_probes_until_the_deliveries_do_not_keep_up() {
        let random = &mut Random::new(1);
        let calm = staleness_p99(&ONE, random).unwrap();
        assert!((0.24..0.26).contains(&calm), "{calm}");
        let many = Scenario { instances: 1_000, writes_per_s: 5_000.0, ..ONE };
        assert_eq!(staleness_p99(&many, random), None);
        let lossy = Scenario { losses_per_h: 3_600.0 / 10.0, ..ONE };
        assert_eq!(staleness_p99(&lossy, random), None, "lost for 5 % of the time");
    }

    /// Where changes are as frequent as requests, half of the requests find a changed record.
    #[test]
    fn changes_cost_reads() {
        let zipf = Zipf::new(1_000, 0.9);
        let busy = Scenario { writes_per_s: 10_000.0, ..ONE };
        let outcome = simulate(&busy, &zipf, 1);
        assert!((0.5..0.7).contains(&outcome.hit_ratio), "{outcome:?}");
        let calm = simulate(&Scenario { writes_per_s: 1.0, ..ONE }, &zipf, 1);
        assert!(calm.hit_ratio > 0.999, "{calm:?}");
    }
}
