//! The result as text.

use std::fmt::Write as _;

use hotrow_verify::converge::ConvergenceResult;
use hotrow_verify::plan::Plan;
use hotrow_verify::report::{NEAR_SHARE_MIN, Report, ReportedTarget, RunEnd, RunVerdict};
use hotrow_verify::run::Progress;

pub(super) fn progress(state: &Progress) -> String {
    let near = if state.reads == 0 {
        0.0
    } else {
        100.0 * state.near_a_change as f64 / state.reads as f64
    };
    format!(
        "{:>5.0} s  {} reads ({near:.0} % near a change), {} changes, {} violations",
        state.elapsed.as_secs_f64(),
        state.reads,
        state.changes,
        state.violations
    )
}

pub(super) fn report(plan: &Plan, report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, plan, report);
    out
}

fn write(out: &mut String, plan: &Plan, report: &Report) -> std::fmt::Result {
    let reads = &report.reads;
    let writes = &report.writes;
    let instances = plan.instances.iter().map(|target| target.url.as_str());
    let balancers = plan.balancers.iter().map(|target| target.url.as_str());
    let targets: Vec<&str> = instances.chain(balancers).collect();
    writeln!(
        out,
        "{} of {} through {}, {:.1} s, max_staleness {:?}",
        plan.schema.collection,
        plan.database.engine(),
        targets.join(", "),
        report.took.as_secs_f64(),
        plan.max_staleness
    )?;
    writeln!(
        out,
        "writes    {} transactions changed {} keys ({} deleted); {} rolled back on purpose, {} \
         failed, {} of unknown outcome",
        writes.commits,
        writes.changes,
        writes.deletes,
        writes.rolled_back,
        writes.failed,
        writes.unknown
    )?;
    writeln!(
        out,
        "reads     {}, {:.1} % of them within 10 ms of a change of their key",
        reads.reads,
        100.0 * report.near_share()
    )?;
    let counts = |counts: Vec<(String, u64)>| {
        let some: Vec<String> = counts
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .map(|(name, n)| format!("{n} {name}"))
            .collect();
        if some.is_empty() { "none".to_owned() } else { some.join(", ") }
    };
    let forms = reads.forms.iter().map(|(form, n)| (form.name().replace('_', " "), *n));
    let wishes = [
        ("with no-cache", reads.no_cache),
        ("with a token", reads.sessions),
        ("with the position of a commit", reads.own_writes),
        ("strict", reads.strict),
        ("snapshots", reads.snapshots),
        ("snapshots of two collections", reads.snapshots_across),
        ("absent", reads.absent),
    ];
    let wishes = wishes.map(|(name, n)| (name.to_owned(), n));
    writeln!(out, "          {}", counts(forms.chain(wishes).collect()))?;
    let outcomes = reads.outcomes.iter().map(|(outcome, n)| (outcome.name().to_owned(), *n));
    writeln!(out, "responses {}", counts(outcomes.collect()))?;
    let refused = reads.refused.iter().map(|(status, n)| (format!("times {status}"), *n));
    let positions = [("times 400 to a position".to_owned(), reads.positions_refused)];
    let unanswered = report
        .unanswered
        .iter()
        .map(|(name, n)| (format!("unanswered ({})", name.replace('_', " ")), *n));
    writeln!(out, "refused   {}", counts(refused.chain(positions).chain(unanswered).collect()))?;
    writeln!(
        out,
        "lag       at most {:.1} ms from a commit's return to a request whose response did not \
         show it",
        reads.worst_lag_ns as f64 / 1e6
    )?;
    write_near_caches(out, report)?;
    write_followers(out, report)?;
    let applied = reads.applied.iter().map(|(rule, n)| (rule.name().replace('_', " "), *n));
    writeln!(out, "checked   {}", counts(applied.collect()))?;
    if !plan.admins.is_empty() {
        let feeds = report.feeds.iter().map(|feed| feed.as_deref().unwrap_or("?"));
        writeln!(
            out,
            "covered   changes by {}; queries that standbys answered, per instance: {}",
            feeds.collect::<Vec<_>>().join(", "),
            per_instance(&report.standby_reads)
        )?;
        writeln!(
            out,
            "purges    {}; feed losses per instance: {}",
            report.purges,
            per_instance(&report.feed_losses)
        )?;
    }
    if let Some(alias) = &plan.schema.alias {
        let (lookups, moved) = (report.lookups_by_alias(), writes.values_moved);
        writeln!(out, "covered   {lookups} lookups by {}, {moved} changes of values", alias.name)?;
    }
    if let Some(embedded) = &plan.schema.embedded {
        let (changed, moved) = (writes.children_changed, writes.children_moved);
        let member = &embedded.member;
        writeln!(out, "covered   {changed} changes of {member}, {moved} to another record")?;
    }
    writeln!(out, "converged {}", convergence(plan, report))?;
    for ReportedTarget { url, capabilities, .. } in &report.targets {
        let missing = [
            (capabilities.no_cache, "no-cache"),
            (capabilities.min_position, "Hotrow-Min-Position"),
        ];
        for (_, name) in missing.into_iter().filter(|(is, _)| !is) {
            writeln!(
                out,
                "note      {url} does not support {name}, so its guarantee was not checked"
            )?;
        }
    }
    for (url, rule) in report.unsupported() {
        writeln!(
            out,
            "note      {url} refuses what the rule {0} needs, so it was not checked; --skip {0} \
             accepts that",
            rule.name()
        )?;
    }
    if report.log_went_back {
        writeln!(out, "note      the log began anew; positions were not checked from then on")?;
    }
    if report.near_share() < NEAR_SHARE_MIN {
        writeln!(out, "note      few reads were near a change; a higher --rate finds more")?;
    }
    report.problems.iter().try_for_each(|what| writeln!(out, "problem   {what}"))?;
    if let Some(counterexample) = &report.counterexample {
        writeln!(out, "\n{counterexample}")?;
    }
    writeln!(out, "{}", verdict(report))
}

