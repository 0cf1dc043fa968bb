//! The human-readable result, and the progress line of each second.

use std::fmt::Write;

use hotrow_load::objective::{ObjectiveResult, ObjectiveStatus};
use hotrow_load::outcome::{Outcome, RunEnd, Second};
use hotrow_load::plan::LoadModel;
use hotrow_load::run::Config;
use hotrow_load::stats::{CensoredNs, Timing};
use hotrow_trial::format::{counted, known};

use super::calibration::Headroom;
use crate::diagnosis::result::DiagnosisResult;
use hotrow_trial::bottleneck_text;

const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

/// The option that tests a hypothesis.
pub(super) const CONFIRM_OPTION: &str = "--confirm";

/// Returns the complete report, with a final line feed.
pub(super) fn report(
    url: &str,
    config: &Config,
    outcome: &Outcome,
    judged: &[ObjectiveResult],
    (headroom, diagnosed): (Option<&Headroom>, &DiagnosisResult),
) -> String {
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
    if outcome.end == RunEnd::Interrupted {
        writeln!(out, "interrupted")?;
    }
    let bound = if outcome.limit().is_generator() { "  (a lower bound: see the end)" } else { "" };
    writeln!(
        out,
        "\n  answered as expected  {:>12.1} requests/s{bound}",
        outcome.throughput_rps()
    )?;
    writeln!(out, "  requests  {} sent, {} ok", counts.sent, counts.ok)?;
    let errors = &counts.errors;
    let failures = [
        ("timed out", counts.timeouts),
        ("reset", errors.reset),
        ("closed by the server", errors.closed),
        ("malformed answer", errors.malformed),
        ("unexpected status", errors.unexpected_status),
        ("never sent", counts.unsent),
        ("without an answer yet", outcome.in_flight_at_end),
        ("connections failed", counts.connect_errors),
        ("connections reopened", counts.reconnects),
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
    let lag = Timing { answered: outcome.total.schedule_lag.clone(), abandoned: None };
    writeln!(out, "\n  {:<8}{:>14}{:>14}{:>14}", "", "latency", "service time", "sent late by")?;
    let columns = [&outcome.total.latency, &outcome.total.service, &lag];
    row(out, "mean", columns.map(Timing::mean))?;
    for (name, quantile) in QUANTILES {
        row(out, name, columns.map(|timing| timing.quantile(quantile)))?;
    }
    row(out, "max", columns.map(Timing::max))
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
        for line in diagnosed.reasons() {
            writeln!(out, "            {line}")?;
        }
    }
    writeln!(out, "  {}", bottleneck_text::sentence_beside(outcome, diagnosed.class()))
}

/// Returns an objective's status in a word or two.
pub(super) fn met(met: ObjectiveStatus) -> &'static str {
    match met {
        ObjectiveStatus::Met => "met",
        ObjectiveStatus::Missed => "MISSED",
        ObjectiveStatus::Inconclusive => "inconclusive",
    }
}

/// Formats a whole number with commas between thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let first = digits.len() % 3;
    let mut groups: Vec<&str> = vec![&digits[..first]];
    groups.extend((first..digits.len()).step_by(3).map(|at| &digits[at..at + 3]));
    groups.into_iter().filter(|group| !group.is_empty()).collect::<Vec<_>>().join(",")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!(
            [0.0, 999.4, 1000.0, 140_000.0, 1_234_567.0].map(grouped),
            ["0", "999", "1,000", "140,000", "1,234,567"]
        );
    }
}
