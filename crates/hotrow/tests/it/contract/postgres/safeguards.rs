//! Safeguards of the contract, one scenario each. Every scenario keeps the contract; with its
//! safeguard disabled by a failpoint (feature `failpoints`), the checker finds a violation.

use super::proxy::{BOTH, Class, FEED, Way};
use super::scene::{BEYOND, BOUND, KEY, OTHER, Scenario, ScenarioOutcome, assert_clean, first};
use crate::contract::observation::Outcome;
use crate::contract::reader::ReadProfile;
use hotrow_testkit::harness::{SOON, await_until};

/// Race A. A read has its snapshot; the change is committed, delivered and visible to new reads;
/// then the read's answer arrives. It must not be cached: its lease is dead, and the fence shows
/// that it predates the change.
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
    scenario.run.database.proxy.delay(&[Class::Replication], &[Way::ToService], late);
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
    for _ in 0..20 {
        scenario.get(KEY);
    }
    scenario.run.database.proxy.calm();
    scenario.judge(Vec::new())
}

/// Loss. The feed's connections are cut, the key changes, and a new feed begins after the change,
/// so no feed will deliver it.
fn epoch(environment: &[(&str, &str)]) -> ScenarioOutcome {
    let mut scenario = Scenario::start(environment);
    let proxy = &scenario.run.database.proxy;
    proxy.refuse(&FEED, true);
    proxy.cut(&FEED);
    scenario.run.await_readyz(scenario.instance, 503);
    scenario.run.change(KEY);
    scenario.run.database.proxy.calm();
    scenario.run.await_readyz(scenario.instance, 200);
    scenario.end(KEY, Vec::new())
}

#[test]
fn a_row_read_before_its_change_is_not_cached_however_late_it_arrives() {
    assert_clean(lease(&[]));
}

#[test]
fn a_late_stream_does_not_count_as_fresh() {
    assert_clean(probe(&[]));
}

#[test]
fn a_row_changed_while_there_was_no_feed_is_not_served() {
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
    fn without_leases_and_the_fence_the_old_row_stays() {
        assert_broken(|| lease(&without("lease,fence")), Rule::Fresh);
    }

    #[test]
    fn leases_or_the_fence_alone_keep_the_old_row_out() {
        assert_clean(lease(&without("lease")));
        assert_clean(lease(&without("fence")));
    }

    #[test]
    fn without_the_fence_a_row_read_before_its_change_was_visible_stays() {
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

/// Reads stall for longer than a query may take: requests that need the database get 504; hits
/// continue.
#[test]
fn stalled_readers_do_not_harm_hits() {
    let mut run = super::scene::stage(&[]);
    // Far more than the delays of a busy machine.
    let config = super::scene::config(&run)
        .set("source.read_timeout", "\"500ms\"")
        .set("cache.max_staleness", "\"3s\"");
    let instance = run.serve(&config, &[]);
    run.start_writers();
    let mut reader = run.reader(ReadProfile::plain());
    assert_eq!(reader.get(instance, KEY).seen, first(KEY));
    run.database.proxy.hold(&[Class::Readers], &BOTH);
    assert_eq!(reader.get(instance, KEY).outcome, Outcome::Hit);
    let refused = reader.get(instance, OTHER).seen.clone();
    assert_eq!(refused, crate::contract::observation::Seen::Refused(504), "the read timed out");
    run.pass(std::time::Duration::from_millis(3500));
    assert_eq!(
        reader.get(instance, KEY).outcome,
        Outcome::Hit,
        "the feed continues, so entries stay valid"
    );
    run.database.proxy.release(&[Class::Readers], &BOTH);
    await_until("reads to work again", SOON, || reader.get(instance, OTHER).seen == first(OTHER));
    run.finish(Some(reader), true);
}
