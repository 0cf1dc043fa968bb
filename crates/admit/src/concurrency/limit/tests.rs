//! The limit against simulated databases, in virtual time.

use super::*;
use crate::concurrency::simulation::{Database, Load, Told, run};

const SINGLES: Load = Load { queries: 200, keys: (1, 2) };

fn config(kind: Kind, max: usize) -> Config {
    Config { kind, max, tolerance: 2.0, probe_interval: Duration::from_secs(30) }
}

fn adaptive(max: usize) -> [Config; 2] {
    [config(Kind::Gradient, max), config(Kind::Aimd, max)]
}

#[test]
fn on_a_healthy_database_the_limit_sits_at_its_bound() {
    // As many servers as queries; fewer; and answers whose times vary much.
    let fewer = Database { servers: 3, ..Database::WELL };
    let noisy = Database { random: true, ..Database::WELL };
    for database in [Database::WELL, fewer, noisy] {
        for config in adaptive(4) {
            let told = run(config, database, SINGLES, 120);
            let kind = config.kind.label();
            assert!(told.limits.iter().all(|limit| *limit >= 3.0), "{kind}: {:?}", told.limits);
            assert!(Told::mean(&told.limits) > 3.9, "{kind}: {:?}", told.limits);
        }
    }
}

#[test]
fn behind_a_few_servers_it_comes_to_rest_near_their_number_and_stays_there() {
    let database = Database { servers: 4, random: true, ..Database::WELL };
    for config in adaptive(64) {
        let told = run(config, database, SINGLES, 600);
        let (kind, late) = (config.kind.label(), &told.limits[540..]);
        assert!((4.0..20.0).contains(&Told::mean(late)), "{kind}: {late:?}");
        // It does not drift.
        let early = Told::mean(&told.limits[60..120]);
        assert!((0.6..1.6).contains(&(Told::mean(late) / early)), "{kind}: {early}, then {late:?}");
        // 4 servers do 4,000 queries a second.
        assert!(Told::mean(&told.answered[10..]) > 3_800.0, "{kind}: {}", Told::mean(&told.answered));
    }
}

#[test]
fn before_a_cliff_it_stops_and_more_is_answered_than_at_the_bound() {
    let database = Database { servers: 8, cliff: 24, random: true, ..Database::WELL };
    let fixed = Told::mean(&run(config(Kind::Fixed, 64), database, SINGLES, 60).answered);
    for config in adaptive(64) {
        let told = run(config, database, SINGLES, 60);
        let answered = Told::mean(&told.answered[20..]);
        assert!(answered > 20.0 * fixed, "{}: {answered} against {fixed}", config.kind.label());
        assert!(answered > 0.9 * 8_000.0, "{}: {answered} of 8,000", config.kind.label());
    }
}

#[test]
fn large_queries_take_longer_and_that_is_no_congestion() {
    let rows = Database { per_key_s: 0.002, ..Database::WELL };
    for load in [Load { queries: 200, keys: (1, 1000) }, Load { queries: 200, keys: (999, 1000) }] {
        for config in adaptive(16) {
            let told = run(config, rows, load, 300);
            let limits = &told.limits;
            assert!(Told::mean(limits) > 14.0, "{}: {limits:?}", config.kind.label());
        }
    }
}

#[test]
fn congestion_shows_whatever_the_sizes_are() {
    let rows = Database { servers: 2, base_s: 0.002, per_key_s: 0.000_1, random: true, ..Database::WELL };
    for config in adaptive(64) {
        let told = run(config, rows, Load { queries: 200, keys: (1, 500) }, 300);
        let late = Told::mean(&told.limits[200..]);
        assert!((2.0..16.0).contains(&late), "{}: {late}", config.kind.label());
    }
}

#[test]
fn after_a_slow_spell_it_comes_back() {
    for config in adaptive(16) {
        let database = Database { spell: (20.0, 40.0, 20.0), ..Database::WELL };
        let told = run(config, database, SINGLES, 60);
        // Slower for reasons of its own: fewer at once at first, but as many as before when that is found to help nothing.
        assert!(told.limits[20..40].iter().any(|limit| *limit < 8.0), "{:?}", told.limits);
        assert!(told.limits[45..].iter().all(|limit| *limit > 15.0), "{}: {:?}", config.kind.label(), told.limits);
    }
}

#[test]
fn an_outage_brings_it_down_and_its_end_up() {
    for config in adaptive(16) {
        let told = run(config, Database { outage: (10.0, 30.0), ..Database::WELL }, SINGLES, 60);
        assert!(told.limits[25] < 2.0, "{:?}", told.limits);
        assert!(told.limits[35..].iter().all(|limit| *limit > 15.0), "{}: {:?}", config.kind.label(), told.limits);
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
fn a_limit_that_is_not_used_does_not_move() {
    for config in adaptive(64) {
        let database = Database { spell: (5.0, 100.0, 50.0), ..Database::WELL };
        let told = run(config, database, Load { queries: 3, keys: (1, 2) }, 20);
        // A probe apart, which is one second's at most.
        assert!(told.limits.iter().filter(|limit| **limit < 60.0).count() <= 1, "{:?}", told.limits);
    }
}

#[test]
fn probes_are_rare_and_short() {
    for (per_key_s, keys) in [(0.0, (1, 2)), (0.001, (900, 1000))] {
        let database = Database { per_key_s, ..Database::WELL };
        let told = run(config(Kind::Gradient, 16), database, Load { queries: 200, keys }, 600);
        assert!((5..=21).contains(&told.probes_total), "{}", told.probes_total);
        assert!(Told::mean(&told.answered) > 0.93 * 16.0 / (0.001 + per_key_s * 950.0), "{:?}", told.answered);
    }
}

#[test]
fn fixed_is_fixed() {
    let told = run(config(Kind::Fixed, 8), Database { servers: 1, ..Database::WELL }, SINGLES, 60);
    assert!(told.limits.iter().all(|limit| *limit == 8.0) && told.probes_total == 0);
    assert_eq!(Limiter::new(config(Kind::Gradient, 0), 0).limit(), 1, "never none");
}
