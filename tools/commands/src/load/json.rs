//! The machine-readable result. Names and shape are a contract; `SCHEMA` changes with them.
//!
//! Reference `results`: `hotrow.load/2`
//!
//! One object on one line; `null` where a value is missing. Times are in µs, or lower bounds such
//! as `">10000000"`. Fields may be added.
//!
//! - `schema`: `"hotrow.load/2"`
//! - `began_unix_s`: start, Unix seconds
//! - `machine`: the generator's `cpu` (model), `cpus`, `kernel`
//! - `target`: `url`: separated by blanks; `connections`; `threads`; `keepalive`; `http`: `"1.1"`
//!   or `"2"`; `depth`: per connection; `rate`: a number or `"FROM..TO"`; `arrivals`: `"uniform"`,
//!   `"poisson"`; both null in a closed loop
//! - `interrupted`, `end`: `"complete"`, `"interrupted"`, `"target_unreachable"` (without `-d`: no
//!   connection for 10 s), `"stopped_answering"` (no response for a second, 3 requests failed)
//! - `duration_s`: without warm-up
//! - `requests`: `scheduled`: were due; `unsent`: the run ended or no connection opened; `sent`: at
//!   least in part; `resent`: behind an announced close (idempotent methods only); `ok`; `errors`:
//!   but unopened connections; `timeouts`; `in_flight_at_end`: when interrupted
//! - `throughput_rps`: expected responses per second
//! - `rate_ratio`: that over the target rate; null in a closed loop
//! - `latency_us.{mean,p50,p75,p90,p95,p99,p999,max}`: of every due request, from the intended time
//!   to the complete expected response, or unbounded; at most 1/64 too high
//! - `answered_us.{…}`: of expected responses only
//! - `refused_us`: by unexpected status: `{"429": {}}`; beyond 8 under "other"
//! - `service_us.{…}`, `schedule_lag_us.{…}`: from the send to the response (unexpected ones are
//!   unbounded); from the intended time to the send
//! - `first_byte_us.{…}`, `connect_us.{…}`: from the send to the first byte; the opening of a
//!   connection with TLS
//! - `bytes`: `sent`, `received`: with heads, without TLS
//! - `status`: responses by status code: `{"200": 1234}`
//! - `errors`: `connect`: not opened; `reset`, `closed`: before the response was complete;
//!   `malformed`: not HTTP; `unexpected_status`; [HTTP/2](load.md#http2): `goaway`,
//!   `refused_stream`, `stream_reset`
//! - `connections`: `opened`, `reconnects` (the server had closed it)
//! - `generator`: `cpu_s`; `cpu_us_per_request`: answered or lost; `cpu_share`: of the busiest
//!   thread; `unread_share`: of awaited responses, or null; `limited`: it was the limit; `headroom`
//!   (`used_share`, `ceiling_rps_per_thread`, `calibrated`; null without calibration)
//! - `slo[]`: `objective`, `value` (in its unit), `met`, `conclusive`, `description`
//! - `seconds[]`: of each second: `second`, `length_s`, `scheduled`, `unsent`, `sent`, `ok`,
//!   `errors`, `timeouts`, `p50_us`, `p99_us`, `max_us`, `schedule_lag_p99_us`
//! - `diagnosis`: `watched`: the processes, as text; `local`: the target is on this machine;
//!   `sampling_cpu_share`: of one CPU, or null; `findings[]` (the most certain first: `class`,
//!   `description`, `confidence`: 0 to 1, `evidence[]`, `counterfactual`); `verdict` (the named
//!   finding: `class`, `description`, `conclusion`: `"confirmed"`, `"refuted"` (then none is
//!   named), `"inconclusive"`, or null (not tested); `why`, `confidence`, `trials[]` (`class`,
//!   `change`, `predicted`, `observed`, `conclusion`), `noise` (`low_rps`, `high_rps`, `share`; or
//!   null); or null: not observed)
//! - `verdict`: as text

use std::collections::BTreeMap;

use hotrow_load::objective::{MeasuredValue, ObjectiveResult, ObjectiveStatus};
use hotrow_load::outcome::{RunEnd, Second};
use hotrow_load::plan::{Arrivals, LoadModel};
use hotrow_load::run::Config;
use hotrow_load::stats::{CensoredNs, OTHER_STATUS, Timing};
use hotrow_measure::histogram::Histogram;
use hotrow_transport::tls::HttpVersion;
use serde::{Serialize, Serializer};

use super::calibration::Headroom;
use super::csv;
use super::load_result::LoadResult;
use crate::diagnosis::json::Diagnosis;
use crate::machine::MachineInfo;
use hotrow_load::format::rounded;
use hotrow_trial::bottleneck_text;

/// Version of the result's shape.
pub(super) const SCHEMA: &str = "hotrow.load/2";

