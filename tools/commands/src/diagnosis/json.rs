//! Machine-readable findings and verdict. Names and shape are part of the schemas that contain
//! them.

use hotrow_diagnose::hypothesis::{Noise, Trial};
use hotrow_diagnose::rules::finding::Finding;
use hotrow_load::format::rounded;
use hotrow_trial::observe::Observer;
use serde_json::{Value, json};

use super::DiagnosisResult;

/// The diagnosis of the machine during a run.
pub(crate) fn diagnosis(watch: &Observer, diagnosed: &DiagnosisResult) -> Value {
    json!({
        // The watched processes, as text.
        "watched": watch.words,
        "local": watch.local,
        // CPU share used for sampling during loads; null before the first.
        "sampling_cpu_share": watch.cpu_share().map(|share| rounded(share, 5)),
        "findings": findings(&diagnosed.findings),
        "verdict": verdict(diagnosed),
    })
}

/// Findings, the most certain first.
pub(crate) fn findings(findings: &[Finding]) -> Value {
    let finding = |finding: &Finding| {
        json!({
            "class": format!("{:?}", finding.class),
            "description": finding.class.words(),
            "confidence": rounded(finding.confidence, 3),
            "evidence": finding.evidence,
            "counterfactual": finding.counterfactual,
        })
    };
    findings.iter().map(finding).collect()
}

/// The named finding, and its tests; null when the machine was not observed.
pub(crate) fn verdict(diagnosed: &DiagnosisResult) -> Option<Value> {
    let finding = diagnosed.finding()?;
    let verdict = diagnosed.verdict.as_ref();
    let trials = verdict.map(|verdict| &verdict.trials[..]).unwrap_or_default();
    Some(json!({
        "class": format!("{:?}", finding.class),
        "description": finding.class.words(),
        // `confirmed`, `refuted` or `inconclusive`; null without tests.
        "conclusion": verdict.map(|verdict| verdict.conclusion.words()),
        "why": verdict.map_or("not tested", |verdict| &verdict.why),
        "confidence": rounded(finding.confidence, 3),
        "trials": trials.iter().map(trial).collect::<Value>(),
        "noise": verdict.and_then(|verdict| verdict.noise).map(noise),
    }))
}

fn trial(trial: &Trial) -> Value {
    json!({
        "class": format!("{:?}", trial.class),
        "change": trial.change,
        "predicted": trial.predicted,
        "observed": trial.observed,
        "conclusion": trial.conclusion.words(),
    })
}

fn noise(noise: Noise) -> Value {
    json!({
        "low_rps": rounded(noise.low_rps, 1),
        "high_rps": rounded(noise.high_rps, 1),
        "share": rounded(noise.share(), 4),
    })
}
