//! Everything at once: changes of every kind, reads of every kind, purges, a cache smaller than the working set, two
//! instances, and all weathers, each several times.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::weather::{WEATHERS, Weather};
use super::{Mongo, MongoRun};
use crate::board::Instance;
use crate::engine::Engine as _;
use crate::harness::await_until;
use crate::mix::{NEAR_SHARE_MIN, ORDINARY, PURGE_EVERY, assert_all, keep, purge_something, summarize};
use crate::reader::Taste;
use crate::rows::{Random, Sizes};
use crate::rules::RULES;
use crate::run::{Plan, Trial};
use crate::writer::Habit;

/// Good weather between two bad ones.
const BREAK: Duration = Duration::from_millis(500);
/// How long the service may take to come back by itself, its back-off included.
const RECOVERY: Duration = Duration::from_secs(15);

/// The writers checked: what they wrote down is what the database has, whatever happened to it.
#[test]
fn histories_equal_the_database_after_elections() {
    let plan = Plan { keys: 300, sizes: Sizes { from: 10, to: 90 }, own: 5, ..Plan::default() };
    let mut run: MongoRun = Trial::over(Mongo::create(&plan), plan);
    run.start_writers();
    for round in 1..=4 {
        run.await_counts(0, 300 * round, RECOVERY);
        let standin = run.database.standin_mut();
        let primary = (round as usize + 1) % 2;
        standin.stop(primary);
        standin.elect(1 - primary);
        standin.restart(primary);
        run.change_own();
    }
    run.await_counts(0, 300 * 5, RECOVERY);
    run.stop_writers();
    let rows = Mongo::rows(&run.database);
    for (key, history) in run.histories.iter().enumerate() {
        let last = history.last().present.then(|| history.next_version() - 1);
        assert_eq!(rows.get(&(key as u32)).copied(), last, "key {key}");
    }
}

#[test]
fn contract_holds_over_mongodb_in_all_weathers() {
    run("mongodb-short", 60_000, 10_000, 1, Duration::from_secs(300));
}

#[test]
#[ignore = "long: more than a million reads and a hundred thousand changes, every weather ten times"]
fn contract_holds_over_mongodb_in_a_long_run() {
    run("mongodb-long", 1_000_000, 100_000, 10, Duration::from_secs(3600));
}

fn run(name: &str, reads: u64, changes: u64, rounds: u32, within: Duration) {
    let began = Instant::now();
    // The stand-in commits faster than a server; readers shall not starve of it.
    let habit = Habit { pause_us: 12_000, ..Habit::default() };
    let plan = Plan { keys: 5_000, sizes: Sizes { from: 100, to: 700 }, own: 20, habit, ..Plan::default() };
    let mut run: MongoRun = Trial::over(Mongo::create(&plan), plan);
    // Short lives, so that expiry is part of it; short time-outs, so that what is stalled is given up.
    let config = run.config().with(&[
        ("cache.ttl", "\"4s\""),
        ("cache.negative_ttl", "\"3s\""),
        ("source.read_timeout", "\"700ms\""),
        ("limits.request_timeout", "\"2s\""),
    ]);
    let first = run.serve(&config, &[]);
    run.start_writers();
    run.start_readers(6, Taste { recent: 65, ..Taste::default() });
    run.start_readers(2, Taste { pipeline: 6, recent: 65, ..Taste::default() });
    let mut random = Random(11);
    purge_for(&mut run, &mut random, BREAK);
    // One instance reads the database when the feed is behind, the other serves what it has and says so.
    let second = run.serve(&config.clone().set("cache.when_stale", "\"stale\""), &[]);
    let (mut came, mut primary) = (BTreeMap::<String, u64>::new(), 0);
    let end = began + within;
    for round in 0.. {
        let board = run.board.clone();
        let enough = board.reads.load(Ordering::Relaxed) >= reads && board.changes.load(Ordering::Relaxed) >= changes;
        if round >= rounds && enough {
            break;
        }
        for weather in shuffled(&mut random) {
            let done = [&run.board.reads, &run.board.changes].map(|count| count.load(Ordering::Relaxed));
            assert!(Instant::now() < end, "not within {within:?}: {done:?} reads and changes, {came:?}");
            come(&mut run, weather, [first, second], &mut primary, &mut random);
            *came.entry(format!("{weather:?}")).or_default() += 1;
        }
    }
    run.stop_writers();
    run.converged();
    run.stop_readers();
    let report = run.judge(&run.terms());
    run.assert_one_log();
    let mut summary = summarize(&run, name, began.elapsed());
    summary["worst_lag_ms"] = json!(report.worst_lag_ns as f64 / 1e6);
    summary["rules_applied"] = RULES.iter().map(|r| (format!("{r:?}"), json!(report.applied.get(r)))).collect();
    summary["weather"] = json!(came);
    println!("{summary:#}");
    keep(name, &summary);
    assert_counts(&summary, reads, changes);
    for rule in RULES {
        assert!(report.applied.get(&rule).is_some_and(|n| *n > 0), "{rule:?} had nothing to judge");
    }
}

/// A weather comes and goes, and both instances recover by themselves.
fn come(run: &mut MongoRun, weather: Weather, instances: [Instance; 2], primary: &mut usize, random: &mut Random) {
    let starts = |run: &MongoRun, instance| run.server(instance).metrics().sum("hotrow_feed_starts_total", &[]);
    let before = instances.map(|instance| (run.losses(instance, None), starts(run, instance)));
    let victim = random.one_of(&instances);
    weather.come(run, victim, primary, random);
    for (instance, (losses, started)) in instances.into_iter().zip(before) {
        if weather.ends_the_feed() {
            let again = || run.losses(instance, None) > losses && starts(run, instance) > started;
            await_until(&format!("a loss and a start after {weather:?}"), RECOVERY, again);
        }
        let mut admin = crate::harness::Client::connect(instance.admin);
        await_until(&format!("/readyz after {weather:?}"), RECOVERY, || admin.get("/readyz").status == 200);
    }
    purge_for(run, random, BREAK);
}

/// Purges now and then for a while.
fn purge_for(run: &mut MongoRun, random: &mut Random, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        purge_something(&mut run.purges, &run.board, random);
        run.pass(PURGE_EVERY);
    }
}

fn shuffled(random: &mut Random) -> [Weather; WEATHERS.len()] {
    let mut all = WEATHERS;
    for i in (1..all.len()).rev() {
        all.swap(i, random.below(i as u64 + 1) as usize);
    }
    all
}

fn assert_counts(summary: &Value, reads: u64, changes: u64) {
    let number = |path: &str| summary.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path}"));
    assert!(number("/reads") >= reads as f64 && number("/changes") >= changes as f64);
    assert!(number("/near_share") >= NEAR_SHARE_MIN, "too few reads near a change");
    assert_all(summary, &ORDINARY);
    assert_all(summary, &["refused", "outcomes/stale", "service/losses", "service/failed_keys"]);
    // Most of the time the weather is bad; even so most requests must be answered.
    let refused = number("/refused") / number("/reads");
    assert!(refused < 0.2, "{refused} of the reads were refused");
}
