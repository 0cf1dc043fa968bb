//! The fixes that the contract rests on, one scene each. Every scene is clean as it is; with its fix taken out by the
//! test-only switch (feature `sabotage`), the checker finds what it should.

use super::proxy::{BOTH, Class, FEED, Way};
use super::scene::{BEYOND, BOUND, Ended, KEY, OTHER, Scene, assert_clean, first};
use crate::harness::{SOON, await_until};
use crate::observation::Outcome;
use crate::reader::Taste;

/// Race A. A read has its snapshot; the change is committed and delivered, and everybody who begins now sees it; only then
/// does the read's answer arrive. It must not be kept: its lease is dead, and the fence knows that it did not see the change.
fn lease(environment: &[(&str, &str)]) -> Ended {
    let mut scene = Scene::start(environment);
    scene.change_and_deliver(KEY);
    let mut slow = scene.run.reader(Taste::plain());
    let sent_ns = scene.begin_held_read(&mut slow, KEY);
    scene.change_and_deliver(KEY);
    // Probes pass: but for this read, nobody has a reason any more to remember the change.
    scene.run.pass(BOUND * 3);
    scene.end_held_read(&mut slow, KEY, sent_ns);
    scene.end(KEY, vec![slow])
}

/// Staleness. The stream arrives late but steadily: what it says of the log's end was true long ago. The key's change is
/// on its way when the key is read past the bound.
fn probe(environment: &[(&str, &str)]) -> Ended {
    let mut scene = Scene::start(environment);
    let late = BOUND * 6;
    scene.run.database.proxy.delay(&[Class::Replication], &[Way::ToService], late);
    // From now on what arrives is late by so much, and there is always something that arrives.
    let due = scene.run.board.now() + (late + BOUND).as_nanos() as u64;
    await_until("the delay to be all along the way", SOON, || {
        scene.run.change(OTHER);
        scene.run.board.now() > due
    });
    scene.run.change(KEY);
    let due = scene.run.board.now() + (BOUND + BEYOND).as_nanos() as u64;
    await_until("the bound to pass", SOON, || {
        scene.run.change(OTHER);
        scene.run.board.now() > due
    });
    for _ in 0..20 {
        scene.get(KEY);
    }
    scene.run.database.proxy.calm();
    scene.judge(Vec::new())
}

/// Loss. The feed's connections are cut, the key changes while there is no feed, and a new feed begins after it: no feed
/// will ever tell of that change.
fn epoch(environment: &[(&str, &str)]) -> Ended {
    let mut scene = Scene::start(environment);
    let proxy = &scene.run.database.proxy;
    proxy.refuse(&FEED, true);
    proxy.cut(&FEED);
    scene.run.await_readyz(scene.instance, 503);
    scene.run.change(KEY);
    scene.run.database.proxy.calm();
    scene.run.await_readyz(scene.instance, 200);
    scene.end(KEY, Vec::new())
}

#[test]
fn a_row_read_before_its_change_is_not_kept_however_late_it_arrives() {
    assert_clean(lease(&[]));
}

#[test]
fn a_late_stream_does_not_count_as_fresh() {
    assert_clean(probe(&[]));
}

#[test]
fn what_changed_while_there_was_no_feed_is_not_served() {
    assert_clean(epoch(&[]));
}

#[cfg(feature = "sabotage")]
mod taken_out {
    use super::super::scene::{assert_broken, assert_clean};
    use super::super::visibility::fence;
    use super::{epoch, lease, probe};
    use crate::rules::Rule;

    fn without(fix: &'static str) -> [(&'static str, &'static str); 1] {
        [("HOTROW_SABOTAGE", fix)]
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
    fn without_an_epoch_what_changed_meanwhile_stays_unknown() {
        assert_broken(|| epoch(&without("epoch")), Rule::Fresh);
    }
}

/// Readers that are stalled for longer than a query may take: requests that need the database get 504, hits go on.
#[test]
fn stalled_readers_do_not_harm_hits() {
    let mut run = super::scene::stage(&[]);
    // Far more than a busy machine is late.
    let config =
        super::scene::config(&run).set("source.read_timeout", "\"500ms\"").set("cache.max_staleness", "\"3s\"");
    let instance = run.serve(&config, &[]);
    run.start_writers();
    let mut reader = run.reader(Taste::plain());
    assert_eq!(reader.get(instance, KEY).seen, first(KEY));
    run.database.proxy.hold(&[Class::Readers], &BOTH);
    assert_eq!(reader.get(instance, KEY).outcome, Outcome::Hit);
    let refused = reader.get(instance, OTHER).seen.clone();
    assert_eq!(refused, crate::observation::Seen::Refused(504), "the read's time is over");
    run.pass(std::time::Duration::from_millis(3500));
    assert_eq!(reader.get(instance, KEY).outcome, Outcome::Hit, "the feed goes on, so entries stay good");
    run.database.proxy.release(&[Class::Readers], &BOTH);
    await_until("reads to work again", SOON, || reader.get(instance, OTHER).seen == first(OTHER));
    run.finish(Some(reader), true);
}
