//! A disk is busy, and threads wait for it.

use super::finding::{Finding, LimitClass, confidence, percent};
use super::thread_states::{ThreadStates, rate_kept};
use crate::probe::disk::DiskRate;
use crate::samples::Samples;

/// Share of the time from which a disk is busy.
const BUSY: f64 = 0.8;
/// Share from which it certainly limits; a disk with internal parallelism could do more even then.
const FULL: f64 = 0.97;
/// Minimum share of the time that threads wait for disks, where the kernel reports it.
const PRESSURE: f64 = 0.2;

/// Share of the service's decisive threads from which those waiting for a disk dominate.
const WAITING: f64 = 0.5;
/// Share from which they certainly do.
const WAITING_FULL: f64 = 0.9;
/// Minimum mean number of waiting threads.
const WAITING_THREADS: f64 = 0.5;

pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    waited_for(samples).or_else(|| busy(samples))
}

/// The service's threads wait for it. It need not be busy: a network disk, or a group's I/O limit,
/// delays requests while the disk is idle.
fn waited_for(samples: &Samples) -> Option<Finding> {
    let held = ThreadStates::by(samples)
        .filter(|held| held.disk >= WAITING_THREADS && held.share(held.disk) >= WAITING)?;
    if rate_kept(samples) || samples.io_pressure.is_some_and(|share| share < PRESSURE) {
        return None;
    }
    let mut evidence = vec![held.words()];
    evidence.extend(samples.io_pressure.map(waited));
    let busiest =
        samples.disks.iter().max_by(|one, other| one.utilisation.total_cmp(&other.utilisation));
    evidence.extend(busiest.map(describe));
    if busiest.is_some_and(|disk| disk.utilisation < BUSY) {
        evidence.push(
            "it is not busy all the time: its latency limits, or a limit that is set for it"
                .to_owned(),
        );
    }
    Some(Finding {
        class: LimitClass::Disk,
        confidence: confidence(held.share(held.disk), WAITING, WAITING_FULL),
        evidence,
        counterfactual: COUNTERFACTUAL.to_owned(),
    })
}

fn busy(samples: &Samples) -> Option<Finding> {
    let busiest =
        samples.disks.iter().max_by(|one, other| one.utilisation.total_cmp(&other.utilisation))?;
    if busiest.utilisation < BUSY || samples.io_pressure.is_some_and(|share| share < PRESSURE) {
        return None;
    }
    let mut evidence = vec![describe(busiest)];
    evidence.extend(samples.io_pressure.map(waited));
    // Without the kernel's pressure figures, a busy disk is weaker evidence; weaker still when
    // other processes wait for it.
    let others = ThreadStates::by(samples).is_some_and(|held| held.disk < WAITING_THREADS);
    let certainty = if others {
        0.6
    } else if samples.io_pressure.is_some() {
        1.0
    } else {
        0.7
    };
    Some(Finding {
        class: LimitClass::Disk,
        confidence: confidence(busiest.utilisation, BUSY, FULL) * certainty,
        evidence,
        counterfactual: COUNTERFACTUAL.to_owned(),
    })
}

const COUNTERFACTUAL: &str = "half the writes that are waited for (several commits with one \
                              flush), or a disk with half the latency, up to doubles the rate";

fn waited(share: f64) -> String {
    format!("some thread waited for a disk {} of the time", percent(share))
}

fn describe(disk: &DiskRate) -> String {
    let latency = disk
        .latency
        .map(|latency| format!(", {:.2} ms each", latency.as_secs_f64() * 1e3))
        .unwrap_or_default();
    format!(
        "{} is busy {} of the time with {:.0} requests per second, {:.1} at once{latency}",
        disk.name,
        percent(disk.utilisation),
        disk.requests_per_s,
        disk.queue
    )
}
