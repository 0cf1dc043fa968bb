//! Contract over a database server under a mixed load with faults: changes and reads of every kind,
//! purges, a cache smaller than the working set, two instances, and every disturbance of an engine
//! several times.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::contract::board::Instance;
use crate::contract::disturbances::Disturbance;
use crate::contract::engine::Engine;
use crate::contract::mix::{
    ORDINARY, PURGE_EVERY, assert_all, by_servers, purge_something, save_summary, summarize,
};
use crate::contract::networked::Networked;
use crate::contract::pushed::followers::Extent;
use crate::contract::pushed::{self, with_pushes};
use crate::contract::reader::ReadProfile;
use crate::contract::rows::{Random, Sizes};
use crate::contract::run::{Plan, Trial};
use crate::contract::writer::WriteProfile;
use hotrow_testkit::harness::{Config, await_until};

/// Reads of the short run, at least: less than one round of disturbances makes. The simulator makes
/// millions, and the long run a million.
const READS_SHORT: u64 = 20_000;
/// The same of reads over the Redis protocol, copies included, where the engine's run has them.
const REDIS_READS_SHORT: u64 = 5_000;
/// Wait of a reader after each request of the short run, and after a refusal. The disturbances
/// take half a minute: without this, readers and writers make eight times as many reads and changes
/// as the run asks for, with the CPU time of the tests beside it.
const PAUSE_SHORT: Duration = Duration::from_millis(10);
/// Undisturbed time between two disturbances.
const UNDISTURBED: Duration = Duration::from_millis(500);
const UNDISTURBED_SHORT: Duration = Duration::from_millis(250);
/// Writers of the short run wait as many times longer.
const WRITERS_SLOWER_SHORT: u64 = 8;
/// Longest time for the service to recover unaided: 10 s until a hung session is given up, then the
/// back-off and the server's own recovery.
const RECOVERY: Duration = Duration::from_secs(40);

/// Size of a run.
struct Goal<E: Networked> {
    name: String,
    disturbances: fn() -> Vec<Disturbance<E>>,
    reads: u64,
    /// Reads over the Redis protocol, copies included.
    redis_reads: u64,
    /// Readers over it.
    copy_readers: u16,
    changes: u64,
    /// Least number of times that each disturbance is applied.
    rounds: u32,
    /// Wait of a reader after each request.
    pause: Duration,
    undisturbed: Duration,
    /// By how much longer than in its plan a writer waits.
    writers_slower: u64,
    within: Duration,
}

impl<E: Networked> Goal<E> {
    fn plan(&self) -> Plan {
        let plan = E::mixed_plan();
        let pause_us = plan.write_profile.pause_us * self.writers_slower;
        Plan { write_profile: WriteProfile { pause_us, ..plan.write_profile }, ..plan }
    }
}

/// Test of the writers: their histories equal the database after every fault.
pub(crate) fn histories_equal_the_database_after_crashes<E: Networked>() {
    let sizes = Sizes { from: 10, to: 90 };
    let mut run = Trial::<E>::networked(Plan { keys: 300, sizes, reserved: 5, ..Plan::default() });
    run.start_writers();
    for round in 1..=4 {
        run.await_counts(0, 300 * round, RECOVERY);
        run.database.kill();
        run.restart();
        run.change_reserved();
        E::after_crash(&mut run, round);
    }
    run.await_counts(0, 300 * 5, RECOVERY);
    run.stop_writers();
    let rows = <E as Engine>::rows(&run.database);
    for (key, history) in run.histories.iter().enumerate() {
        let last = history.last().present.then_some(history.last().version);
        assert_eq!(rows.get(&(key as u32)).copied(), last, "key {key}");
    }
    let newest = run.histories.iter().filter_map(|h| h.last().log).map(|log| log.at).max();
    assert!(newest <= Some(run.database.log_end()), "a commit past the log's end");
}

