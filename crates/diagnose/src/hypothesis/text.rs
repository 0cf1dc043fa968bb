//! Texts of trials and of the hypotheses that they raise.

use super::{Change, Context};
use crate::rules::finding::{Finding, LimitClass};

/// Confidence of a hypothesis that only a trial raised.
const RAISED: f64 = 0.5;

/// Describes a change.
pub(super) fn change(change: Change, context: &Context) -> String {
    match change {
        Change::Connections(n) => format!("{n} connections instead of {}", context.connections),
        Change::GeneratorThreads(n) => {
            format!("{n} threads of the generator instead of {}", context.threads)
        }
        Change::BurnGenerator(share) => {
            format!("{:.0} % more CPU time for each request in the generator", share * 100.0)
        }
        Change::BurnCpus(cores) => {
            format!("{cores:.2} of the {} CPUs taken away in short slices", context.cpus)
        }
        Change::Quota(part) => {
            format!("{:.0} % less of the cgroup's CPU quota", (1.0 - part) * 100.0)
        }
        Change::Head => "HEAD instead of GET (responses without bodies)".to_owned(),
        Change::Keepalive => "connections that are kept".to_owned(),
        Change::Rate(times) => format!("{times:.1} times the asked rate"),
    }
}

/// Returns a hypothesis that a trial raised, with its effect.
pub(super) fn raised(class: LimitClass, shown: String, context: &Context) -> Finding {
    let counterfactual = match class {
        LimitClass::TooFewConnections => {
            format!("more than {} connections raise the rate", context.connections)
        }
        LimitClass::AllCpus => "more CPUs, or less CPU time per request, raise the rate".to_owned(),
        _ => "ask for more: a higher rate, or more connections".to_owned(),
    };
    Finding { class, confidence: RAISED, evidence: vec![shown], counterfactual }
}

/// Returns the placeholder for a test without a hypothesis.
pub(super) fn nothing() -> Finding {
    let counterfactual = "look at the machine while it is loaded".to_owned();
    Finding { class: LimitClass::NoneFound, confidence: 0.0, evidence: Vec::new(), counterfactual }
}
