//! Findings and the verdict for machines. Names and shape are a contract, as the schemas are in which they stand.

use hotrow_diagnose::rules::finding::Finding;
use hotrow_diagnose::verdict::{Noise, Tried};
use hotrow_lab::watch::Watch;
use serde::Serialize;

use super::diagnosed::Diagnosed;
use crate::load::json::rounded;

/// What limited, as far as was seen.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis<'a> {
    /// Who was looked at, in words.
    watched: &'a str,
    /// Whether the target is on this machine.
    local: bool,
    /// Share of one CPU that looking took while loads went on; null before the first.
    sampling_cpu_share: Option<f64>,
    /// The most certain first.
    findings: Vec<FindingReport<'a>>,
    /// What is left of them; null when nothing was seen of the machine.
    verdict: Option<VerdictReport<'a>>,
}

/// One finding.
#[derive(Debug, Serialize)]
pub(crate) struct FindingReport<'a> {
    class: String,
    words: &'static str,
    confidence: f64,
    evidence: &'a [String],
    counterfactual: &'a str,
}

/// The one finding that is named, and how it was tested.
#[derive(Debug, Serialize)]
pub(crate) struct VerdictReport<'a> {
    class: String,
    words: &'static str,
    /// `confirmed`, `refuted` or `not testable`; null when nothing was tested.
    proof: Option<&'static str>,
    why: &'a str,
    confidence: f64,
    tried: Vec<TriedReport<'a>>,
    noise: Option<NoiseReport>,
}

#[derive(Debug, Serialize)]
struct TriedReport<'a> {
    class: String,
    change: &'a str,
    predicted: &'a str,
    happened: &'a str,
    proof: &'static str,
}

#[derive(Debug, Serialize)]
struct NoiseReport {
    low_rps: f64,
    high_rps: f64,
    share: f64,
}

impl<'a> Diagnosis<'a> {
    pub(crate) fn of(watch: &'a Watch, diagnosed: &'a Diagnosed) -> Self {
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
            words: finding.class.words(),
            confidence: rounded(finding.confidence, 3),
            evidence: &finding.evidence,
            counterfactual: &finding.counterfactual,
        }
    }
}

impl<'a> VerdictReport<'a> {
    pub(crate) fn of(diagnosed: &'a Diagnosed) -> Option<Self> {
        let finding = diagnosed.finding()?;
        let verdict = diagnosed.verdict.as_ref();
        Some(Self {
            class: format!("{:?}", finding.class),
            words: finding.class.words(),
            proof: verdict.map(|verdict| verdict.proof.words()),
            why: verdict.map_or("not tested", |verdict| &verdict.why),
            confidence: rounded(finding.confidence, 3),
            tried: verdict.map(|verdict| verdict.tried.iter().map(TriedReport::of).collect()).unwrap_or_default(),
            noise: verdict.and_then(|verdict| verdict.noise).map(NoiseReport::of),
        })
    }
}

impl<'a> TriedReport<'a> {
    fn of(tried: &'a Tried) -> Self {
        Self {
            class: format!("{:?}", tried.class),
            change: &tried.change,
            predicted: &tried.predicted,
            happened: &tried.happened,
            proof: tried.proof.words(),
        }
    }
}

impl NoiseReport {
    fn of(noise: Noise) -> Self {
        let [low_rps, high_rps] = [noise.low_rps, noise.high_rps].map(|rate| rounded(rate, 1));
        Self { low_rps, high_rps, share: rounded(noise.share(), 4) }
    }
}
