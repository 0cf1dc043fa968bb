//! Nothing is busy because too few requests are in flight, or because all workers are blocked while
//! requests lie unread.

use super::cpu_demand::{cpus_free, granted};
use super::finding::{Finding, LimitClass, confidence, percent};
use super::thread_states::{ThreadStates, rate_kept};
use crate::samples::{GeneratorLoad, Role, Samples, WatchedProcess};

/// CPU share above which something else limits.
const IDLE_BELOW: f64 = 0.8;
/// Share of the service time that is the service's CPU time, from which requests are worked on.
const WORKED: f64 = 0.5;
/// Share from which they certainly are.
const WORKED_FULL: f64 = 0.9;
/// Share of the connections with an unread request, from which workers are too few.
pub(super) const UNREAD: f64 = 0.3;
/// Share from which they certainly are.
const UNREAD_FULL: f64 = 0.8;
/// Use of a disk above which workers may wait for it.
const DISK_BELOW: f64 = 0.5;
/// The same for memory: share of the time that threads wait for it.
const MEMORY_BELOW: f64 = 0.1;
/// Share of the decisive threads from which a state decides.
const MOST: f64 = 0.5;
/// Fewer CPUs used by the service are no work that others wait for.
const RUNNING: f64 = 0.5;
/// Confidence factor when workers wait for a peer: more workers help only if the peer takes more
/// requests at once.
const PEER_FACTOR: f64 = 0.7;

pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    let busy = samples.busy()?;
    let workers = cpus_free(samples, IDLE_BELOW).then(|| workers(samples, busy)).flatten();
    workers.or_else(|| (busy < IDLE_BELOW).then(|| connections(samples, busy)).flatten())
}

/// Returns the largest share of a service's connections with a request that it has not read; 0
/// where unknown.
pub(super) fn unread_share(samples: &Samples) -> f64 {
    let shares = samples.with_role(Role::Service).map(|process| unread(samples, process));
    shares.fold(0.0, f64::max)
}

/// Returns the share of the connections on which a request is unread, or that wait to be accepted.
fn unread(samples: &Samples, process: &WatchedProcess) -> f64 {
    let connections = samples.load.map_or(0, |load| load.connections).max(1) as f64;
    let queued = process.accept_queue.map_or(0.0, |queue| queue.waiting as f64 / connections);
    process.unread_share.unwrap_or(0.0).max(queued.min(1.0))
}

/// Requests are unread while CPUs are idle.
fn workers(samples: &Samples, busy: f64) -> Option<Finding> {
    let (process, share) = samples
        .with_role(Role::Service)
        .map(|process| (process, unread(samples, process)))
        .find(|(_, share)| *share >= UNREAD)?;
    let working = process.threads.iter().any(|thread| thread.busy >= IDLE_BELOW);
    // Throttling would affect more workers too.
    let throttled = process.group.is_some_and(|group| group.throttled_periods > 0);
    let disk = samples.disks.iter().any(|disk| disk.utilisation >= DISK_BELOW);
    let memory = samples.memory_pressure.is_some_and(|share| share >= MEMORY_BELOW);
    if working || throttled || disk || memory || rate_kept(samples) {
        return None;
    }
    let held = ThreadStates::by(samples);
    let certainty = held.map_or(Some(1.0), certainty)?;
    let mut evidence = vec![
        format!(
            "on {} of the connections of process {} a request lies unread, or they wait to be \
             accepted",
            percent(share),
            process.pid
        ),
        format!(
            "none of its {} threads is busy, and CPUs are {} busy: they wait",
            process.threads.len(),
            percent(busy)
        ),
    ];
    evidence.extend(held.as_ref().map(ThreadStates::words));
    Some(Finding {
        class: LimitClass::TooFewWorkers,
        confidence: confidence(share, UNREAD, UNREAD_FULL) * certainty,
        evidence,
        counterfactual: format!(
            "twice the workers ({} threads now) up to doubles the rate",
            process.threads.len()
        ),
    })
}

/// Returns the factor by which the states of workers support adding some; `None` when more would
/// wait for the same thing.
fn certainty(held: ThreadStates) -> Option<f64> {
    let most = |part: f64| held.share(part) >= MOST;
    match held {
        _ if most(held.disk) => None,
        // Running threads, even if serialized, are not blocked.
        _ if most(held.running) && held.running >= RUNNING => None,
        _ if most(held.peer) => Some(PEER_FACTOR),
        _ => Some(1.0),
    }
}

/// Little's law in a closed loop: the rate is connections over service time. When that time is
/// mostly work and CPUs are idle, more connections use more CPUs.
fn connections(samples: &Samples, busy: f64) -> Option<Finding> {
    let load = samples.load.filter(|load| load.target_rate.is_none() && load.rate > 0.0)?;
    let used: f64 = samples.with_role(Role::Service).map(WatchedProcess::cores_used).sum();
    let GeneratorLoad { rate, connections, service_time, .. } = load;
    let worked = used / granted(samples) / rate / service_time.as_secs_f64();
    if !worked.is_finite() || worked < WORKED || connections as f64 >= samples.cores.len() as f64 {
        return None;
    }
    Some(Finding {
        class: LimitClass::TooFewConnections,
        confidence: confidence(worked, WORKED, WORKED_FULL),
        evidence: vec![
            format!(
                "{connections} connections ask {} CPUs, which are {} busy",
                samples.cores.len(),
                percent(busy)
            ),
            format!(
                "{} of the {:.2} ms of a request are work of the service",
                percent(worked.min(1.0)),
                service_time.as_secs_f64() * 1e3
            ),
        ],
        counterfactual: format!(
            "{} connections instead of {connections} up to double the rate",
            connections.saturating_mul(2)
        ),
    })
}
