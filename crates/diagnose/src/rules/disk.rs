//! A disk is busy, and work waits for it.

use super::finding::{Class, Finding, confidence, percent};
use super::held::{Held, rate_kept};
use crate::probe::disk::DiskRate;
use crate::samples::Samples;

/// From this share of the time on a disk is busy.
const BUSY: f64 = 0.8;
/// From this share on there is no doubt; a disk that does several requests at once could do more even then.
const FULL: f64 = 0.97;
/// Threads must wait for disks at least this share of the time, where the kernel tells.
const PRESSURE: f64 = 0.2;

/// From this share of the service's threads that do not just wait for each other on, those that wait for a disk are the most.
const WAITING: f64 = 0.5;
/// From this share on there is no doubt.
const WAITING_FULL: f64 = 0.9;
/// At least so many must wait, on average.
const WAITING_THREADS: f64 = 0.5;

pub(super) fn judge(samples: &Samples) -> Option<Finding> {
    waited_for(samples).or_else(|| busy(samples))
}

/// The service's threads wait for it. It need not be busy: a disk of the network, or one whose group may do so many requests a
/// second and no more, lets wait while it idles.
fn waited_for(samples: &Samples) -> Option<Finding> {
    let held = Held::by(samples).filter(|held| held.disk >= WAITING_THREADS && held.share(held.disk) >= WAITING)?;
    if rate_kept(samples) || samples.io_pressure.is_some_and(|share| share < PRESSURE) {
        return None;
    }
    let mut evidence = vec![held.words()];
    evidence.extend(samples.io_pressure.map(waited));
    let busiest = samples.disks.iter().max_by(|one, other| one.utilisation.total_cmp(&other.utilisation));
    evidence.extend(busiest.map(told));
    if busiest.is_some_and(|disk| disk.utilisation < BUSY) {
        evidence.push("it is not busy all the time: its latency limits, or a limit that is set for it".to_owned());
    }
    Some(Finding {
        class: Class::Disk,
        confidence: confidence(held.share(held.disk), WAITING, WAITING_FULL),
        evidence,
        counterfactual: COUNTERFACTUAL.to_owned(),
    })
}

fn busy(samples: &Samples) -> Option<Finding> {
    let busiest = samples.disks.iter().max_by(|one, other| one.utilisation.total_cmp(&other.utilisation))?;
    if busiest.utilisation < BUSY || samples.io_pressure.is_some_and(|share| share < PRESSURE) {
        return None;
    }
    let mut evidence = vec![told(busiest)];
    evidence.extend(samples.io_pressure.map(waited));
    // Without the kernel's word on waiting, busy alone proves less; and less still when it is others who wait.
    let others = Held::by(samples).is_some_and(|held| held.disk < WAITING_THREADS);
    let doubt = if others {
        0.6
    } else if samples.io_pressure.is_some() {
        1.0
    } else {
        0.7
    };
    Some(Finding {
        class: Class::Disk,
        confidence: confidence(busiest.utilisation, BUSY, FULL) * doubt,
        evidence,
        counterfactual: COUNTERFACTUAL.to_owned(),
    })
}

const COUNTERFACTUAL: &str = "half the writes that are waited for (several commits with one flush), or a disk with half the \
                              latency, up to doubles the rate";

fn waited(share: f64) -> String {
    format!("some thread waited for a disk {} of the time", percent(share))
}

fn told(disk: &DiskRate) -> String {
    let latency =
        disk.latency.map(|latency| format!(", {:.2} ms each", latency.as_secs_f64() * 1e3)).unwrap_or_default();
    format!(
        "{} is busy {} of the time with {:.0} requests per second, {:.1} at once{latency}",
        disk.name,
        percent(disk.utilisation),
        disk.requests_per_s,
        disk.queue
    )
}
