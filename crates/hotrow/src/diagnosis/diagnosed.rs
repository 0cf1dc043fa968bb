//! What was found of a load, and what tests say of it, in words. There is one verdict: whatever is shown is made from it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hotrow_diagnose::rules::finding::{Class, Finding};
use hotrow_diagnose::verdict::{Proof, Tried, Verdict};
use hotrow_lab::prove::Undo;
use hotrow_lab::report::document::Block;
use hotrow_lab::report::numbers::percent;

use crate::signals::{self, OnAbort};

/// More connections that bring less than this many times the rate bring nothing (docs/diagnosis.md, "How a verdict is tested").
const MORE_FROM: f64 = 1.25;
/// Lines of evidence that are shown of a finding.
const EVIDENCE_MAX: usize = 6;

/// The flag that ends a command, and who puts back what tests may change, where they may: then by whatever signal it can hear it is ended.
pub(crate) fn stop_flag(allow_changes: bool) -> io::Result<(Arc<AtomicBool>, Option<Undo>)> {
    if !allow_changes {
        return Ok((signals::stop_flag()?, None));
    }
    let undo = Undo::default();
    let put_back = undo.clone();
    Ok((signals::stop_flag_with(OnAbort::act(move || put_back.end()))?, Some(undo)))
}

/// What was found, and what tests say of it.
#[derive(Debug, Default)]
pub(crate) struct Diagnosed {
    /// The most certain first; none when nothing was seen of the machine.
    pub(crate) findings: Vec<Finding>,
    /// None when nothing was tested.
    pub(crate) verdict: Option<Verdict>,
    /// Whether the user broke the tests off. What was measured before them is complete.
    pub(crate) interrupted: bool,
}

impl Diagnosed {
    /// What is named: what tests left, or the most certain suspicion.
    pub(crate) fn finding(&self) -> Option<&Finding> {
        self.verdict.as_ref().map(|verdict| &verdict.finding).or(self.findings.first())
    }

    /// What tests say of it; none when there were none.
    pub(crate) fn proof(&self) -> Option<Proof> {
        self.verdict.as_ref().map(|verdict| verdict.proof)
    }

    /// Whether what is named was tested, and is the limit.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.proof() == Some(Proof::Confirmed)
    }

    /// The class that sentences beside it must not contradict: none when there is no finding, `NoneFound` when all were refuted.
    pub(crate) fn class(&self) -> Option<Class> {
        match self.proof() {
            Some(Proof::Refuted) => Some(Class::NoneFound),
            _ => self.finding().map(|finding| finding.class),
        }
    }

    /// The findings that tests did not refute, what is named first.
    pub(crate) fn standing(&self) -> Vec<Finding> {
        let Some(verdict) = &self.verdict else { return self.findings.clone() };
        let refuted = |class| self.refuted(class);
        let named = Some(verdict.finding.clone()).filter(|_| verdict.proof != Proof::Refuted);
        let others = self.findings.iter().filter(|one| !refuted(one.class) && one.class != verdict.finding.class);
        named.into_iter().chain(others.cloned()).collect()
    }

    /// Whether tests say that this is not the limit, be it that they were made for another.
    pub(crate) fn refuted(&self, class: Class) -> bool {
        let Some(verdict) = &self.verdict else { return false };
        let made_for_it = |tried: &Tried| tried.class == class && tried.proof == Proof::Refuted;
        match class {
            Class::TooFewConnections if self.more_connections_brought().is_some_and(|times| times < MORE_FROM) => true,
            _ => verdict.tried.iter().any(made_for_it),
        }
    }

    /// How many times the rate twice the connections brought; none where no test tells.
    pub(crate) fn more_connections_brought(&self) -> Option<f64> {
        self.verdict.as_ref().and_then(Verdict::more_connections_brought)
    }

    /// A word for what it is, and what it says. `how` is the option that would test it.
    pub(crate) fn headline(&self, how: &str) -> Option<(&'static str, String)> {
        let finding = self.finding()?;
        let (words, sure) = (finding.class.words(), percent(finding.confidence));
        Some(match &self.verdict {
            None => ("suspicion", format!("{words} ({sure} sure; not tested, {how} tests it)")),
            Some(Verdict { proof: Proof::Confirmed, .. }) => ("limit", format!("{words} (confirmed)")),
            Some(Verdict { proof: Proof::Refuted, .. }) => {
                ("limit", "none is named: what was suspected was tested and refuted".to_owned())
            }
            Some(Verdict { proof: Proof::NotTestable, .. }) => {
                ("suspicion", format!("{words} ({sure} sure; not testable)"))
            }
        })
    }

    /// What the headline rests on, and what to change.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let Some(finding) = self.finding() else { return Vec::new() };
        let mut lines = Vec::new();
        lines.extend(self.verdict.as_ref().map(|verdict| match verdict.proof {
            Proof::NotTestable => format!("not testable: {}", verdict.why),
            Proof::Confirmed | Proof::Refuted => format!("tested: {}", verdict.why),
        }));
        if self.interrupted {
            lines.push("the tests were interrupted; what was measured before them is complete".to_owned());
        }
        if self.proof() == Some(Proof::Refuted) {
            return lines;
        }
        lines.extend(finding.evidence.iter().take(EVIDENCE_MAX).cloned());
        lines.push(format!("to move it: {}", finding.counterfactual));
        lines
    }

    /// For a page: what it is, why, and each trial.
    pub(crate) fn blocks(&self, how: &str) -> Vec<Block> {
        let Some((what, words)) = self.headline(how) else { return Vec::new() };
        let mut blocks = vec![Block::Subheading(format!("{what}: {words}")), Block::List(self.reasons())];
        if let Some(verdict) = self.verdict.as_ref().filter(|verdict| !verdict.tried.is_empty()) {
            let tried = verdict.tried.iter().map(|tried| {
                format!(
                    "{}, predicted if it is {}: {}; came: {} ({})",
                    tried.change,
                    tried.class.words(),
                    tried.predicted,
                    tried.happened,
                    tried.proof.words()
                )
            });
            blocks.extend([Block::Subheading("Trials".to_owned()), Block::List(tried.collect())]);
            blocks.extend(verdict.noise.map(|noise| {
                Block::Text(format!(
                    "Equal loads gave {:.0} to {:.0} requests/s ({} apart).",
                    noise.low_rps,
                    noise.high_rps,
                    percent(noise.share())
                ))
            }));
        }
        blocks
    }
}

