//! The result for machines: one object, `schema` `hotrow.doctor/1`, described in docs/diagnosis.md.

use hotrow_diagnose::doctor::goal::Goal;
use hotrow_diagnose::doctor::verdict::{Unit, Verdict};
use hotrow_diagnose::doctor::{first_to_give_way, suffices};
use serde_json::{Value, json};

use super::demonstrate::Shown;

pub(super) fn line(goal: &Goal, verdicts: &[Verdict], shown: &[Shown]) -> String {
    let first = |unit| first_to_give_way(verdicts, unit).map(|verdict| verdict.limit);
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
        "demonstrations": shown.iter().map(demonstration).collect::<Vec<_>>(),
    });
    value.to_string()
}

fn limit(verdict: &Verdict) -> Value {
    json!({
        "limit": verdict.limit,
        "value": verdict.value,
        "enough": verdict.enough.word(),
        "allows": verdict.allows.and_then(|allows| allows.most),
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
        "raise_for_good": verdict.raise.for_good,
    })
}

fn demonstration(shown: &Shown) -> Value {
    json!({
        "what": shown.what,
        "predicted": shown.predicted,
        "happened": shown.happened,
        "holds": shown.holds(),
        "why": shown.why,
        "evidence": shown.evidence,
    })
}

#[cfg(test)]
mod tests {
    use hotrow_diagnose::doctor::verdict::{Allows, Commands, Enough};

    use super::*;
    use crate::documented::assert_is;

    #[test]
    fn each_key_is_described() {
        let verdict = Verdict {
            limit: "RLIMIT_NOFILE",
            value: "1024".to_owned(),
            allows: Some(Allows { most: Some(960), wanted: 1_000, unit: Unit::Connections }),
            formula: String::new(),
            source: "getrlimit(2)",
            enough: Enough::No,
            raise: Commands::default(),
            note: None,
        };
        let shown = Shown {
            what: String::new(),
            predicted: 2,
            happened: 2,
            why: String::new(),
            evidence: vec!["so it came".to_owned()],
        };
        let document = serde_json::from_str(&line(&Goal::default(), &[verdict], &[shown])).unwrap();
        assert_is(include_str!("../../../../docs/diagnosis.md"), "hotrow.doctor/1", &document, &[]);
    }
}