/// The result. Fields are in the order of the documentation.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    schema: &'static str,
    began_unix_s: u64,
    machine: &'a MachineInfo,
    target: Target,
    interrupted: bool,
    end: &'static str,
    duration_s: f64,
    requests: Requests,
    throughput_rps: f64,
    rate_ratio: Option<f64>,
    /// Of every due request; those without the expected answer are unbounded.
    latency_us: Quantiles,
    /// Of expected answers only.
    answered_us: Quantiles,
    /// Of answers with an unexpected status, by status; `other` beyond the first eight.
    refused_us: BTreeMap<String, Quantiles>,
    service_us: Quantiles,
    first_byte_us: Quantiles,
    connect_us: Quantiles,
    schedule_lag_us: Quantiles,
    bytes: Bytes,
    status: BTreeMap<u16, u64>,
    errors: Errors,
    connections: Connections,
    generator: Generator,
    slo: Vec<ObjectiveReport>,
    seconds: Vec<SecondReport>,
    /// The diagnosis of the machine during the run.
    diagnosis: Diagnosis<'a>,
    verdict: String,
}

#[derive(Debug, Serialize)]
struct Target {
    url: String,
    connections: usize,
    threads: usize,
    rate: RateReport,
    arrivals: Option<&'static str>,
    keepalive: bool,
    /// Version of HTTP.
    http: &'static str,
    /// Requests in flight per connection: the pipeline or the streams.
    depth: usize,
}

/// Null in a closed loop, a number, or `"FROM..TO"`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum RateReport {
    Closed,
    Constant(f64),
    Ramp(String),
}

#[derive(Debug, Serialize)]
struct Requests {
    scheduled: u64,
    unsent: u64,
    sent: u64,
    resent: u64,
    ok: u64,
    errors: u64,
    timeouts: u64,
    in_flight_at_end: u64,
}

#[derive(Debug, Serialize)]
struct Quantiles {
    mean: Micros,
    p50: Micros,
    p75: Micros,
    p90: Micros,
    p95: Micros,
    p99: Micros,
    p999: Micros,
    max: Micros,
}

/// Microseconds: null without samples, a number, or `">x"` for a lower bound among requests without
/// the expected answer.
#[derive(Debug)]
pub(crate) struct Micros(pub(crate) Option<CensoredNs>);

#[derive(Debug, Serialize)]
struct Bytes {
    sent: u64,
    received: u64,
}

#[derive(Debug, Serialize)]
struct Errors {
    connect: u64,
    reset: u64,
    closed: u64,
    malformed: u64,
    unexpected_status: u64,
    goaway: u64,
    refused_stream: u64,
    stream_reset: u64,
}

#[derive(Debug, Serialize)]
struct Connections {
    opened: u64,
    reconnects: u64,
}

#[derive(Debug, Serialize)]
struct Generator {
    cpu_s: f64,
    cpu_us_per_request: Option<f64>,
    cpu_share: f64,
    /// Share of the awaited responses that had arrived and lay unread; null without samples.
    unread_share: Option<f64>,
    limited: bool,
    /// Null without a calibration for this kind of run.
    headroom: Option<Headroom>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ObjectiveReport {
    objective: String,
    /// In the objective's own unit: null without samples, a number, or `">x"`.
    value: Figure,
    met: bool,
    /// False when the generator was the limit and the figures decide nothing; `met` is false then.
    conclusive: bool,
    description: String,
}

#[derive(Debug)]
struct Figure(MeasuredValue);

#[derive(Debug, Serialize)]
struct SecondReport {
    second: u64,
    length_s: f64,
    scheduled: u64,
    unsent: u64,
    sent: u64,
    ok: u64,
    errors: u64,
    timeouts: u64,
    p50_us: Micros,
    p99_us: Micros,
    max_us: Micros,
    schedule_lag_p99_us: Option<f64>,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        result: &LoadResult<'a>,
        headroom: Option<Headroom>,
        diagnosis: Diagnosis<'a>,
    ) -> Self {
        let LoadResult { url, config, measured_on, outcome, judged, .. } = *result;
        let total = &outcome.total;
        let counts = &total.counts;
        let exact = |durations: &Histogram| Quantiles::of(&Timing::exact(durations.clone()));
        let refusal = |(status, durations): (&u16, &Histogram)| match *status {
            OTHER_STATUS => ("other".to_owned(), exact(durations)),
            status => (status.to_string(), exact(durations)),
        };
        Self {
            schema: SCHEMA,
            began_unix_s: measured_on.began_unix_s,
            machine: &measured_on.machine,
            target: Target::new(url, config),
            interrupted: matches!(outcome.end, RunEnd::Interrupted | RunEnd::TargetUnreachable),
            end: csv::name(outcome.end),
            duration_s: rounded(outcome.window.as_secs_f64(), 6),
            requests: Requests {
                scheduled: counts.scheduled,
                unsent: counts.unsent,
                sent: counts.sent,
                resent: counts.resent,
                ok: counts.ok,
                errors: counts.errors.total(),
                timeouts: counts.timeouts,
                in_flight_at_end: outcome.in_flight_at_end,
            },
            throughput_rps: rounded(outcome.throughput_rps(), 3),
            rate_ratio: outcome.rate_ratio().map(|ratio| rounded(ratio, 5)),
            latency_us: Quantiles::of(&total.latency),
            answered_us: exact(&total.latency.answered),
            refused_us: total.refused.iter().map(refusal).collect(),
            service_us: Quantiles::of(&total.service),
            first_byte_us: exact(&total.first_byte),
            connect_us: exact(&total.connect),
            schedule_lag_us: exact(&total.schedule_lag),
            bytes: Bytes { sent: counts.bytes_sent, received: counts.bytes_received },
            status: counts.status.clone(),
            errors: Errors {
                connect: counts.connect_errors,
                reset: counts.errors.reset,
                closed: counts.errors.closed,
                malformed: counts.errors.malformed,
                unexpected_status: counts.errors.unexpected_status,
                goaway: counts.errors.goaway,
                refused_stream: counts.errors.refused_stream,
                stream_reset: counts.errors.stream_reset,
            },
            connections: Connections {
                opened: counts.connections_opened,
                reconnects: counts.reconnects,
            },
            generator: Generator {
                cpu_s: rounded(outcome.cpu().as_secs_f64(), 6),
                cpu_us_per_request: outcome.cpu_us_per_request().map(|us| rounded(us, 3)),
                cpu_share: rounded(outcome.cpu_share(), 4),
                unread_share: outcome.unread_share().map(|share| rounded(share, 4)),
                limited: outcome.limit().is_generator(),
                headroom: headroom.map(|h| Headroom { used_share: rounded(h.used_share, 4), ..h }),
            },
            slo: judged.iter().map(ObjectiveReport::of).collect(),
            seconds: outcome.seconds.iter().map(SecondReport::of).collect(),
            diagnosis,
            verdict: bottleneck_text::sentence(outcome),
        }
    }
}