/// Writes what near caches did, if there were any.
fn write_near_caches(out: &mut String, report: &Report) -> std::fmt::Result {
    let near = &report.near_caches;
    if near.targets.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "copies    {} read of {} kept in near caches; {} keys invalidated, everything {} times; \
         {} connections lost; at most {:.1} ms behind",
        near.counts.copies_read,
        near.counts.kept,
        near.counts.invalidations,
        near.counts.invalidate_alls,
        near.counts.connections_lost,
        report.reads.worst_copy_lag_ns as f64 / 1e6
    )?;
    for (url, no_broadcast) in &near.targets {
        if let Some(why) = no_broadcast {
            writeln!(out, "note      {url} was not checked with BCAST: {why}")?;
        }
    }
    Ok(())
}

/// Writes what followers did, if there were any.
fn write_followers(out: &mut String, report: &Report) -> std::fmt::Result {
    let (targets, counts) = (&report.followers.targets, &report.followers.counts);
    if targets.iter().all(|(_, why)| why.is_some()) {
        return Ok(());
    }
    writeln!(
        out,
        "followers {} changes, {} flushes, {} resets and {} heartbeats in {} streams, {} of which \
         continued ({} refused); {} copies read",
        counts.changes,
        counts.flushes,
        counts.resets,
        counts.heartbeats,
        counts.streams,
        counts.returns,
        counts.refused,
        counts.copies_read
    )?;
    for (url, why) in targets {
        if let Some(why) = why {
            writeln!(out, "note      {url} was not followed: {why}")?;
        }
    }
    Ok(())
}

fn per_instance(counts: &[Option<u64>]) -> String {
    let texts = counts.iter().map(|n| n.map_or("?".to_owned(), |n| n.to_string()));
    texts.collect::<Vec<_>>().join(", ")
}

fn convergence(plan: &Plan, report: &Report) -> String {
    match &report.convergence {
        ConvergenceResult::Checked { responses } => {
            format!("{responses} responses compared with the database after the last write")
        }
        ConvergenceResult::NotChecked(why) => format!("not checked: {why}"),
        ConvergenceResult::Foreign { key } => {
            format!(
                "not checked: the row of {} differs from the last commit; does another \
                 program write to the table?",
                plan.schema.shown(*key)
            )
        }
    }
}

fn verdict(report: &Report) -> String {
    let violations: u64 = report.reads.violations.values().sum();
    match report.verdict() {
        RunVerdict::Passed => "the contract held: 0 violations".to_owned(),
        RunVerdict::Violated if report.end == RunEnd::Violation && violations == 1 => {
            "the contract was violated".to_owned()
        }
        RunVerdict::Violated => {
            let rules =
                report.reads.violations.iter().map(|(rule, n)| format!("{n} {}", rule.name()));
            format!("the contract was violated: {}", rules.collect::<Vec<_>>().join(", "))
        }
        RunVerdict::Inconclusive => "inconclusive: too little could be checked".to_owned(),
        RunVerdict::Interrupted => "interrupted; 0 violations so far".to_owned(),
    }
}
