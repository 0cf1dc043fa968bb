//! Memory is short: programs reclaim, swap, or reach their cgroup's limit.

use super::finding::{Finding, LimitClass, confidence, percent};
use crate::samples::Samples;

/// Share of the time with a thread waiting for memory, from which it limits.
const PRESSURE: f64 = 0.1;
/// Share from which it certainly limits.
const FULL: f64 = 0.4;
/// Major faults per second that count where the kernel reports no pressure.
const MAJOR_FAULTS_PER_S: f64 = 100.0;

pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    let vm = samples.vmstat?;
    let seconds = samples.span.as_secs_f64();
    let faults_per_s = if seconds > 0.0 { vm.major_faults as f64 / seconds } else { 0.0 };
    let swapped = vm.swapped_in.saturating_add(vm.swapped_out);
    let reclaimed = vm.scanned_direct > 0 || vm.stalls > 0 || swapped > 0;
    let refused: u64 = samples
        .processes
        .iter()
        .filter_map(|process| process.group)
        .map(|group| group.memory_refusals)
        .sum();
    let short = match samples.memory_pressure {
        Some(share) => share >= PRESSURE,
        None => faults_per_s >= MAJOR_FAULTS_PER_S,
    };
    if !short || !(reclaimed || refused > 0) {
        return None;
    }
    let mut evidence = Vec::new();
    evidence.extend(
        samples
            .memory_pressure
            .map(|share| format!("some thread waited for memory {} of the time", percent(share))),
    );
    evidence.push(format!("{faults_per_s:.0} page faults per second waited for a disk"));
    if reclaimed {
        evidence.push(format!(
            "programs reclaimed memory themselves {} times; {} pages were swapped in, {} out",
            vm.stalls, vm.swapped_in, vm.swapped_out
        ));
    }
    if refused > 0 {
        evidence.push(format!("a cgroup reached its limit {refused} times"));
    }
    evidence
        .extend(samples.memory.map(|memory| format!("{} MiB are left", memory.available >> 20)));
    let confidence = samples.memory_pressure.map_or(0.6, |share| confidence(share, PRESSURE, FULL));
    let counterfactual = if refused > 0 {
        "a higher memory.max, or less memory in use (a smaller cache, fewer workers), ends the \
         reclaim"
    } else {
        "less memory in use (a smaller cache, fewer workers), or more of it, ends the reclaim"
    };
    Some(Finding {
        class: LimitClass::Memory,
        confidence,
        evidence,
        counterfactual: counterfactual.to_owned(),
    })
}
