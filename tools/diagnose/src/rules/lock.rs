//! Serialization: threads wait for each other while CPUs are idle.

use super::cpu_demand::cpus_free;
use super::finding::{Finding, LimitClass, confidence, number, percent, up_to};
use super::thread_states::{ThreadStates, rate_kept, under_way};
use super::too_few::{UNREAD, unread_share};
use crate::samples::{Role, Samples};

/// Minimum number of idle CPUs.
const IDLE_CORES: f64 = 0.3;
/// Minimum number of threads that wait for another one.
const WAITING: f64 = 2.0;
/// Share of the requests that have been read, from which those waiting for another thread dominate.
const WAITING_SHARE: f64 = 0.5;
/// Share from which they certainly do.
const WAITING_FULL: f64 = 0.85;
/// Minimum running share of the decisive threads: otherwise the limit is what they wait for.
const RUNNING_SHARE: f64 = 0.5;
/// CPUs used by work under a lock: one, plus the work before and after it.
const ONE_AT_A_TIME: std::ops::RangeInclusive<f64> = 0.5..=1.6;
/// CPUs used by serialized work of threads that do not wait for each other visibly.
const JUST_ONE: std::ops::RangeInclusive<f64> = 0.85..=1.2;
/// Fewest requests being handled then.
const SERIALIZED_READ: f64 = 4.0;
/// Confidence then.
const SERIALIZED: f64 = 0.7;
/// A thread busier than this is itself the limit.
const THREAD_BELOW: f64 = 0.9;
/// Confidence factor when the work does not use about one CPU: idle threads of a pool look the
/// same.
const POOL_FACTOR: f64 = 0.6;

pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    let idle = samples.idle_cores()?;
    if !cpus_free(samples, 1.0 - IDLE_CORES / samples.cores.len() as f64) {
        return None;
    }
    let held = ThreadStates::by(samples)?;
    // A thread that waits with a request holds one that was read. Runtimes keep other threads
    // asleep in futexes.
    let read = read(samples)?;
    let waiting = held.lock.min(read - held.running);
    let services = || samples.with_role(Role::Service);
    let held_up =
        services().any(|process| process.group.is_some_and(|group| group.throttled_periods > 0));
    let busiest = services()
        .filter_map(|process| process.threads.first())
        .map(|thread| thread.busy)
        .fold(0.0, f64::max);
    let limited = rate_kept(samples) || samples.load.is_some_and(|load| load.was_the_limit);
    // A sleeping thread, or one waiting for a peer or a disk, may hold what the others wait for.
    let others_wait = held.peer + held.disk + held.time;
    // Work under a lock shows. Threads asleep in a futex while requests lie unread are busy workers
    // (a virtual machine sleeps there too), and more of them would help.
    let asleep = held.running < *ONE_AT_A_TIME.start() && unread_share(samples) >= UNREAD;
    let runs = (held.share(held.running) >= RUNNING_SHARE || others_wait < 1.0) && !asleep;
    if held_up || limited || !runs || busiest >= THREAD_BELOW {
        return None;
    }
    let share = waiting / read;
    let confidence = if waiting >= WAITING && share >= WAITING_SHARE {
        let certainty = if ONE_AT_A_TIME.contains(&held.running) { 1.0 } else { POOL_FACTOR };
        confidence(share, WAITING_SHARE, WAITING_FULL) * certainty
    } else if is_serialized(samples, &held, read, others_wait) {
        SERIALIZED
    } else {
        return None;
    };
    Some(Finding {
        class: LimitClass::Lock,
        confidence,
        evidence: evidence(samples, &held, idle, busiest),
        counterfactual: format!(
            "work outside of the lock, or a lock for each part of the data{}; more threads bring \
             nothing",
            up_to(1.0 + idle)
        ),
    })
}

/// Returns whether several threads use just one CPU together although more requests are being
/// handled and nothing else is waited for: runtimes with threads of their own (Go's) let requests
/// wait for a lock without a thread.
fn is_serialized(samples: &Samples, held: &ThreadStates, read: f64, others_wait: f64) -> bool {
    let peers = samples.with_role(Role::Service).any(|process| !process.peers.is_empty());
    JUST_ONE.contains(&held.running) && read >= SERIALIZED_READ && others_wait < 1.0 && !peers
}

/// Returns the requests that have been read and not answered: a thread that waits for another one
/// holds one.
fn read(samples: &Samples) -> Option<f64> {
    under_way(samples).map(|requests| requests * (1.0 - unread_share(samples)))
}

fn evidence(samples: &Samples, held: &ThreadStates, idle: f64, busiest: f64) -> Vec<String> {
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
    let waits: f64 =
        samples.with_role(Role::Service).filter_map(|process| process.waits_per_s).sum();
    let rate = samples.load.map_or(0.0, |load| load.rate);
    if waits > 0.0 && rate > 0.0 {
        evidence
            .push(format!("a thread stopped to wait {} times per request", number(waits / rate)));
    }
    evidence
}
