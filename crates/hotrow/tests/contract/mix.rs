//! The contract under everything at once (DESIGN "How it is tested"): changes, deletes and re-inserts, hot and cold keys,
//! batches, no-cache, positions, conditions, purges, two instances, a cache smaller than the working set.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::board::Board;
use crate::engine::Engine;
use crate::harness::{Client, await_until};
use crate::history::Ns;
use crate::observation::{Observation, Outcome, Purge, Seen, Wish};
use crate::reader::Taste;
use crate::rows::Random;
use crate::rules::{RULES, reads_near_changes};
use crate::run::{Plan, Run, Trial};

/// A read counts as near a change within this time.
const NEAR_NS: Ns = 10_000_000;
/// Between two purges.
pub(crate) const PURGE_EVERY: Duration = Duration::from_millis(40);
/// Of so many purges, one is of the whole collection.
const PURGE_ALL_ONE_IN: u64 = 30;

#[test]
fn contract_holds_in_a_short_run() {
    mixed_run("short", 100_000, 10_000, Duration::from_secs(60));
}

#[test]
#[ignore = "long: more than a million reads and two hundred thousand changes, until the log is pruned under way"]
fn contract_holds_in_a_long_run() {
    let summary = mixed_run("long", 1_000_000, 200_000, Duration::from_secs(1200));
    assert!(summary["log_pruned_to"].as_i64() > Some(0), "the log was not pruned, so that was not part of it");
}

fn mixed_run(name: &str, reads: u64, changes: u64, within: Duration) -> Value {
    let began = Instant::now();
    let mut run = Run::new(Plan::default());
    // Short lives, so that expiry is part of it.
    let config = run.config().set("cache.ttl", "\"4s\"").set("cache.negative_ttl", "\"3s\"");
    run.serve(&config, &[]);
    run.start_writers();
    run.start_readers(6, Taste::default());
    run.start_readers(2, Taste { pipeline: 6, ..Taste::default() });
    purge_until(&mut run, reads / 2, changes / 2, within);
    // The second instance comes to a warm database and a log that is long already.
    run.serve(&config, &[]);
    purge_until(&mut run, reads, changes, within);
    run.stop_writers();
    run.converged();
    run.stop_readers();
    let report = run.judge(&run.terms());
    let mut summary = summarize(&run, name, began.elapsed());
    summary["log_pruned_to"] = json!(log_pruned_to(&run));
    summary["worst_lag_ms"] = json!(report.worst_lag_ns as f64 / 1e6);
    summary["rules_applied"] = RULES.iter().map(|r| (format!("{r:?}"), json!(report.applied.get(r)))).collect();
    println!("{summary:#}");
    keep(name, &summary);
    assert_counts(&summary, reads, changes);
    for rule in RULES {
        assert!(report.applied.get(&rule).is_some_and(|n| *n > 0), "{rule:?} had nothing to judge");
    }
    summary
}

/// Purges now and then until so much has been read and written.
fn purge_until(run: &mut Run, reads: u64, changes: u64, within: Duration) {
    let mut random = Random(7);
    let end = Instant::now() + within;
    let board = run.board.clone();
    while board.reads.load(Ordering::Relaxed) < reads || board.changes.load(Ordering::Relaxed) < changes {
        run.await_counts(0, 0, within);
        assert!(Instant::now() < end, "not within {within:?}: {reads} reads and {changes} changes");
        purge_something(&mut run.purges, &board, &mut random);
        let due = board.now() + PURGE_EVERY.as_nanos() as Ns;
        await_until("the next purge", PURGE_EVERY * 100, || board.now() >= due);
    }
}

/// Purges a key that was just changed, or now and then all, at one of the instances.
pub(crate) fn purge_something(purges: &mut Vec<Purge>, board: &Board, random: &mut Random) {
    let instance = random.one_of(&board.instances());
    let all = (purges.len() as u64 + 1).is_multiple_of(PURGE_ALL_ONE_IN);
    let key = (!all).then(|| board.recent(random));
    let path = key.map_or("/purge/items".to_owned(), |key| format!("/purge/items/{key}"));
    let mut admin = Client::connect(instance.admin);
    let sent_ns = board.now();
    let answer = admin.post(&path, b"");
    let received_ns = board.now();
    assert!((200..300).contains(&answer.status), "{answer:?}");
    purges.push(Purge { instance: instance.id, key, sent_ns, received_ns });
}

