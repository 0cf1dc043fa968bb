//! The result as JSON: one object, `schema` `hotrow.verify/2`.
//!
//! Reference `results`: `hotrow.verify/2`
//!
//! - `schema`: `"hotrow.verify/2"`
//! - `verdict`: `"passed"`, `"violated"`, `"inconclusive"`, `"interrupted"`
//! - `end`: `"complete"`, `"violation"`, `"interrupted"`, `"writer_failed"`
//! - `first_violation`: `rule`, `description`, `counterexample`; or null
//! - `worst_lag_ms`: longest time from a commit's return to a request that did not see it and was
//!   not marked stale
//! - `worst_copy_lag_ms`: the same of copies
//! - `near_a_change`: reads within 10 ms of a change
//! - `log_went_back`: the log began anew: positions were no longer checked
//! - `near_caches`: `targets` (`url`, `broadcast`: whether `BCAST` was checked), `copies_read`,
//!   `kept`, `invalidations` (keys), `invalidate_alls`, `connections_lost`
//! - `followers`: `targets` (`url`, `followed`), `changes`, `flushes`, `resets`, `heartbeats`,
//!   `streams`, `returns`, `refused`, `copies_read`
//! - `covered`: `alias` (`name`, `lookups`, `values_moved`), `embed` (`name`, `children_changed`,
//!   `children_moved`); or null
//! - `feeds`, `standby_reads`, `feed_losses`: per instance with `--admin`: `watch` of its sources
//!   in `/status`, and counts
//! - `targets`: each with `url` and what it supports; `across`: snapshots of two collections
//! - `…`: settings and counts

use std::collections::BTreeMap;

use hotrow_verify::converge::ConvergenceResult;
use hotrow_verify::plan::Plan;
use hotrow_verify::report::{Report, ReportedTarget, RunEnd, RunVerdict};
use serde_json::{Value, json};

pub(super) fn line(plan: &Plan, report: &Report) -> String {
    let reads = &report.reads;
    let writes = &report.writes;
    let responses = reads.outcomes.iter().map(|(outcome, n)| (outcome.name(), *n)).collect();
    let refused: Value =
        reads.refused.iter().map(|(status, n)| (status.to_string(), json!(n))).collect();
    let counts = |counts: BTreeMap<&str, u64>| json!(counts);
    let value = json!({
        "schema": "hotrow.verify/2",
        "verdict": match report.verdict() {
            RunVerdict::Passed => "passed",
            RunVerdict::Violated => "violated",
            RunVerdict::Inconclusive => "inconclusive",
            RunVerdict::Interrupted => "interrupted",
        },
        "end": match report.end {
            RunEnd::Complete => "complete",
            RunEnd::Violation => "violation",
            RunEnd::Interrupted => "interrupted",
            RunEnd::WriterFailed => "writer_failed",
        },
        "duration_s": report.took.as_secs_f64(),
        "engine": plan.database.engine(),
        "collection": plan.schema.collection,
        "max_staleness_ms": plan.max_staleness.as_secs_f64() * 1e3,
        "keys": plan.keys,
        "rate": plan.rate,
        "read_rate": plan.read_rate,
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
            "total": reads.reads,
            "near_a_change": reads.near_a_change,
            "near_share": report.near_share(),
            "forms": counts(reads.forms.iter().map(|(form, n)| (form.name(), *n)).collect()),
            "no_cache": reads.no_cache,
            "sessions": reads.sessions,
            "own_writes": reads.own_writes,
            "strict": reads.strict,
            "snapshots": reads.snapshots,
            "snapshots_across": reads.snapshots_across,
            "absent": reads.absent,
            "unknown_versions": reads.unknown_versions,
        },
        "responses": counts(responses),
        "refused": refused,
        "positions_refused": reads.positions_refused,
        "unanswered": counts(report.unanswered.iter().copied().collect()),
        "worst_lag_ms": reads.worst_lag_ns as f64 / 1e6,
        "worst_copy_lag_ms": reads.worst_copy_lag_ns as f64 / 1e6,
        "near_caches": near_caches(report),
        "followers": followers(report),
        "purges": report.purges,
        "feed_losses": report.feed_losses,
        "standby_reads": report.standby_reads,
        "feeds": report.feeds,
        "covered": {
            "alias": plan.schema.alias.as_ref().map(|alias| json!({
                "name": alias.name,
                "lookups": report.lookups_by_alias(),
                "values_moved": writes.values_moved,
            })),
            "embed": plan.schema.embedded.as_ref().map(|embedded| json!({
                "name": embedded.member,
                "children_changed": writes.children_changed,
                "children_moved": writes.children_moved,
            })),
        },
        "checked": counts(reads.applied.iter().map(|(rule, n)| (rule.name(), *n)).collect()),
        "violations": counts(reads.violations.iter().map(|(rule, n)| (rule.name(), *n)).collect()),
        "first_violation": report.first_rule.map(|rule| json!({
            "rule": rule.name(),
            "description": rule.description(),
            "counterexample": report.counterexample,
        })),
        "convergence": match &report.convergence {
            ConvergenceResult::Checked { responses } => json!({ "responses": responses }),
            ConvergenceResult::NotChecked(why) => json!({ "not_checked": why }),
            ConvergenceResult::Foreign { key } => json!({ "foreign_row": key }),
        },
        "log_went_back": report.log_went_back,
        "problems": report.problems,
    });
    value.to_string()
}

fn near_caches(report: &Report) -> Value {
    let counts = &report.near_caches.counts;
    let target = |(url, no_broadcast): &(String, Option<String>)| json!({ "url": url, "broadcast": no_broadcast.is_none() });
    json!({
        "targets": report.near_caches.targets.iter().map(target).collect::<Value>(),
        "copies_read": counts.copies_read,
        "kept": counts.kept,
        "invalidations": counts.invalidations,
        "invalidate_alls": counts.invalidate_alls,
        "connections_lost": counts.connections_lost,
    })
}

fn followers(report: &Report) -> Value {
    let target =
        |(url, why): &(String, Option<String>)| json!({ "url": url, "followed": why.is_none() });
    let mut followers = json!(report.followers.counts.by_name());
    followers["targets"] = report.followers.targets.iter().map(target).collect();
    followers
}

fn targets(report: &Report) -> Value {
    let target = |target: &ReportedTarget| {
        json!({
            "url": target.url,
            "balancer": target.is_balancer,
            "no_cache": target.capabilities.no_cache,
            "min_position": target.capabilities.min_position,
            "strict": target.capabilities.strict,
            "snapshot": target.capabilities.snapshot,
            "across": target.capabilities.across,
        })
    };
    report.targets.iter().map(target).collect()
}
