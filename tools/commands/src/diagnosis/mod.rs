//! Diagnosis of a load, shared by `load` and `capacity`: findings and the conclusions of their
//! tests as text, with one verdict for all reports, and the progress of the tests.
//!
//! Reading order: this file, `watch_args` (the watched processes), `json` (machine-readable).

pub(crate) mod json;
pub mod watch_args;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hotrow_cli::output::print_line;
use hotrow_cli::signals::{self, OnAbort};
use hotrow_diagnose::hypothesis::{Conclusion, HypothesisVerdict, Trial};
use hotrow_diagnose::rules::finding::{Finding, LimitClass};
use hotrow_load::format::counted;
use hotrow_load::outcome::{Outcome, RunEnd};
use hotrow_report::document::Block;
use hotrow_report::numbers::{number, percent};
use hotrow_trial::bottleneck_text::NamedLimit;
use hotrow_trial::confirm::{QuotaRestore, TrialEvent, TrialRun};

use crate::tui::ProgressDisplay;
use crate::tui::view::{StepRow, Tone};

/// Rate ratio of more connections below which they bring nothing (docs/diagnosis.md, "How a verdict
/// is tested").
const MORE_FROM: f64 = 1.25;
/// Most lines of evidence shown per finding.
const EVIDENCE_MAX: usize = 6;

/// Returns the flag that ends a command, and, where tests may change settings, the guard that
/// restores them; with it, every catchable signal ends the command. Restores what earlier commands
/// left when they were killed.
pub(crate) fn stop_flag(allow_changes: bool) -> io::Result<StopFlag> {
    for message in QuotaRestore::recover() {
        print_line(io::stderr(), &message);
    }
    if !allow_changes {
        return Ok(StopFlag { stop: signals::stop_flag()?, changes: None });
    }
    let undo = QuotaRestore::default();
    let put_back = undo.clone();
    let stop = signals::stop_flag_with(OnAbort::act(move || put_back.end()))?;
    Ok(StopFlag { stop, changes: Some(undo) })
}

/// What signals set and undo.
pub(crate) struct StopFlag {
    pub(crate) stop: Arc<AtomicBool>,
    /// Restores a CPU quota, if one may be changed.
    pub(crate) changes: Option<QuotaRestore>,
}

/// Findings and the conclusions of their tests.
#[derive(Debug, Default)]
pub(crate) struct DiagnosisResult {
    /// The most certain first; empty when the machine was not observed.
    pub(crate) findings: Vec<Finding>,
    /// None without tests.
    pub(crate) verdict: Option<HypothesisVerdict>,
    /// An objective of the run was missed.
    pub(crate) missed_objective: bool,
    /// The user interrupted the tests. Earlier measurements are complete.
    pub(crate) interrupted: bool,
}

impl DiagnosisResult {
    /// Returns the named finding: the result of tests, or the most certain hypothesis.
    pub(crate) fn finding(&self) -> Option<&Finding> {
        self.verdict.as_ref().map(|verdict| &verdict.finding).or(self.findings.first())
    }

    /// Returns the conclusion of tests; `None` without tests.
    pub(crate) fn conclusion(&self) -> Option<Conclusion> {
        self.verdict.as_ref().map(|verdict| verdict.conclusion)
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        self.conclusion() == Some(Conclusion::Confirmed)
    }

    /// Returns the limit that other sentences must not contradict: `None` without a finding,
    /// `NoneFound` when all were refuted.
    pub(crate) fn named(&self) -> Option<NamedLimit> {
        let class = match self.conclusion() {
            Some(Conclusion::Refuted) => LimitClass::NoneFound,
            _ => self.finding()?.class,
        };
        Some(NamedLimit { class, confirmed: self.is_confirmed() })
    }

    /// Returns the findings that tests did not refute, the named one first.
    pub(crate) fn standing(&self) -> Vec<Finding> {
        let Some(verdict) = &self.verdict else { return self.findings.clone() };
        let refuted = |class| self.refuted(class);
        let named =
            Some(verdict.finding.clone()).filter(|_| verdict.conclusion != Conclusion::Refuted);
        let others = self
            .findings
            .iter()
            .filter(|one| !refuted(one.class) && one.class != verdict.finding.class);
        named.into_iter().chain(others.cloned()).collect()
    }

    /// Returns whether a test refuted this class, even if made for another.
    pub(crate) fn refuted(&self, class: LimitClass) -> bool {
        let Some(verdict) = &self.verdict else { return false };
        let made_for_it =
            |trial: &Trial| trial.class == class && trial.conclusion == Conclusion::Refuted;
        match class {
            LimitClass::TooFewConnections
                if self.more_connections_brought().is_some_and(|times| times < MORE_FROM) =>
            {
                true
            }
            _ => verdict.trials.iter().any(made_for_it),
        }
    }

    /// Returns the rate ratio of twice the connections; `None` without a test.
    pub(crate) fn more_connections_brought(&self) -> Option<f64> {
        self.verdict.as_ref().and_then(HypothesisVerdict::more_connections_brought)
    }

