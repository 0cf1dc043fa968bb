//! A minute of faults, each for a while, while the checker writes to the database and reads from two instances and through a
//! balancer before them. Which faults there are each engine says, in a table.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::balancer::Balancer;
use crate::checker::{ALL_RULES, assert_all_rules};
use crate::harness::{SOON, await_until};
use crate::stage::{Stage, World, pass_while};

/// How long the checker writes.
const CHECKED: Duration = Duration::from_secs(60);
/// How long faults last, in turn: one is over before the bound of a second, the other is not.
const LASTS: [Duration; 2] = [Duration::from_millis(400), Duration::from_millis(2200)];
/// Good weather between two faults.
const BREAK: Duration = Duration::from_millis(500);
/// No fault begins later, so that the last is over when the checker compares.
const LAST_AFTER: Duration = Duration::from_secs(57);
/// Least that must have been checked. The tests share two cores with others.
const READS_MIN: u64 = 5_000;
const CHANGES_MIN: u64 = 500;

/// Something that goes wrong.
pub(crate) struct Fault<S> {
    pub(crate) name: &'static str,
    /// Whether the first instance must lose its place in the feed by it.
    pub(crate) is_a_loss: bool,
    pub(crate) begin: fn(&mut World<S>),
    pub(crate) end: fn(&mut World<S>),
}

/// What every engine has.
fn common<S>() -> [Fault<S>; 2] {
    let stopped = Fault {
        name: "Hotrow stopped",
        is_a_loss: false,
        begin: |world: &mut World<S>| world.one.stop(),
        end: |world| world.one.signal(Signal::CONT),
    };
    let set = Fault {
        name: "clock set",
        is_a_loss: false,
        begin: |world: &mut World<S>| world.clock.set_forward(&world.one),
        end: |world| world.clock.set_back(),
    };
    [stopped, set]
}

/// Every fault again and again. The contract must hold, the instances must come back by themselves after each, and each
/// must have come. Gives the checker's report.
#[track_caller]
pub(crate) fn endure<S: Stage>(own: &[Fault<S>]) -> Value {
    let mut world = World::<S>::of_two();
    let balancer = Balancer::start([world.one.data, world.other.as_ref().expect("two").data]);
    let (url, duration) = (format!("http://{}", balancer.address), format!("{}s", CHECKED.as_secs()));
    let arguments = ["--balancer", &url, "-d", &duration, "--rate", "200", "--keys", "500", "--timeout", "5s"];
    let (mut checker, began) = (world.check(&arguments), Instant::now());
    let common = common();
    let mut came = BTreeMap::<&str, u64>::new();
    for (turn, fault) in own.iter().chain(&common).cycle().enumerate() {
        pass_while(&mut checker, BREAK);
        if began.elapsed() > LAST_AFTER || !checker.runs() {
            break;
        }
        let before = world.losses();
        (fault.begin)(&mut world);
        // Each fault is short in one round and long in the next.
        let round = turn / (own.len() + common.len());
        pass_while(&mut checker, LASTS[(turn + round) % LASTS.len()]);
        (fault.end)(&mut world);
        if fault.is_a_loss {
            let is_lost = || world.losses() > before || !checker.runs();
            await_until(&format!("a loss after: {}", fault.name), SOON, is_lost);
        }
        world.instances().into_iter().for_each(|instance| instance.await_ready());
        *came.entry(fault.name).or_default() += 1;
    }
    let report = checker.ended(CHECKED).assert_kept(READS_MIN, CHANGES_MIN);
    println!("faults: {came:#?}");
    assert_eq!(came.len(), own.len() + common.len(), "not every fault came: {came:?}");
    assert_all_rules(&report, &ALL_RULES);
    assert_counts(&report);
    assert!(balancer.served().iter().all(|served| *served > 100), "{:?}", balancer.served());
    report
}

/// Asserts that the checker's own writers were cut off in what they did.
#[track_caller]
pub(crate) fn assert_writers_were_hit(report: &Value) {
    let count = |path: &str| report.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    assert!(count("/writes/failed") + count("/writes/unknown") > 0, "the server was killed: {report:#}");
}

#[track_caller]
fn assert_counts(report: &Value) {
    let count = |path: &str| report.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    for path in ["/reads/sessions", "/reads/own_writes", "/reads/no_cache", "/reads/near_a_change", "/purges"] {
        assert!(count(path) > 20, "{path}: {report:#}");
    }
    assert!(count("/feed_losses/0") > 0, "{report:#}");
    // Requests that ran into a fault are refused or lost, never answered wrongly.
    let refused = report["refused"].as_object().map_or(0, |by_status| by_status.len());
    let lost = report["unanswered"].as_object().into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum::<u64>();
    assert!(refused > 0 || lost > 0, "{report:#}");
}
