//! The result as an HTML page.

use std::time::Duration;

use hotrow_load::objective::{ObjectiveResult, ObjectiveStatus};
use hotrow_load::outcome::{Outcome, RunEnd, Second};
use hotrow_load::plan::LoadModel;
use hotrow_load::run::Config;
use hotrow_load::stats::{CensoredNs, Timing};
use hotrow_report::document::{Block, Cell, Column, Document, Table};
use hotrow_report::numbers::{grouped, micros, number};
use hotrow_report::plot::{
    Axis, Line, Lines, Plot, Scale, Unit, latency_curve, latency_percentiles,
};

use super::text::{CONFIRM_OPTION, met};
use crate::diagnosis::DiagnosisResult;
use hotrow_load::format::{counted, known};
use hotrow_trial::bottleneck_text;

/// Most points of a curve; more could not be distinguished on a page.
const POINTS_MAX: usize = 600;
/// Shorter rests of a second are no points of a curve over time.
const SECOND_LENGTH_MIN: Duration = Duration::from_millis(500);
const QUANTILES: [(&str, f64); 7] = [
    ("p50", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("max", 1.0),
];

pub(super) fn page(
    url: &str,
    command: &str,
    config: &Config,
    outcome: &Outcome,
    (judged, diagnosed): (&[ObjectiveResult], &DiagnosisResult),
) -> String {
    hotrow_report::html::render(&document(url, command, config, outcome, (judged, diagnosed)))
}

fn document(
    url: &str,
    command: &str,
    config: &Config,
    outcome: &Outcome,
    (judged, diagnosed): (&[ObjectiveResult], &DiagnosisResult),
) -> Document {
    let bound = if outcome.limit().is_generator() { "At least " } else { "" };
    let answer = match outcome.end {
        RunEnd::TargetUnreachable | RunEnd::StoppedAnswering { .. } => {
            bottleneck_text::summary(outcome, None)
        }
        RunEnd::Complete | RunEnd::Interrupted => {
            format!("{bound}{} requests/s answered as expected.", number(outcome.throughput_rps()))
        }
    };
    let mut blocks = vec![
        Block::Answer(answer),
        Block::Text(bottleneck_text::sentence_beside(outcome, diagnosed.named())),
        Block::Facts(facts(config, outcome)),
    ];
    blocks.extend(
        outcome
            .failure_messages
            .iter()
            .map(|(words, n)| Block::Warning(format!("{words} ({n} times)"))),
    );
    let limit = diagnosed.blocks(CONFIRM_OPTION);
    if !limit.is_empty() {
        blocks.push(Block::Heading("What limited it".to_owned()));
        blocks.extend(limit);
    }
    if !judged.is_empty() {
        blocks.extend([Block::Heading("Objectives".to_owned()), Block::Table(objectives(judged))]);
    }
    blocks.extend([Block::Heading("Latency".to_owned()), Block::Table(times(outcome))]);
    let curves = [("latency", &outcome.total.latency), ("service time", &outcome.total.service)];
    let lines =
        curves.map(|(name, timing)| Line { label: name.to_owned(), points: percentiles(timing) });
    blocks.push(Block::Plot(Plot::Lines(latency_percentiles(
        "Latency by percentile".to_owned(),
        "Latency and service time over the share of requests that were at least as fast."
            .to_owned(),
        lines.into_iter().filter(|line| !line.points.is_empty()).collect(),
    ))));
    blocks.push(Block::Heading("Over time".to_owned()));
    let seconds = whole(&outcome.seconds);
    blocks.extend(
        [rates(&seconds), latencies(&seconds)].map(|lines| Block::Plot(Plot::Lines(lines))),
    );
    blocks.extend([Block::Heading("Command".to_owned()), Block::Code(command.to_owned())]);
    Document {
        title: format!("Load on {url}"),
        subtitle: format!("hotrow {}", env!("CARGO_PKG_VERSION")),
        blocks,
    }
}

fn facts(config: &Config, outcome: &Outcome) -> Vec<(String, String)> {
    let counts = &outcome.total.counts;
    let pace = match config.plan.model {
        LoadModel::Closed => "as fast as responses arrive".to_owned(),
        LoadModel::Open { rate, .. } if rate.from() == rate.to() => {
            format!("{} requests/s", number(rate.from()))
        }
        LoadModel::Open { rate, .. } => {
            format!("{} to {} requests/s", number(rate.from()), number(rate.to()))
        }
    };
    let connections = counted(config.connections, "connection");
    let threads = counted(config.threads, "thread");
    let statuses: Vec<String> = counts
        .status
        .iter()
        .map(|(status, n)| format!("{status}: {}", grouped(*n as f64)))
        .collect();
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        fact("Load", format!("{connections}, {threads}, {pace}")),
        fact("Measured", format!("{:.2} s", outcome.window.as_secs_f64())),
        fact(
            "Requests",
            format!("{} sent, {} ok", grouped(counts.sent as f64), grouped(counts.ok as f64)),
        ),
        fact(
            "Failed",
            format!(
                "{} lost or wrong, {} timed out, {} never sent",
                counts.errors.total(),
                counts.timeouts,
                counts.unsent
            ),
        ),
        fact("Status", statuses.join(", ")),
        fact("Generator", format!("{:.2} s of CPU", outcome.cpu().as_secs_f64())),
    ]
}

