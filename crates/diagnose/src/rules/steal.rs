//! The hypervisor gives the CPUs to other machines.

use super::finding::{Class, Finding, confidence, percent};
use crate::samples::Samples;

/// From this share of all CPUs on it limits, or at least blurs.
const STEAL: f64 = 0.1;
/// From this share on there is no doubt.
const FULL: f64 = 0.3;
/// What is stolen matters only when there is little else left.
const IDLE: f64 = 0.15;

pub(super) fn judge(samples: &Samples) -> Option<Finding> {
    let (steal, busy) = (samples.steal()?, samples.busy()?);
    if steal < STEAL || 1.0 - busy - steal > IDLE {
        return None;
    }
    Some(Finding {
        class: Class::Steal,
        confidence: confidence(steal, STEAL, FULL),
        evidence: vec![
            format!("{} of CPU time went to other machines of this host", percent(steal)),
            format!("{} was work", percent(busy)),
        ],
        counterfactual: format!(
            "on CPUs of its own the rate is up to {:.2} times as high; measure there, for figures from here vary \
            with the neighbours",
            (busy + steal) / busy.max(0.01)
        ),
    })
}
