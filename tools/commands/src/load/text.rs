//! The human-readable result, and the progress line of each second.

use std::fmt::Write;

use hotrow_load::format::{counted, duration, grouped, known};
use hotrow_load::objective::{ObjectiveResult, ObjectiveStatus};
use hotrow_load::outcome::{Outcome, RunEnd, Second};
use hotrow_load::plan::LoadModel;
use hotrow_load::run::Config;
use hotrow_load::stats::{CensoredNs, LoadStats, OTHER_STATUS, Timing};

use super::calibration::Headroom;
use super::load_result::LoadResult;
use crate::diagnosis::DiagnosisResult;
use hotrow_trial::bottleneck_text;

const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

/// Longest line of a paragraph, in characters, without its indentation.
const LINE_CHARS_MAX: usize = 98;

/// The option that tests a hypothesis.
pub(super) const CONFIRM_OPTION: &str = "--confirm";

/// Returns the complete report, with a final line feed.
pub(super) fn report(result: &LoadResult<'_>, headroom: Option<&Headroom>) -> String {
    let LoadResult { url, config, outcome, judged, diagnosed, .. } = *result;
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_counts(&mut out, url, config, outcome);
    let _ = write_times(&mut out, outcome);
    let _ = write_judgement(&mut out, outcome, judged, headroom);
    let _ = write_limit(&mut out, outcome, diagnosed);
    out
}

fn write_counts(
    out: &mut String,
    url: &str,
    config: &Config,
    outcome: &Outcome,
) -> std::fmt::Result {
    let counts = &outcome.total.counts;
    let pace = match config.plan.model {
        LoadModel::Closed => "as fast as responses arrive".to_owned(),
        LoadModel::Open { rate, .. } if rate.from() == rate.to() => {
            format!("{} requests/s", rate.from())
        }
        LoadModel::Open { rate, .. } => format!("{} to {} requests/s", rate.from(), rate.to()),
    };
    writeln!(out, "{url}")?;
    let connections = counted(config.connections, "connection");
    let threads = counted(config.threads, "thread");
    writeln!(out, "{connections}, {threads}, {pace}, {:.2} s", outcome.window.as_secs_f64())?;
    match outcome.end {
        RunEnd::Complete => {}
        RunEnd::Interrupted => writeln!(out, "interrupted")?,
        RunEnd::TargetUnreachable | RunEnd::StoppedAnswering { .. } => {
            writeln!(out, "{}", bottleneck_text::summary(outcome, None))?;
        }
    }
    let bound = if outcome.limit().is_generator() { "  (a lower bound: see the end)" } else { "" };
    writeln!(
        out,
        "\n  answered as expected  {:>12.1} requests/s{bound}",
        outcome.throughput_rps()
    )?;
    let (sent, ok) = (grouped(counts.sent as f64), grouped(counts.ok as f64));
    writeln!(out, "  requests  {sent} sent, {ok} ok")?;
    let errors = &counts.errors;
    let failures = [
        ("timed out", counts.timeouts),
        ("reset", errors.reset),
        ("closed by the server", errors.closed),
        ("malformed answer", errors.malformed),
        ("ended by GOAWAY", errors.goaway),
        ("refused streams", errors.refused_stream),
        ("reset streams", errors.stream_reset),
        ("unexpected status", errors.unexpected_status),
        ("never sent", counts.unsent),
        ("without an answer yet", outcome.in_flight_at_end),
        ("connections failed", counts.connect_errors),
        ("connections reopened", counts.reconnects),
        ("sent again after an announced close", counts.resent),
    ];
    for (what, n) in failures.iter().filter(|(_, n)| *n > 0) {
        writeln!(out, "            {n} {what}")?;
    }
    let statuses: Vec<String> =
        counts.status.iter().map(|(status, n)| format!("{status}: {n}")).collect();
    writeln!(out, "  status    {}", statuses.join(", "))?;
    for (words, n) in &outcome.failure_messages {
        writeln!(out, "  failure   {words} ({n} times)")?;
    }
    Ok(())
}

fn write_times(out: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let lag = Timing::exact(outcome.total.schedule_lag.clone());
    writeln!(out, "\n  {:<8}{:>14}{:>14}{:>14}", "", "latency", "service time", "sent late by")?;
    let columns = [&outcome.total.latency, &outcome.total.service, &lag];
    row(out, "mean", columns.map(Timing::mean))?;
    for (name, quantile) in QUANTILES {
        row(out, name, columns.map(|timing| timing.quantile(quantile)))?;
    }
    row(out, "max", columns.map(Timing::max))?;
    write_parts(out, &outcome.total)
}

