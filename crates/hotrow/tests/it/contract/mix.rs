//! Contract under a mixed load: changes, deletes and re-inserts, hot and cold keys, batches,
//! no-cache, positions, conditional reads, purges, two instances, a cache smaller than the working
//! set.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::contract::board::Board;
use crate::contract::engine::Engine;
use crate::contract::faults::is_refused;
use crate::contract::pushed::followers::Extent;
use crate::contract::pushed::{judge_followers, with_changes};
use crate::contract::reader::ReadProfile;
use crate::contract::rows::Random;
use crate::contract::run::{Plan, Run, Trial};
use hotrow_testkit::harness::{Client, await_until};
use hotrow_testkit::mongo::Secantus;
use hotrow_testkit::mysql::Flavor;
use hotrow_verify::history::Ns;
use hotrow_verify::observation::{Claim, Form, Observation, Origin, Outcome, Purge, Requirement};

/// Distance within which a read counts as near a change.
const NEAR_NS: Ns = 10_000_000;
/// Time between two purges.
pub(crate) const PURGE_EVERY: Duration = Duration::from_millis(40);
/// One purge of this many covers the whole collection.
const PURGE_ALL_ONE_IN: u64 = 30;

#[test]
fn contract_holds_in_a_short_run() {
    mixed_run("short", Plan::default(), (40_000, 4_000), Duration::from_secs(300));
}

#[test]
fn contract_holds_over_a_view() {
    let plan = Plan { through_view: true, ..Plan::default() };
    mixed_run("view", plan, (20_000, 2_000), Duration::from_secs(300));
}

#[test]
#[ignore = "long: 1 million reads and 200 thousand changes"]
fn contract_holds_over_a_view_in_a_long_run() {
    let plan = Plan { through_view: true, ..Plan::default() };
    mixed_run("view-long", plan, (1_000_000, 200_000), Duration::from_secs(1200));
}

#[test]
#[ignore = "long: 1 million reads and 200 thousand changes, until the log is pruned"]
fn contract_holds_in_a_long_run() {
    let summary =
        mixed_run("long", Plan::default(), (1_000_000, 200_000), Duration::from_secs(1200));
    assert!(
        summary["log_pruned_to"].as_i64() > Some(0),
        "the log was not pruned, so pruning was not tested"
    );
}

fn mixed_run(name: &str, plan: Plan, (reads, changes): (u64, u64), within: Duration) -> Value {
    let began = Instant::now();
    let mut run = Run::new(plan);
    // Short TTLs, so that entries expire during the run.
    let config = run.config().set("cache.ttl", "\"4s\"").set("cache.negative_ttl", "\"3s\"");
    let config = with_changes(config);
    let first = run.serve(&config, &[]);
    run.start_follower(Extent::Collection, &[first]);
    run.start_writers();
    run.start_readers(6, ReadProfile::default());
    run.start_readers(2, ReadProfile { pipeline: 6, ..ReadProfile::default() });
    purge_until(&mut run, reads / 2, changes / 2, within);
    // The second instance starts on a warm database and a long log.
    let second = run.serve(&config, &[]);
    run.start_follower(Extent::Few, &[second, first]);
    purge_until(&mut run, reads, changes, within);
    run.stop_writers();
    run.converged();
    run.stop_readers();
    let report = run.judge(&run.terms());
    let mut summary = summarize(&run, name, began.elapsed());
    summary["log_pruned_to"] = json!(log_pruned_to(&run));
    summary["worst_lag_ms"] = json!(report.worst_lag_ns as f64 / 1e6);
    summary["rules_applied"] = report.rules_applied();
    judge_followers(&run, &mut summary);
    println!("{summary:#}");
    save_summary(name, &summary);
    assert_counts(&summary, reads, changes);
    report.assert_all_rules_applied();
    summary
}

/// Purges at intervals until the reads and changes have been made.
fn purge_until(run: &mut Run, reads: u64, changes: u64, within: Duration) {
    let mut random = Random(7);
    let end = Instant::now() + within;
    let board = run.board.clone();
    while board.reads.load(Ordering::Relaxed) < reads
        || board.changes.load(Ordering::Relaxed) < changes
    {
        run.await_counts(0, 0, within);
        assert!(Instant::now() < end, "not within {within:?}: {reads} reads and {changes} changes");
        purge_something(&mut run.purges, &board, &mut random);
        let due = board.now() + PURGE_EVERY.as_nanos() as Ns;
        await_until("the next purge", PURGE_EVERY * 100, || board.now() >= due);
    }
}

/// Purges a recently changed key, or sometimes all keys, at one of the instances.
pub(crate) fn purge_something(purges: &mut Vec<Purge>, board: &Board, random: &mut Random) {
    let instance = random.one_of(&board.instances());
    let all = (purges.len() as u64 + 1).is_multiple_of(PURGE_ALL_ONE_IN);
    let key = (!all).then(|| board.recent(random));
    let path = key.map_or("/purge/items".to_owned(), |key| format!("/purge/items/{key}"));
    let mut admin = Client::connect(instance.admin);
    let sent_ns = board.now();
    let answer = admin.change(&path, b"");
    let received_ns = board.now();
    assert!((200..300).contains(&answer.status), "{answer:?}");
    purges.push(Purge { key, origin: Origin::Instance(instance.id), sent_ns, received_ns });
}