fn objectives(judged: &[ObjectiveResult]) -> Table {
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
        columns: ["Objective", "", "Measured"].map(Column::words).to_vec(),
        rows: judged.iter().map(row).collect(),
        ..Table::default()
    }
}

fn times(outcome: &Outcome) -> Table {
    let lag = Timing::exact(outcome.total.schedule_lag.clone());
    let columns = [&outcome.total.latency, &outcome.total.service, &lag];
    let cell = |value: Option<CensoredNs>| {
        value.map_or_else(Cell::none, |value| Cell::plain(known(value)))
    };
    let row = |name: &str, of: &dyn Fn(&Timing) -> Option<CensoredNs>| {
        [Cell::plain(name)]
            .into_iter()
            .chain(columns.map(|timing| cell(of(timing))))
            .collect::<Vec<_>>()
    };
    let mut rows = vec![row("mean", &Timing::mean)];
    rows.extend(QUANTILES.iter().map(|(name, q)| row(name, &|timing| timing.quantile(*q))));
    Table {
        columns: [Column::words("")]
            .into_iter()
            .chain(["Latency", "Service time", "Sent late by"].map(Column::figures))
            .collect(),
        rows,
        foot: vec![
            "Latency: from the time at which a request was due. Service time: from the time at \
             which it was sent."
                .to_owned(),
        ],
        ..Table::default()
    }
}

/// Returns a duration's percentiles as a curve, with lower bounds of requests without the expected
/// answer.
fn percentiles(timing: &Timing) -> Vec<(f64, f64)> {
    let mut up_to = 0;
    let all = timing.lower_bounds();
    let distribution: Vec<(f64, u64)> = all
        .iter()
        .map(|bucket| {
            up_to += bucket.count;
            (bucket.high.min(all.max()) as f64 / 1e3, up_to)
        })
        .collect();
    thinned(latency_curve(&distribution))
}

/// Returns seconds without short rests, whose figures vary; all of them if there are no others.
fn whole(seconds: &[Second]) -> Vec<&Second> {
    let whole: Vec<&Second> =
        seconds.iter().filter(|second| second.length >= SECOND_LENGTH_MIN).collect();
    if whole.is_empty() {
        seconds.iter().filter(|second| !second.length.is_zero()).collect()
    } else {
        whole
    }
}

fn rates(seconds: &[&Second]) -> Lines {
    let rate = |of: fn(&Second) -> u64| {
        let point = |second: &&Second| {
            let length_s = second.length.as_secs_f64();
            (second.index as f64 + length_s, of(second) as f64 / length_s)
        };
        thinned(seconds.iter().map(point).collect())
    };
    let mut lines =
        vec![Line { label: "answered as expected".to_owned(), points: rate(|second| second.ok) }];
    if seconds.iter().any(|second| second.errors + second.timeouts > 0) {
        let label = "lost, wrong or timed out".to_owned();
        lines.push(Line { label, points: rate(|second| second.errors + second.timeouts) });
    }
    Lines {
        title: "Requests per second".to_owned(),
        description: "Requests per second, second by second.".to_owned(),
        x: Axis { name: "time".to_owned(), scale: Scale::Linear, unit: Unit::Seconds },
        y: Axis { name: "requests/s".to_owned(), scale: Scale::Linear, unit: Unit::Number },
        lines,
    }
}

