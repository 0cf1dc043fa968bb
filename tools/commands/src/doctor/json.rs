//! The machine-readable result: one object, `schema` `hotrow.doctor/1`.
//!
//! Reference `results`: `hotrow.doctor/1`
//!
//! - `schema`: `"hotrow.doctor/1"`
//! - `goal`: `connections`, `threads`, `rate`, `keepalive`, `client`
//! - `enough`: whether every readable limit suffices
//! - `first`: the first limit reached for `connections`, `new_connections_per_s`, `requests_per_s`,
//!   `threads`, or null
//! - `limits[]`: `limit`, `value`, `enough`, `allows` (null: no bound), `wanted`, `unit`,
//!   `formula`, `source`, `note`, `raise_now[]`, `raise_permanently[]`
//! - `checks[]`: `description`, `predicted`, `observed`, `holds`, `why`, `evidence[]`

use hotrow_diagnose::doctor::goal::Goal;
use hotrow_diagnose::doctor::limit_verdict::{LimitVerdict, Unit};
use hotrow_diagnose::doctor::{first_limit_reached, suffices};
use serde_json::{Value, json};

use super::verify_limits::LimitCheck;

pub(super) fn line(goal: &Goal, verdicts: &[LimitVerdict], checks: &[LimitCheck]) -> String {
    let first = |unit| first_limit_reached(verdicts, unit).map(|verdict| verdict.limit);
    let value = json!({
        "schema": "hotrow.doctor/1",
        "goal": {
            "connections": goal.connections,
            "threads": goal.threads,
            "rate": goal.rate,
            "keepalive": goal.keepalive,
            "client": goal.client,
        },
        "enough": suffices(verdicts),
        "first": {
            "connections": first(Unit::Connections),
            "new_connections_per_s": first(Unit::NewConnections),
            "requests_per_s": first(Unit::Requests),
            "threads": first(Unit::Threads),
        },
        "limits": verdicts.iter().map(limit).collect::<Vec<_>>(),
        "checks": checks.iter().map(check_json).collect::<Vec<_>>(),
    });
    value.to_string()
}

fn limit(verdict: &LimitVerdict) -> Value {
    json!({
        "limit": verdict.limit,
        "value": verdict.value,
        "enough": verdict.enough.word(),
        "allows": verdict.allows.and_then(|allows| allows.max),
        "wanted": verdict.allows.map(|allows| allows.wanted),
        "unit": verdict.allows.map(|allows| match allows.unit {
            Unit::Connections => "connections",
            Unit::NewConnections => "new_connections_per_s",
            Unit::Requests => "requests_per_s",
            Unit::Threads => "threads",
        }),
        "formula": verdict.formula,
        "source": verdict.source,
        "note": verdict.note,
        "raise_now": verdict.raise.now,
        "raise_permanently": verdict.raise.permanent,
    })
}

fn check_json(check: &LimitCheck) -> Value {
    json!({
        "description": check.what,
        "predicted": check.predicted,
        "observed": check.observed,
        "holds": check.holds(),
        "why": check.why,
        "evidence": check.evidence,
    })
}

#[cfg(test)]
mod tests {
    use hotrow_diagnose::doctor::limit_verdict::{Allowance, Commands, Sufficiency};

    use super::*;
    use hotrow_testkit::doc_sync::assert_keys_documented;

    #[test]
    fn each_key_is_described() {
        let verdict = LimitVerdict {
            limit: "RLIMIT_NOFILE",
            value: "1024".to_owned(),
            allows: Some(Allowance { max: Some(960), wanted: 1_000, unit: Unit::Connections }),
            formula: String::new(),
            source: "getrlimit(2)",
            enough: Sufficiency::No,
            raise: Commands::default(),
            note: None,
        };
        let checks = LimitCheck {
            what: String::new(),
            predicted: 2,
            observed: 2,
            why: String::new(),
            evidence: vec!["as predicted".to_owned()],
        };
        let document =
            serde_json::from_str(&line(&Goal::default(), &[verdict], &[checks])).unwrap();
        assert_keys_documented(
            include_str!("../../../../docs/reference/results.md"),
            "hotrow.doctor/1",
            &document,
            &[],
        );
    }
}
