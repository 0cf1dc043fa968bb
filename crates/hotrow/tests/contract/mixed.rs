//! Everything at once over a server: changes of every kind, reads of every kind, purges, a cache smaller than the working set,
//! two instances, and all weathers of an engine, each several times.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::board::Instance;
use crate::engine::Engine;
use crate::harness::await_until;
use crate::mix::{ORDINARY, PURGE_EVERY, assert_all, keep, purge_something, summarize};
use crate::reader::Taste;
use crate::rows::Random;
use crate::rules::RULES;
use crate::run::Trial;

/// Good weather between two bad ones.
const BREAK: Duration = Duration::from_millis(500);
/// How long the service may take to come back by itself, its back-off included.
pub(crate) const RECOVERY: Duration = Duration::from_secs(15);

/// What can go wrong over an engine.
pub(crate) trait Weathers<E: Engine> {
    /// One disturbance.
    type Weather: Copy + Debug + 'static;

    const ALL: &'static [Self::Weather];

    /// Whether the feed loses its place by it.
    fn ends_the_feed(weather: Self::Weather) -> bool;

    /// Comes and goes; `victim` is the instance to suffer, where it is one.
    fn come(&mut self, run: &mut Trial<E>, weather: Self::Weather, victim: Instance, random: &mut Random);

    /// Every position that the run saw is of one log.
    fn assert_one_log(run: &Trial<E>);
}

/// How much is to be done.
pub(crate) struct Aim {
    pub(crate) name: &'static str,
    pub(crate) reads: u64,
    pub(crate) changes: u64,
    /// How often each weather comes, at least.
    pub(crate) rounds: u32,
    pub(crate) within: Duration,
}

/// Carries it out, judges every answer, and keeps the counts.
pub(crate) fn run<E: Engine, W: Weathers<E>>(mut run: Trial<E>, mut sky: W, aim: &Aim) {
    let began = Instant::now();
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
    let mut came: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0.. {
        let done = [&run.board.reads, &run.board.changes].map(|count| count.load(Ordering::Relaxed));
        if round >= aim.rounds && done[0] >= aim.reads && done[1] >= aim.changes {
            break;
        }
        for weather in shuffled(W::ALL, &mut random) {
            let in_time = began.elapsed() < aim.within;
            assert!(in_time, "not within {:?}: {done:?} reads and changes, {came:?}", aim.within);
            come(&mut run, &mut sky, weather, [first, second], &mut random);
            *came.entry(format!("{weather:?}")).or_default() += 1;
        }
    }
    run.stop_writers();
    run.converged();
    run.stop_readers();
    judge::<E, W>(&run, aim, began.elapsed(), &came);
}

fn judge<E: Engine, W: Weathers<E>>(run: &Trial<E>, aim: &Aim, took: Duration, came: &BTreeMap<String, u64>) {
    let report = run.judge(&run.terms());
    W::assert_one_log(run);
    let mut summary = summarize(run, aim.name, took);
    summary["worst_lag_ms"] = json!(report.worst_lag_ns as f64 / 1e6);
    summary["rules_applied"] = RULES.iter().map(|r| (format!("{r:?}"), json!(report.applied.get(r)))).collect();
    summary["weather"] = json!(came);
    println!("{summary:#}");
    keep(aim.name, &summary);
    assert_counts(&summary, aim);
    for rule in RULES {
        assert!(report.applied.get(&rule).is_some_and(|n| *n > 0), "{rule:?} had nothing to judge");
    }
}

/// A weather comes and goes, and both instances recover by themselves.
fn come<E: Engine, W: Weathers<E>>(
    run: &mut Trial<E>,
    sky: &mut W,
    weather: W::Weather,
    instances: [Instance; 2],
    random: &mut Random,
) {
    let starts = |run: &Trial<E>, instance| run.server(instance).metrics().sum("hotrow_feed_starts_total", &[]);
    let before = instances.map(|instance| (run.losses(instance, None), starts(run, instance)));
    let victim = random.one_of(&instances);
    sky.come(run, weather, victim, random);
    for (instance, (losses, started)) in instances.into_iter().zip(before) {
        if W::ends_the_feed(weather) {
            let again = || run.losses(instance, None) > losses && starts(run, instance) > started;
            await_until(&format!("a loss and a start after {weather:?}"), RECOVERY, again);
        }
        let mut admin = crate::harness::Client::connect(instance.admin);
        await_until(&format!("/readyz after {weather:?}"), RECOVERY, || admin.get("/readyz").status == 200);
    }
    purge_for(run, random, BREAK);
    // What ends sessions may be noticed late: the next weather must find a feed that it can end.
    for instance in instances {
        let mut admin = crate::harness::Client::connect(instance.admin);
        await_until(&format!("/readyz long after {weather:?}"), RECOVERY, || admin.get("/readyz").status == 200);
    }
}

/// Purges now and then for a while.
fn purge_for<E: Engine>(run: &mut Trial<E>, random: &mut Random, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        purge_something(&mut run.purges, &run.board, random);
        run.pass(PURGE_EVERY);
    }
}

fn shuffled<T: Copy>(all: &[T], random: &mut Random) -> Vec<T> {
    let mut all = all.to_vec();
    for i in (1..all.len()).rev() {
        all.swap(i, random.below(i as u64 + 1) as usize);
    }
    all
}

fn assert_counts(summary: &Value, aim: &Aim) {
    let number = |path: &str| summary.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path}"));
    assert!(number("/reads") >= aim.reads as f64 && number("/changes") >= aim.changes as f64);
    assert!(number("/near") >= aim.changes as f64, "too few reads near a change");
    assert_all(summary, &ORDINARY);
    assert_all(summary, &["refused", "outcomes/stale", "service/losses", "service/failed_keys"]);
    // Most of the time the weather is bad; even so most requests must be answered. Who is refused asks again at once, whatever the
    // machine does: a slow one refuses a larger share.
    let refused = number("/refused") / number("/reads");
    assert!(refused < 0.5, "{refused} of the reads were refused");
}
