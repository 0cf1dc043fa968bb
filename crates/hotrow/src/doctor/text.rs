//! The result for people: a table, the worst first; what gives way first; what to do about it.

use std::fmt::Write as _;

use hotrow_diagnose::doctor::first_to_give_way;
use hotrow_diagnose::doctor::goal::Goal;
use hotrow_diagnose::doctor::verdict::{Enough, Unit, Verdict};

use super::demonstrate::Shown;

/// What each line of the table begins with below its row.
const INDENT: &str = "          ";

/// The whole report.
pub(super) fn report(goal: &Goal, verdicts: &[Verdict], shown: &[Shown]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, goal, verdicts, shown);
    out
}

fn write(out: &mut String, goal: &Goal, verdicts: &[Verdict], shown: &[Shown]) -> std::fmt::Result {
    let kept = if goal.keepalive { "connections are kept" } else { "each on a new connection" };
    let (connections, threads) = (grouped(goal.connections), grouped(goal.threads));
    let rate = if goal.rate.fract() == 0.0 { grouped(goal.rate as u64) } else { goal.rate.to_string() };
    writeln!(out, "goal      {connections} connections, {threads} threads, {rate} requests/s ({kept})\n")?;
    writeln!(out, "{:<10}{:<34}{:>28}  {:>12}", "enough", "limit", "allows", "wanted")?;
    for verdict in verdicts {
        row(out, verdict)?;
    }
    writeln!(out, "\nWhat gives way first")?;
    for unit in [Unit::Connections, Unit::NewConnections, Unit::Requests, Unit::Threads] {
        if let Some(first) = first_to_give_way(verdicts, unit) {
            let most = first.allows.and_then(|allows| allows.most).map_or_else(String::new, grouped);
            writeln!(out, "  {:<20}{} at {most}", unit.words(), first.limit)?;
        }
    }
    let raised: Vec<&Verdict> = verdicts.iter().filter(|verdict| !verdict.raise.now.is_empty()).collect();
    if !raised.is_empty() {
        writeln!(out, "\nWhat to do")?;
    }
    for verdict in raised {
        advice(out, verdict)?;
    }
    for shown in shown {
        demonstration(out, shown)?;
    }
    Ok(())
}

fn row(out: &mut String, verdict: &Verdict) -> std::fmt::Result {
    let (allows, wanted) = match verdict.allows {
        Some(allows) => (
            allows.most.map_or("no bound".to_owned(), |most| format!("{} {}", grouped(most), allows.unit.words())),
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

fn advice(out: &mut String, verdict: &Verdict) -> std::fmt::Result {
    let urgency = if verdict.enough == Enough::No { "gives way" } else { "tight" };
    writeln!(out, "  {} ({urgency})", verdict.limit)?;
    for (when, commands) in [("now", &verdict.raise.now), ("for good", &verdict.raise.for_good)] {
        for command in commands {
            writeln!(out, "    {when:<10}{command}")?;
        }
    }
    Ok(())
}

fn demonstration(out: &mut String, shown: &Shown) -> std::fmt::Result {
    let holds = if shown.holds() { "the prediction holds" } else { "THE PREDICTION DOES NOT HOLD" };
    writeln!(out, "\nDemonstration: {}", shown.what)?;
    writeln!(out, "  predicted  {}: {}", grouped(shown.predicted), shown.why)?;
    writeln!(out, "  happened   {}: {holds}", grouped(shown.happened))?;
    shown.evidence.iter().try_for_each(|evidence| writeln!(out, "  evidence   {evidence}"))
}

/// `12345678` as `12,345,678`.
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
