//! Contract over a database server under a mixed load with faults: changes and reads of every kind,
//! purges, a cache smaller than the working set, two instances, and every disturbance of an engine
//! several times.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::contract::board::Instance;
use crate::contract::engine::Engine;
use crate::contract::mix::{
    ORDINARY, PURGE_EVERY, assert_all, purge_something, save_summary, summarize,
};
use crate::contract::reader::ReadProfile;
use crate::contract::rows::Random;
use crate::contract::rules::RULES;
use crate::contract::run::Trial;
use hotrow_testkit::harness::await_until;

/// Undisturbed time between two disturbances.
const UNDISTURBED: Duration = Duration::from_millis(500);
/// Longest time for the service to recover unaided: 10 s until a hung session is given up, then the
/// back-off and the server's own recovery.
pub(crate) const RECOVERY: Duration = Duration::from_secs(40);

/// Disturbances of an engine.
pub(crate) trait Disturbances<E: Engine> {
    /// One disturbance.
    type Disturbance: Copy + Debug + 'static;

    const ALL: &'static [Self::Disturbance];

    /// Returns true if the disturbance ends the feed.
    fn ends_the_feed(disturbance: Self::Disturbance) -> bool;

    /// Applies the disturbance and ends it; `victim` is the instance that it affects, if it affects
    /// one.
    fn apply(
        &mut self,
        run: &mut Trial<E>,
        disturbance: Self::Disturbance,
        victim: Instance,
        random: &mut Random,
    );

    /// Asserts that every position of the run belongs to one log.
    fn assert_one_log(run: &Trial<E>);
}

/// Size of a run.
pub(crate) struct Goal {
    pub(crate) name: &'static str,
    pub(crate) reads: u64,
    pub(crate) changes: u64,
    /// Least number of times that each disturbance is applied.
    pub(crate) rounds: u32,
    pub(crate) within: Duration,
}

/// Carries out the run, judges every answer and saves the counts.
pub(crate) fn run<E: Engine, W: Disturbances<E>>(mut run: Trial<E>, mut disturber: W, goal: &Goal) {
    let began = Instant::now();
    // Short TTLs, so that entries expire; short time-outs, so that stalled operations are given up.
    let config = run.config().with(&[
        ("cache.ttl", "\"4s\""),
        ("cache.negative_ttl", "\"3s\""),
        ("source.read_timeout", "\"700ms\""),
        ("limits.request_timeout", "\"2s\""),
    ]);
    let first = run.serve(&config, &[]);
    run.start_writers();
    run.start_readers(6, ReadProfile { recent: 65, ..ReadProfile::default() });
    run.start_readers(2, ReadProfile { pipeline: 6, recent: 65, ..ReadProfile::default() });
    let mut random = Random(11);
    purge_for(&mut run, &mut random, UNDISTURBED);
    // While the feed is behind, one instance reads the database and the other serves stale answers,
    // marked.
    let second = run.serve(&config.clone().set("cache.when_stale", "\"stale\""), &[]);
    let mut applied: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0.. {
        let done =
            [&run.board.reads, &run.board.changes].map(|count| count.load(Ordering::Relaxed));
        if round >= goal.rounds && done[0] >= goal.reads && done[1] >= goal.changes {
            break;
        }
        for disturbance in shuffled(W::ALL, &mut random) {
            let in_time = began.elapsed() < goal.within;
            assert!(
                in_time,
                "not within {:?}: {done:?} reads and changes, {applied:?}",
                goal.within
            );
            disturb(&mut run, &mut disturber, disturbance, [first, second], &mut random);
            *applied.entry(format!("{disturbance:?}")).or_default() += 1;
        }
    }
    run.stop_writers();
    run.converged();
    run.stop_readers();
    judge::<E, W>(&run, goal, began.elapsed(), &applied);
}

fn judge<E: Engine, W: Disturbances<E>>(
    run: &Trial<E>,
    goal: &Goal,
    took: Duration,
    applied: &BTreeMap<String, u64>,
) {
    let report = run.judge(&run.terms());
    W::assert_one_log(run);
    let mut summary = summarize(run, goal.name, took);
    summary["worst_lag_ms"] = json!(report.worst_lag_ns as f64 / 1e6);
    summary["rules_applied"] =
        RULES.iter().map(|r| (format!("{r:?}"), json!(report.applied.get(r)))).collect();
    summary["disturbances"] = json!(applied);
    println!("{summary:#}");
    save_summary(goal.name, &summary);
    assert_counts(&summary, goal);
    for rule in RULES {
        assert!(report.applied.get(&rule).is_some_and(|n| *n > 0), "{rule:?} had nothing to judge");
    }
}

/// Applies a disturbance and waits until both instances have recovered unaided.
fn disturb<E: Engine, W: Disturbances<E>>(
    run: &mut Trial<E>,
    disturber: &mut W,
    disturbance: W::Disturbance,
    instances: [Instance; 2],
    random: &mut Random,
) {
    let starts = |run: &Trial<E>, instance| {
        run.server(instance).metrics().sum("hotrow_feed_starts_total", &[])
    };
    let before = instances.map(|instance| (run.losses(instance, None), starts(run, instance)));
    let victim = random.one_of(&instances);
    disturber.apply(run, disturbance, victim, random);
    for (instance, (losses, started)) in instances.into_iter().zip(before) {
        if W::ends_the_feed(disturbance) {
            let again = || run.losses(instance, None) > losses && starts(run, instance) > started;
            await_until(&format!("a loss and a start after {disturbance:?}"), RECOVERY, again);
        }
        let mut admin = hotrow_testkit::harness::Client::connect(instance.admin);
        await_until(&format!("/readyz after {disturbance:?}"), RECOVERY, || {
            admin.get("/readyz").status == 200
        });
    }
    purge_for(run, random, UNDISTURBED);
    // The end of a session may be noticed late: the next disturbance must find a live feed.
    for instance in instances {
        let mut admin = hotrow_testkit::harness::Client::connect(instance.admin);
        await_until(&format!("/readyz long after {disturbance:?}"), RECOVERY, || {
            admin.get("/readyz").status == 200
        });
    }
}

/// Purges at intervals for this time.
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

fn assert_counts(summary: &Value, goal: &Goal) {
    let number = |path: &str| {
        summary.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path}"))
    };
    assert!(number("/reads") >= goal.reads as f64 && number("/changes") >= goal.changes as f64);
    assert!(number("/near") >= goal.changes as f64, "too few reads near a change");
    assert_all(summary, &ORDINARY);
    assert_all(summary, &["refused", "outcomes/stale", "service/losses", "service/failed_keys"]);
    // The feed is disturbed most of the time; still, most requests must be answered. A refused
    // reader repeats at once, so a slow machine refuses a larger share.
    let refused = number("/refused") / number("/reads");
    assert!(refused < 0.5, "{refused} of the reads were refused");
}