    /// Returns a label and the finding. `how` names the option that would test it.
    pub(crate) fn headline(&self, how: &str) -> Option<(&'static str, String)> {
        let finding = self.finding()?;
        let words = finding.class.words();
        let sure = percent(finding.confidence);
        Some(match &self.verdict {
            None => ("suspicion", format!("{words} ({sure} sure; not tested, {how} tests it)")),
            Some(HypothesisVerdict { conclusion: Conclusion::Confirmed, .. }) => {
                ("limit", format!("{words} (confirmed)"))
            }
            Some(HypothesisVerdict { conclusion: Conclusion::Refuted, .. }) => {
                ("limit", "none named: every hypothesis was tested and refuted".to_owned())
            }
            Some(HypothesisVerdict { conclusion: Conclusion::Inconclusive, .. }) => {
                ("suspicion", format!("{words} ({sure} sure; inconclusive)"))
            }
        })
    }

    /// Returns the evidence behind the headline, and the change that would move the limit.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let Some(finding) = self.finding() else { return Vec::new() };
        let mut lines = Vec::new();
        lines.extend(self.verdict.as_ref().map(|verdict| match verdict.conclusion {
            Conclusion::Inconclusive => format!("inconclusive: {}", verdict.why),
            Conclusion::Confirmed | Conclusion::Refuted => format!("tested: {}", verdict.why),
        }));
        if self.interrupted {
            lines.push(
                "the tests were interrupted; what was measured before them is complete".to_owned(),
            );
        }
        if self.conclusion() == Some(Conclusion::Refuted) {
            return lines;
        }
        lines.extend(finding.evidence.iter().take(EVIDENCE_MAX).cloned());
        lines.push(match (finding.class, self.missed_objective) {
            (LimitClass::NoneFound, true) => {
                "an objective was missed all the same: this rate is too high for it".to_owned()
            }
            _ => format!("to move it: {}", finding.counterfactual),
        });
        lines
    }

    /// Returns blocks for a page: the finding, its evidence, and each trial.
    pub(crate) fn blocks(&self, how: &str) -> Vec<Block> {
        let Some((what, words)) = self.headline(how) else { return Vec::new() };
        let mut blocks =
            vec![Block::Subheading(format!("{what}: {words}")), Block::List(self.reasons())];
        if let Some(verdict) = self.verdict.as_ref().filter(|verdict| !verdict.trials.is_empty()) {
            let trial = verdict.trials.iter().map(|trial| {
                format!(
                    "{}, predicted if it is {}: {}; observed: {} ({})",
                    trial.change,
                    trial.class.words(),
                    trial.predicted,
                    trial.observed,
                    trial.conclusion.words()
                )
            });
            blocks.extend([Block::Subheading("Trials".to_owned()), Block::List(trial.collect())]);
            blocks.extend(verdict.noise.map(|noise| {
                Block::Text(format!(
                    "Equal loads gave {} to {} requests/s ({} apart).",
                    number(noise.low_rps),
                    number(noise.high_rps),
                    percent(noise.share())
                ))
            }));
        }
        blocks
    }
}

/// Returns a value with every optional part, for tests of reports.
#[cfg(test)]
pub(crate) fn example() -> DiagnosisResult {
    let finding = Finding {
        class: LimitClass::External,
        confidence: 0.8,
        evidence: vec!["2 CPUs are 9 % busy".to_owned()],
        counterfactual: "a faster database".to_owned(),
    };
    let trial = Trial {
        class: LimitClass::External,
        change: "100 connections instead of 50".to_owned(),
        predicted: "at most 1.10 times the rate".to_owned(),
        observed: "1.02 times the rate".to_owned(),
        conclusion: Conclusion::Confirmed,
        change_made: hotrow_diagnose::hypothesis::Change::Connections(100),
        times: Some(1.02),
    };
    let noise = Some(hotrow_diagnose::hypothesis::Noise { low_rps: 95.0, high_rps: 105.0 });
    let findings = vec![finding.clone()];
    let why = "so it came".to_owned();
    let verdict = HypothesisVerdict {
        finding,
        conclusion: Conclusion::Confirmed,
        why,
        trials: vec![trial],
        noise,
        connections: 50,
    };
    DiagnosisResult { findings, verdict: Some(verdict), ..DiagnosisResult::default() }
}

/// Shows the progress of tests, on the display or in lines.
pub(crate) fn show_trial(shown: &ProgressDisplay, event: &TrialEvent<'_>) {
    match event {
        TrialEvent::Started(trial) => {
            shown.trial(|| step(trial), &trial.config);
            if shown.lines() {
                print_line(std::io::stderr(), &format!("test {}", step(trial)));
            }
        }
        TrialEvent::Second(second, record) => shown.second(second, record),
        TrialEvent::Ended(trial, outcome) if outcome.end == RunEnd::Complete => {
            shown.step_done(|| row(trial, outcome))
        }
        TrialEvent::Ended(..) => {}
    }
}

