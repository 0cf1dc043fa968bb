//! Rules of the change hub over PostgreSQL, with a slot that stays.

use crate::backend::postgres::Postgres;
use crate::contract::hub::Hubbed;
use crate::contract::hub_rules::{
    self as rules, TakeOver, assert_continued, assert_loss, start_everywhere,
};
use crate::contract::run::Trial;
use crate::contract::scenario::{BOUND, KEY, Scenario, assert_clean, first, stage};
use hotrow_testkit::harness::{SOON, await_until};

/// Lease of a leader that must get a change while it cannot renew the lease.
const LEASE_OF_MUTED: &str = "4s";

/// A change reaches the leader and not the stream; then the leader is killed.
fn confirm(failpoint: &str) -> TakeOver {
    let mut run = stage::<Hubbed<Postgres>>();
    run.database.with_relays(failpoint, LEASE_OF_MUTED);
    let mut scenario = Scenario::over(run, &[]);
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
    rules::end(scenario)
}

/// Something happens between two relays.
fn between(failpoints: &str, happens: impl FnOnce(&mut Trial<Hubbed<Postgres>>)) -> TakeOver {
    rules::between(start_everywhere::<Postgres>(stage(), failpoints), happens)
}

/// The slot is moved past a change that no relay has seen.
fn moved_slot(failpoint: &str) -> TakeOver {
    between(failpoint, |run| {
        run.change(KEY);
        let server = &run.database.primary.server;
        let sql = "SELECT pg_replication_slot_advance('relays', pg_current_wal_lsn())";
        await_until("the slot to be free", SOON, || server.try_query(sql).is_ok());
    })
}

/// The table is changed while it is not published.
fn unpublished(failpoint: &str) -> TakeOver {
    between(failpoint, |run| {
        run.database.primary.server.batch("ALTER PUBLICATION hotrow DROP TABLE items");
        run.change(KEY);
        run.database.primary.server.batch("ALTER PUBLICATION hotrow ADD TABLE items");
    })
}

checks! {
    a_nonce_is_answered_by_a_later_look:
        assert_clean(rules::look::<Postgres>(""));
    changes_come_before_their_watermark:
        assert_clean(rules::changes::<Postgres>(""));
    an_instance_that_joins_marks_what_is_hidden:
        assert_clean(rules::join::<Postgres>(""));
    a_stream_that_lost_its_end_is_noticed:
        assert_clean(rules::rewound::<Postgres>(""));
    a_change_that_is_not_acknowledged_is_delivered_by_the_next_relay:
        assert_continued(confirm(""));
    messages_of_a_relay_that_was_paused_are_refused:
        assert_continued(rules::paused::<Postgres>(""));
    #[ignore = "long: without a planted fault"]
    no_instance_joins_before_earlier_changes_are_visible:
        assert_clean(rules::join_after_take_over::<Postgres>(""));
    #[ignore = "long: without a planted fault"]
    a_slot_moved_past_a_change_is_a_loss:
        assert_loss(moved_slot(""));
    #[ignore = "long: without a planted fault"]
    a_table_that_was_not_published_is_a_loss:
        assert_loss(unpublished(""));
}

#[cfg(feature = "failpoints")]
mod disabled {
    use super::{confirm, moved_slot, unpublished};
    use crate::backend::postgres::Postgres;
    use crate::contract::hub_rules::{self as rules, assert_loss};
    use crate::contract::scenario::assert_broken;
    use hotrow_verify::rules::Rule;

    checks! {
        an_answer_from_an_earlier_look_is_found:
            assert_broken(|| rules::look::<Postgres>("hub:LookAfterNonce"), Rule::Fresh);
        a_watermark_before_its_changes_is_found:
            assert_broken(|| rules::changes::<Postgres>("hub:WatermarkInOrder"), Rule::Fresh);
        a_dropped_change_in_an_unbroken_chain_is_found:
            assert_broken(|| rules::changes::<Postgres>("hub:EveryChange"), Rule::Fresh);
        a_join_without_hidden_changes_is_found:
            assert_broken(|| rules::join::<Postgres>("hub:Hidden"), Rule::Fresh);
        an_end_that_was_lost_and_written_again_is_found:
            assert_broken(|| rules::rewound::<Postgres>("hub:Identity,hub:Successor"), Rule::Fresh);
        /// The next relay notices that the slot is past the chain's end: a loss where there need be
        /// none, and no stale row.
        a_slot_confirmed_before_the_acknowledgement_is_found:
            assert_loss(confirm("hub:ConfirmAfterAck"));
        /// The chain of the relay that leads is broken by another's message: a loss where there
        /// need be none.
        a_relay_that_was_paused_and_writes_blindly_is_found:
            assert_loss(rules::paused::<Postgres>("hub:CompareAndSet"));
        #[ignore = "long: one of many planted faults"]
        a_join_before_earlier_changes_are_visible_is_found:
            assert_broken(
                || rules::join_after_take_over::<Postgres>("hub:SettleFirst"),
                Rule::Fresh,
            );
        #[ignore = "long: one of many planted faults"]
        a_slot_that_was_moved_past_a_change_is_found:
            assert_broken(|| moved_slot("hub:ResumeWithin").outcome, Rule::Fresh);
        #[ignore = "long: one of many planted faults"]
        a_table_that_was_not_published_for_a_time_is_found:
            assert_broken(|| unpublished("hub:SameWatch").outcome, Rule::Fresh);
    }
}
