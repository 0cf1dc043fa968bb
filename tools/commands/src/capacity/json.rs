//! The machine-readable result. Names and shape are a contract; `SCHEMA` changes with them.
//!
//! Reference `results`: `hotrow.capacity/1`
//!
//! Values may be null. `findings` and `limit` are as in `diagnosis` of [load](#hotrowload2).
//!
//! - `schema`: `"hotrow.capacity/1"`
//! - `target`: `url`, `connections` (with `--closed` the maximum), `threads`, `keepalive`
//! - `mode`, `end`: `"open"` or `"closed"`; `"found"`, `"rate_max"`, `"connections_max"`,
//!   `"generator"`, `"nothing_kept"`, `"time"`, `"harm"`, `"interrupted"`
//! - `capacity_rps`: kept on a plateau, or at the knee
//! - `interval`: open: `slo`, `errors_assumed`: not demanded, `arrivals`, `low` and `high` (each
//!   `rps`, `plateau`: confirmed, `generator`: the limit; or null), `requests_wanted`,
//!   `requests_confirmed`, `noise` (`plateaus`, `unsure`, `contradiction_rps`; or null)
//! - `closed`: closed: `knee_connections`, `knee_rps`, `levels[]` (`connections`, `rps[]` by
//!   round), `law` (`lambda_rps`, `sigma`, `kappa`: each fit, lower bound, upper bound; `error`,
//!   `peak_connections`, `peak_rps`, `peaks_within`; or null)
//! - `at_least`, `duration_s`: demanded; total
//! - `watched`, `local`: as in [load](#hotrowload2)
//! - `steps[]`: `rate` (null when closed), `connections`, `purpose` (`"climb"`, `"fall"`,
//!   `"bisect"`, `"plateau"`, `"second look"`, `"closed"`), `verdict` (`"kept"`, `"missed"`,
//!   `"fine"`, `"generator"`, `"harm"`), `length_s`, `requests`, `answered_rps`, `p50_us`, `p99_us`
//!   (a number, `">x"` or null), `failed_share`, `generator_cpu_share`, `cpu_busy`, `service_cpus`,
//!   `slo[]` (`objective`, `value`, `met`, `conclusive`, `description`), `z` (standard errors from
//!   the allowed share), `suspicion`
//! - `findings[]`: at the limit: `class`, `description`, `confidence`, `evidence[]`,
//!   `counterfactual`
//! - `limit`: `class`, `description`, `conclusion`, `why`, `confidence`, `trials[]` (`class`,
//!   `change`, `predicted`, `observed`, `conclusion`), `noise` (`low_rps`, `high_rps`, `share`)
//! - `limit_confirmed`, `verdict`: by tests; as text
//! - `next[]`: `topic`, `status` (`"to do"`, `"ok"`, `"unknown"`), `text`

use hotrow_load::format::rounded;
use hotrow_trial::capacity::closed::{ClimbEnd, Level};
use hotrow_trial::capacity::search::{Bound, SearchEnd};
use hotrow_trial::capacity::usl;
use serde_json::{Value, json};

use super::advice::Advice;
use super::report::{ClosedResult, OpenResult, Report, SearchResult};
use super::step_result::StepResult;
use crate::diagnosis::json::{findings, verdict};
use crate::load::json::{micros, objective};

/// Version of the result's shape.
const SCHEMA: &str = "hotrow.capacity/1";

/// Returns one line of JSON.
pub(super) fn line(report: &Report) -> String {
    let (mode, end, interval, closed) = match &report.result {
        SearchResult::Open(open) => {
            ("open", end_of_search(open.found.end), interval(open), Value::Null)
        }
        SearchResult::Closed(closed) => {
            ("closed", end_of_climb(closed.end), Value::Null, climb(closed))
        }
    };
    let value = json!({
        "schema": SCHEMA,
        "target": {
            "url": report.url,
            "connections": report.connections,
            "threads": report.threads,
            "keepalive": report.keepalive,
        },
        "mode": mode,
        "end": end,
        // The highest rate kept on a plateau, or the throughput at the knee; null if there is none.
        "capacity_rps": report.confirmed_rps().map(|rate| rounded(rate, 3)),
        "interval": interval,
        "closed": closed,
        "at_least": report.at_least,
        "duration_s": rounded(report.took_s, 3),
        "watched": report.watched,
        "local": report.local,
        "steps": report.steps.iter().map(step).collect::<Value>(),
        "findings": findings(report.findings()),
        "limit_confirmed": report.diagnosis.is_confirmed(),
        "limit": verdict(&report.diagnosis),
        "next": report.next.iter().map(advice).collect::<Value>(),
        "verdict": report.answer(),
    });
    value.to_string()
}