impl Target {
    fn new(url: &str, config: &Config) -> Self {
        let (rate, arrivals) = match config.plan.model {
            LoadModel::Closed => (RateReport::Closed, None),
            LoadModel::Open { rate, arrivals } if rate.from() == rate.to() => {
                (RateReport::Constant(rate.from()), Some(arrivals))
            }
            LoadModel::Open { rate, arrivals } => {
                (RateReport::Ramp(format!("{}..{}", rate.from(), rate.to())), Some(arrivals))
            }
        };
        let name = |arrivals| match arrivals {
            Arrivals::Uniform => "uniform",
            Arrivals::Poisson => "poisson",
        };
        Self {
            url: url.to_owned(),
            connections: config.connections,
            threads: config.threads,
            rate,
            arrivals: arrivals.map(name),
            keepalive: config.keepalive,
            http: match config.version {
                HttpVersion::Http1 => "1.1",
                HttpVersion::Http2 => "2",
            },
            depth: config.depth,
        }
    }
}

impl Quantiles {
    fn of(timing: &Timing) -> Self {
        let at = |quantile| Micros(timing.quantile(quantile));
        Self {
            mean: Micros(timing.mean()),
            p50: at(0.5),
            p75: at(0.75),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: Micros(timing.max()),
        }
    }
}

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            None => serializer.serialize_none(),
            Some(CensoredNs::Exact(ns)) => serializer.serialize_f64(micros(ns)),
            Some(CensoredNs::AtLeast(ns)) => {
                serializer.collect_str(&format_args!(">{}", micros(ns)))
            }
        }
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            MeasuredValue::Nothing => serializer.serialize_none(),
            MeasuredValue::Exact(value) => serializer.serialize_f64(rounded(value, 6)),
            MeasuredValue::AtLeast(value) => {
                serializer.collect_str(&format_args!(">{}", rounded(value, 6)))
            }
        }
    }
}

impl ObjectiveReport {
    pub(crate) fn of(judged: &ObjectiveResult) -> Self {
        Self {
            objective: judged.objective.to_string(),
            value: Figure(judged.value),
            met: judged.met == ObjectiveStatus::Met,
            conclusive: judged.met != ObjectiveStatus::Inconclusive,
            description: judged.words(),
        }
    }
}

impl SecondReport {
    fn of(second: &Second) -> Self {
        Self {
            second: second.index,
            length_s: rounded(second.length.as_secs_f64(), 6),
            scheduled: second.scheduled,
            unsent: second.unsent,
            sent: second.sent,
            ok: second.ok,
            errors: second.errors,
            timeouts: second.timeouts,
            p50_us: Micros(second.latency.p50),
            p99_us: Micros(second.latency.p99),
            max_us: Micros(second.latency.max),
            schedule_lag_p99_us: second.schedule_lag_p99_ns.map(micros),
        }
    }
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// Returns one line of JSON.
pub(super) fn line(report: &Report<'_>) -> String {
    // Plain data with text keys always serializes; an error would still be printed.
    serde_json::to_string(report)
        .unwrap_or_else(|e| format!("{{\"schema\":\"{SCHEMA}\",\"error\":\"{e}\"}}"))
}

#[cfg(test)]
pub(crate) mod tests;
