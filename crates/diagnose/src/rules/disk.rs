//! A disk is busy, and work waits for it.

use super::finding::{Class, Finding, confidence, percent};
use crate::samples::Samples;

/// From this share of the time on a disk is busy.
const BUSY: f64 = 0.8;
/// From this share on there is no doubt; a disk that does several requests at once could do more even then.
const FULL: f64 = 0.97;
/// Threads must wait for disks at least this share of the time, where the kernel tells.
const PRESSURE: f64 = 0.2;

pub(super) fn judge(samples: &Samples) -> Option<Finding> {
    let busiest = samples.disks.iter().max_by(|one, other| one.utilisation.total_cmp(&other.utilisation))?;
    if busiest.utilisation < BUSY || samples.io_pressure.is_some_and(|share| share < PRESSURE) {
        return None;
    }
    let mut evidence = vec![format!(
        "{} is busy {} of the time with {:.0} requests per second, {:.1} at once",
        busiest.name,
        percent(busiest.utilisation),
        busiest.requests_per_s,
        busiest.queue
    )];
    evidence.extend(busiest.latency.map(|latency| format!("a request takes {:.2} ms", latency.as_secs_f64() * 1e3)));
    evidence.extend(
        samples.io_pressure.map(|share| format!("some thread waited for a disk {} of the time", percent(share))),
    );
    // Without the kernel's word on waiting, busy alone proves less.
    let doubt = if samples.io_pressure.is_some() { 1.0 } else { 0.7 };
    Some(Finding {
        class: Class::Disk,
        confidence: confidence(busiest.utilisation, BUSY, FULL) * doubt,
        evidence,
        counterfactual: "half the writes that are waited for (several commits with one flush), or a disk with half \
            the latency, up to doubles the rate"
            .to_owned(),
    })
}
