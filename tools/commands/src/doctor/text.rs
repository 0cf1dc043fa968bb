//! The human-readable result: a table sorted by severity, the first limits reached, and remedies.

use std::fmt::Write as _;

use hotrow_diagnose::doctor::first_limit_reached;
use hotrow_diagnose::doctor::goal::Goal;
use hotrow_diagnose::doctor::limit_verdict::{LimitVerdict, Sufficiency, Unit};

use super::verify_limits::LimitCheck;
use hotrow_load::format::grouped;

/// Indentation of lines below a table row.
const INDENT: &str = "          ";

const UNITS: [Unit; 4] = [Unit::Connections, Unit::NewConnections, Unit::Requests, Unit::Threads];

/// Returns the report: of all limits with their formulas, or of those that bind.
pub(super) fn report(
    goal: &Goal,
    verdicts: &[LimitVerdict],
    checks: &[LimitCheck],
    is_all: bool,
) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, goal, verdicts, checks, is_all);
    out
}

fn write(
    out: &mut String,
    goal: &Goal,
    verdicts: &[LimitVerdict],
    checks: &[LimitCheck],
    is_all: bool,
) -> std::fmt::Result {
    let kept = if goal.keepalive { "connections are kept" } else { "each on a new connection" };
    let connections = grouped(goal.connections as f64);
    let threads = grouped(goal.threads as f64);
    let rate = if goal.rate.fract() == 0.0 { grouped(goal.rate) } else { goal.rate.to_string() };
    writeln!(
        out,
        "goal      {connections} connections, {threads} threads, {rate} requests/s ({kept})\n"
    )?;
    writeln!(out, "{:<10}{:<34}{:>28}  {:>12}", "enough", "limit", "allows", "wanted")?;
    let first = UNITS.map(|unit| first_limit_reached(verdicts, unit).map(|first| &first.limit));
    let binds = |verdict: &LimitVerdict| {
        verdict.enough < Sufficiency::Yes || first.contains(&Some(&verdict.limit))
    };
    let shown = verdicts.iter().filter(|verdict| is_all || binds(verdict));
    let mut left_out = verdicts.len();
    for verdict in shown {
        row(out, verdict, is_all)?;
        left_out -= 1;
    }
    if left_out > 0 {
        writeln!(out, "\n{left_out} more limits suffice: hotrow doctor --all")?;
    }
    writeln!(out, "\nFirst limits reached")?;
    for unit in UNITS {
        if let Some(first) = first_limit_reached(verdicts, unit) {
            let most = first
                .allows
                .and_then(|allows| allows.max)
                .map_or_else(String::new, |most| grouped(most as f64));
            writeln!(out, "  {:<20}{} at {most}", unit.words(), first.limit)?;
        }
    }
    let raised: Vec<&LimitVerdict> =
        verdicts.iter().filter(|verdict| !verdict.raise.now.is_empty()).collect();
    if !raised.is_empty() {
        writeln!(out, "\nWhat to do")?;
    }
    for verdict in raised {
        advice(out, verdict)?;
    }
    for checks in checks {
        limit_check(out, checks)?;
    }
    Ok(())
}

fn row(out: &mut String, verdict: &LimitVerdict, has_formula: bool) -> std::fmt::Result {
    let (allows, wanted) = match verdict.allows {
        Some(allows) => (
            allows.max.map_or("no bound".to_owned(), |most| {
                format!("{} {}", grouped(most as f64), allows.unit.words())
            }),
            grouped(allows.wanted as f64),
        ),
        None => ("–".to_owned(), "–".to_owned()),
    };
    writeln!(out, "{:<10}{:<34}{allows:>28}  {wanted:>12}", verdict.enough.word(), verdict.limit)?;
    writeln!(out, "{INDENT}set to   {}", verdict.value)?;
    if has_formula && !verdict.formula.is_empty() {
        writeln!(out, "{INDENT}formula  {} [{}]", verdict.formula, verdict.source)?;
    }
    match &verdict.note {
        Some(note) => writeln!(out, "{INDENT}note     {note}"),
        None => Ok(()),
    }
}

fn advice(out: &mut String, verdict: &LimitVerdict) -> std::fmt::Result {
    let urgency = if verdict.enough == Sufficiency::No { "too low" } else { "tight" };
    writeln!(out, "  {} ({urgency})", verdict.limit)?;
    for (when, commands) in [("now", &verdict.raise.now), ("permanent", &verdict.raise.permanent)] {
        for command in commands {
            writeln!(out, "    {when:<10}{command}")?;
        }
    }
    Ok(())
}

fn limit_check(out: &mut String, checks: &LimitCheck) -> std::fmt::Result {
    let holds =
        if checks.holds() { "the prediction holds" } else { "THE PREDICTION DOES NOT HOLD" };
    writeln!(out, "\nCheck: {}", checks.what)?;
    writeln!(out, "  predicted  {}: {}", grouped(checks.predicted as f64), checks.why)?;
    writeln!(out, "  observed   {}: {holds}", grouped(checks.observed as f64))?;
    checks.evidence.iter().try_for_each(|evidence| writeln!(out, "  evidence   {evidence}"))
}
