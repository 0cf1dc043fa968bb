//! The human-readable result: a table sorted by severity, the first limits reached, and remedies.

use std::fmt::Write as _;

use hotrow_diagnose::doctor::first_limit_reached;
use hotrow_diagnose::doctor::goal::Goal;
use hotrow_diagnose::doctor::limit_verdict::{LimitVerdict, Sufficiency, Unit};

use super::verify_limits::LimitCheck;

/// Indentation of lines below a table row.
const INDENT: &str = "          ";

pub(super) fn report(goal: &Goal, verdicts: &[LimitVerdict], checks: &[LimitCheck]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, goal, verdicts, checks);
    out
}

fn write(
    out: &mut String,
    goal: &Goal,
    verdicts: &[LimitVerdict],
    checks: &[LimitCheck],
) -> std::fmt::Result {
    let kept = if goal.keepalive { "connections are kept" } else { "each on a new connection" };
    let connections = grouped(goal.connections);
    let threads = grouped(goal.threads);
    let rate =
        if goal.rate.fract() == 0.0 { grouped(goal.rate as u64) } else { goal.rate.to_string() };
    writeln!(
        out,
        "goal      {connections} connections, {threads} threads, {rate} requests/s ({kept})\n"
    )?;
    writeln!(out, "{:<10}{:<34}{:>28}  {:>12}", "enough", "limit", "allows", "wanted")?;
    for verdict in verdicts {
        row(out, verdict)?;
    }
    writeln!(out, "\nFirst limits reached")?;
    for unit in [Unit::Connections, Unit::NewConnections, Unit::Requests, Unit::Threads] {
        if let Some(first) = first_limit_reached(verdicts, unit) {
            let most = first.allows.and_then(|allows| allows.max).map_or_else(String::new, grouped);
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

fn row(out: &mut String, verdict: &LimitVerdict) -> std::fmt::Result {
    let (allows, wanted) = match verdict.allows {
        Some(allows) => (
            allows.max.map_or("no bound".to_owned(), |most| {
                format!("{} {}", grouped(most), allows.unit.words())
            }),
            grouped(allows.wanted),
        ),
        None => ("–".to_owned(), "–".to_owned()),
    };
    writeln!(out, "{:<10}{:<34}{allows:>28}  {wanted:>12}", verdict.enough.word(), verdict.limit)?;
    writeln!(out, "{INDENT}set to   {}", verdict.value)?;
    if !verdict.formula.is_empty() {
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
    writeln!(out, "  predicted  {}: {}", grouped(checks.predicted), checks.why)?;
    writeln!(out, "  observed   {}: {holds}", grouped(checks.observed))?;
    checks.evidence.iter().try_for_each(|evidence| writeln!(out, "  evidence   {evidence}"))
}

/// Formats `12345678` as `12,345,678`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let all = [0, 12, 123, 1234, 123_456, 1_234_567].map(grouped);
        assert_eq!(all, ["0", "12", "123", "1,234", "123,456", "1,234,567"]);
    }
}
