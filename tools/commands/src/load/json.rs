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
//! - `repeated`: note of an earlier run with the same seed and ids, or null
//! - `verdict`: as text, beginning with the first sentence of the other reports

use hotrow_load::format::rounded;
use hotrow_load::objective::{MeasuredValue, ObjectiveResult, ObjectiveStatus};
use hotrow_load::outcome::{Outcome, RunEnd, Second};
use hotrow_load::plan::{Arrivals, LoadModel};
use hotrow_load::run::Config;
use hotrow_load::stats::{CensoredNs, OTHER_STATUS, Timing};
use hotrow_measure::histogram::Histogram;
use hotrow_transport::tls::HttpVersion;
use serde_json::{Value, json};

use super::calibration::Headroom;
use super::csv;
use super::load_result::LoadResult;

/// Version of the result's shape.
pub(super) const SCHEMA: &str = "hotrow.load/2";

/// Returns the result as one line.
pub(super) fn line(result: &LoadResult<'_>, diagnosis: &Value) -> String {
    let LoadResult { url, config, measured_on, outcome, judged, headroom, repeated, .. } = *result;
    let total = &outcome.total;
    let counts = &total.counts;
    let refusal = |(status, durations): (&u16, &Histogram)| match *status {
        OTHER_STATUS => ("other".to_owned(), exact(durations)),
        status => (status.to_string(), exact(durations)),
    };
    let value = json!({
        "schema": SCHEMA,
        "began_unix_s": measured_on.began_unix_s,
        "machine": measured_on.machine,
        "target": target(url, config),
        "interrupted": matches!(outcome.end, RunEnd::Interrupted | RunEnd::TargetUnreachable),
        "end": csv::name(outcome.end),
        "duration_s": rounded(outcome.window.as_secs_f64(), 6),
        "requests": {
            "scheduled": counts.scheduled,
            "unsent": counts.unsent,
            "sent": counts.sent,
            "resent": counts.resent,
            "ok": counts.ok,
            "errors": counts.errors.total(),
            "timeouts": counts.timeouts,
            "in_flight_at_end": outcome.in_flight_at_end,
        },
        "throughput_rps": rounded(outcome.throughput_rps(), 3),
        "rate_ratio": outcome.rate_ratio().map(|ratio| rounded(ratio, 5)),
        // Of every due request; those without the expected answer are unbounded.
        "latency_us": quantiles(&total.latency),
        // Of expected answers only.
        "answered_us": exact(&total.latency.answered),
        // Of answers with an unexpected status, by status; `other` beyond the first eight.
        "refused_us": total.refused.iter().map(refusal).collect::<Value>(),
        "service_us": quantiles(&total.service),
        "first_byte_us": exact(&total.first_byte),
        "connect_us": exact(&total.connect),
        "schedule_lag_us": exact(&total.schedule_lag),
        "bytes": { "sent": counts.bytes_sent, "received": counts.bytes_received },
        "status": counts.status,
        "errors": {
            "connect": counts.connect_errors,
            "reset": counts.errors.reset,
            "closed": counts.errors.closed,
            "malformed": counts.errors.malformed,
            "unexpected_status": counts.errors.unexpected_status,
            "goaway": counts.errors.goaway,
            "refused_stream": counts.errors.refused_stream,
            "stream_reset": counts.errors.stream_reset,
        },
        "connections": { "opened": counts.connections_opened, "reconnects": counts.reconnects },
        "generator": generator(outcome, headroom),
        "slo": judged.iter().map(objective).collect::<Value>(),
        "seconds": outcome.seconds.iter().map(second).collect::<Value>(),
        "diagnosis": diagnosis,
        "repeated": repeated,
        "verdict": format!("{} {}", result.summary(), result.details()).trim_end(),
    });
    value.to_string()
}

