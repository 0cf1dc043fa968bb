//! Safeguards of the contract, one scenario each. Every scenario keeps the contract; with its
//! safeguard disabled by a failpoint (feature `failpoints`), the checker finds a violation.

use crate::contract::networked::Networked;
use crate::contract::reader::ReadProfile;
use crate::contract::scenario::{
    BEYOND, BOUND, KEY, OTHER, Scenario, ScenarioOutcome, assert_clean,
};
use hotrow_testkit::harness::{SOON, await_until};

/// Race A. A read has its snapshot; the change is committed, delivered and visible to new reads;
/// then the read's answer arrives. It must not be cached: its lease is dead, and the fence shows
/// that it predates the change.
fn lease<E: Networked>(environment: &[(&str, &str)]) -> ScenarioOutcome {
    let mut scenario = Scenario::<E>::start(environment);
    scenario.change_and_deliver(KEY);
    let mut slow = scenario.run.reader(ReadProfile::plain());
    let sent_ns = scenario.begin_held_read(&mut slow, KEY);
    scenario.change_and_deliver(KEY);
    // After some probes only this read still requires that the change is remembered.
    scenario.run.pass(BOUND * 3);
    scenario.end_held_read(&mut slow, KEY, sent_ns);
    scenario.end(vec![slow])
}

/// Staleness. The stream arrives late but steadily, so its log end is outdated. The key's change is
/// in transit when the key is read past the bound.
fn probe<E: Networked>(environment: &[(&str, &str)]) -> ScenarioOutcome {
    late_stream(Scenario::<E>::start(environment))
}

/// See [`probe`].
pub(crate) fn late_stream<E: Networked>(mut scenario: Scenario<E>) -> ScenarioOutcome {
    let late = BOUND * 6;
    scenario.run.database.delay_feed(late);
    // From here on the stream is late by this much, and there is always an event in transit.
    scenario.repeat_for(late + BOUND, |scenario| scenario.run.change(OTHER));
    scenario.run.change(KEY);
    scenario.repeat_for(BOUND + BEYOND, |scenario| scenario.run.change(OTHER));
    if E::LATE_FEED_ANSWERS_RARELY {
        // If its answer is taken for fresh, then just after it arrives. Until then the key is not
        // read, because a read would load the new row.
        let due = scenario.run.board.now() + (late + BOUND).as_nanos() as u64;
        await_until("the stream to answer", SOON, || {
            let metrics = scenario.run.server(scenario.instance).metrics();
            scenario.run.board.now() > due || metrics.sum("hotrow_feed_current", &[]) > 0.0
        });
    }
    for _ in 0..20 {
        scenario.get(KEY);
    }
    scenario.run.database.clear_faults();
    scenario.judge(Vec::new())
}

/// Loss. There is no feed while the key changes, and no later feed delivers the change.
fn epoch<E: Networked>(environment: &[(&str, &str)]) -> ScenarioOutcome {
    let mut scenario = Scenario::<E>::start(environment);
    scenario.run.database.refuse_feed();
    scenario.run.await_readyz(scenario.instance, 503);
    scenario.run.change(KEY);
    scenario.run.database.prune_log();
    scenario.run.database.clear_faults();
    scenario.run.await_readyz(scenario.instance, 200);
    assert!(scenario.run.losses(scenario.instance, None) > 0.0, "that is a loss");
    scenario.end(Vec::new())
}

pub(crate) fn a_row_read_before_its_change_is_not_cached_however_late_it_arrives<E: Networked>() {
    assert_clean(lease::<E>(&[]));
}

pub(crate) fn a_late_stream_does_not_count_as_fresh<E: Networked>() {
    assert_clean(probe::<E>(&[]));
}

pub(crate) fn a_row_changed_while_there_was_no_feed_is_not_served<E: Networked>() {
    assert_clean(epoch::<E>(&[]));
}

#[cfg(feature = "failpoints")]
pub(crate) mod disabled {
    use super::{epoch, lease, probe};
    use crate::contract::networked::Networked;
    use crate::contract::scenario::{assert_broken, assert_clean};
    use crate::contract::visibility::fence;
    use hotrow_verify::rules::Rule;

    fn without(safeguard: &'static str) -> [(&'static str, &'static str); 1] {
        [("HOTROW_FAILPOINTS", safeguard)]
    }

    pub(crate) fn without_leases_and_the_fence_the_old_row_stays<E: Networked>() {
        assert_broken(|| lease::<E>(&without("lease,fence")), Rule::Fresh);
    }

    pub(crate) fn leases_or_the_fence_alone_keep_the_old_row_out<E: Networked>() {
        assert_clean(lease::<E>(&without("lease")));
        assert_clean(lease::<E>(&without("fence")));
    }

    pub(crate) fn without_the_fence_a_row_read_before_its_change_was_visible_stays<E: Networked>() {
        assert_broken(|| fence::<E>(&without("fence")), Rule::Fresh);
    }

    pub(crate) fn with_the_time_of_receipt_a_late_stream_counts_as_fresh<E: Networked>() {
        assert_broken(|| probe::<E>(&without("probe")), Rule::Fresh);
    }

    pub(crate) fn without_an_epoch_a_change_in_a_gap_stays_unknown<E: Networked>() {
        assert_broken(|| epoch::<E>(&without("epoch")), Rule::Fresh);
    }
}
