//! Status, metrics and readiness of a relay.
//!
//! Reference `admin`: `/status` of a relay
//!
//! In parentheses: the metrics.
//!
//! - `schema`: `"hotrow-relay-status/1"`
//! - `role`: `"leader"`, or `"standby"`; 1 while it has the lease (`hotrow_relay_leading`)
//! - `connected`: NATS answers (`hotrow_relay_connected`)
//! - `publishing`: a chain is open (`hotrow_relay_publishing`)
//! - `slot`: slot that keeps the relays' place; null without one, and on MariaDB and MySQL
//! - `waits_for`: what the relay waits for before it can follow the database; null: nothing
//! - `chain`: number of the newest chain that it began
//! - `instances`: instances that asked within the last minute (`hotrow_relay_instances`)
//! - `queued_bytes`: bytes of changes that wait to be published (`hotrow_relay_queued_bytes`)
//! - `staleness_ms`: time since the newest look at the database that the feed has passed
//!   (`hotrow_relay_staleness_seconds`)
//! - `terms`: times that it became leader (`hotrow_relay_terms_total`)
//! - `chains_begun`: chains that it began: each but the continued ones is a loss for all instances
//!   (`hotrow_relay_chains_total`)
//! - `chains_continued`: chains among them that went on where the one before ended
//!   (`hotrow_relay_chains_continued_total`)
//! - `messages`, `message_bytes`: what it published (`hotrow_relay_messages_total`,
//!   `hotrow_relay_message_bytes_total`)

use std::fmt::Write as _;
use std::time::Duration;

use hotrow_hub_nats::relay::RelayState;
use serde_json::{Value, json};

/// Returns the conditions of readiness that do not hold. A relay that stands by is ready.
pub(super) fn unmet(state: &RelayState, max_staleness: Duration) -> Vec<&'static str> {
    let is_late = state.staleness.is_none_or(|staleness| staleness > max_staleness);
    let conditions = [
        ("connected", state.is_connected),
        ("publishing", !state.is_leading || state.is_publishing),
        ("fresh", !state.is_leading || !is_late),
    ];
    conditions.iter().filter(|(_, holds)| !holds).map(|(name, _)| *name).collect()
}

/// Returns the document `/status`.
pub(super) fn status(state: &RelayState) -> Value {
    let role = if state.is_leading { "leader" } else { "standby" };
    json!({
        "schema": "hotrow-relay-status/1",
        "role": role,
        "connected": state.is_connected,
        "publishing": state.is_publishing,
        "slot": state.slot,
        "waits_for": state.waits_for,
        "chain": state.generation,
        "instances": state.instances,
        "queued_bytes": state.queued_bytes,
        "staleness_ms": state.staleness.map(|staleness| staleness.as_millis() as u64),
        "terms": state.terms_total,
        "chains_begun": state.beginnings_total,
        "chains_continued": state.continued_total,
        "messages": state.published_total,
        "message_bytes": state.published_bytes_total,
    })
}

/// Returns the text of `/metrics`.
pub(super) fn metrics(state: &RelayState) -> String {
    let staleness = state.staleness.map_or(f64::INFINITY, |staleness| staleness.as_secs_f64());
    let series: [(&str, &str, &str, f64); 11] = [
        ("connected", "gauge", "1 while NATS answers.", state.is_connected.into()),
        ("leading", "gauge", "1 while this relay has the lease.", state.is_leading.into()),
        ("publishing", "gauge", "1 while a chain is open.", state.is_publishing.into()),
        ("instances", "gauge", "Servers that asked in the last minute.", state.instances as f64),
        ("queued_bytes", "gauge", "Bytes of changes that wait.", state.queued_bytes as f64),
        ("staleness_seconds", "gauge", "Age of the newest passed look.", staleness),
        ("terms_total", "counter", "Times that the lease was taken.", state.terms_total as f64),
        ("chains_total", "counter", "Chains begun.", state.beginnings_total as f64),
        (
            "chains_continued_total",
            "counter",
            "Chains that continued the one before.",
            state.continued_total as f64,
        ),
        ("messages_total", "counter", "Messages published.", state.published_total as f64),
        (
            "message_bytes_total",
            "counter",
            "Bytes of these messages.",
            state.published_bytes_total as f64,
        ),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in series {
        let value = if value.is_infinite() { "+Inf".to_owned() } else { value.to_string() };
        let name = format!("hotrow_relay_{name}");
        // Writing to a String cannot fail.
        _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../../docs/reference/admin.md");

    fn state() -> RelayState {
        RelayState {
            is_connected: true,
            is_leading: true,
            is_publishing: true,
            generation: 3,
            terms_total: 1,
            beginnings_total: 1,
            continued_total: 0,
            slot: None,
            waits_for: None,
            published_total: 9,
            published_bytes_total: 900,
            queued_bytes: 0,
            instances: 2,
            staleness: Some(Duration::from_millis(300)),
        }
    }

    #[test]
    fn a_leader_is_ready_while_it_publishes_what_is_fresh() {
        let bound = Duration::from_secs(1);
        assert!(unmet(&state(), bound).is_empty());
        let late = RelayState { staleness: Some(bound * 2), ..state() };
        assert_eq!(unmet(&late, bound), ["fresh"]);
        let starting = RelayState { is_publishing: false, staleness: None, ..state() };
        assert_eq!(unmet(&starting, bound), ["publishing", "fresh"]);
        let standby = RelayState { is_leading: false, ..starting };
        assert!(unmet(&standby, bound).is_empty());
        let alone = RelayState { is_connected: false, ..standby };
        assert_eq!(unmet(&alone, bound), ["connected"]);
    }

    #[test]
    fn the_page_describes_status_and_metrics() {
        let Value::Object(members) = status(&state()) else { panic!("an object") };
        for name in members.keys() {
            assert!(PAGE.contains(&format!("`{name}`")), "the reference lacks `{name}`");
        }
        let text = metrics(&RelayState { staleness: None, ..state() });
        assert!(text.contains("hotrow_relay_staleness_seconds +Inf\n"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(' ').next().unwrap();
            assert!(PAGE.contains(&format!("`{name}`")), "the reference lacks `{name}`");
        }
    }
}
