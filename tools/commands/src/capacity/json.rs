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

use hotrow_trial::capacity::search::{self, Bound};
use hotrow_trial::capacity::{closed, usl};
use serde::Serialize;

use super::report::{Closed, Open, Report, SearchResult};
use super::step_result::StepResult;
use crate::diagnosis::json::{FindingReport, VerdictReport};
use crate::load::json::{Micros, ObjectiveReport};
use hotrow_load::format::rounded;

/// Version of the result's shape.
const SCHEMA: &str = "hotrow.capacity/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    target: Target<'a>,
    mode: &'static str,
    end: &'static str,
    /// The highest rate kept on a plateau, or the throughput at the knee; null when there is none.
    capacity_rps: Option<f64>,
    interval: Option<Interval<'a>>,
    closed: Option<ClosedReport>,
    at_least: Option<f64>,
    duration_s: f64,
    watched: &'a str,
    local: bool,
    steps: Vec<StepReport>,
    findings: Vec<FindingReport<'a>>,
    limit_confirmed: bool,
    /// The limit; null when the machine was not observed.
    limit: Option<VerdictReport<'a>>,
    next: Vec<AdviceReport<'a>>,
    verdict: String,
}

#[derive(Serialize)]
struct Target<'a> {
    url: &'a str,
    connections: usize,
    threads: usize,
    keepalive: bool,
}

#[derive(Serialize)]
struct Interval<'a> {
    slo: &'a str,
    /// `errors<1%` was added to the demanded objectives.
    errors_assumed: bool,
    arrivals: &'static str,
    low: Option<BoundReport>,
    high: Option<BoundReport>,
    requests_wanted: u64,
    requests_confirmed: Option<u64>,
    noise: NoiseReport,
}

/// Agreement between plateaus.
#[derive(Serialize)]
struct NoiseReport {
    plateaus: usize,
    unsure: usize,
    /// A rate that one plateau certainly kept, and a rate not above it that another certainly
    /// missed.
    contradiction_rps: Option<[f64; 2]>,
}

#[derive(Serialize)]
struct BoundReport {
    rps: f64,
    plateau: bool,
    generator: bool,
}

#[derive(Serialize)]
struct ClosedReport {
    knee_connections: Option<usize>,
    knee_rps: Option<f64>,
    levels: Vec<LevelReport>,
    law: Option<LawReport>,
}

#[derive(Serialize)]
struct LevelReport {
    connections: usize,
    rps: Vec<f64>,
}

#[derive(Serialize)]
struct LawReport {
    lambda_rps: [f64; 3],
    sigma: [f64; 3],
    kappa: [f64; 3],
    error: f64,
    peak_connections: Option<f64>,
    peak_rps: Option<f64>,
    peaks_within: f64,
}

#[derive(Serialize)]
struct StepReport {
    rate: Option<f64>,
    connections: usize,
    purpose: &'static str,
    verdict: &'static str,
    length_s: f64,
    requests: u64,
    answered_rps: f64,
    p50_us: Micros,
    p99_us: Micros,
    failed_share: f64,
    generator_cpu_share: f64,
    cpu_busy: Option<f64>,
    service_cpus: Option<f64>,
    slo: Vec<ObjectiveReport>,
    /// Standard errors between the measured and the allowed share: above 0 it was missed. Null
    /// where unknown.
    z: Option<f64>,
    suspicion: Option<String>,
}

#[derive(Serialize)]
struct AdviceReport<'a> {
    topic: &'static str,
    status: &'static str,
    text: &'a str,
}

/// Returns one line of JSON.
pub(super) fn line(report: &Report) -> String {
    let (mode, end, interval, closed) = match &report.result {
        SearchResult::Open(open) => {
            ("open", end_of_search(open.found.end), Some(Interval::of(open)), None)
        }
        SearchResult::Closed(closed) => {
            ("closed", end_of_climb(closed.end), None, Some(ClosedReport::of(closed)))
        }
    };
    let Report { url, connections, threads, keepalive, .. } = report;
    let whole = Document {
        schema: SCHEMA,
        target: Target { url, connections: *connections, threads: *threads, keepalive: *keepalive },
        mode,
        end,
        capacity_rps: report.confirmed_rps().map(|rate| rounded(rate, 3)),
        interval,
        closed,
        at_least: report.at_least,
        duration_s: rounded(report.took_s, 3),
        watched: &report.watched,
        local: report.local,
        steps: report.steps.iter().map(StepReport::of).collect(),
        findings: report.findings().iter().map(FindingReport::of).collect(),
        limit_confirmed: report.diagnosis.is_confirmed(),
        limit: VerdictReport::of(&report.diagnosis),
        next: report.next.iter().map(AdviceReport::of).collect(),
        verdict: report.answer(),
    };
    // Plain data with text keys always serializes; an error would still be printed.
    serde_json::to_string(&whole)
        .unwrap_or_else(|e| format!("{{\"schema\":\"{SCHEMA}\",\"error\":\"{e}\"}}"))
}

