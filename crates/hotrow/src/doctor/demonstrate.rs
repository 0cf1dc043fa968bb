//! Predictions beside what happens: a child process climbs up to a bound, or until a limit that was lowered for it
//! alone gives way. What happened is told by the kernel's own counters, not by error numbers, for several limits share
//! one.
//!
//! Reading order: this file (what is told), `climber` (the child), `parent` (starting it and hearing it out), `threads`
//! and `connections` (what is predicted).

mod climber;
mod connections;
mod parent;
mod pids_group;
mod threads;

use hotrow_diagnose::doctor::goal::Goal;

pub(super) use self::climber::climb;
use super::args::What;

/// A prediction that is off by no more than this share holds: what else a process maps or opens varies a little.
const TOLERANCE_SHARE: f64 = 0.02;
/// And by no more than this number.
const TOLERANCE: u64 = 2;

/// One prediction, and what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// What was climbed, and what was lowered for it.
    pub(super) what: String,
    /// How far it should go.
    pub(super) predicted: u64,
    /// How far it went.
    pub(super) happened: u64,
    /// Where the prediction comes from.
    pub(super) why: String,
    /// What the kernel tells.
    pub(super) evidence: Vec<String>,
}

/// Why there is no demonstration.
#[derive(Debug, thiserror::Error)]
pub enum DemonstrationError {
    /// The child could not be started, or broke off before it began.
    #[error("the demonstration's process {0}")]
    Child(String),
    /// What it was started with makes no sense: it was not started by the doctor.
    #[error("--climb is for the doctor itself: {0}")]
    Order(serde_json::Error),
    /// The child could not lower its own limits, or measure itself.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: std::io::Error,
    },
}

impl Shown {
    /// Whether the prediction holds.
    pub(super) fn holds(&self) -> bool {
        let off = self.happened.abs_diff(self.predicted);
        off <= TOLERANCE || off as f64 <= self.predicted as f64 * TOLERANCE_SHARE
    }
}

/// Carries out the demonstrations of one kind. Those that were finished before one that cannot be are in `shown` all the same.
pub(super) fn show(what: What, goal: &Goal, shown: &mut Vec<Shown>) -> Result<(), DemonstrationError> {
    match what {
        What::Threads => threads::show(goal, shown),
        What::Connections => connections::show(goal, shown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_holds_within_its_tolerance() {
        let shown = |predicted, happened| Shown {
            what: String::new(),
            predicted,
            happened,
            why: String::new(),
            evidence: Vec::new(),
        };
        for (predicted, happened, holds) in
            [(10, 12, true), (10, 13, false), (1000, 1020, true), (1000, 979, false), (0, 0, true), (5, 0, false)]
        {
            assert_eq!(shown(predicted, happened).holds(), holds, "{predicted} {happened}");
        }
    }
}
