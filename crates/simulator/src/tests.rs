//! The simulator in short: fixed seeds over all engines, safeguards that are missing, and what the
//! tests of the binary can require only loosely, because a stalled machine takes time from them.

#[cfg(feature = "failpoints")]
mod planted;

use std::time::Duration;

use hotrow_source::feed_loop;

use crate::engine::FeedKind;
use crate::random::Random;
use crate::run::{Mix, Scenario, run};
use crate::settings::Settings;
use crate::world::World;
use crate::{Counts, ENGINES, Engine};

const STEPS: u64 = 3_000;
/// Seeds of each engine in the short run.
const SEEDS: u64 = 200;
/// Reads of the short run, at least.
const READS_MIN: u64 = 2_000_000;
fn scenario(engine: Engine, seed: u64) -> Scenario {
    Scenario::new(engine, seed, STEPS)
}

fn repeat(scenario: &Scenario) -> String {
    let Scenario { engine, seed, steps, .. } = scenario;
    format!("simulator --kind {} --seed {seed} --seeds 1 --steps {steps}", engine.name)
}

#[test]
fn no_schedule_violates_the_contract() {
    let mut all = Counts::default();
    for engine in ENGINES {
        for seed in 1..=SEEDS {
            let scenario = scenario(engine, seed);
            let report = run(&scenario);
            assert_eq!(report.violation, None, "repeat with: {}", repeat(&scenario));
            all.add(&report.counts);
        }
    }
    assert!(all.reads >= READS_MIN, "{all:?}");
    // A simulation that never reaches the interesting states proves nothing.
    for (name, count) in all.each() {
        let is_of_strict = ["strict", "snapshot", "end_look"].iter().any(|of| name.starts_with(of));
        assert!(count >= 20 || is_of_strict, "{name}: {all:?}");
    }
    let is_soon = all.soon_after_a_change as f64 / all.reads as f64;
    assert!(is_soon >= 0.2, "share of answers soon after a change: {is_soon}");
}

/// Strict reads and snapshots, of far readers beside a near feed too, and where commits become
/// visible in another order than they are in the log.
#[test]
fn no_schedule_breaks_strict_reads_or_snapshots() {
    let mut all = Counts::default();
    for engine in ENGINES {
        for seed in 1..=SEEDS {
            let scenario = Scenario { mix: Mix::Strict, ..scenario(engine, seed) };
            let report = run(&scenario);
            assert_eq!(report.violation, None, "repeat with: {} --strict", repeat(&scenario));
            all.add(&report.counts);
        }
    }
    assert!(all.strict_answers >= 200_000 && all.snapshot_keys >= 200_000, "{all:?}");
    for (name, count) in all.each() {
        assert!(count >= 20, "{name}: {all:?}");
    }
}

/// A server that took over numbered its transactions lower, so that a read of the old server passed
/// for newer than an answer of the new one.
#[test]
fn a_read_from_before_a_fail_over_is_not_newer() {
    let engine = ENGINES.into_iter().find(|engine| engine.name == "postgres").expect("an engine");
    assert_eq!(run(&scenario(engine, 3_400)).violation, None);
}

#[test]
fn a_run_is_determined_by_its_scenario() {
    for engine in ENGINES {
        let (first, second) = (run(&scenario(engine, 7)), run(&scenario(engine, 7)));
        assert_eq!((first.trace, &first.counts), (second.trace, &second.counts));
        assert_ne!(first.trace, run(&scenario(engine, 8)).trace);
    }
}

/// A service without faults, whose clients ask for no more than it can serve.
fn without_faults(engine: Engine, seed: u64) -> World {
    let mut random = Random::new(seed);
    let mut settings = Settings::of(engine, &mut random);
    random.cut_tails();
    settings.cache.waiting_keys = 10_000;
    settings.cache.queue.adaptive = false;
    settings.cache.reads_in_flight = 4;
    settings.cache.query_keys = 64;
    settings.cache.query_bytes = 10_000;
    settings.limiter.max = 4;
    settings.rate = None;
    settings.typical.requests = Duration::from_millis(2);
    settings.typical.transactions = Duration::from_millis(2);
    settings.typical.visibility = Duration::from_micros(200);
    let mut world = World::with(settings, random, &scenario(engine, seed));
    world.has_faults = false;
    world
}

/// Without faults nothing is refused, stale or late. The tests of the binary allow one request in a
/// hundred, because a machine that stalls may shed.
#[test]
fn without_faults_nothing_is_refused() {
    for (engine, seed) in ENGINES.into_iter().flat_map(|engine| (1..=8).map(move |s| (engine, s))) {
        let mut world = without_faults(engine, seed);
        world.step_until(World::is_recovered, Duration::from_secs(1));
        let began = world.counts.clone();
        for _ in 0..6_000 {
            assert!(world.step(), "{:?}", world.violation);
        }
        let counts = &world.counts;
        let refused = |counts: &Counts| {
            [counts.refused_behind, counts.refused_other, counts.timeouts, counts.failures]
        };
        assert_eq!(refused(counts), refused(&began), "{} seed {seed}", engine.name);
        assert_eq!(counts.stale, began.stale, "{} seed {seed}", engine.name);
        assert!(counts.reads > began.reads + 300);
    }
}

/// The service is current again within the longest pause of the back-off and one bound after the
/// end of an outage, however long it was. The tests of the binary allow 40 s.
#[test]
fn an_outage_ends_within_the_back_off() {
    for engine in ENGINES {
        for (seed, lasts) in (1..).zip([20, 500, 3_000, 30_000, 600_000]) {
            let lasts = Duration::from_millis(lasts);
            let mut world = without_faults(engine, seed);
            world.step_until(World::is_recovered, Duration::from_secs(1));
            world.settings.typical.requests = lasts / 200;
            world.settings.typical.transactions = lasts / 200;
            world.outage(lasts);
            let bound = world.settings.cache.max_staleness;
            let is_noticed = |world: &World| !world.is_recovered() || engine.feed == FeedKind::Off;
            assert!(world.step_until(is_noticed, bound * 2), "{} for {lasts:?}", engine.name);
            world.step_until(|world| !world.database.is_down, lasts * 2);
            let ended_at = world.now;
            let recovery = feed_loop::PAUSE_MAX + bound;
            let is_recovered = world.step_until(World::is_recovered, recovery);
            assert!(is_recovered, "{} after {lasts:?}", engine.name);
            assert_eq!(world.violation, None);
            println!("{} {lasts:?}: {:?}", engine.name, world.now.since(ended_at));
        }
    }
}

/// Most requests are answered although something breaks all the time. The tests of the binary
/// allow half of them to be refused.
#[test]
fn most_requests_are_answered_under_faults() {
    let mut all = Counts::default();
    // Where far reads wait for the feed as well, more of them than that outlast their request.
    let waits = |engine: &Engine| matches!(engine.name, "postgres-standbys-far" | "mongodb-far");
    for engine in ENGINES.into_iter().filter(|engine| !waits(engine)) {
        (1..=SEEDS / 4).for_each(|seed| all.add(&run(&scenario(engine, seed)).counts));
    }
    // Behind by the policy `refuse` is no failure of the service.
    let refused = all.refused_other + all.timeouts;
    assert!(refused as f64 <= 0.2 * all.reads as f64, "{refused} of {} refused", all.reads);
}
