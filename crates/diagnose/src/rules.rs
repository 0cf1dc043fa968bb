//! Bottleneck rules: one module per class, each a pure function from [`Samples`] to a [`Finding`].
//! [`evaluate`] applies all of them.
//!
//! Thresholds are named constants of each rule. A finding is a hypothesis with evidence. Only
//! changing the named limit confirms it, which is the purpose of its counterfactual.

mod accept_queue;
mod competitor;
mod cpu;
mod cpu_demand;
mod disk;
mod external;
pub mod finding;
mod generator;
mod lock;
mod memory;
mod network;
mod one_thread;
mod steal;
mod tables;
mod thread_states;
mod throttled;
mod too_few;

use self::finding::{Finding, LimitClass};
use crate::samples::Samples;

/// The rule of one class.
pub type Rule = fn(&Samples) -> Option<Finding>;

/// All rules. A rule that requires the absence of others, such as `external`, follows them. A lack
/// of files prevents accepting and so fills the accept queue; therefore files come first.
pub const RULES: [Rule; 17] = [
    generator::evaluate,
    tables::open_files,
    accept_queue::evaluate,
    tables::ports,
    tables::conntrack,
    tables::tcp_memory,
    throttled::evaluate,
    steal::evaluate,
    memory::evaluate,
    competitor::evaluate,
    cpu::evaluate,
    one_thread::evaluate,
    lock::evaluate,
    network::evaluate,
    disk::evaluate,
    too_few::evaluate,
    external::evaluate,
];

/// A finding with lower confidence is reported, but the report still states that no limit was
/// found.
const LIKELY_FROM: f64 = 0.5;
/// Reduction of a finding's confidence for each unreadable file, down to [`UNREADABLE_FACTOR_MIN`].
const UNREADABLE_PENALTY: f64 = 0.05;
/// See [`UNREADABLE_PENALTY`].
const UNREADABLE_FACTOR_MIN: f64 = 0.5;

/// Applies every rule; returns the most certain finding first. If none is likely, the result
/// includes that no limit was found.
#[must_use]
pub fn evaluate(samples: &Samples) -> Vec<Finding> {
    evaluate_some(samples, |_| true)
}

/// The same for the `wanted` classes; "no limit was found" is always possible.
#[must_use]
pub fn evaluate_some(samples: &Samples, wanted: impl Fn(LimitClass) -> bool) -> Vec<Finding> {
    let found = RULES.iter().filter_map(|rule| rule(samples));
    let mut findings: Vec<Finding> = found.filter(|finding| wanted(finding.class)).collect();
    sort(&mut findings);
    if findings.iter().all(|finding| finding.confidence < LIKELY_FROM) {
        findings.push(none_found(samples));
        sort(&mut findings);
    }
    let sight =
        (1.0 - UNREADABLE_PENALTY * samples.probe_errors.len() as f64).max(UNREADABLE_FACTOR_MIN);
    for finding in &mut findings {
        finding.confidence *= sight;
        if let [first, rest @ ..] = samples.probe_errors.as_slice() {
            let others =
                if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
            finding.evidence.push(format!("not seen: {first}{others}"));
        }
    }
    findings
}

/// The order of [`RULES`] decides between equals.
fn sort(findings: &mut [Finding]) {
    findings.sort_by(|one, other| other.confidence.total_cmp(&one.confidence));
}

fn none_found(samples: &Samples) -> Finding {
    let mut evidence = Vec::new();
    evidence.extend(samples.busy().map(|busy| format!("CPUs {:.0} % busy", busy * 100.0)));
    let kept = samples.load.and_then(|load| load.target_rate.map(|target| (load.rate, target)));
    evidence.extend(kept.map(|(rate, target)| {
        format!("{rate:.0} of {target:.0} requests per second were answered")
    }));
    Finding {
        class: LimitClass::NoneFound,
        confidence: if kept.is_some_and(|(rate, target)| rate >= 0.98 * target) {
            0.9
        } else {
            0.4
        },
        evidence,
        counterfactual: "ask for more: a higher rate, or more connections".to_owned(),
    }
}

#[cfg(test)]
mod tests;
