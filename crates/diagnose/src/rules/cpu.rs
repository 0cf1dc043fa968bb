//! All CPUs are busy, and mostly for what is measured; what others do is the matter of `competitor`.

use super::competitor::others_share;
use super::finding::{Class, Finding, confidence, percent};
use super::want::held_up_by_cpus;
use crate::samples::Samples;

/// From this share of all CPUs on they are busy.
const BUSY: f64 = 0.9;
/// From this share on there is no doubt.
const FULL: f64 = 0.98;
/// A share of the work that is interrupts, from which on it is told.
const INTERRUPTS_TOLD: f64 = 0.1;

pub(super) fn judge(samples: &Samples) -> Option<Finding> {
    let busy = samples.busy().filter(|busy| *busy >= BUSY)?;
    let held_up = held_up_by_cpus(samples);
    if held_up <= 0.0 {
        return None;
    }
    let mut evidence = vec![format!("{} CPUs are {} busy", samples.cores.len(), percent(busy))];
    evidence
        .extend(samples.cpu_pressure.map(|share| format!("some thread waited for one {} of the time", percent(share))));
    let interrupts = samples.cores.iter().map(|core| core.interrupts).sum::<f64>() / samples.cores.len() as f64;
    if interrupts >= INTERRUPTS_TOLD {
        evidence
            .push(format!("{} of it is the kernel's work for interrupts, mostly the network's", percent(interrupts)));
    }
    let mut processes: Vec<_> = samples.processes.iter().collect();
    processes.sort_by(|one, other| other.cores_used().total_cmp(&one.cores_used()));
    let used = |process: &&crate::samples::Watched| {
        format!("process {} ({:?}) uses {:.2} CPUs", process.pid, process.role, process.cores_used())
    };
    evidence.extend(processes.iter().take(3).map(used));
    Some(Finding {
        class: Class::AllCpus,
        confidence: confidence(busy, BUSY, FULL) * (1.0 - others_share(samples).unwrap_or(0.0)) * held_up,
        evidence,
        counterfactual: format!(
            "twice the CPUs, or half the CPU time per request, up to doubles the rate; taking 10 % of the {} CPUs \
            away costs about 10 % of it",
            samples.cores.len()
        ),
    })
}