/// Everything that was counted, by the test and by the instances.
pub(crate) fn summarize<E: Engine>(run: &Trial<E>, name: &str, took: Duration) -> Value {
    let seen = &run.observations;
    let count = |pick: &dyn Fn(&Observation) -> bool| seen.iter().filter(|o| pick(o)).count();
    let outcomes: BTreeMap<&str, usize> = [
        ("hit", count(&|o| o.outcome == Outcome::Hit)),
        ("miss", count(&|o| o.outcome == Outcome::Miss)),
        ("wait", count(&|o| o.outcome == Outcome::Wait)),
        ("stale", count(&|o| o.outcome == Outcome::Stale)),
        ("bypass", count(&|o| o.outcome == Outcome::Bypass)),
    ]
    .into();
    let near = reads_near_changes(&run.histories, seen, NEAR_NS);
    let states = || run.histories.iter().flat_map(|history| history.iter().skip(1));
    let reinserts: usize = run
        .histories
        .iter()
        .map(|h| {
            let present: Vec<bool> = h.iter().map(|(_, state)| state.present).collect();
            present.windows(3).filter(|w| w[0] && !w[1] && w[2]).count()
        })
        .sum();
    json!({
        "schema": "hotrow.contract/1",
        "run": name,
        "took_s": took.as_secs_f64(),
        "instances": run.servers.len(),
        "reads": seen.len(),
        "changes": states().count(),
        "deletes": states().filter(|(_, state)| !state.present).count(),
        "reinserts": reinserts,
        "near": near,
        "near_share": near as f64 / seen.len() as f64,
        "in_batches": count(&|o| o.batch),
        "conditional": count(&|o| o.conditional),
        "no_cache": count(&|o| o.wish == Wish::New),
        "min_position": count(&|o| matches!(o.wish, Wish::AtLeast(_))),
        "sessions": count(&|o| matches!(o.wish, Wish::Session { .. })),
        "absent": count(&|o| o.seen == Seen::Absent),
        "refused": count(&|o| matches!(o.seen, Seen::Refused(_))),
        "purges_of_keys": run.purges.iter().filter(|p| p.key.is_some()).count(),
        "purges_of_all": run.purges.iter().filter(|p| p.key.is_none()).count(),
        "outcomes": outcomes,
        "service": service_counts(run),
    })
}

/// Up to where the instances have pruned the change log.
fn log_pruned_to(run: &Run) -> i64 {
    let sql = "SELECT pruned_to FROM _hotrow_meta";
    run.database.connection.query_row(sql, [], |row| row.get(0)).expect("the log's own table")
}

/// Counts that the instances made, added up.
fn service_counts<E: Engine>(run: &Trial<E>) -> BTreeMap<String, f64> {
    let mut counts = BTreeMap::new();
    for metrics in run.servers.iter().map(crate::harness::Server::metrics) {
        let mut add = |name: &str, value: f64| *counts.entry(name.to_owned()).or_default() += value;
        for result in ["hit", "negative", "miss", "wait", "bypass"] {
            add(result, metrics.sum("hotrow_lookups_total", &[("result", result)]));
        }
        for cause in ["capacity", "invalidated", "purged"] {
            add(&format!("evicted_{cause}"), metrics.sum("hotrow_cache_evictions_total", &[("cause", cause)]));
        }
        for name in ["dead_leases", "rereads", "queries", "invalidations", "flushes", "failed_keys"] {
            add(name, metrics.sum(&format!("hotrow_{name}_total"), &[]));
        }
        add("losses", metrics.sum("hotrow_feed_losses_total", &[]));
    }
    counts
}

/// Every count that must not be nothing.
fn assert_counts(summary: &Value, reads: u64, changes: u64) {
    let number = |path: &str| summary.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path}"));
    assert!(number("/reads") >= reads as f64 && number("/changes") >= changes as f64);
    assert!(number("/near") >= changes as f64, "too few reads near a change");
    assert_all(summary, &ORDINARY);
    assert_all(summary, &["service/dead_leases"]);
    // May be 0, must be counted; a loss is none here, for nothing went wrong.
    number("/service/rereads");
    assert_eq!(number("/service/losses"), 0.0, "the feed lost its place");
    // A machine that stands still for a second may shed, and that is all.
    assert!(number("/refused") <= number("/reads") / 100.0, "requests were refused");
}

/// What every run must have had some of.
pub(crate) const ORDINARY: [&str; 24] = [
    "deletes",
    "reinserts",
    "in_batches",
    "conditional",
    "no_cache",
    "min_position",
    "sessions",
    "absent",
    "purges_of_keys",
    "purges_of_all",
    "outcomes/hit",
    "outcomes/miss",
    "outcomes/wait",
    "outcomes/bypass",
    "service/hit",
    "service/negative",
    "service/miss",
    "service/wait",
    "service/bypass",
    "service/evicted_capacity",
    "service/evicted_invalidated",
    "service/evicted_purged",
    "service/invalidations",
    "service/flushes",
];

/// Asserts that none of these counts is 0.
pub(crate) fn assert_all(summary: &Value, paths: &[&str]) {
    for path in paths {
        let count = summary.pointer(&format!("/{path}")).and_then(Value::as_f64);
        assert!(count.is_some_and(|count| count > 0.0), "{path}: none");
    }
}

/// Keeps the summary where the environment says.
pub(crate) fn keep(name: &str, summary: &Value) {
    let Some(folder) = std::env::var_os("HOTROW_RESULTS_DIR") else { return };
    let path = std::path::Path::new(&folder).join(format!("contract-{name}.json"));
    std::fs::create_dir_all(&folder).expect("the folder for results");
    std::fs::write(&path, format!("{summary:#}\n")).expect("write the summary");
}
