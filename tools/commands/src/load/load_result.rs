//! What the reports of a run are made of.

use hotrow_load::objective::ObjectiveResult;
use hotrow_load::outcome::Outcome;
use hotrow_load::run::Config;

use crate::diagnosis::DiagnosisResult;
use crate::machine::MeasuredOn;

/// A run with what was concluded from it.
#[derive(Clone, Copy)]
pub(super) struct LoadResult<'a> {
    /// The URLs as given.
    pub(super) url: &'a str,
    pub(super) config: &'a Config,
    pub(super) measured_on: &'a MeasuredOn,
    pub(super) outcome: &'a Outcome,
    pub(super) judged: &'a [ObjectiveResult],
    pub(super) diagnosed: &'a DiagnosisResult,
}