fn target(url: &str, config: &Config) -> Value {
    let (rate, arrivals) = match config.plan.model {
        LoadModel::Closed => (Value::Null, None),
        LoadModel::Open { rate, arrivals } if rate.from() == rate.to() => {
            (json!(rate.from()), Some(arrivals))
        }
        LoadModel::Open { rate, arrivals } => {
            (json!(format!("{}..{}", rate.from(), rate.to())), Some(arrivals))
        }
    };
    json!({
        "url": url,
        "connections": config.connections,
        "threads": config.threads,
        "rate": rate,
        "arrivals": arrivals.map(|arrivals| match arrivals {
            Arrivals::Uniform => "uniform",
            Arrivals::Poisson => "poisson",
        }),
        "keepalive": config.keepalive,
        "http": match config.version {
            HttpVersion::Http1 => "1.1",
            HttpVersion::Http2 => "2",
        },
        // Requests in flight per connection: the pipeline or the streams.
        "depth": config.depth,
    })
}

fn generator(outcome: &Outcome, headroom: Option<&Headroom>) -> Value {
    json!({
        "cpu_s": rounded(outcome.cpu().as_secs_f64(), 6),
        "cpu_us_per_request": outcome.cpu_us_per_request().map(|us| rounded(us, 3)),
        "cpu_share": rounded(outcome.cpu_share(), 4),
        // Share of the awaited responses that had arrived and lay unread; null without samples.
        "unread_share": outcome.unread_share().map(|share| rounded(share, 4)),
        "limited": outcome.limit().is_generator(),
        // Null without a calibration for this kind of run.
        "headroom": headroom.map(|headroom| {
            Headroom { used_share: rounded(headroom.used_share, 4), ..headroom.clone() }
        }),
    })
}

fn exact(durations: &Histogram) -> Value {
    quantiles(&Timing::exact(durations.clone()))
}

fn quantiles(timing: &Timing) -> Value {
    let at = |quantile| micros(timing.quantile(quantile));
    json!({
        "mean": micros(timing.mean()),
        "p50": at(0.5),
        "p75": at(0.75),
        "p90": at(0.9),
        "p95": at(0.95),
        "p99": at(0.99),
        "p999": at(0.999),
        "max": micros(timing.max()),
    })
}

/// Returns microseconds: null without samples, a number, or `">x"` for a lower bound among requests
/// without the expected answer.
pub(crate) fn micros(value: Option<CensoredNs>) -> Value {
    let micros = |ns: u64| ns as f64 / 1000.0;
    match value {
        None => Value::Null,
        Some(CensoredNs::Exact(ns)) => json!(micros(ns)),
        Some(CensoredNs::AtLeast(ns)) => json!(format!(">{}", micros(ns))),
    }
}

pub(crate) fn objective(judged: &ObjectiveResult) -> Value {
    json!({
        "objective": judged.objective.to_string(),
        // In the objective's own unit: null without samples, a number, or `">x"`.
        "value": match judged.value {
            MeasuredValue::Nothing => Value::Null,
            MeasuredValue::Exact(value) => json!(rounded(value, 6)),
            MeasuredValue::AtLeast(value) => json!(format!(">{}", rounded(value, 6))),
        },
        "met": judged.met == ObjectiveStatus::Met,
        // False when the generator was the limit and the figures decide nothing; then `met` is
        // false too.
        "conclusive": judged.met != ObjectiveStatus::Inconclusive,
        "description": judged.words(),
    })
}

fn second(second: &Second) -> Value {
    json!({
        "second": second.index,
        "length_s": rounded(second.length.as_secs_f64(), 6),
        "scheduled": second.scheduled,
        "unsent": second.unsent,
        "sent": second.sent,
        "ok": second.ok,
        "errors": second.errors,
        "timeouts": second.timeouts,
        "p50_us": micros(second.latency.p50),
        "p99_us": micros(second.latency.p99),
        "max_us": micros(second.latency.max),
        "schedule_lag_p99_us": micros(second.schedule_lag_p99_ns.map(CensoredNs::Exact)),
    })
}

#[cfg(test)]
pub(crate) mod tests;
