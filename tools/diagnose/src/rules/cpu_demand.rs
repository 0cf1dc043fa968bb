//! The service's demand for CPUs, compared with what it gets. Not a rule; several use it. A machine
//! kept busy by others does not delay a service that waits for a backend.

use super::thread_states::under_way;
use crate::samples::{Role, Samples, Thread, WatchedProcess};

/// Demand up to which the service is satisfied: full CPUs do not limit it.
const SATISFIED_UP_TO: f64 = 0.3;
/// Demand from which it wants CPUs all the time.
const DEMANDED_FROM: f64 = 0.8;
/// Busy share below which the CPUs are not the limit.
const FREE_BELOW: f64 = 0.5;

/// Share granted by the hypervisor below which no judgement is possible.
const GRANTED_MIN: f64 = 0.2;

/// Returns the service's CPU demand, 0 to 1: the share of time in which its busiest thread runs or
/// waits for a CPU, or the share of requests in flight that need one, whichever is larger. `None`
/// where run-queue waits are not visible.
pub(super) fn cpu_wanted(samples: &Samples) -> Option<f64> {
    let processes = || samples.processes.iter().filter(|process| process.role != Role::Generator);
    // Time that the hypervisor steals from a thread appears as neither running nor waiting.
    let granted = granted(samples);
    let wants = |thread: &Thread| thread.waited.map(|waited| (thread.busy + waited) / granted);
    let busiest =
        processes().flat_map(|process| &process.threads).filter_map(wants).reduce(f64::max)?;
    let waited = |process: &WatchedProcess| {
        process.threads.iter().filter_map(|thread| thread.waited).sum::<f64>()
    };
    let all: f64 = processes().map(|process| process.cores_used() + waited(process)).sum();
    // With less than one request in flight on average, the busiest thread decides.
    let requests = under_way(samples).unwrap_or(0.0).max(1.0);
    Some(busiest.max(all / requests).min(1.0))
}

/// Returns the share of the demanded CPU time that the hypervisor granted, above 0 and at most 1. A
/// thread that wants a whole CPU shows this share as busy.
pub(super) fn granted(samples: &Samples) -> f64 {
    let (busy, steal) = (samples.busy().unwrap_or(0.0), samples.steal().unwrap_or(0.0));
    if busy > 0.0 { (busy / (busy + steal)).max(GRANTED_MIN) } else { 1.0 }
}

/// Returns the share of all CPUs that is not idle, 0 to 1: work, and time stolen while there was
/// work.
pub(super) fn taken(samples: &Samples) -> Option<f64> {
    Some(samples.busy()? + samples.steal()?)
}

/// Returns how much full CPUs delay the service, 0 to 1; 1 when unknown.
pub(super) fn cpu_contention(samples: &Samples) -> f64 {
    cpu_wanted(samples).map_or(1.0, |wanted| {
        ((wanted - SATISFIED_UP_TO) / (DEMANDED_FROM - SATISFIED_UP_TO)).clamp(0.0, 1.0)
    })
}

/// Returns whether CPUs are free for the service: less busy than this share, or it demands no more.
pub(super) fn cpus_free(samples: &Samples, busy_below: f64) -> bool {
    taken(samples).is_some_and(|taken| taken < busy_below)
        || cpu_wanted(samples).is_some_and(|wanted| wanted < FREE_BELOW)
}