/// One with everything that there can be, for tests of what is made from it.
#[cfg(test)]
pub(crate) fn example() -> Diagnosed {
    let finding = Finding {
        class: Class::External,
        confidence: 0.8,
        evidence: vec!["2 CPUs are 9 % busy".to_owned()],
        counterfactual: "a faster database".to_owned(),
    };
    let tried = Tried {
        class: Class::External,
        change: "100 connections instead of 50".to_owned(),
        predicted: "at most 1.10 times the rate".to_owned(),
        happened: "1.02 times the rate".to_owned(),
        proof: Proof::Confirmed,
        made: hotrow_diagnose::verdict::Change::Connections(100),
        times: Some(1.02),
    };
    let noise = Some(hotrow_diagnose::verdict::Noise { low_rps: 95.0, high_rps: 105.0 });
    let (findings, why) = (vec![finding.clone()], "so it came".to_owned());
    let verdict = Verdict { finding, proof: Proof::Confirmed, why, tried: vec![tried], noise, connections: 50 };
    Diagnosed { findings, verdict: Some(verdict), interrupted: false }
}

#[cfg(test)]
mod tests {
    use hotrow_diagnose::verdict::Change;

    use super::*;

    fn diagnosed(proof: Option<Proof>) -> Diagnosed {
        let finding = |class| Finding {
            class,
            confidence: 0.8,
            evidence: vec!["2 CPUs are 99 % busy".to_owned()],
            counterfactual: "more CPUs".to_owned(),
        };
        let verdict = |proof| Verdict {
            finding: finding(Class::OneThread),
            proof,
            why: "so it came".to_owned(),
            tried: Vec::new(),
            noise: None,
            connections: 50,
        };
        Diagnosed { findings: vec![finding(Class::AllCpus)], verdict: proof.map(verdict), interrupted: false }
    }

    /// The trial was made for what is named; it speaks of connections all the same.
    #[test]
    fn a_trial_refutes_connections_whatever_it_was_made_for() {
        let tried = |made, times| Tried {
            class: Class::External,
            change: String::new(),
            predicted: String::new(),
            happened: String::new(),
            proof: Proof::Confirmed,
            made,
            times: Some(times),
        };
        let mut of = diagnosed(Some(Proof::Confirmed));
        of.findings.push(Finding { class: Class::TooFewConnections, ..of.findings[0].clone() });
        let connections_stand = |of: &Diagnosed| of.standing().iter().any(|one| one.class == Class::TooFewConnections);
        assert!(connections_stand(&of) && !of.refuted(Class::TooFewConnections));
        for (made, times, refuted) in [
            (Change::Connections(100), 1.02, true),
            (Change::Connections(100), 1.9, false),
            (Change::Connections(25), 1.0, false),
            (Change::BurnCpus(1.0), 1.0, false),
        ] {
            of.verdict.as_mut().unwrap().tried = vec![tried(made, times)];
            assert_eq!(of.refuted(Class::TooFewConnections), refuted, "{made:?}");
            assert_eq!(connections_stand(&of), !refuted, "{made:?}");
        }
        of.verdict.as_mut().unwrap().tried[0] =
            Tried { proof: Proof::NotTestable, ..tried(Change::Connections(100), 1.0) };
        assert_eq!(of.more_connections_brought(), None, "it settled nothing");
    }

    #[test]
    fn only_what_is_confirmed_is_called_the_limit() {
        let said = |proof| diagnosed(proof).headline("--prove").map(|(what, words)| format!("{what}: {words}"));
        let confirmed = said(Some(Proof::Confirmed));
        assert_eq!(confirmed.as_deref(), Some("limit: CPU: one thread is busy, the others are not (confirmed)"));
        assert!(said(None).is_some_and(|said| said.starts_with("suspicion: CPU: all") && said.contains("--prove")));
        assert!(said(Some(Proof::NotTestable)).is_some_and(|said| said.starts_with("suspicion: CPU: one")));
        assert!(said(Some(Proof::Refuted)).is_some_and(|said| said.contains("none is named")));
        assert_eq!(Diagnosed::default().headline("--prove"), None);
        assert_eq!(diagnosed(Some(Proof::Refuted)).class(), Some(Class::NoneFound));
        assert_eq!(diagnosed(Some(Proof::Refuted)).reasons(), ["tested: so it came"]);
        assert_eq!(diagnosed(Some(Proof::Refuted)).standing().len(), 1);
        assert_eq!(diagnosed(Some(Proof::Confirmed)).standing()[0].class, Class::OneThread);
        let interrupted = Diagnosed { interrupted: true, ..diagnosed(Some(Proof::NotTestable)) };
        assert!(interrupted.reasons()[1].contains("the tests were interrupted"), "{:?}", interrupted.reasons());
        assert_eq!(diagnosed(None).reasons(), ["2 CPUs are 99 % busy", "to move it: more CPUs"]);
    }
}
