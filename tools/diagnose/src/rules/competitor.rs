//! Another process uses the CPUs.

use super::cpu_demand::{cpu_contention, taken};
use super::finding::{Finding, LimitClass, confidence, number, percent, up_to};
use crate::samples::{OtherProcess, Role, Samples, WatchedProcess};

/// Share of all CPUs from which they are busy.
const BUSY: f64 = 0.9;
/// Share of the work, done for other processes, from which it limits.
const OTHERS: f64 = 0.2;
/// Share from which it certainly limits.
const OTHERS_FULL: f64 = 0.4;
/// Mean number of waiting threads below which others delay none.
const WAITED_MIN: f64 = 0.05;
/// Number of processes named.
const NAMED: usize = 3;

/// Returns the share of the CPUs' work done for processes outside the measurement, 0 to 1; `None`
/// when other processes were not examined.
pub(super) fn others_share(samples: &Samples) -> Option<f64> {
    let busy: f64 = samples.cores.iter().map(|core| core.busy).sum();
    let watched: f64 = samples.processes.iter().map(WatchedProcess::cores_used).sum();
    // Reaping a child adds its whole lifetime at once; the sum is capped by the work that took
    // place.
    let used = others(samples).map(|other| other.cores).sum::<f64>().min((busy - watched).max(0.0));
    (busy > 0.0 && !samples.others.is_empty()).then(|| used / busy)
}

/// Excludes kernel threads: they work for any user of the network and the disks, possibly for the
/// service.
fn others(samples: &Samples) -> impl Iterator<Item = &OtherProcess> {
    samples.others.iter().filter(|other| !other.name.starts_with('['))
}

/// Returns how many threads of the service waited for a CPU on average; `None` where run-queue
/// waits are not visible.
fn waited(samples: &Samples) -> Option<f64> {
    let threads = samples.with_role(Role::Service).flat_map(|process| &process.threads);
    threads.filter_map(|thread| thread.waited).reduce(|sum, waited| sum + waited)
}

pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    let busy = samples.busy().filter(|_| taken(samples).is_some_and(|taken| taken >= BUSY))?;
    let share = others_share(samples).filter(|share| *share >= OTHERS)?;
    let held_up = cpu_contention(samples);
    // Otherwise no service is affected, or the service needs no more than it gets.
    if samples.with_role(Role::Service).next().is_none() || held_up <= 0.0 {
        return None;
    }
    let waited = waited(samples);
    // A service whose threads get a CPU whenever they can run loses nothing to others.
    if waited.is_some_and(|waited| waited < WAITED_MIN) {
        return None;
    }
    let named = others(samples).take(NAMED);
    let named: Vec<String> = named
        .map(|other| match other.processes {
            0 | 1 => format!("process {} ({}) uses {:.2} CPUs", other.pid, other.name, other.cores),
            n => format!("{n} processes named {} use {:.2} CPUs", other.name, other.cores),
        })
        .collect();
    let mut evidence = vec![
        format!(
            "{} CPUs are {} busy, {} of that with other work",
            samples.cores.len(),
            percent(busy),
            percent(share)
        ),
        named.join(", "),
    ];
    evidence.extend(waited.map(|waited| {
        format!(
            "threads of the service that could run had to wait for a CPU, {} on average",
            number(waited)
        )
    }));
    let left = 1.0 / (1.0 - share).max(0.1);
    Some(Finding {
        class: LimitClass::Competitor,
        confidence: confidence(share, OTHERS, OTHERS_FULL) * held_up,
        evidence,
        counterfactual: format!("without that work, or on a machine of its own{}", up_to(left)),
    })
}