pub(crate) fn contract_holds_under_every_disturbance<E: Networked>() {
    run::<E>(&Goal {
        name: kept_name::<E>("short"),
        disturbances: E::own_disturbances,
        reads: READS_SHORT,
        redis_reads: if E::HAS_PUSHES { REDIS_READS_SHORT } else { 0 },
        copy_readers: 1,
        changes: READS_SHORT / 10,
        rounds: 1,
        pause: PAUSE_SHORT,
        undisturbed: UNDISTURBED_SHORT,
        writers_slower: WRITERS_SLOWER_SHORT,
        within: Duration::from_secs(300),
    });
}

pub(crate) fn contract_holds_in_a_long_run<E: Networked>() {
    run::<E>(&Goal {
        name: kept_name::<E>("long"),
        disturbances: E::disturbances,
        reads: 1_000_000,
        redis_reads: if E::HAS_PUSHES { 1_000_000 } else { 0 },
        copy_readers: 4,
        changes: 100_000,
        rounds: 10,
        pause: ReadProfile::default().pause,
        undisturbed: UNDISTURBED,
        writers_slower: 1,
        within: Duration::from_secs(3600),
    });
}

/// Returns the name of a run's result.
fn kept_name<E: Networked>(form: &str) -> String {
    by_servers(&format!("{}-{form}", E::NAME))
}

/// Carries out the run, judges every answer and saves the counts.
fn run<E: Networked>(goal: &Goal<E>) {
    let mut run = Trial::<E>::networked(goal.plan());
    let began = Instant::now();
    // Short TTLs, so that entries expire; short time-outs, so that stalled operations are given up.
    let config = run.config().with(&[
        ("cache.ttl", "\"4s\""),
        ("cache.negative_ttl", "\"3s\""),
        ("source.read_timeout", "\"700ms\""),
        ("limits.request_timeout", "\"2s\""),
    ]);
    let config = if E::HAS_PUSHES { with_pushes(config) } else { config };
    let first = serve(&mut run, &config);
    run.start_writers();
    let reads = ReadProfile { recent: 65, pause: goal.pause, ..ReadProfile::default() };
    run.start_readers(6, reads);
    run.start_readers(2, ReadProfile { pipeline: 6, ..reads });
    if E::HAS_PUSHES {
        run.start_copy_readers(goal.copy_readers);
        run.start_follower(Extent::Collection, &[first]);
    }
    let mut random = Random(11);
    purge_for(&mut run, &mut random, goal.undisturbed);
    // While the feed is behind, one instance reads the database and the other serves stale answers,
    // marked.
    let second = serve(&mut run, &config.clone().set("cache.when_stale", "\"stale\""));
    if E::HAS_PUSHES {
        run.start_follower(Extent::Collection, &[second, first]);
        run.start_follower(Extent::Few, &[first, second]);
    }
    let mut applied: BTreeMap<&str, u64> = BTreeMap::new();
    for round in 0.. {
        let done = [&run.board.reads, &run.board.redis_reads, &run.board.changes]
            .map(|count| count.load(Ordering::Relaxed));
        let goals = [goal.reads, goal.redis_reads, goal.changes];
        if round >= goal.rounds && done.iter().zip(goals).all(|(done, goal)| *done >= goal) {
            break;
        }
        for disturbance in shuffled((goal.disturbances)(), &mut random) {
            let in_time = began.elapsed() < goal.within;
            assert!(
                in_time,
                "not within {:?}: {done:?} reads and changes, {applied:?}",
                goal.within
            );
            disturb(&mut run, &disturbance, [first, second], goal.undisturbed, &mut random);
            *applied.entry(disturbance.name).or_default() += 1;
        }
    }
    run.stop_writers();
    run.converged();
    run.stop_readers();
    judge(&run, goal, began.elapsed(), &applied);
}

/// Starts an instance, which purges a cache in front if it pushes.
fn serve<E: Networked>(run: &mut Trial<E>, config: &Config) -> Instance {
    let config = if E::HAS_PUSHES { run.purged(config) } else { config.clone() };
    run.serve(&config, &[])
}