/// Returns all counts of the test and of the instances.
pub(crate) fn summarize<E: Engine>(run: &Trial<E>, name: &str, took: Duration) -> Value {
    let seen = &run.observations;
    let count = |pick: &dyn Fn(&Observation) -> bool| seen.iter().filter(|o| pick(o)).count();
    let outcomes: BTreeMap<&str, usize> = [
        ("hit", count(&|o| o.outcome == Outcome::Hit)),
        ("miss", count(&|o| o.outcome == Outcome::Miss)),
        ("coalesced", count(&|o| o.outcome == Outcome::Coalesced)),
        ("stale", count(&|o| o.outcome == Outcome::Stale)),
        ("bypass", count(&|o| o.outcome == Outcome::Bypass)),
    ]
    .into();
    let near = run.reads_near_changes(NEAR_NS);
    let states = || run.histories.iter().flat_map(|history| history.iter().skip(1));
    let reinserts: usize = run
        .histories
        .iter()
        .map(|h| {
            let present: Vec<bool> = h.iter().map(|state| state.present).collect();
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
        "deletes": states().filter(|state| !state.present).count(),
        "reinserts": reinserts,
        "near": near,
        "near_share": near as f64 / seen.len() as f64,
        "in_batches": count(&|o| o.form.is_batch()),
        "conditional": count(&|o| o.form == Form::Conditional),
        "no_cache": count(&|o| o.requirement == Requirement::NoCache),
        "min_position": count(&|o| matches!(o.requirement, Requirement::OwnWrite { .. })),
        "sessions": count(&|o| matches!(o.requirement, Requirement::Session { .. })),
        "absent": count(&|o| o.seen == Claim::Absent),
        "refused": count(&is_refused),
        "purges_of_keys": run.purges.iter().filter(|p| p.key.is_some()).count(),
        "purges_of_all": run.purges.iter().filter(|p| p.key.is_none()).count(),
        "outcomes": outcomes,
        "service": service_counts(run),
    })
}

/// Returns the position up to which the instances have pruned the change log.
fn log_pruned_to(run: &Run) -> i64 {
    let sql = "SELECT pruned_to FROM _hotrow_meta";
    run.database.connection.query_row(sql, [], |row| row.get(0)).expect("the log's own table")
}

/// Returns the instances' counters, summed.
fn service_counts<E: Engine>(run: &Trial<E>) -> BTreeMap<String, f64> {
    let mut counts = BTreeMap::new();
    for metrics in run.servers.iter().map(hotrow_testkit::harness::Server::metrics) {
        let mut add = |name: &str, value: f64| *counts.entry(name.to_owned()).or_default() += value;
        for result in ["hit", "negative", "miss", "coalesced", "bypass"] {
            add(result, metrics.sum("hotrow_lookups_total", &[("outcome", result)]));
        }
        for cause in ["capacity", "invalidated", "purged"] {
            add(
                &format!("evicted_{cause}"),
                metrics.sum("hotrow_cache_evictions_total", &[("cause", cause)]),
            );
        }
        for name in [
            "fills_discarded",
            "fill_retries",
            "queries",
            "invalidations",
            "flushes",
            "failed_keys",
        ] {
            add(name, metrics.sum(&format!("hotrow_{name}_total"), &[]));
        }
        add("losses", metrics.sum("hotrow_feed_gaps_total", &[]));
    }
    counts
}

/// Asserts the counts that must not be 0.
fn assert_counts(summary: &Value, reads: u64, changes: u64) {
    let number = |path: &str| {
        summary.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path}"))
    };
    assert!(number("/reads") >= reads as f64 && number("/changes") >= changes as f64);
    assert!(number("/near") >= changes as f64, "too few reads near a change");
    assert_all(summary, &ORDINARY);
    assert_all(summary, &["service/fills_discarded"]);
    // Retries may be 0 but must be counted; without a fault there is no feed loss.
    number("/service/fill_retries");
    assert_eq!(number("/service/losses"), 0.0, "the feed lost its position");
    // A machine that stalls for a second may shed load; no other refusal is expected.
    assert!(number("/refused") <= number("/reads") / 100.0, "requests were refused");
}

/// Counts that must be above 0 in every run.
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
    "outcomes/coalesced",
    "outcomes/bypass",
    "service/hit",
    "service/negative",
    "service/miss",
    "service/coalesced",
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

/// Returns a name in which the engine's is that of the servers of this run.
pub(crate) fn by_servers(name: &str) -> String {
    let name = Flavor::of_run().dialect(name);
    if Secantus::is_chosen() { name.replace("mongodb", "secantusdb") } else { name }
}

/// Writes the summary to the folder that HOTROW_RESULTS_DIR names, if set.
pub(crate) fn save_summary(name: &str, summary: &Value) {
    let Some(folder) = std::env::var_os("HOTROW_RESULTS_DIR") else { return };
    let file = by_servers(&format!("contract-{name}.json"));
    let path = std::path::Path::new(&folder).join(file);
    std::fs::create_dir_all(&folder).expect("the folder for results");
    std::fs::write(&path, format!("{summary:#}\n")).expect("write the summary");
}
