//! Locks that another connection holds on the database for a while.

use std::time::Duration;

use super::{is_fresh, is_refused, plan, under_load};
use crate::contract::reader::ReadProfile;
use crate::contract::run::Plan;
use hotrow_verify::observation::Claim;

#[test]
fn an_open_write_transaction_disturbs_no_reader() {
    let (run, instance) = under_load(plan(), ReadProfile::default(), |config| config);
    let lock_holder = run.database.another();
    lock_holder.execute_batch("BEGIN EXCLUSIVE").expect("the lock");
    run.pass(run.plan.max_staleness * 2);
    run.await_more_reads(2000);
    run.await_readyz(instance, 200);
    lock_holder.execute_batch("ROLLBACK").expect("let go");
    drop(lock_holder);
    run.await_more_reads(2000);
    let run = run.finish(None, true);
    // A machine that stalls for a second may shed load; no other refusal is expected.
    let refused = run.observations.iter().filter(|seen| is_refused(seen)).count();
    assert!(refused * 100 <= run.observations.len(), "{refused} reads were refused");
    assert_eq!(run.losses(instance, None), 0.0);
}

/// Outside WAL mode an exclusive lock excludes readers. Each lock is held for longer than the
/// bound, and between two of them the writers commit.
#[test]
fn repeated_exclusive_locks_keep_the_contract() {
    let plan = Plan { logged: false, ..plan() };
    let configure =
        |config: hotrow_testkit::harness::Config| config.set("source.read_timeout", "\"300ms\"");
    let (run, _) = under_load(plan, ReadProfile::without_positions(), configure);
    for _ in 0..5 {
        let lock_holder = run.database.another();
        lock_holder.execute_batch("BEGIN EXCLUSIVE").expect("the lock");
        run.pass(run.plan.max_staleness * 2);
        lock_holder.execute_batch("ROLLBACK").expect("let go");
        drop(lock_holder);
        run.await_more_reads(1000);
    }
    run.finish(None, false);
}

#[test]
fn reads_are_refused_once_a_lock_outlasts_the_bound_after_a_commit() {
    let plan = Plan { logged: false, ..plan() };
    let configure =
        |config: hotrow_testkit::harness::Config| config.set("source.read_timeout", "\"300ms\"");
    let (mut run, instance) = under_load(plan, ReadProfile::without_positions(), configure);
    let mut probe = run.reader(ReadProfile::plain());
    run.board.pause_writers(run.writer_count());
    run.change_reserved();
    run.read_until(&mut probe, instance, "fresh answers", is_fresh);
    let lock_holder = run.database.another();
    let sql = "PRAGMA locking_mode = EXCLUSIVE; CREATE TABLE other(id INTEGER PRIMARY KEY)";
    lock_holder.execute_batch(sql).expect("the commit and its lock");
    run.await_readyz(instance, 503);
    run.read_until(&mut probe, instance, "a refusal", is_refused);
    // The bound has passed: no cached entry may be served.
    run.pass(run.plan.max_staleness + Duration::from_millis(100));
    for key in run.reserved_keys() {
        let answer = probe.get(instance, key);
        assert!(is_refused(answer), "{answer:?}");
    }
    drop(lock_holder);
    run.await_readyz(instance, 200);
    run.read_until(&mut probe, instance, "fresh answers", is_fresh);
    run.board.resume_writers();
    run.await_more_reads(2000);
    let run = run.finish(Some(probe), false);
    assert!(
        run.observations.iter().any(|o| matches!(o.seen, Claim::Refused(504))),
        "a lock is a time-out"
    );
}
