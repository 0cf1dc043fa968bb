//! Faults for a minute, one at a time, while the checker writes to the database and reads from two
//! instances and through a balancer in front of them. Each engine has a table of its faults.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::backend::Backend;
use crate::verify::balancer::Balancer;
use crate::verify::checker::{ALL_RULES, assert_all_rules, assert_near_caches};
use crate::verify::stage::{Deployment, Stage, pass_while};
use hotrow_testkit::harness::{SOON, await_until};

/// Duration of the checker's run.
const CHECK_DURATION: Duration = Duration::from_secs(60);
/// Duration of one that is to make a million reads of records with parts.
const LONG_CHECK_DURATION: Duration = Duration::from_secs(180);
/// Durations of faults, in turn: one shorter and one longer than the bound of 1 s.
const DURATIONS: [Duration; 2] = [Duration::from_millis(400), Duration::from_millis(2200)];
/// Time without faults between two of them.
const UNDISTURBED: Duration = Duration::from_millis(500);
/// Time before the end in which no fault begins, so that the last one ends before the final
/// comparison.
const LAST_BEFORE_END: Duration = Duration::from_secs(3);
/// Fewest checks; the tests share two cores.
const READS_MIN: u64 = 5_000;
const CHANGES_MIN: u64 = 500;

/// A fault.
pub(crate) struct Fault<S> {
    pub(crate) name: &'static str,
    /// True if the first instance must lose its position in the feed.
    pub(crate) is_a_loss: bool,
    pub(crate) begin: fn(&mut Deployment<S>),
    pub(crate) end: fn(&mut Deployment<S>),
}

/// A stage with a database from which everything else has its rows.
pub(crate) trait HasPrimary {
    type Primary: Backend;

    fn primary(&mut self) -> &mut Self::Primary;
}

/// Returns faults of such a database and of the way to it.
pub(crate) fn of_primary<S: HasPrimary>() -> [Fault<S>; 3] {
    [
        Fault {
            name: "connections cut",
            is_a_loss: true,
            begin: |deployment| deployment.stage.primary().cut(),
            end: |deployment| deployment.stage.primary().clear_faults(),
        },
        Fault {
            name: "database killed",
            is_a_loss: true,
            begin: |deployment| deployment.stage.primary().kill(),
            end: |deployment| deployment.stage.primary().restart(),
        },
        Fault {
            name: "feed held",
            is_a_loss: false,
            begin: |deployment| deployment.stage.primary().hold_feed(),
            end: |deployment| deployment.stage.primary().clear_faults(),
        },
    ]
}

/// Returns the faults of every engine.
fn common<S>() -> [Fault<S>; 2] {
    let stopped = Fault {
        name: "Hotrow stopped",
        is_a_loss: false,
        begin: |deployment: &mut Deployment<S>| deployment.one.stop(),
        end: |deployment| deployment.one.signal(Signal::CONT),
    };
    let set = Fault {
        name: "clock set",
        is_a_loss: false,
        begin: |deployment: &mut Deployment<S>| deployment.clock.set_forward(&deployment.one),
        end: |deployment| deployment.clock.set_back(),
    };
    [stopped, set]
}

/// Injects every fault repeatedly. The contract must hold, the instances must recover by themselves
/// after each fault, and each fault must have occurred. Returns the checker's report.
#[track_caller]
pub(crate) fn run_faults<S: Stage>(own: &[Fault<S>]) -> Value {
    run_faults_for(own, CHECK_DURATION)
}

/// Does the same for three times as long.
#[track_caller]
pub(crate) fn run_faults_longer<S: Stage>(own: &[Fault<S>]) -> Value {
    run_faults_for(own, LONG_CHECK_DURATION)
}

#[track_caller]
fn run_faults_for<S: Stage>(own: &[Fault<S>], check_duration: Duration) -> Value {
    let mut deployment = Deployment::<S>::of_two();
    let balancer =
        Balancer::start([deployment.one.data, deployment.other.as_ref().expect("two").data]);
    let url = format!("http://{}", balancer.address);
    let duration = format!("{}s", check_duration.as_secs());
    let arguments =
        ["--balancer", &url, "-d", &duration, "--rate", "200", "--keys", "500", "--timeout", "5s"];
    let mut checker = deployment.check(&arguments);
    let began = Instant::now();
    let common = common();
    let mut occurred = BTreeMap::<&str, u64>::new();
    for (turn, fault) in own.iter().chain(&common).cycle().enumerate() {
        pass_while(&mut checker, UNDISTURBED);
        if began.elapsed() + LAST_BEFORE_END > check_duration || !checker.runs() {
            break;
        }
        let before = deployment.losses();
        (fault.begin)(&mut deployment);
        // Each fault is short in one round and long in the next.
        let round = turn / (own.len() + common.len());
        pass_while(&mut checker, DURATIONS[(turn + round) % DURATIONS.len()]);
        (fault.end)(&mut deployment);
        if fault.is_a_loss {
            let is_lost = || deployment.losses() > before || !checker.runs();
            await_until(&format!("a loss after: {}", fault.name), SOON, is_lost);
        }
        deployment.instances().into_iter().for_each(|instance| instance.await_ready());
        *occurred.entry(fault.name).or_default() += 1;
    }
    let report = checker.ended(check_duration).assert_passed(READS_MIN, CHANGES_MIN);
    println!("faults: {occurred:#?}");
    assert_eq!(occurred.len(), own.len() + common.len(), "not every fault occurred: {occurred:?}");
    assert_all_rules(&report, &ALL_RULES);
    assert_counts(&report);
    if report.get("near_caches").is_some_and(|near| !near.is_null()) {
        assert_near_caches(&report);
    }
    assert!(balancer.served().iter().all(|served| *served > 100), "{:?}", balancer.served());
    report
}

/// Asserts that the checker's own writers were interrupted.
#[track_caller]
pub(crate) fn assert_writers_were_interrupted(report: &Value) {
    let count = |path: &str| report.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    assert!(
        count("/writes/failed") + count("/writes/unknown") > 0,
        "the server was killed: {report:#}"
    );
}

#[track_caller]
fn assert_counts(report: &Value) {
    let count = |path: &str| report.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    for path in [
        "/reads/sessions",
        "/reads/own_writes",
        "/reads/no_cache",
        "/reads/near_a_change",
        "/purges",
    ] {
        assert!(count(path) > 20, "{path}: {report:#}");
    }
    assert!(count("/feed_losses/0") > 0, "{report:#}");
    // Requests during a fault are refused or lost, never answered wrongly.
    let refused = report["refused"].as_object().map_or(0, |by_status| by_status.len());
    let lost = report["unanswered"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(_, n)| n.as_u64())
        .sum::<u64>();
    assert!(refused > 0 || lost > 0, "{report:#}");
}
