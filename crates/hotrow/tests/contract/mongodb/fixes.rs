//! The fixes that the contract rests on, one scene each. Every scene is clean as it is; with its fix taken out by the
//! test-only switch (feature `sabotage`), the checker finds what it should.

use super::scene::{BEYOND, BOUND, Ended, KEY, OTHER, Scene, assert_clean};
use super::standin::Trouble;
use crate::harness::{SOON, await_until};
use crate::reader::Taste;

/// Race A. A read is carried out; the change is committed and delivered, and everybody who begins now sees it; only then does
/// the read's answer arrive. It must not be kept: its lease is dead, and the fence knows that it did not see the change.
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
    scene.standin().trouble("getMore", Trouble::Delay(late));
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
    // The stream speaks only when it is asked, once per delay: what it says is taken for fresh, if ever, just after it has
    // spoken. Until then the key is not read, for that would bring the new document.
    let due = scene.run.board.now() + (late + BOUND).as_nanos() as u64;
    await_until("the stream to speak", SOON, || {
        let metrics = scene.run.server(scene.instance).metrics();
        scene.run.board.now() > due || metrics.sum("hotrow_feed_current", &[]) > 0.0
    });
    for _ in 0..20 {
        scene.get(KEY);
    }
    scene.standin().calm("getMore");
    scene.judge(Vec::new())
}

/// Loss. The stream is gone, the key changes meanwhile, and the oplog forgets it: no stream will ever tell of that change.
fn epoch(environment: &[(&str, &str)]) -> Ended {
    let mut scene = Scene::start(environment);
    scene.take_stream();
    scene.run.await_readyz(scene.instance, 503);
    scene.run.change(KEY);
    scene.standin().prune_oplog();
    scene.give_stream();
    scene.run.await_readyz(scene.instance, 200);
    assert!(scene.run.losses(scene.instance, None) > 0.0, "that is a loss");
    scene.end(KEY, Vec::new())
}

#[test]
fn a_document_read_before_its_change_is_not_kept_however_late_it_arrives() {
    assert_clean(lease(&[]));
}

#[test]
fn a_late_stream_does_not_count_as_fresh() {
    assert_clean(probe(&[]));
}

#[test]
fn what_changed_while_there_was_no_stream_is_not_served() {
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
    fn without_an_epoch_what_changed_meanwhile_stays_unknown() {
        assert_broken(|| epoch(&without("epoch")), Rule::Fresh);
    }
}
