//! The hypervisor gives the CPUs to other machines.

use super::finding::{Finding, LimitClass, confidence, percent};
use crate::samples::Samples;

/// Share of all CPUs from which it limits, or at least adds noise.
const STEAL: f64 = 0.1;
/// Share from which it certainly limits.
const FULL: f64 = 0.3;
/// Stolen time matters only with less idle time than this.
const IDLE: f64 = 0.15;

pub(super) fn evaluate(samples: &Samples) -> Option<Finding> {
    let (steal, busy) = (samples.steal()?, samples.busy()?);
    if steal < STEAL || 1.0 - busy - steal > IDLE {
        return None;
    }
    Some(Finding {
        class: LimitClass::Steal,
        confidence: confidence(steal, STEAL, FULL),
        evidence: vec![
            format!("{} of CPU time went to other machines of this host", percent(steal)),
            format!("{} was work", percent(busy)),
        ],
        counterfactual: format!(
            "on CPUs of its own the rate is up to {:.2} times as high; measure there, for figures \
             from here vary with the neighbours",
            (busy + steal) / busy.max(0.01)
        ),
    })
}
