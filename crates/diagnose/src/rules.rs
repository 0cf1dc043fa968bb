//! What limits? One file for each class, each a pure function from [`Samples`] to a [`Finding`]. [`judge`] asks them
//! all.
//!
//! The thresholds are named constants of each rule. A finding is a suspicion with evidence; only a change of what it
//! names proves it, which is what its counterfactual is for.

mod accept_queue;
mod competitor;
mod cpu;
mod disk;
mod external;
pub mod finding;
mod generator;
mod held;
mod lock;
mod memory;
mod network;
mod one_thread;
mod steal;
mod tables;
mod throttled;
mod too_few;
mod want;

use self::finding::{Class, Finding};
use crate::samples::Samples;

/// One class's rule.
pub type Rule = fn(&Samples) -> Option<Finding>;

/// All of them. A rule that looks at others' absence, as `external`, stands behind them. What cannot be accepted for want of files fills the
/// queue, so files come first.
pub const RULES: [Rule; 17] = [
    generator::judge,
    tables::open_files,
    accept_queue::judge,
    tables::ports,
    tables::conntrack,
    tables::tcp_memory,
    throttled::judge,
    steal::judge,
    memory::judge,
    competitor::judge,
    cpu::judge,
    one_thread::judge,
    lock::judge,
    network::judge,
    disk::judge,
    too_few::judge,
    external::judge,
];

/// A finding that is less sure than this is told, but does not keep it from being said that no limit was found.
const LIKELY: f64 = 0.5;
/// A finding says less where less could be seen: so much for each file that should be there, down to [`BLIND_LEAST`].
const BLIND_EACH: f64 = 0.05;
/// See [`BLIND_EACH`].
const BLIND_LEAST: f64 = 0.5;

/// Asks every rule; the most certain finding first, at least one: that no limit was found, unless one is likely.
#[must_use]
pub fn judge(samples: &Samples) -> Vec<Finding> {
    judge_some(samples, |_| true)
}

/// The same of classes that are `wanted`; that no limit was found always is.
#[must_use]
pub fn judge_some(samples: &Samples, wanted: impl Fn(Class) -> bool) -> Vec<Finding> {
    let found = RULES.iter().filter_map(|rule| rule(samples));
    let mut findings: Vec<Finding> = found.filter(|finding| wanted(finding.class)).collect();
    sort(&mut findings);
    if findings.iter().all(|finding| finding.confidence < LIKELY) {
        findings.push(none_found(samples));
        sort(&mut findings);
    }
    let sight = (1.0 - BLIND_EACH * samples.unseen.len() as f64).max(BLIND_LEAST);
    for finding in &mut findings {
        finding.confidence *= sight;
        if let [first, rest @ ..] = samples.unseen.as_slice() {
            let others = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
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
    evidence.extend(kept.map(|(rate, target)| format!("{rate:.0} of {target:.0} requests per second were answered")));
    Finding {
        class: Class::NoneFound,
        confidence: if kept.is_some_and(|(rate, target)| rate >= 0.98 * target) { 0.9 } else { 0.4 },
        evidence,
        counterfactual: "ask for more: a higher rate, or more connections".to_owned(),
    }
}

#[cfg(test)]
mod tests;
