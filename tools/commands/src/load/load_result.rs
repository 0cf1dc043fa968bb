//! What the reports of a run are made of.

use hotrow_load::objective::{ObjectiveResult, ObjectiveStatus};
use hotrow_load::outcome::Outcome;
use hotrow_load::run::Config;

use hotrow_trial::bottleneck_text::{self, NamedLimit};

use super::calibration::Headroom;
use crate::diagnosis::DiagnosisResult;
use crate::machine::MeasuredOn;

/// The option that tests a hypothesis.
pub(super) const CONFIRM_OPTION: &str = "--confirm";

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
    /// Share of the generator's maximum; `None` without a calibration for this kind of run.
    pub(super) headroom: Option<&'a Headroom>,
    /// Note that an earlier run requested the same ids.
    pub(super) repeated: Option<&'a str>,
}

impl LoadResult<'_> {
    /// Returns the first sentence of every report.
    pub(super) fn summary(&self) -> String {
        bottleneck_text::summary(self.outcome, self.named())
    }

    /// Returns the sentences behind it.
    pub(super) fn details(&self) -> String {
        bottleneck_text::details(self.outcome, self.named()).join(" ")
    }

    /// Returns the limit that is named with its label; `None` without one, and for a run that
    /// mostly failed and was not tested.
    pub(super) fn limit(&self) -> Option<(&'static str, String)> {
        self.named()?;
        self.diagnosed.headline(CONFIRM_OPTION)
    }

    fn named(&self) -> Option<NamedLimit> {
        let is_shown = self.diagnosed.verdict.is_some()
            || bottleneck_text::mostly_failed(self.outcome).is_none();
        self.diagnosed.named().filter(|_| is_shown)
    }
}

/// Returns an objective's status in a word or two.
pub(super) fn met(met: ObjectiveStatus) -> &'static str {
    match met {
        ObjectiveStatus::Met => "met",
        ObjectiveStatus::Missed => "MISSED",
        ObjectiveStatus::Inconclusive => "inconclusive",
    }
}