fn end_of_search(end: search::End) -> &'static str {
    match end {
        search::End::Found => "found",
        search::End::AboveRateMax => "rate_max",
        search::End::GeneratorLimited => "generator",
        search::End::NothingKept => "nothing_kept",
        search::End::TimeUp => "time",
        search::End::Harmed => "harm",
        search::End::Interrupted => "interrupted",
    }
}

fn end_of_climb(end: closed::End) -> &'static str {
    match end {
        closed::End::Knee => "found",
        closed::End::StillRising => "connections_max",
        closed::End::GeneratorLimited => "generator",
        closed::End::TimeUp => "time",
        closed::End::Harmed => "harm",
        closed::End::Interrupted => "interrupted",
    }
}

impl<'a> Interval<'a> {
    fn of(open: &'a Open) -> Self {
        let bound = |bound: Bound| BoundReport {
            rps: rounded(bound.rate_rps, 3),
            plateau: bound.firm,
            generator: bound.generator,
        };
        Self {
            slo: &open.slo,
            errors_assumed: open.errors_assumed,
            arrivals: open.arrivals,
            low: open.found.kept.map(bound),
            high: open.found.refuted.map(bound),
            requests_wanted: open.requests_wanted,
            requests_confirmed: open.requests_confirmed,
            noise: NoiseReport {
                plateaus: open.found.noise.plateaus,
                unsure: open.found.noise.unsure,
                contradiction_rps: open
                    .found
                    .noise
                    .contradiction
                    .map(|(kept, missed)| [kept, missed]),
            },
        }
    }
}

impl ClosedReport {
    fn of(closed: &Closed) -> Self {
        let rounds = |rates: &[f64]| rates.iter().map(|rate| rounded(*rate, 3)).collect();
        let level = |level: &closed::Level| LevelReport {
            connections: level.connections,
            rps: rounds(&level.rates_rps),
        };
        Self {
            knee_connections: closed.knee.map(|(connections, _)| connections),
            knee_rps: closed.knee.map(|(_, rate)| rounded(rate, 3)),
            levels: closed.levels.iter().map(level).collect(),
            law: closed.fit.as_ref().map(LawReport::of),
        }
    }
}

impl LawReport {
    fn of(fit: &usl::Fit) -> Self {
        let ends = |value: usl::Uncertain| [value.value, value.low, value.high];
        let peak = fit.law.peak();
        Self {
            lambda_rps: ends(fit.lambda_rps),
            sigma: ends(fit.sigma),
            kappa: ends(fit.kappa),
            error: rounded(fit.error, 5),
            peak_connections: peak.map(|peak| rounded(peak, 1)),
            peak_rps: peak.map(|peak| rounded(fit.law.rate_rps(peak), 1)),
            peaks_within: rounded(fit.peaks_within, 3),
        }
    }
}

impl StepReport {
    fn of(step: &StepResult) -> Self {
        Self {
            rate: step.rate_rps.map(|rate| rounded(rate, 3)),
            connections: step.connections,
            purpose: step.purpose,
            verdict: step.verdict,
            length_s: rounded(step.length.as_secs_f64(), 3),
            requests: step.requests,
            answered_rps: rounded(step.answered_rps, 3),
            p50_us: Micros(step.p50),
            p99_us: Micros(step.p99),
            failed_share: rounded(step.failed_share, 5),
            generator_cpu_share: rounded(step.generator_share, 4),
            cpu_busy: step.cpu_busy.map(|busy| rounded(busy, 4)),
            service_cpus: step.service_cpus.map(|used| rounded(used, 3)),
            slo: step.judged.iter().map(ObjectiveReport::of).collect(),
            z: step.noise.map(|noise| rounded(noise.z, 2)),
            suspicion: step.suspicion().map(|class| format!("{class:?}")),
        }
    }
}

impl<'a> AdviceReport<'a> {
    fn of(advice: &'a super::advice::Advice) -> Self {
        Self { topic: advice.topic, status: advice.status.words(), text: &advice.text }
    }
}