fn end_of_search(end: SearchEnd) -> &'static str {
    match end {
        SearchEnd::Found => "found",
        SearchEnd::AboveRateMax => "rate_max",
        SearchEnd::GeneratorLimited => "generator",
        SearchEnd::NothingKept => "nothing_kept",
        SearchEnd::TimeUp => "time",
        SearchEnd::Harmed => "harm",
        SearchEnd::Interrupted => "interrupted",
    }
}

fn end_of_climb(end: ClimbEnd) -> &'static str {
    match end {
        ClimbEnd::Knee => "found",
        ClimbEnd::StillRising => "connections_max",
        ClimbEnd::GeneratorLimited => "generator",
        ClimbEnd::TimeUp => "time",
        ClimbEnd::Harmed => "harm",
        ClimbEnd::Interrupted => "interrupted",
    }
}

fn interval(open: &OpenResult) -> Value {
    let bound = |bound: Bound| {
        json!({
            "rps": rounded(bound.rate_rps, 3),
            "plateau": bound.firm,
            "generator": bound.generator,
        })
    };
    let noise = &open.found.noise;
    json!({
        "slo": open.slo,
        // `errors<1%` was added to the demanded objectives.
        "errors_assumed": open.errors_assumed,
        "arrivals": open.arrivals,
        "low": open.found.kept.map(bound),
        "high": open.found.refuted.map(bound),
        "requests_wanted": open.requests_wanted,
        "requests_confirmed": open.requests_confirmed,
        // Agreement between plateaus. The contradiction: a rate that one plateau certainly kept,
        // and a rate not above it that another certainly missed.
        "noise": {
            "plateaus": noise.plateaus,
            "unsure": noise.unsure,
            "contradiction_rps": noise.contradiction,
        },
    })
}

fn climb(closed: &ClosedResult) -> Value {
    let level = |level: &Level| {
        let rates = level.rates_rps.iter().map(|rate| rounded(*rate, 3));
        json!({ "connections": level.connections, "rps": rates.collect::<Vec<f64>>() })
    };
    json!({
        "knee_connections": closed.knee.map(|(connections, _)| connections),
        "knee_rps": closed.knee.map(|(_, rate)| rounded(rate, 3)),
        "levels": closed.levels.iter().map(level).collect::<Value>(),
        "law": closed.fit.as_ref().map(law),
    })
}

fn law(fit: &usl::Fit) -> Value {
    let ends = |value: usl::Uncertain| [value.value, value.low, value.high];
    let peak = fit.law.peak();
    json!({
        "lambda_rps": ends(fit.lambda_rps),
        "sigma": ends(fit.sigma),
        "kappa": ends(fit.kappa),
        "error": rounded(fit.error, 5),
        "peak_connections": peak.map(|peak| rounded(peak, 1)),
        "peak_rps": peak.map(|peak| rounded(fit.law.rate_rps(peak), 1)),
        "peaks_within": rounded(fit.peaks_within, 3),
    })
}

fn step(step: &StepResult) -> Value {
    json!({
        "rate": step.rate_rps.map(|rate| rounded(rate, 3)),
        "connections": step.connections,
        "purpose": step.purpose,
        "verdict": step.verdict,
        "length_s": rounded(step.length.as_secs_f64(), 3),
        "requests": step.requests,
        "answered_rps": rounded(step.answered_rps, 3),
        "p50_us": micros(step.p50),
        "p99_us": micros(step.p99),
        "failed_share": rounded(step.failed_share, 5),
        "generator_cpu_share": rounded(step.generator_share, 4),
        "cpu_busy": step.cpu_busy.map(|busy| rounded(busy, 4)),
        "service_cpus": step.service_cpus.map(|used| rounded(used, 3)),
        "slo": step.judged.iter().map(objective).collect::<Value>(),
        // Standard errors between the measured and the allowed share: above 0 it was missed. Null
        // where unknown.
        "z": step.noise.map(|noise| rounded(noise.z, 2)),
        "suspicion": step.suspicion().map(|class| format!("{class:?}")),
    })
}

fn advice(advice: &Advice) -> Value {
    json!({ "topic": advice.topic, "status": advice.status.words(), "text": advice.text })
}
