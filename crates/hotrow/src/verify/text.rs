//! The result for people.

use std::fmt::Write as _;

use hotrow_verify::converge::Converged;
use hotrow_verify::plan::Plan;
use hotrow_verify::report::{End, NEAR_SHARE_MIN, Report, Verdict};
use hotrow_verify::run::Progress;

/// One line on standard error.
pub(super) fn progress(state: &Progress) -> String {
    let near = if state.reads == 0 { 0.0 } else { 100.0 * state.near_a_change as f64 / state.reads as f64 };
    format!(
        "{:>5.0} s  {} reads ({near:.0} % near a change), {} changes, {} violations",
        state.elapsed.as_secs_f64(),
        state.reads,
        state.changes,
        state.violations
    )
}

/// The whole report.
pub(super) fn report(plan: &Plan, report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, plan, report);
    out
}

fn write(out: &mut String, plan: &Plan, report: &Report) -> std::fmt::Result {
    let (reads, writes) = (&report.reads, &report.writes);
    let instances = plan.instances.iter().map(|target| target.url.as_str());
    let balancers = plan.balancers.iter().map(|target| target.url.as_str());
    let targets: Vec<&str> = instances.chain(balancers).collect();
    writeln!(
        out,
        "{} of {} through {}, {:.1} s, max_staleness {:?}",
        plan.collection,
        plan.database.engine(),
        targets.join(", "),
        report.took.as_secs_f64(),
        plan.max_staleness
    )?;
    writeln!(
        out,
        "writes    {} transactions changed {} keys ({} deleted); {} rolled back on purpose, {} failed, {} of unknown outcome",
        writes.commits, writes.changes, writes.deletes, writes.rolled_back, writes.failed, writes.unknown
    )?;
    writeln!(
        out,
        "reads     {}, {:.1} % of them within 10 ms of a change of their key",
        reads.reads,
        100.0 * report.near_share()
    )?;
    let counts = |counts: Vec<(String, u64)>| {
        let some: Vec<String> =
            counts.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{n} {name}")).collect();
        if some.is_empty() { "none".to_owned() } else { some.join(", ") }
    };
    let forms = reads.forms.iter().map(|(form, n)| (form.name().replace('_', " "), *n));
    let wishes = [
        ("with no-cache", reads.no_cache),
        ("with a token", reads.sessions),
        ("with the position of a commit", reads.own_writes),
        ("of them absent", reads.absent),
    ];
    let wishes = wishes.map(|(name, n)| (name.to_owned(), n));
    writeln!(out, "          {}", counts(forms.chain(wishes).collect()))?;
    let outcomes = reads.outcomes.iter().map(|(outcome, n)| (outcome.name().to_owned(), *n));
    writeln!(out, "answers   {}", counts(outcomes.collect()))?;
    let refused = reads.refused.iter().map(|(status, n)| (format!("times {status}"), *n));
    let positions = [("times 400 to a position".to_owned(), reads.positions_refused)];
    let unanswered = report.unanswered.iter().map(|(name, n)| (format!("unanswered ({})", name.replace('_', " ")), *n));
    writeln!(out, "refused   {}", counts(refused.chain(positions).chain(unanswered).collect()))?;
    writeln!(
        out,
        "lag       at most {:.1} ms from a commit's return to a request that did not see it",
        reads.worst_lag_ns as f64 / 1e6
    )?;
    let applied = reads.applied.iter().map(|(rule, n)| (rule.name().replace('_', " "), *n));
    writeln!(out, "judged    {}", counts(applied.collect()))?;
    if !plan.admins.is_empty() {
        let told = report.feed_losses.iter().map(|n| n.map_or("?".to_owned(), |n| n.to_string()));
        writeln!(
            out,
            "purges    {}; losses of the feed per instance: {}",
            report.purges,
            told.collect::<Vec<_>>().join(", ")
        )?;
    }
    writeln!(out, "converged {}", converged(report))?;
    for (url, _, granted) in &report.granted {
        let missing = [(granted.no_cache, "no-cache"), (granted.min_position, "Hotrow-Min-Position")];
        for (_, name) in missing.into_iter().filter(|(is, _)| !is) {
            writeln!(out, "note      {url} does not grant {name}; what it promises was not checked")?;
        }
    }
    if report.near_share() < NEAR_SHARE_MIN {
        writeln!(out, "note      few reads were near a change; a higher --rate finds more")?;
    }
    report.trouble.iter().try_for_each(|what| writeln!(out, "trouble   {what}"))?;
    if let Some(story) = &report.story {
        writeln!(out, "\n{story}")?;
    }
    writeln!(out, "{}", verdict(report))
}

fn converged(report: &Report) -> String {
    match &report.converged {
        Converged::Checked { answers } => format!("{answers} answers compared with the database after the last write"),
        Converged::NotChecked(why) => format!("not checked: {why}"),
        Converged::Foreign { key } => {
            format!("not checked: the row of key {key} is not what was committed last; does somebody else write there?")
        }
    }
}

fn verdict(report: &Report) -> String {
    let violations: u64 = report.reads.violations.values().sum();
    match report.verdict() {
        Verdict::Kept => "the contract held: 0 violations".to_owned(),
        Verdict::Broken if report.end == End::Violation && violations == 1 => "the contract is broken".to_owned(),
        Verdict::Broken => {
            let rules = report.reads.violations.iter().map(|(rule, n)| format!("{n} {}", rule.name()));
            format!("the contract is broken: {}", rules.collect::<Vec<_>>().join(", "))
        }
        Verdict::Unproven => "nothing is proven: too little could be checked".to_owned(),
        Verdict::Interrupted => "interrupted; 0 violations so far".to_owned(),
    }
}
