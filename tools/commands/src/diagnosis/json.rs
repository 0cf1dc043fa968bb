//! Machine-readable findings and verdict. Names and shape are part of the schemas that contain
//! them.

use hotrow_diagnose::hypothesis::{Noise, Trial};
use hotrow_diagnose::rules::finding::Finding;
use hotrow_trial::observe::Observer;
use serde::Serialize;

use super::DiagnosisResult;
use hotrow_load::format::rounded;

#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis<'a> {
    /// The watched processes, as text.
    watched: &'a str,
    local: bool,
    /// CPU share used for sampling during loads; null before the first.
    sampling_cpu_share: Option<f64>,
    /// The most certain first.
    findings: Vec<FindingReport<'a>>,
    /// The verdict; null when the machine was not observed.
    verdict: Option<VerdictReport<'a>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct FindingReport<'a> {
    class: String,
    description: &'static str,
    confidence: f64,
    evidence: &'a [String],
    counterfactual: &'a str,
}

/// The named finding, and its tests.
#[derive(Debug, Serialize)]
pub(crate) struct VerdictReport<'a> {
    class: String,
    description: &'static str,
    /// `confirmed`, `refuted` or `inconclusive`; null without tests.
    conclusion: Option<&'static str>,
    why: &'a str,
    confidence: f64,
    trials: Vec<TrialReport<'a>>,
    noise: Option<NoiseReport>,
}

#[derive(Debug, Serialize)]
struct TrialReport<'a> {
    class: String,
    change: &'a str,
    predicted: &'a str,
    observed: &'a str,
    conclusion: &'static str,
}

#[derive(Debug, Serialize)]
struct NoiseReport {
    low_rps: f64,
    high_rps: f64,
    share: f64,
}

impl<'a> Diagnosis<'a> {
    pub(crate) fn of(watch: &'a Observer, diagnosed: &'a DiagnosisResult) -> Self {
        let findings = diagnosed.findings.iter().map(FindingReport::of).collect();
        Self {
            watched: &watch.words,
            local: watch.local,
            sampling_cpu_share: watch.cpu_share().map(|share| rounded(share, 5)),
            findings,
            verdict: VerdictReport::of(diagnosed),
        }
    }
}

impl<'a> FindingReport<'a> {
    pub(crate) fn of(finding: &'a Finding) -> Self {
        Self {
            class: format!("{:?}", finding.class),
            description: finding.class.words(),
            confidence: rounded(finding.confidence, 3),
            evidence: &finding.evidence,
            counterfactual: &finding.counterfactual,
        }
    }
}

impl<'a> VerdictReport<'a> {
    pub(crate) fn of(diagnosed: &'a DiagnosisResult) -> Option<Self> {
        let finding = diagnosed.finding()?;
        let verdict = diagnosed.verdict.as_ref();
        Some(Self {
            class: format!("{:?}", finding.class),
            description: finding.class.words(),
            conclusion: verdict.map(|verdict| verdict.conclusion.words()),
            why: verdict.map_or("not tested", |verdict| &verdict.why),
            confidence: rounded(finding.confidence, 3),
            trials: verdict
                .map(|verdict| verdict.trials.iter().map(TrialReport::of).collect())
                .unwrap_or_default(),
            noise: verdict.and_then(|verdict| verdict.noise).map(NoiseReport::of),
        })
    }
}

impl<'a> TrialReport<'a> {
    fn of(trial: &'a Trial) -> Self {
        Self {
            class: format!("{:?}", trial.class),
            change: &trial.change,
            predicted: &trial.predicted,
            observed: &trial.observed,
            conclusion: trial.conclusion.words(),
        }
    }
}

impl NoiseReport {
    fn of(noise: Noise) -> Self {
        let [low_rps, high_rps] = [noise.low_rps, noise.high_rps].map(|rate| rounded(rate, 1));
        Self { low_rps, high_rps, share: rounded(noise.share(), 4) }
    }
}
