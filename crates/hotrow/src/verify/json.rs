//! The result for machines: one object, `schema` `hotrow.verify/1`, described in docs/verify.md.

use std::collections::BTreeMap;

use hotrow_verify::converge::Converged;
use hotrow_verify::plan::Plan;
use hotrow_verify::report::{End, Report, Verdict};
use serde_json::{Value, json};

pub(super) fn line(plan: &Plan, report: &Report) -> String {
    let (reads, writes) = (&report.reads, &report.writes);
    let counts = |counts: BTreeMap<&str, u64>| json!(counts);
    let value = json!({
        "schema": "hotrow.verify/1",
        "verdict": match report.verdict() {
            Verdict::Kept => "kept",
            Verdict::Broken => "broken",
            Verdict::Unproven => "unproven",
            Verdict::Interrupted => "interrupted",
        },
        "end": match report.end {
            End::Complete => "complete",
            End::Violation => "violation",
            End::Interrupted => "interrupted",
            End::WriterGone => "writer_gone",
        },
        "took_s": report.took.as_secs_f64(),
        "engine": plan.database.engine(),
        "collection": plan.collection,
        "max_staleness_ms": plan.max_staleness.as_secs_f64() * 1e3,
        "keys": plan.keys,
        "rate": plan.rate,
        "seed": plan.seed,
        "targets": targets(report),
        "writes": {
            "commits": writes.commits,
            "changes": writes.changes,
            "deletes": writes.deletes,
            "rolled_back": writes.rolled_back,
            "failed": writes.failed,
            "unknown": writes.unknown,
            "read_back": writes.read_back,
        },
        "reads": {
            "all": reads.reads,
            "near_a_change": reads.near_a_change,
            "near_share": report.near_share(),
            "forms": counts(reads.forms.iter().map(|(form, n)| (form.name(), *n)).collect()),
            "no_cache": reads.no_cache,
            "sessions": reads.sessions,
            "own_writes": reads.own_writes,
            "absent": reads.absent,
            "untold": reads.untold,
        },
        "answers": counts(reads.outcomes.iter().map(|(outcome, n)| (outcome.name(), *n)).collect()),
        "refused": reads.refused.iter().map(|(status, n)| (status.to_string(), json!(n))).collect::<Value>(),
        "positions_refused": reads.positions_refused,
        "unanswered": counts(report.unanswered.iter().copied().collect()),
        "worst_lag_ms": reads.worst_lag_ns as f64 / 1e6,
        "purges": report.purges,
        "feed_losses": report.feed_losses,
        "judged": counts(reads.applied.iter().map(|(rule, n)| (rule.name(), *n)).collect()),
        "violations": counts(reads.violations.iter().map(|(rule, n)| (rule.name(), *n)).collect()),
        "first_violation": report.first_rule.map(|rule| json!({
            "rule": rule.name(),
            "words": rule.words(),
            "story": report.story,
        })),
        "converged": match &report.converged {
            Converged::Checked { answers } => json!({ "answers": answers }),
            Converged::NotChecked(why) => json!({ "not_checked": why }),
            Converged::Foreign { key } => json!({ "not_ours": key }),
        },
        "trouble": report.trouble,
    });
    value.to_string()
}

fn targets(report: &Report) -> Value {
    let target = |(url, is_balancer, granted): &(String, bool, hotrow_verify::granted::Granted)| {
        json!({
            "url": url,
            "balancer": is_balancer,
            "no_cache": granted.no_cache,
            "min_position": granted.min_position,
        })
    };
    report.granted.iter().map(target).collect()
}
