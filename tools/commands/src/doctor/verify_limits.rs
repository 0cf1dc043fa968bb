//! Verification of predicted limits: a child process creates threads or connections up to a
//! maximum, or until a limit that was lowered for it alone is reached. The kernel's own counters
//! show the result, because several limits share one error number.
//!
//! Reading order: this file (the report), `child` (the child process), `parent` (starting it and
//! reading its output), `threads` and `connections` (the predictions).

mod child;
mod connections;
mod parent;
mod pids_group;
mod threads;

use hotrow_diagnose::doctor::goal::Goal;

pub(super) use self::child::ramp;
use super::args::LimitKind;

/// A prediction within this relative error holds: other maps and files of a process vary slightly.
const TOLERANCE_SHARE: f64 = 0.02;
/// A prediction within this absolute error holds.
const TOLERANCE: u64 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LimitCheck {
    /// The created items, and the lowered limit.
    pub(super) what: String,
    pub(super) predicted: u64,
    pub(super) observed: u64,
    pub(super) why: String,
    /// The kernel's counters.
    pub(super) evidence: Vec<String>,
}

/// Reasons why a limit could not be verified.
#[derive(Debug, thiserror::Error)]
pub enum LimitCheckError {
    /// The child could not be started, or ended before it began.
    #[error("the process that verifies limits {0}")]
    Child(String),
    /// The instructions are invalid: the child was not started by the doctor.
    #[error("--child is internal to hotrow doctor: {0}")]
    RampOrder(serde_json::Error),
    /// The child could not lower its own limits, or measure itself.
    #[error("{what}: {error}")]
    System {
        /// The attempted operation.
        what: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
}

impl LimitCheck {
    pub(super) fn holds(&self) -> bool {
        let off = self.observed.abs_diff(self.predicted);
        off <= TOLERANCE || off as f64 <= self.predicted as f64 * TOLERANCE_SHARE
    }
}

/// Verifies the limits of one kind. Results completed before an error are in `checks` too.
pub(super) fn show(
    what: LimitKind,
    goal: &Goal,
    checks: &mut Vec<LimitCheck>,
) -> Result<(), LimitCheckError> {
    match what {
        LimitKind::Threads => threads::show(goal, checks),
        LimitKind::Connections => connections::show(goal, checks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_holds_within_its_tolerance() {
        let checks = |predicted, observed| LimitCheck {
            what: String::new(),
            predicted,
            observed,
            why: String::new(),
            evidence: Vec::new(),
        };
        for (predicted, observed, holds) in [
            (10, 12, true),
            (10, 13, false),
            (1000, 1020, true),
            (1000, 979, false),
            (0, 0, true),
            (5, 0, false),
        ] {
            assert_eq!(checks(predicted, observed).holds(), holds, "{predicted} {observed}");
        }
    }
}