/// Returns the number and the subject of a trial.
fn step(trial: &TrialRun) -> String {
    let tested = &trial.hypothesis;
    format!("{} of “{}”: {}", trial.number, tested.class.words(), tested.words)
}

fn row(trial: &TrialRun, outcome: &Outcome) -> StepRow {
    StepRow {
        target: counted(trial.config.connections, "conn"),
        purpose: "test",
        verdict: "",
        tone: Tone::Neutral,
        answered_rps: outcome.throughput_rps(),
        p99: outcome.total.latency.quantile(0.99),
        suspicion: trial.hypothesis.words.clone(),
    }
}

#[cfg(test)]
mod tests {
    use hotrow_diagnose::hypothesis::Change;

    use super::*;

    fn diagnosed(conclusion: Option<Conclusion>) -> DiagnosisResult {
        let finding = |class| Finding {
            class,
            confidence: 0.8,
            evidence: vec!["2 CPUs are 99 % busy".to_owned()],
            counterfactual: "more CPUs".to_owned(),
        };
        let verdict = |conclusion| HypothesisVerdict {
            finding: finding(LimitClass::OneThread),
            conclusion,
            why: "so it came".to_owned(),
            trials: Vec::new(),
            noise: None,
            connections: 50,
        };
        DiagnosisResult {
            findings: vec![finding(LimitClass::AllCpus)],
            verdict: conclusion.map(verdict),
            ..DiagnosisResult::default()
        }
    }

    /// The trial was made for the named class, but it also decides about connections.
    #[test]
    fn a_trial_refutes_connections_also_when_made_for_another_class() {
        let trial = |made, times| Trial {
            class: LimitClass::External,
            change: String::new(),
            predicted: String::new(),
            observed: String::new(),
            conclusion: Conclusion::Confirmed,
            change_made: made,
            times: Some(times),
        };
        let mut of = diagnosed(Some(Conclusion::Confirmed));
        of.findings
            .push(Finding { class: LimitClass::TooFewConnections, ..of.findings[0].clone() });
        let connections_stand = |of: &DiagnosisResult| {
            of.standing().iter().any(|one| one.class == LimitClass::TooFewConnections)
        };
        assert!(connections_stand(&of) && !of.refuted(LimitClass::TooFewConnections));
        for (made, times, refuted) in [
            (Change::Connections(100), 1.02, true),
            (Change::Connections(100), 1.9, false),
            (Change::Connections(25), 1.0, false),
            (Change::BurnCpus(1.0), 1.0, false),
        ] {
            of.verdict.as_mut().unwrap().trials = vec![trial(made, times)];
            assert_eq!(of.refuted(LimitClass::TooFewConnections), refuted, "{made:?}");
            assert_eq!(connections_stand(&of), !refuted, "{made:?}");
        }
        of.verdict.as_mut().unwrap().trials[0] =
            Trial { conclusion: Conclusion::Inconclusive, ..trial(Change::Connections(100), 1.0) };
        assert_eq!(of.more_connections_brought(), None, "it settled nothing");
    }

    #[test]
    fn only_a_confirmed_finding_is_called_the_limit() {
        let said = |conclusion| {
            diagnosed(conclusion)
                .headline("--confirm")
                .map(|(what, words)| format!("{what}: {words}"))
        };
        let confirmed = said(Some(Conclusion::Confirmed));
        assert_eq!(
            confirmed.as_deref(),
            Some("limit: CPU: one thread is busy, the others are not (confirmed)")
        );
        assert!(said(None).is_some_and(
            |said| said.starts_with("suspicion: CPU: all") && said.contains("--confirm")
        ));
        assert!(
            said(Some(Conclusion::Inconclusive))
                .is_some_and(|said| said.starts_with("suspicion: CPU: one"))
        );
        assert!(said(Some(Conclusion::Refuted)).is_some_and(|said| said.contains("none named")));
        assert_eq!(DiagnosisResult::default().headline("--confirm"), None);
        assert_eq!(
            diagnosed(Some(Conclusion::Refuted)).named().map(|named| named.class),
            Some(LimitClass::NoneFound)
        );
        assert_eq!(diagnosed(Some(Conclusion::Refuted)).reasons(), ["tested: so it came"]);
        assert_eq!(diagnosed(Some(Conclusion::Refuted)).standing().len(), 1);
        assert_eq!(
            diagnosed(Some(Conclusion::Confirmed)).standing()[0].class,
            LimitClass::OneThread
        );
        let interrupted =
            DiagnosisResult { interrupted: true, ..diagnosed(Some(Conclusion::Inconclusive)) };
        assert!(
            interrupted.reasons()[1].contains("the tests were interrupted"),
            "{:?}",
            interrupted.reasons()
        );
        assert_eq!(diagnosed(None).reasons(), ["2 CPUs are 99 % busy", "to move it: more CPUs"]);
    }
}
