//! Somebody locks the database and does not let go for a while.

use std::time::Duration;

use super::{is_fresh, is_refused, plan, under_load};
use crate::observation::Seen;
use crate::reader::Taste;
use crate::run::Plan;

#[test]
fn a_writer_that_does_not_end_disturbs_no_reader() {
    let (run, instance) = under_load(plan(), Taste::default(), |config| config);
    let locker = run.database.another();
    locker.execute_batch("BEGIN EXCLUSIVE").expect("the lock");
    run.pass(run.plan.max_staleness * 2);
    run.await_more_reads(2000);
    run.await_readyz(instance, 200);
    locker.execute_batch("ROLLBACK").expect("let go");
    drop(locker);
    run.await_more_reads(2000);
    let run = run.finish(None, true);
    // A machine that stands still for a second may shed, and that is all.
    let refused = run.observations.iter().filter(|seen| is_refused(seen)).count();
    assert!(refused * 100 <= run.observations.len(), "{refused} reads were refused");
    assert_eq!(run.losses(instance, None), 0.0);
}

#[test]
fn an_exclusive_lock_makes_answers_refused_when_the_bound_is_over() {
    let plan = Plan { logged: false, ..plan() };
    let configure = |config: crate::harness::Config| config.set("source.read_timeout", "\"300ms\"");
    let (mut run, instance) = under_load(plan, Taste::without_positions(), configure);
    let mut probe = run.reader(Taste::plain());
    run.board.pause_writers(run.writer_count());
    run.change_own();
    run.read_until(&mut probe, instance, "fresh answers", is_fresh);
    let locker = run.database.another();
    locker.execute_batch("BEGIN EXCLUSIVE").expect("the lock");
    run.await_readyz(instance, 503);
    run.read_until(&mut probe, instance, "a refusal", is_refused);
    // The bound is over: nothing in the cache may be served any more.
    run.pass(run.plan.max_staleness + Duration::from_millis(100));
    for key in run.own_keys() {
        let answer = probe.get(instance, key);
        assert!(is_refused(answer), "{answer:?}");
    }
    locker.execute_batch("ROLLBACK").expect("let go");
    run.await_readyz(instance, 200);
    run.read_until(&mut probe, instance, "fresh answers", is_fresh);
    run.board.resume_writers();
    run.await_more_reads(2000);
    let run = run.finish(Some(probe), false);
    assert!(run.observations.iter().any(|o| matches!(o.seen, Seen::Refused(504))), "a lock is a time-out");
}