fn judge<E: Networked>(
    run: &Trial<E>,
    goal: &Goal<E>,
    took: Duration,
    applied: &BTreeMap<&str, u64>,
) {
    let report = run.judge(&run.terms());
    run.assert_known_logs();
    let mut summary = summarize(run, &goal.name, took);
    summary["worst_lag_ms"] = json!(report.worst_lag_ns as f64 / 1e6);
    summary["rules_applied"] = report.rules_applied();
    summary["disturbances"] = json!(applied);
    if E::HAS_PUSHES {
        pushed::judge(run, &mut summary);
    }
    E::after_mixed_run(run, &mut summary);
    println!("{summary:#}");
    save_summary(&goal.name, &summary);
    assert_counts(&summary, goal);
    if E::HAS_PUSHES {
        pushed::assert_counts(&summary);
        let reads = summary["near_caches"]["reads"].as_u64();
        assert!(reads >= Some(goal.redis_reads), "{summary:#}");
    }
    report.assert_all_rules_applied();
}

/// Applies a disturbance, waits until both instances have recovered unaided, and leaves them
/// undisturbed for a while.
fn disturb<E: Networked>(
    run: &mut Trial<E>,
    disturbance: &Disturbance<E>,
    instances: [Instance; 2],
    undisturbed: Duration,
    random: &mut Random,
) {
    let starts = |run: &Trial<E>, instance| {
        run.server(instance).metrics().sum("hotrow_feed_starts_total", &[])
    };
    let before = instances.map(|instance| (run.losses(instance, None), starts(run, instance)));
    let victim = random.one_of(&instances);
    disturbance.apply(run, victim, random);
    let name = disturbance.name;
    for (instance, (losses, started)) in instances.into_iter().zip(before) {
        if disturbance.ends_the_feed {
            let again = || run.losses(instance, None) > losses && starts(run, instance) > started;
            await_until(&format!("a loss and a start after {name}"), RECOVERY, again);
        }
        let mut admin = hotrow_testkit::harness::Client::connect(instance.admin);
        await_until(&format!("/readyz after {name}"), RECOVERY, || {
            admin.get("/readyz").status == 200
        });
    }
    purge_for(run, random, undisturbed);
    // The end of a session may be noticed late: the next disturbance must find a live feed. An
    // instance is also ready while it passes reads on to the database.
    for instance in instances {
        let mut admin = hotrow_testkit::harness::Client::connect(instance.admin);
        await_until(&format!("a live feed long after {name}"), RECOVERY, || {
            let is_ready = admin.get("/readyz").status == 200;
            let status = admin.get("/status").json();
            is_ready && status["sources"]["default"]["feed"]["current"] == true
        });
    }
}

/// Purges at intervals for this time.
fn purge_for<E: Networked>(run: &mut Trial<E>, random: &mut Random, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        purge_something(&mut run.purges, &run.board, random);
        run.pass(PURGE_EVERY);
    }
}

fn shuffled<T>(mut all: Vec<T>, random: &mut Random) -> Vec<T> {
    for i in (1..all.len()).rev() {
        all.swap(i, random.below(i as u64 + 1) as usize);
    }
    all
}

fn assert_counts<E: Networked>(summary: &Value, goal: &Goal<E>) {
    let number = |path: &str| {
        summary.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path}"))
    };
    assert!(number("/reads") >= goal.reads as f64 && number("/changes") >= goal.changes as f64);
    assert!(number("/near") >= goal.changes as f64, "too few reads near a change");
    assert_all(summary, &ORDINARY);
    assert_all(summary, &["refused", "outcomes/stale", "service/failed_keys"]);
    if (goal.disturbances)().iter().any(|disturbance| disturbance.ends_the_feed) {
        assert_all(summary, &["service/losses"]);
    }
    // The feed is disturbed most of the time; still, most requests must be answered. A refused
    // reader repeats at once, so a slow machine refuses a larger share.
    let refused = number("/refused") / number("/reads");
    assert!(refused < 0.5, "{refused} of the reads were refused");
}
