//! All CPUs are busy, mostly with the measured processes; `competitor` handles work of others.

use super::competitor::others_share;
use super::cpu_demand::{cpu_contention, taken};
use super::finding::{Finding, LimitClass, confidence, percent};
use crate::samples::Samples;

/// Share of all CPUs from which they are busy.
const BUSY: f64 = 0.9;
/// Share from which they certainly limit.
const FULL: f64 = 0.98;
/// Share of the work in interrupts from which it is reported.
const INTERRUPTS_REPORTED: f64 = 0.1;

pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    let (busy, taken) = (samples.busy()?, taken(samples).filter(|taken| *taken >= BUSY)?);
    let held_up = cpu_contention(samples);
    if held_up <= 0.0 {
        return None;
    }
    let mut evidence = vec![format!("{} CPUs are {} busy", samples.cores.len(), percent(busy))];
    evidence.extend(
        samples
            .cpu_pressure
            .map(|share| format!("some thread waited for one {} of the time", percent(share))),
    );
    let interrupts =
        samples.cores.iter().map(|core| core.interrupts).sum::<f64>() / samples.cores.len() as f64;
    if interrupts >= INTERRUPTS_REPORTED {
        evidence.push(format!(
            "{} of it is the kernel's work for interrupts, mostly the network's",
            percent(interrupts)
        ));
    }
    let mut processes: Vec<_> = samples.processes.iter().collect();
    processes.sort_by(|one, other| other.cores_used().total_cmp(&one.cores_used()));
    let used = |process: &&crate::samples::WatchedProcess| {
        format!(
            "process {} ({:?}) uses {:.2} CPUs",
            process.pid,
            process.role,
            process.cores_used()
        )
    };
    evidence.extend(processes.iter().take(3).map(used));
    Some(Finding {
        class: LimitClass::AllCpus,
        confidence: confidence(taken, BUSY, FULL)
            * (1.0 - others_share(samples).unwrap_or(0.0))
            * held_up,
        evidence,
        counterfactual: format!(
            "twice the CPUs, or half the CPU time per request, up to doubles the rate; taking 10 % \
             of the {} CPUs away costs about 10 % of it",
            samples.cores.len()
        ),
    })
}
