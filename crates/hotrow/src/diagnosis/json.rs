//! Findings for machines. Names and shape are a contract, as the schemas are in which they stand.

use hotrow_diagnose::rules::finding::Finding;
use serde::Serialize;

use crate::load::json::rounded;

/// What limited, as far as was seen.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis<'a> {
    /// Who was looked at, in words.
    pub(crate) watched: &'a str,
    /// Whether the target is on this machine.
    pub(crate) local: bool,
    /// Share of one CPU that looking took; null before the second look.
    pub(crate) sampling_cpu_share: Option<f64>,
    /// The most certain first.
    pub(crate) findings: Vec<FindingReport<'a>>,
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
