//! What trials are called, and what suspicions they raise.

use super::{Change, Scene};
use crate::rules::finding::{Class, Finding};

/// How sure a suspicion is that only a trial raised.
const RAISED: f64 = 0.5;

/// A change, in words.
pub(super) fn change(change: Change, scene: &Scene) -> String {
    match change {
        Change::Connections(n) => format!("{n} connections instead of {}", scene.connections),
        Change::GeneratorThreads(n) => format!("{n} threads of the generator instead of {}", scene.threads),
        Change::BurnGenerator(share) => {
            format!("{:.0} % more CPU time for each request in the generator", share * 100.0)
        }
        Change::BurnCpus(cores) => format!("{cores:.2} of the {} CPUs taken away in short slices", scene.cpus),
        Change::Quota(part) => format!("{:.0} % less of the cgroup's CPU share", (1.0 - part) * 100.0),
        Change::Head => "HEAD instead of GET, so answers without bodies,".to_owned(),
        Change::Keepalive => "connections that are kept".to_owned(),
        Change::Rate(times) => format!("{times:.1} times the asked rate"),
    }
}

/// A suspicion that a trial raised, by what it brought.
pub(super) fn raised(class: Class, shown: String, scene: &Scene) -> Finding {
    let counterfactual = match class {
        Class::TooFewConnections => format!("more than {} connections raise the rate", scene.connections),
        Class::AllCpus => "more CPUs, or less CPU time per request, raise the rate".to_owned(),
        _ => "ask for more: a higher rate, or more connections".to_owned(),
    };
    Finding { class, confidence: RAISED, evidence: vec![shown], counterfactual }
}

/// Where there was nothing to test.
pub(super) fn nothing() -> Finding {
    let counterfactual = "look at the machine while it is loaded".to_owned();
    Finding { class: Class::NoneFound, confidence: 0.0, evidence: Vec::new(), counterfactual }
}
