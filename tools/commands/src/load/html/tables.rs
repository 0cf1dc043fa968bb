//! Facts and tables of a run.

use hotrow_load::bottleneck::RATE_KEPT;
use hotrow_load::format::{counted, duration, known};
use hotrow_load::objective::{ObjectiveResult, ObjectiveStatus};
use hotrow_load::outcome::Outcome;
use hotrow_load::plan::{Arrivals, LoadModel};
use hotrow_load::stats::{CensoredNs, LoadStats, OTHER_STATUS, Timing};
use hotrow_measure::histogram::Histogram;
use hotrow_report::document::{Cell, Column, Table};
use hotrow_report::numbers::{grouped, number, percent};

use super::super::calibration::Headroom;
use super::super::load_result::{LoadResult, met};

const QUANTILES: [(&str, f64); 7] = [
    ("p50", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("max", 1.0),
];

const PARTS_QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("max", 1.0)];

pub(super) fn facts(result: &LoadResult<'_>) -> Vec<(String, String)> {
    let LoadResult { config, outcome, headroom, .. } = *result;
    let counts = &outcome.total.counts;
    let connections = counted(config.connections, "connection");
    let threads = counted(config.threads, "thread");
    let count = |n: u64| grouped(n as f64);
    let is_kept = outcome.rate_ratio().is_some_and(|ratio| ratio >= RATE_KEPT);
    let bound = if outcome.limit().is_generator() && !is_kept { ", a lower bound" } else { "" };
    let rate = number(outcome.throughput_rps());
    let statuses = counts.status.iter().map(|(status, n)| format!("{status}: {}", count(*n)));
    let failed = failures(outcome).into_iter().filter(|(_, n)| *n > 0);
    let failed: Vec<String> = failed.map(|(what, n)| format!("{} {what}", count(n))).collect();
    let cpu_us = outcome.cpu_us_per_request();
    let each = cpu_us.map_or_else(String::new, |us| format!(", {us:.2} µs per request"));
    let of_maximum = headroom.map_or_else(String::new, |headroom| {
        let Headroom { used_share, ceiling_rps_per_thread, calibrated } = headroom;
        let ceiling = grouped(*ceiling_rps_per_thread);
        format!(
            "; {} of what this generator can do on this machine ({ceiling}/s per thread, \
             calibrated {calibrated})",
            percent(*used_share)
        )
    });
    let facts = [
        ("Load", format!("{connections}, {threads}, {}", pace(config.plan.model))),
        ("Measured", format!("{:.2} s", outcome.window.as_secs_f64())),
        ("Answered", format!("{rate} requests/s as expected{bound}")),
        ("Requests", format!("{} sent, {} ok", count(counts.sent), count(counts.ok))),
        ("Failed", if failed.is_empty() { "none".to_owned() } else { failed.join(", ") }),
        ("Status", statuses.collect::<Vec<_>>().join(", ")),
        ("Generator", format!("{:.2} s of CPU{each}{of_maximum}", outcome.cpu().as_secs_f64())),
    ];
    facts.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Returns what went wrong and how often, and what a server may do to connections.
fn failures(outcome: &Outcome) -> [(&'static str, u64); 13] {
    let counts = &outcome.total.counts;
    let errors = &counts.errors;
    [
        ("timed out", counts.timeouts),
        ("reset", errors.reset),
        ("closed by the server", errors.closed),
        ("malformed answers", errors.malformed),
        ("ended by GOAWAY", errors.goaway),
        ("refused streams", errors.refused_stream),
        ("reset streams", errors.stream_reset),
        ("unexpected status", errors.unexpected_status),
        ("never sent", counts.unsent),
        ("without an answer yet", outcome.in_flight_at_end),
        ("connections failed", counts.connect_errors),
        ("connections reopened", counts.reconnects),
        ("sent again after an announced close", counts.resent),
    ]
}

fn pace(model: LoadModel) -> String {
    let LoadModel::Open { rate, arrivals } = model else {
        return "as fast as responses arrive".to_owned();
    };
    let rate = if rate.from() == rate.to() {
        format!("{} requests/s", number(rate.from()))
    } else {
        format!("{} to {} requests/s", number(rate.from()), number(rate.to()))
    };
    match arrivals {
        Arrivals::Uniform => rate,
        Arrivals::Poisson => format!("{rate}, Poisson arrivals"),
    }
}

pub(super) fn objectives(judged: &[ObjectiveResult]) -> Table {
    let row = |judged: &ObjectiveResult| {
        let word = met(judged.met);
        let said = if judged.met == ObjectiveStatus::Missed {
            Cell { text: word.to_owned(), ..Cell::failed() }
        } else {
            Cell::plain(word)
        };
        vec![Cell::plain(judged.objective.to_string()), said, Cell::plain(judged.words())]
    };
    Table {
        columns: ["Objective", "Result", "Measured"].map(Column::words).to_vec(),
        rows: judged.iter().map(row).collect(),
        ..Table::default()
    }
}

pub(super) fn times(outcome: &Outcome) -> Table {
    let lag = Timing::exact(outcome.total.schedule_lag.clone());
    let columns = [&outcome.total.latency, &outcome.total.service, &lag];
    let cell = |value: Option<CensoredNs>| {
        value.map_or_else(Cell::none, |value| Cell::plain(at_least(value)))
    };
    let row = |name: &str, of: &dyn Fn(&Timing) -> Option<CensoredNs>| {
        [Cell::plain(name)]
            .into_iter()
            .chain(columns.map(|timing| cell(of(timing))))
            .collect::<Vec<_>>()
    };
    let mut rows = vec![row("mean", &Timing::mean)];
    rows.extend(QUANTILES.iter().map(|(name, q)| row(name, &|timing| timing.quantile(*q))));
    let mut foot = vec![
        "Latency: from the time at which a request was due. Service time: from the time at which \
         it was sent."
            .to_owned(),
    ];
    let unbounded = outcome.total.latency.unbounded_count();
    if unbounded > 0 {
        foot.push(format!(
            "≥: a lower bound. {} of {} due requests had no expected answer; each counts as longer \
             than every answer.",
            grouped(unbounded as f64),
            grouped(outcome.total.latency.count() as f64)
        ));
    }
    Table {
        columns: [Column::words("Percentile")]
            .into_iter()
            .chain(["Latency", "Service time", "Sent late by"].map(Column::figures))
            .collect(),
        rows,
        foot,
        ..Table::default()
    }
}

/// Returns the times of the parts of a request, and of answers and refusals by kind.
pub(super) fn parts(total: &LoadStats) -> Table {
    let mut parts: Vec<(String, &Histogram)> = vec![
        ("first byte of the response".to_owned(), &total.first_byte),
        ("connection opened".to_owned(), &total.connect),
    ];
    if total.latency.unbounded_count() > 0 {
        parts.insert(0, ("expected answers".to_owned(), &total.latency.answered));
    }
    parts.extend(total.refused.iter().map(|(status, latency)| match *status {
        OTHER_STATUS => ("refused, other statuses".to_owned(), latency),
        status => (format!("refused, status {status}"), latency),
    }));
    let row = |(name, durations): (String, &Histogram)| {
        let quantile = |q: f64| match durations.value_at_quantile(q) {
            Some(ns) => Cell::plain(duration(ns)),
            None => Cell::none(),
        };
        [Cell::plain(name), Cell::plain(grouped(durations.count() as f64))]
            .into_iter()
            .chain(PARTS_QUANTILES.map(|(_, q)| quantile(q)))
            .collect()
    };
    Table {
        columns: [Column::words("Time until"), Column::figures("Count")]
            .into_iter()
            .chain(PARTS_QUANTILES.map(|(name, _)| Column::figures(name)))
            .collect(),
        rows: parts.into_iter().map(row).collect(),
        foot: vec![
            "First byte: from the send. Connection: from the attempt, TLS included. Expected \
             answers and refusals: from the time at which the request was due."
                .to_owned(),
        ],
        ..Table::default()
    }
}

fn at_least(value: CensoredNs) -> String {
    match value {
        CensoredNs::Exact(_) => known(value),
        CensoredNs::AtLeast(ns) => format!("≥ {}", duration(ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(table: &Table) -> Vec<Vec<&str>> {
        table.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect()).collect()
    }

    #[test]
    fn bounds_are_shown_where_only_some_latencies_are_unbounded() {
        let mut outcome = crate::load::json::tests::outcome();
        outcome.total.latency.answered.record_n(2_000_000, 98);
        outcome.total.latency.record_unbounded(10_000_000_000, 2);
        let table = times(&outcome);
        let rows = texts(&table);
        assert_eq!(rows[1][..2], ["p50", "2.00 ms"]);
        assert_eq!([rows[5][1], rows[7][1]], ["≥ 10.000 s"; 2]);
        assert!(table.foot[1].contains("2 of 100 due requests had no expected answer"));
    }

    #[test]
    fn parts_name_first_byte_connect_and_each_refusing_status() {
        let mut total = LoadStats::default();
        total.first_byte.record(1_000_000);
        total.latency.answered.record(1_200_000);
        let calm = parts(&total);
        assert_eq!(texts(&calm)[0][..3], ["first byte of the response", "1", "1.00 ms"]);
        assert_eq!(texts(&calm)[1][..3], ["connection opened", "0", "–"]);
        total.latency.record_unbounded(3_000_000, 2);
        total.refused.entry(503).or_default().record(3_000_000);
        total.refused.entry(OTHER_STATUS).or_default().record(3_000_000);
        let refusing = parts(&total);
        let names: Vec<&str> = texts(&refusing).iter().map(|row| row[0]).collect();
        assert_eq!(
            names,
            [
                "expected answers",
                "first byte of the response",
                "connection opened",
                "refused, other statuses",
                "refused, status 503"
            ]
        );
    }
}
