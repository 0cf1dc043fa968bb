//! Another process takes the CPUs.

use super::finding::{Class, Finding, confidence, number, percent};
use super::want::held_up_by_cpus;
use crate::samples::{Other, Role, Samples, Watched};

/// From this share of all CPUs on they are busy.
const BUSY: f64 = 0.9;
/// From this share of the work on, what is done for others limits.
const OTHERS: f64 = 0.2;
/// From this share on there is no doubt.
const OTHERS_FULL: f64 = 0.4;
/// Processes that are named.
const NAMED: usize = 3;

/// Share of the CPUs' work that was done for processes that are not part of what is measured, 0 to 1; none when nobody
/// looked for them.
pub(super) fn others_share(samples: &Samples) -> Option<f64> {
    let busy: f64 = samples.cores.iter().map(|core| core.busy).sum();
    let watched: f64 = samples.processes.iter().map(Watched::cores_used).sum();
    // Who waited for a child that ended is told its whole life at once: more than there was is not theirs.
    let used = others(samples).map(|other| other.cores).sum::<f64>().min((busy - watched).max(0.0));
    (busy > 0.0 && !samples.others.is_empty()).then(|| used / busy)
}

/// Without the kernel's own threads: those work for whoever uses the network and the disks, which may be the service.
fn others(samples: &Samples) -> impl Iterator<Item = &Other> {
    samples.others.iter().filter(|other| !other.name.starts_with('['))
}

pub(super) fn judge(samples: &Samples) -> Option<Finding> {
    let busy = samples.busy().filter(|busy| *busy >= BUSY)?;
    let share = others_share(samples).filter(|share| *share >= OTHERS)?;
    let held_up = held_up_by_cpus(samples);
    // Otherwise nobody is there whom they could disturb, or whoever is there wants no more than he gets.
    if samples.with_role(Role::Service).next().is_none() || held_up <= 0.0 {
        return None;
    }
    let named = others(samples).take(NAMED);
    let named: Vec<String> =
        named.map(|other| format!("{} ({}) uses {:.2} CPUs", other.name, other.pid, other.cores)).collect();
    let mut evidence = vec![
        format!("{} CPUs are {} busy, {} of that with other work", samples.cores.len(), percent(busy), percent(share)),
        format!("process {}", named.join(", process ")),
    ];
    let waited =
        samples.with_role(Role::Service).flat_map(|process| &process.threads).filter_map(|thread| thread.waited);
    let waited: f64 = waited.sum();
    evidence
        .push(format!("threads of the service that could run had to wait for a CPU, {} on average", number(waited)));
    let left = 1.0 / (1.0 - share).max(0.1);
    Some(Finding {
        class: Class::Competitor,
        confidence: confidence(share, OTHERS, OTHERS_FULL) * held_up,
        evidence,
        counterfactual: format!("without that work, or on a machine of its own, up to {left:.1} times the rate"),
    })
}
