//! Rules of the change hub, one scenario each. Every scenario keeps the contract; with a rule
//! disabled in the relays or in the instance by a failpoint (feature `failpoints`), the checker
//! finds a violation.

use crate::backend::postgres::Postgres;
use crate::contract::hidden::Hidden;
use crate::contract::hub;
use crate::contract::run::Trial;
use crate::contract::safeguards::late_stream;
use crate::contract::scenario::{
    BEYOND, BOUND, KEY, OTHER, Scenario, ScenarioOutcome, assert_clean, config, first, stage,
};
use hotrow_testkit::harness::{SOON, await_until};
use hotrow_verify::observation::Outcome;
use tempfile::TempDir;

type Hubbed = hub::Hubbed<Postgres>;

/// Starts relays with this failpoint, and an instance.
fn start(failpoint: &str) -> Scenario<Hubbed> {
    let mut run = stage::<Hubbed>();
    run.database.with_relays(failpoint, "1500ms");
    Scenario::over(run, &[])
}

/// A nonce is answered by a look that began after it arrived: while the stream is late, so is the
/// answer.
fn look(failpoint: &str) -> ScenarioOutcome {
    late_stream(start(failpoint))
}

/// Changes arrive, and before the watermark that answers for them.
fn changes(failpoint: &str) -> ScenarioOutcome {
    let mut scenario = start(failpoint);
    for _ in 0..4 {
        scenario.run.change(KEY);
        scenario.run.pass(BOUND + BEYOND);
        for _ in 0..3 {
            scenario.get(KEY);
        }
    }
    scenario.end(Vec::new())
}

/// An instance joins while a delivered change is not visible to its reads.
fn join(failpoint: &str) -> ScenarioOutcome {
    let mut scenario = start("");
    let before = scenario.delivered();
    let hidden = Hidden::begin(&scenario.run, KEY);
    scenario.await_delivery(before);
    let environment = [("HOTROW_FAILPOINTS", failpoint)];
    let environment = if failpoint.is_empty() { &[][..] } else { &environment[..] };
    let config = config(&scenario.run);
    let joined = scenario.run.serve(&config, environment);
    for _ in 0..20 {
        let seen = scenario.reader.get(joined, KEY).seen.clone();
        assert_eq!(seen, first(KEY), "the change is not visible yet");
    }
    hidden.end(&scenario.run);
    scenario.run.pass(BOUND + BEYOND);
    for _ in 0..5 {
        scenario.reader.get(joined, KEY);
    }
    scenario.end(Vec::new())
}

/// The stream loses its end while the instance is apart from it, and the sequences that the
/// instance has seen are given again: to a change, among others.
fn rewound(failpoints: &str) -> ScenarioOutcome {
    let mut run = stage::<Hubbed>();
    run.database.with_relays("", "1500ms");
    let environment = [("HOTROW_FAILPOINTS", failpoints)];
    let mut scenario = Scenario::over(run, &environment);
    let saved = scenario.run.database.restart_nats();
    // Another chain begins, which the instance follows.
    scenario.change_and_deliver(OTHER);
    scenario.run.await_readyz(scenario.instance, 200);
    await_until("a hit", SOON, || {
        scenario.reader.get(scenario.instance, KEY).outcome == Outcome::Hit
    });
    scenario.run.pass(BOUND);
    scenario.run.rewind(&saved, KEY);
    scenario.run.await_readyz(scenario.instance, 200);
    scenario.end(Vec::new())
}

impl Trial<Hubbed> {
    fn rewind(&mut self, saved: &TempDir, key: u32) {
        let end = self.database.begin_rewind(saved);
        self.change(key);
        self.database.end_rewind(end);
    }
}

/// A change reaches the leader and not the stream; then the leader is killed. Returns whether the
/// take-over was a loss.
fn confirm(failpoint: &str) -> (bool, ScenarioOutcome) {
    let mut scenario = start(failpoint);
    scenario.run.database.mute_relays();
    scenario.run.change(KEY);
    let server = &scenario.run.database.primary.server;
    let end = server.query("SELECT pg_current_wal_lsn()");
    let reached = if failpoint.is_empty() { "sent_lsn" } else { "confirmed_flush_lsn" };
    let sql = format!(
        "SELECT count(*) FROM pg_replication_slots s JOIN pg_stat_replication r \
         ON r.pid = s.active_pid WHERE {reached} >= '{end}'"
    );
    await_until(&format!("{reached} to be {end}"), SOON, || server.query(&sql) == "1");
    // Confirmations are sent with every probe: time for one that is a mistake.
    scenario.run.pass(BOUND);
    scenario.run.database.kill_muted_leader();
    scenario.run.await_readyz(scenario.instance, 503);
    scenario.run.await_readyz(scenario.instance, 200);
    await_until("a fresh answer", SOON, || scenario.get(KEY) != first(KEY));
    let is_loss = scenario.run.losses(scenario.instance, None) > 0.0;
    (is_loss, scenario.end(Vec::new()))
}

#[test]
fn a_nonce_is_answered_by_a_later_look() {
    assert_clean(look(""));
}

#[test]
fn changes_come_before_their_watermark() {
    assert_clean(changes(""));
}

#[test]
fn an_instance_that_joins_marks_what_is_hidden() {
    assert_clean(join(""));
}

#[test]
fn a_stream_that_lost_its_end_is_noticed() {
    assert_clean(rewound(""));
}

#[test]
fn a_change_that_is_not_acknowledged_is_delivered_by_the_next_relay() {
    let (is_loss, outcome) = confirm("");
    assert!(!is_loss, "the slot had the change");
    assert_clean(outcome);
}

#[cfg(feature = "failpoints")]
mod disabled {
    use super::{changes, confirm, join, look, rewound};
    use crate::contract::scenario::{assert_broken, assert_clean};
    use hotrow_verify::rules::Rule;

    #[test]
    fn an_answer_from_an_earlier_look_is_found() {
        assert_broken(|| look("hub:LookAfterNonce"), Rule::Fresh);
    }

    #[test]
    fn a_watermark_before_its_changes_is_found() {
        assert_broken(|| changes("hub:WatermarkInOrder"), Rule::Fresh);
    }

    #[test]
    fn a_dropped_change_in_an_unbroken_chain_is_found() {
        assert_broken(|| changes("hub:EveryChange"), Rule::Fresh);
    }

    #[test]
    fn a_join_without_hidden_changes_is_found() {
        assert_broken(|| join("hub:Hidden"), Rule::Fresh);
    }

    #[test]
    fn an_end_that_was_lost_and_written_again_is_found() {
        assert_broken(|| rewound("hub:Identity,hub:Successor"), Rule::Fresh);
    }

    /// The next relay notices that the slot is past the chain's end: a loss where there need be
    /// none, and no stale row.
    #[test]
    fn a_slot_confirmed_before_the_acknowledgement_is_found() {
        let (is_loss, outcome) = confirm("hub:ConfirmAfterAck");
        assert!(is_loss, "the change is in no chain");
        assert_clean(outcome);
    }
}
