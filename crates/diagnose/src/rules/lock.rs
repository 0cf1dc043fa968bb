//! One thing at a time: threads wait for each other while CPUs are idle.

use super::finding::{Class, Finding, confidence, number, percent};
use super::held::{Held, rate_kept, under_way};
use super::want::cpus_free;
use crate::samples::{Role, Samples};

/// CPUs that must be idle, added up.
const IDLE_CORES: f64 = 0.3;
/// Threads that must wait for another one.
const WAITING: f64 = 2.0;
/// From this share of the requests that have been read on, those that wait for another thread are the most.
const WAITING_SHARE: f64 = 0.5;
/// From this share on there is no doubt.
const WAITING_FULL: f64 = 0.85;
/// Share of the threads that are not waiting for each other, which must run: else what those wait for is the limit.
const RUNNING_SHARE: f64 = 0.5;
/// CPUs that work under a lock uses: one, and what is done before and after it.
const ONE_AT_A_TIME: std::ops::RangeInclusive<f64> = 0.5..=1.6;
/// A thread that is busier than this is itself the limit.
const THREAD_BELOW: f64 = 0.9;
/// What is left of the confidence when the work is not that of about one CPU: threads that wait in a pool until there is
/// something to do look the same.
const POOL_DOUBT: f64 = 0.6;

pub(super) fn judge(samples: &Samples) -> Option<Finding> {
    let idle = samples.idle_cores()?;
    if !cpus_free(samples, 1.0 - IDLE_CORES / samples.cores.len() as f64) {
        return None;
    }
    let held = Held::by(samples).filter(|held| held.lock >= WAITING)?;
    let services = || samples.with_role(Role::Service);
    let held_up = services().any(|process| process.group.is_some_and(|group| group.throttled_periods > 0));
    let busiest =
        services().filter_map(|process| process.threads.first()).map(|thread| thread.busy).fold(0.0, f64::max);
    let limited = rate_kept(samples) || samples.load.is_some_and(|load| load.was_the_limit);
    // Who sleeps, or waits for a peer or a disk, while others wait for it, makes them wait.
    let others_wait = held.peer + held.disk + held.time;
    let runs = held.share(held.running) >= RUNNING_SHARE || others_wait < 1.0;
    if held_up || limited || !runs || busiest >= THREAD_BELOW {
        return None;
    }
    let share = held.lock / (read(samples)?.max(held.lock));
    if share < WAITING_SHARE {
        return None;
    }
    let doubt = if ONE_AT_A_TIME.contains(&held.running) { 1.0 } else { POOL_DOUBT };
    Some(Finding {
        class: Class::Lock,
        confidence: confidence(share, WAITING_SHARE, WAITING_FULL) * doubt,
        evidence: evidence(samples, &held, idle, busiest),
        counterfactual: format!(
            "work outside of the lock, or a lock for each part of the data, up to {:.1} times the rate; more threads \
            bring nothing",
            1.0 + idle
        ),
    })
}

/// Requests that have been read and not answered yet: a thread that waits for another one holds one.
fn read(samples: &Samples) -> Option<f64> {
    let unread = samples.with_role(Role::Service).filter_map(|process| process.unread_share).fold(0.0, f64::max);
    under_way(samples).map(|requests| requests * (1.0 - unread))
}

fn evidence(samples: &Samples, held: &Held, idle: f64, busiest: f64) -> Vec<String> {
    let mut evidence = vec![
        held.words(),
        format!(
            "its threads use {} CPUs together, the busiest {} of one, and {} of {} CPUs are idle",
            number(held.running),
            percent(busiest),
            number(idle),
            samples.cores.len()
        ),
    ];
    let waits: f64 = samples.with_role(Role::Service).filter_map(|process| process.waits_per_s).sum();
    let rate = samples.load.map_or(0.0, |load| load.rate);
    if waits > 0.0 && rate > 0.0 {
        evidence.push(format!("a thread stopped to wait {} times per request", number(waits / rate)));
    }
    evidence
}