/// Writes the latencies of expected answers and of refusals where they differ from those of all
/// due requests, and the times of connecting and of the first byte.
fn write_parts(out: &mut String, total: &LoadStats) -> std::fmt::Result {
    let mut parts = Vec::new();
    if total.latency.unbounded_count() > 0 {
        parts.push(("expected answers".to_owned(), &total.latency.answered));
    }
    parts.extend(total.refused.iter().map(|(status, latency)| match *status {
        OTHER_STATUS => ("other statuses".to_owned(), latency),
        status => (format!("status {status}"), latency),
    }));
    parts.push(("first byte after".to_owned(), &total.first_byte));
    parts.push(("connected after".to_owned(), &total.connect));
    for (at, (name, durations)) in
        parts.iter().filter(|(_, durations)| durations.count() > 0).enumerate()
    {
        let blank = if at == 0 { "\n" } else { "" };
        let [p50, p99] =
            [0.5, 0.99].map(|q| durations.value_at_quantile(q).map_or_else(String::new, duration));
        let (n, max) = (grouped(durations.count() as f64), duration(durations.max()));
        writeln!(out, "{blank}  {name:<18}{n:>12} times  p50 {p50}, p99 {p99}, max {max}")?;
    }
    Ok(())
}

fn write_judgement(
    out: &mut String,
    outcome: &Outcome,
    judged: &[ObjectiveResult],
    headroom: Option<&Headroom>,
) -> std::fmt::Result {
    for (i, judged) in judged.iter().enumerate() {
        if i == 0 {
            writeln!(out, "\n  objectives")?;
        }
        writeln!(
            out,
            "  {:<10}  {:<20}  {}",
            met(judged.met),
            judged.objective.to_string(),
            judged.words()
        )?;
    }
    if judged.iter().any(|j| j.met == ObjectiveStatus::Inconclusive) {
        writeln!(
            out,
            "  inconclusive: the generator was the limit, so the target may be better than this"
        )?;
    }
    writeln!(
        out,
        "\n  generator {:.2} s of CPU{}",
        outcome.cpu().as_secs_f64(),
        per_request(outcome)
    )?;
    if let Some(Headroom { used_share, ceiling_rps_per_thread, calibrated }) = headroom {
        writeln!(
            out,
            "            this run used {:.0} % of what this generator can do on this machine ({}/s \
             per thread, calibrated {calibrated})",
            used_share * 100.0,
            grouped(*ceiling_rps_per_thread)
        )?;
    }
    Ok(())
}

/// Writes the verdict, its evidence, and the generator's own judgement.
fn write_limit(
    out: &mut String,
    outcome: &Outcome,
    diagnosed: &DiagnosisResult,
) -> std::fmt::Result {
    if let Some((what, words)) = diagnosed.headline(CONFIRM_OPTION) {
        writeln!(out, "  {what:<9} {words}")?;
        for reason in diagnosed.reasons() {
            for (at, line) in wrapped(&reason, LINE_CHARS_MAX - 12).iter().enumerate() {
                let more = if at == 0 { "" } else { "  " };
                writeln!(out, "            {more}{line}")?;
            }
        }
    }
    let named = diagnosed.named();
    writeln!(out, "\n  {}", bottleneck_text::summary(outcome, named))?;
    for line in wrapped(&bottleneck_text::details(outcome, named).join(" "), LINE_CHARS_MAX) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

/// Breaks a paragraph between words into lines of at most `chars_max` characters.
fn wrapped(paragraph: &str, chars_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in paragraph.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= chars_max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns an objective's status in a word or two.
pub(super) fn met(met: ObjectiveStatus) -> &'static str {
    match met {
        ObjectiveStatus::Met => "met",
        ObjectiveStatus::Missed => "MISSED",
        ObjectiveStatus::Inconclusive => "inconclusive",
    }
}

fn row(out: &mut String, name: &str, values: [Option<CensoredNs>; 3]) -> std::fmt::Result {
    let [latency, service, lag] = values.map(|value| value.map_or_else(|| "-".to_owned(), known));
    writeln!(out, "  {name:<8}{latency:>14}{service:>14}{lag:>14}")
}

fn per_request(outcome: &Outcome) -> String {
    outcome.cpu_us_per_request().map_or_else(String::new, |us| format!(", {us:.2} µs per request"))
}

pub(super) fn progress(second: &Second) -> String {
    let mut line = format!("{:>5} s  {:>9} answers", second.index + 1, second.ok);
    let of = |time: Option<CensoredNs>| time.map_or_else(|| "-".to_owned(), known);
    let _ = write!(line, "  p50 {:>9}  p99 {:>9}", of(second.latency.p50), of(second.latency.p99));
    let failed = second.errors + second.timeouts + second.connect_errors;
    if failed > 0 {
        let _ = write!(line, "  {failed} failed");
    }
    line
}
