//! The limit against simulated databases, in virtual time.

use super::*;
use crate::concurrency::tests::simulation::{Database, Load, SimulationResult, run};

const SINGLES: Load = Load { queries: 200, keys: (1, 2) };

fn config(kind: Kind, max: usize) -> Config {
    Config { kind, max, tolerance: 2.0, probe_interval: Duration::from_secs(30) }
}

fn adaptive(max: usize) -> [Config; 2] {
    [config(Kind::Gradient, max), config(Kind::Aimd, max)]
}

#[test]
fn on_a_healthy_database_the_limit_stays_at_its_bound() {
    // As many servers as queries; fewer; and highly variable latencies.
    let fewer = Database { servers: 3, ..Database::WELL };
    let noisy = Database { random: true, ..Database::WELL };
    for database in [Database::WELL, fewer, noisy] {
        for config in adaptive(4) {
            let result = run(config, database, SINGLES, 120);
            let kind = config.kind.label();
            assert!(result.limits.iter().all(|limit| *limit >= 3.0), "{kind}: {:?}", result.limits);
            assert!(SimulationResult::mean(&result.limits) > 3.9, "{kind}: {:?}", result.limits);
        }
    }
}

#[test]
fn the_limit_settles_near_the_number_of_servers() {
    let database = Database { servers: 4, random: true, ..Database::WELL };
    for config in adaptive(64) {
        let result = run(config, database, SINGLES, 600);
        let kind = config.kind.label();
        let late = &result.limits[540..];
        assert!((4.0..20.0).contains(&SimulationResult::mean(late)), "{kind}: {late:?}");
        // It does not drift.
        let early = SimulationResult::mean(&result.limits[60..120]);
        assert!(
            (0.6..1.6).contains(&(SimulationResult::mean(late) / early)),
            "{kind}: {early}, then {late:?}"
        );
        // 4 servers do 4,000 queries a second.
        assert!(
            SimulationResult::mean(&result.answered[10..]) > 3_800.0,
            "{kind}: {}",
            SimulationResult::mean(&result.answered)
        );
    }
}

#[test]
fn the_limit_stops_before_a_cliff_and_throughput_exceeds_that_of_the_bound() {
    let database = Database { servers: 8, cliff: 24, random: true, ..Database::WELL };
    let fixed =
        SimulationResult::mean(&run(config(Kind::Fixed, 64), database, SINGLES, 60).answered);
    for config in adaptive(64) {
        let result = run(config, database, SINGLES, 60);
        let answered = SimulationResult::mean(&result.answered[20..]);
        assert!(answered > 20.0 * fixed, "{}: {answered} against {fixed}", config.kind.label());
        assert!(answered > 0.9 * 8_000.0, "{}: {answered} of 8,000", config.kind.label());
    }
}

#[test]
fn long_large_queries_are_not_congestion() {
    let rows = Database { per_key_s: 0.002, ..Database::WELL };
    for load in [Load { queries: 200, keys: (1, 1000) }, Load { queries: 200, keys: (999, 1000) }] {
        for config in adaptive(16) {
            let result = run(config, rows, load, 300);
            let limits = &result.limits;
            assert!(SimulationResult::mean(limits) > 14.0, "{}: {limits:?}", config.kind.label());
        }
    }
}

#[test]
fn congestion_is_detected_with_any_sizes() {
    let rows =
        Database { servers: 2, base_s: 0.002, per_key_s: 0.000_1, random: true, ..Database::WELL };
    for config in adaptive(64) {
        let result = run(config, rows, Load { queries: 200, keys: (1, 500) }, 300);
        let late = SimulationResult::mean(&result.limits[200..]);
        assert!((2.0..16.0).contains(&late), "{}: {late}", config.kind.label());
    }
}

#[test]
fn the_limit_recovers_after_a_slow_spell() {
    for config in adaptive(16) {
        let database = Database { spell: (20.0, 40.0, 20.0), ..Database::WELL };
        let result = run(config, database, SINGLES, 60);
        // Slower for its own reasons: first fewer queries, then as many as before, because fewer do
        // not help.
        assert!(result.limits[20..40].iter().any(|limit| *limit < 8.0), "{:?}", result.limits);
        assert!(
            result.limits[45..].iter().all(|limit| *limit > 15.0),
            "{}: {:?}",
            config.kind.label(),
            result.limits
        );
    }
}

#[test]
fn an_outage_lowers_the_limit_and_its_end_raises_it() {
    for config in adaptive(16) {
        let result = run(config, Database { outage: (10.0, 30.0), ..Database::WELL }, SINGLES, 60);
        assert!(result.limits[25] < 2.0, "{:?}", result.limits);
        assert!(
            result.limits[35..].iter().all(|limit| *limit > 15.0),
            "{}: {:?}",
            config.kind.label(),
            result.limits
        );
    }
}

#[test]
fn single_slow_queries_move_nothing() {
    let mut limiter = Limiter::new(config(Kind::Gradient, 8), 1);
    let sample = |latency_ms: u64, in_flight: usize| Sample {
        collection: 0,
        keys: 1,
        latency: Duration::from_millis(latency_ms),
        outcome: Outcome::Answered,
        in_flight,
        alone: in_flight == 1,
    };
    limiter.record(&sample(10, 1), Nanos::ZERO);
    for i in 0..1_000 {
        // One in ten takes a hundred times as long.
        limiter.record(&sample(if i % 10 == 0 { 1_000 } else { 10 }, 8), Nanos(i * 12_000_000));
        assert_eq!(limiter.limit(), 8, "{i}");
    }
}

#[test]
fn an_unused_limit_does_not_move() {
    for config in adaptive(64) {
        let database = Database { spell: (5.0, 100.0, 50.0), ..Database::WELL };
        let result = run(config, database, Load { queries: 3, keys: (1, 2) }, 20);
        // Except for one probe, which affects at most one second.
        assert!(
            result.limits.iter().filter(|limit| **limit < 60.0).count() <= 1,
            "{:?}",
            result.limits
        );
    }
}

#[test]
fn probes_are_rare_and_short() {
    for (per_key_s, keys) in [(0.0, (1, 2)), (0.001, (900, 1000))] {
        let database = Database { per_key_s, ..Database::WELL };
        let result = run(config(Kind::Gradient, 16), database, Load { queries: 200, keys }, 600);
        assert!((5..=21).contains(&result.probes_total), "{}", result.probes_total);
        assert!(
            SimulationResult::mean(&result.answered) > 0.93 * 16.0 / (0.001 + per_key_s * 950.0),
            "{:?}",
            result.answered
        );
    }
}

#[test]
fn fixed_is_fixed() {
    let result =
        run(config(Kind::Fixed, 8), Database { servers: 1, ..Database::WELL }, SINGLES, 60);
    assert!(result.limits.iter().all(|limit| *limit == 8.0) && result.probes_total == 0);
    assert_eq!(Limiter::new(config(Kind::Gradient, 0), 0).limit(), 1, "never none");
}