fn latencies(seconds: &[&Second]) -> Lines {
    let line = |label: &str, of: fn(&Second) -> Option<CensoredNs>| {
        let point = |second: &&Second| {
            Some((second.index as f64 + second.length.as_secs_f64(), of(second)?.ns() as f64 / 1e3))
        };
        Line {
            label: label.to_owned(),
            points: thinned(seconds.iter().filter_map(point).collect()),
        }
    };
    let lines = vec![
        line("p50", |second| second.latency.p50),
        line("p99", |second| second.latency.p99),
        line("max", |second| second.latency.max),
    ];
    let worst = seconds.iter().filter_map(|second| second.latency.max).map(CensoredNs::ns).max();
    let worst = worst
        .map_or_else(String::new, |ns| format!(" The largest is {}.", micros(ns as f64 / 1e3)));
    Lines {
        title: "Latency".to_owned(),
        description: format!("Latency of each second: median, 99th percentile, largest.{worst}"),
        x: Axis { name: "time".to_owned(), scale: Scale::Linear, unit: Unit::Seconds },
        y: Axis { name: "latency".to_owned(), scale: Scale::Log, unit: Unit::Micros },
        lines,
    }
}

/// Returns every n-th point, and the last.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    let last = points.len().saturating_sub(1);
    points
        .into_iter()
        .enumerate()
        .filter(|(i, _)| i % step == 0 || *i == last)
        .map(|(_, point)| point)
        .collect()
}

/// Replaces a secret value.
const HIDDEN: &str = "…";

/// Formats the command line for a shell. Values of headers and of `--db-url` are omitted: some are
/// secrets, and pages are shared.
pub(crate) fn command(arguments: impl Iterator<Item = String>) -> String {
    let mut words = Vec::new();
    let (mut is_header, mut is_url) = (false, false);
    for argument in arguments {
        let hidden = |header: &str| format!("{}: …", header.split(':').next().unwrap_or_default());
        let attached =
            ["--header=", "-H"].iter().find_map(|flag| Some((*flag, argument.strip_prefix(flag)?)));
        let word = match attached {
            _ if is_header => hidden(&argument),
            _ if is_url => HIDDEN.to_owned(),
            _ if argument.starts_with("--db-url=") => format!("--db-url={HIDDEN}"),
            Some((flag, header)) if !header.is_empty() => format!("{flag}{}", hidden(header)),
            _ => argument.clone(),
        };
        let is_value = is_header || is_url;
        is_header = !is_value && (argument == "-H" || argument == "--header");
        is_url = !is_value && argument == "--db-url";
        words.push(quoted(&word));
    }
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_repeated_but_contains_no_secret() {
        let formatted = |line: &[&str]| command(line.iter().map(|word| (*word).to_owned()));
        let line = [
            "load",
            "-H",
            "Cookie: a=b",
            "-HX: y",
            "--header=Authorization: Bearer t",
            "http://a/{id}?x='",
        ];
        let want =
            r"load -H 'Cookie: …' '-HX: …' '--header=Authorization: …' 'http://a/{id}?x='\'''";
        assert_eq!(formatted(&line), want);
        let url = "postgres://me:secret@db/shop";
        let attached = format!("--db-url={url}");
        let line = ["load", "--db-url", url, attached.as_str(), "-H", "--db-url", "http://a/"];
        let want = "load --db-url '…' '--db-url=…' -H '--db-url: …' http://a/";
        assert_eq!(formatted(&line), want);
        assert_eq!(formatted(&["--slo", "p99<5ms", ""]), "--slo 'p99<5ms' ''");
    }

    #[test]
    fn long_runs_are_thinned_to_what_a_page_can_show() {
        let points: Vec<(f64, f64)> = (0..10_000).map(|i| (f64::from(i), 1.0)).collect();
        let kept = thinned(points);
        assert!(
            kept.len() <= POINTS_MAX + 1 && kept.last() == Some(&(9_999.0, 1.0)),
            "{}",
            kept.len()
        );
        assert_eq!(thinned(vec![(1.0, 2.0)]), [(1.0, 2.0)]);
    }
}
