//! Nothing is busy because too little is asked for at once, or because all workers wait while requests lie unread.

use super::finding::{Class, Finding, confidence, percent};
use super::held::{Held, rate_kept};
use super::want::cpus_free;
use crate::samples::{Load, Role, Samples, Watched};

/// Above this share of all CPUs something else limits.
const IDLE_BELOW: f64 = 0.8;
/// From this share of the service time on that is CPU time of the service, requests are worked on, not waited for.
const WORKED: f64 = 0.5;
/// From this share on there is no doubt.
const WORKED_FULL: f64 = 0.9;
/// From this share of the connections on which a request lies unread, workers are too few.
const UNREAD: f64 = 0.3;
/// From this share on there is no doubt.
const UNREAD_FULL: f64 = 0.8;
/// A disk that is busier than this may be what workers wait for.
const DISK_BELOW: f64 = 0.5;
/// The same of memory, as the share of the time that threads wait for it.
const MEMORY_BELOW: f64 = 0.1;
/// From this share of the threads that do not just wait for each other on, they are what decides.
const MOST: f64 = 0.5;
/// From so many threads on, workers wait for each other.
const LOCKED: f64 = 2.0;
/// What is left of the confidence when workers wait for a peer: more of them help only if that one takes more at once.
const PEER_DOUBT: f64 = 0.7;

pub(super) fn judge(samples: &Samples) -> Option<Finding> {
    let busy = samples.busy()?;
    let workers = cpus_free(samples, IDLE_BELOW).then(|| workers(samples, busy)).flatten();
    workers.or_else(|| (busy < IDLE_BELOW).then(|| connections(samples, busy)).flatten())
}

/// Requests that nobody has read while CPUs are idle.
fn workers(samples: &Samples, busy: f64) -> Option<Finding> {
    let unread = |process: &Watched| process.unread_share.filter(|share| *share >= UNREAD);
    let (process, share) = samples.with_role(Role::Service).find_map(|process| Some((process, unread(process)?)))?;
    let working = process.threads.iter().any(|thread| thread.busy >= IDLE_BELOW);
    // Who is held up would be so with more workers too.
    let throttled = process.group.is_some_and(|group| group.throttled_periods > 0);
    let disk = samples.disks.iter().any(|disk| disk.utilisation >= DISK_BELOW);
    let memory = samples.memory_pressure.is_some_and(|share| share >= MEMORY_BELOW);
    if working || throttled || disk || memory || rate_kept(samples) {
        return None;
    }
    let held = Held::by(samples);
    let doubt = held.map_or(Some(1.0), doubt)?;
    let mut evidence = vec![
        format!("on {} of the connections of process {} a request lies unread", percent(share), process.pid),
        format!(
            "none of its {} threads is busy, and CPUs are {} busy: they wait",
            process.threads.len(),
            percent(busy)
        ),
    ];
    evidence.extend(held.as_ref().map(Held::words));
    Some(Finding {
        class: Class::TooFewWorkers,
        confidence: confidence(share, UNREAD, UNREAD_FULL) * doubt,
        evidence,
        counterfactual: format!("twice the workers ({} threads now) up to doubles the rate", process.threads.len()),
    })
}

/// Whether more workers would help, by what they wait for; none when they would wait for the same thing.
fn doubt(held: Held) -> Option<f64> {
    let most = |part: f64| held.share(part) >= MOST;
    match held {
        _ if most(held.disk) => None,
        // One at a time, whoever waits.
        _ if held.lock >= LOCKED && most(held.running) => None,
        _ if most(held.peer) => Some(PEER_DOUBT),
        _ => Some(1.0),
    }
}

/// Little's law in a closed loop: the rate is connections over service time. When that time is mostly work, and CPUs
/// are idle still, more connections bring more of them to work.
fn connections(samples: &Samples, busy: f64) -> Option<Finding> {
    let load = samples.load.filter(|load| load.target_rate.is_none() && load.rate > 0.0)?;
    let used: f64 = samples.with_role(Role::Service).map(Watched::cores_used).sum();
    let Load { rate, connections, service_time, .. } = load;
    let worked = used / rate / service_time.as_secs_f64();
    if !worked.is_finite() || worked < WORKED || connections as f64 >= samples.cores.len() as f64 {
        return None;
    }
    Some(Finding {
        class: Class::TooFewConnections,
        confidence: confidence(worked, WORKED, WORKED_FULL),
        evidence: vec![
            format!("{connections} connections ask {} CPUs, which are {} busy", samples.cores.len(), percent(busy)),
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
