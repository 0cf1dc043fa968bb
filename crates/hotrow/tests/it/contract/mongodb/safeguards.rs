//! Safeguards of the contract, one scenario each. Every scenario keeps the contract; with its
//! safeguard disabled by a failpoint (feature `failpoints`), the checker finds a violation.

use super::scene::{BEYOND, BOUND, KEY, OTHER, Scenario, ScenarioOutcome, assert_clean};
use super::standin::Trouble;
use crate::contract::reader::ReadProfile;
use hotrow_testkit::harness::{SOON, await_until};

/// Race A. A read is executed; the change is committed, delivered and visible to new reads; then
/// the read's answer arrives. It must not be cached: its lease is dead, and the fence shows that it
/// predates the change.
fn lease(environment: &[(&str, &str)]) -> ScenarioOutcome {
    let mut scenario = Scenario::start(environment);
    scenario.change_and_deliver(KEY);
    let mut slow = scenario.run.reader(ReadProfile::plain());
    let sent_ns = scenario.begin_held_read(&mut slow, KEY);
    scenario.change_and_deliver(KEY);
    // After some probes only this read still requires that the change is remembered.
    scenario.run.pass(BOUND * 3);
    scenario.end_held_read(&mut slow, KEY, sent_ns);
    scenario.end(KEY, vec![slow])
}

/// Staleness. The stream arrives late but steadily, so its log end is outdated. The key's change is
/// in transit when the key is read past the bound.
fn probe(environment: &[(&str, &str)]) -> ScenarioOutcome {
    let mut scenario = Scenario::start(environment);
    let late = BOUND * 6;
    scenario.standin().trouble("getMore", Trouble::Delay(late));
    // From here on the stream is late by this much, and there is always an event in transit.
    let due = scenario.run.board.now() + (late + BOUND).as_nanos() as u64;
    await_until("the delay to apply to all events", SOON, || {
        scenario.run.change(OTHER);
        scenario.run.board.now() > due
    });
    scenario.run.change(KEY);
    let due = scenario.run.board.now() + (BOUND + BEYOND).as_nanos() as u64;
    await_until("the bound to pass", SOON, || {
        scenario.run.change(OTHER);
        scenario.run.board.now() > due
    });
    // The stream responds once per delay. If its response is taken for fresh, then just after it
    // arrives. Until then the key is not read, because a read would load the new document.
    let due = scenario.run.board.now() + (late + BOUND).as_nanos() as u64;
    await_until("the stream to respond", SOON, || {
        let metrics = scenario.run.server(scenario.instance).metrics();
        scenario.run.board.now() > due || metrics.sum("hotrow_feed_current", &[]) > 0.0
    });
    for _ in 0..20 {
        scenario.get(KEY);
    }
    scenario.standin().calm("getMore");
    scenario.judge(Vec::new())
}

/// Loss. The stream is cut, the key changes, and the oplog drops the change, so no stream will
/// deliver it.
fn epoch(environment: &[(&str, &str)]) -> ScenarioOutcome {
    let mut scenario = Scenario::start(environment);
    scenario.take_stream();
    scenario.run.await_readyz(scenario.instance, 503);
    scenario.run.change(KEY);
    scenario.standin().prune_oplog();
    scenario.give_stream();
    scenario.run.await_readyz(scenario.instance, 200);
    assert!(scenario.run.losses(scenario.instance, None) > 0.0, "that is a loss");
    scenario.end(KEY, Vec::new())
}

#[test]
fn a_document_read_before_its_change_is_not_cached_however_late_it_arrives() {
    assert_clean(lease(&[]));
}

#[test]
fn a_late_stream_does_not_count_as_fresh() {
    assert_clean(probe(&[]));
}

#[test]
fn a_document_changed_while_there_was_no_stream_is_not_served() {
    assert_clean(epoch(&[]));
}

#[cfg(feature = "failpoints")]
mod disabled {
    use super::super::scene::{assert_broken, assert_clean};
    use super::super::visibility::fence;
    use super::{epoch, lease, probe};
    use crate::contract::rules::Rule;

    fn without(safeguard: &'static str) -> [(&'static str, &'static str); 1] {
        [("HOTROW_FAILPOINTS", safeguard)]
    }

    #[test]
    fn without_leases_and_the_fence_the_old_document_stays() {
        assert_broken(|| lease(&without("lease,fence")), Rule::Fresh);
    }

    #[test]
    fn leases_or_the_fence_alone_keep_the_old_document_out() {
        assert_clean(lease(&without("lease")));
        assert_clean(lease(&without("fence")));
    }

    #[test]
    fn without_the_fence_a_document_read_before_its_change_was_visible_stays() {
        assert_broken(|| fence(&without("fence")), Rule::Fresh);
    }

    #[test]
    fn with_the_time_of_receipt_a_late_stream_counts_as_fresh() {
        assert_broken(|| probe(&without("probe")), Rule::Fresh);
    }

    #[test]
    fn without_an_epoch_a_change_in_a_gap_stays_unknown() {
        assert_broken(|| epoch(&without("epoch")), Rule::Fresh);
    }
}
