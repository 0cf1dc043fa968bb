//! Whether the service wants CPUs, or is content with those that it has. Not a rule; several ask it. A machine that others keep
//! busy holds nobody up who waits for a backend.

use super::held::under_way;
use crate::samples::{Role, Samples, Thread, Watched};

/// Up to this share the service is content: what it does not get does not limit it.
const CONTENT: f64 = 0.3;
/// From this share on it wants CPUs all the time.
const WANTS: f64 = 0.8;
/// Below this share the CPUs are not what limits, however busy they are.
const FREE_BELOW: f64 = 0.5;

/// Share of the time in which the service's busiest thread wants a CPU (runs or waits for one), or share of the requests under
/// way that want one, whichever is more; 0 to 1. None where threads that wait for CPUs cannot be seen.
pub(super) fn cpu_wanted(samples: &Samples) -> Option<f64> {
    let processes = || samples.processes.iter().filter(|process| process.role != Role::Generator);
    let wants = |thread: &Thread| thread.waited.map(|waited| thread.busy + waited);
    let busiest = processes().flat_map(|process| &process.threads).filter_map(wants).reduce(f64::max)?;
    let waited = |process: &Watched| process.threads.iter().filter_map(|thread| thread.waited).sum::<f64>();
    let all: f64 = processes().map(|process| process.cores_used() + waited(process)).sum();
    // With less than one under way on average, that one is judged by the busiest thread.
    let requests = under_way(samples).unwrap_or(0.0).max(1.0);
    Some(busiest.max(all / requests).min(1.0))
}

/// How far full CPUs hold the service up, 0 to 1; 1 when that cannot be seen.
pub(super) fn held_up_by_cpus(samples: &Samples) -> f64 {
    cpu_wanted(samples).map_or(1.0, |wanted| ((wanted - CONTENT) / (WANTS - CONTENT)).clamp(0.0, 1.0))
}

/// Whether CPUs are free as far as the service is concerned: less busy than this share, or it does not want more of them.
pub(super) fn cpus_free(samples: &Samples, busy_below: f64) -> bool {
    samples.busy().is_some_and(|busy| busy < busy_below)
        || cpu_wanted(samples).is_some_and(|wanted| wanted < FREE_BELOW)
}
