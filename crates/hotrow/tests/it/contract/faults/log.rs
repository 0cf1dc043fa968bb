//! Changes by others to what Hotrow added to the database: its log and triggers.

use std::sync::atomic::Ordering;

use rustix::process::Signal;

use super::{is_fresh, plan, under_load};
use crate::contract::reader::ReadProfile;
use hotrow_testkit::harness::{SOON, await_until};

/// Larger than the sequence numbers of any run here.
const NEW_LOG: u64 = 1 << 32;

#[test]
fn an_emptied_log_is_a_loss() {
    let (mut run, instance) = under_load(plan(), ReadProfile::without_positions(), |config| config);
    for round in 0..10 {
        let intruder = run.database.another();
        // The deleted entries may not have been delivered yet.
        run.change_reserved();
        intruder.execute_batch("DELETE FROM _hotrow_log").expect("delete");
        run.await_more_reads(300 + round);
    }
    await_until("a loss", SOON, || run.losses(instance, None) >= 1.0);
    run.await_readyz(instance, 200);
    run.finish(None, true);
}

#[test]
fn a_log_whose_numbers_begin_anew_is_another_log() {
    let (mut run, instance) = under_load(plan(), ReadProfile::without_positions(), |config| config);
    let mut probe = run.reader(ReadProfile::plain());
    run.reserved_keys().for_each(|key| _ = probe.get(instance, key));
    run.board.pause_writers(run.writer_count());
    let intruder = run.database.another();
    let sql = "BEGIN IMMEDIATE; DELETE FROM _hotrow_log; \
        UPDATE sqlite_sequence SET seq = 0 WHERE name = '_hotrow_log'; COMMIT";
    intruder.execute_batch(sql).expect("begin anew");
    run.board.log_base.store(NEW_LOG, Ordering::Release);
    run.change_reserved();
    run.board.resume_writers();
    await_until("a loss", SOON, || run.losses(instance, Some("other_log")) >= 1.0);
    run.await_readyz(instance, 200);
    run.await_more_reads(2000);
    run.finish(Some(probe), true);
}

#[test]
fn dropped_triggers_are_restored_and_no_change_is_missed() {
    let (mut run, instance) = under_load(plan(), ReadProfile::without_positions(), |config| config);
    let mut probe = run.reader(ReadProfile::plain());
    let intruder = run.database.another();
    for _ in 0..5 {
        run.reserved_keys().for_each(|key| _ = probe.get(instance, key));
        let triggers = triggers(&intruder);
        assert!(triggers.len() >= 3, "{triggers:?}");
        let drops: Vec<String> = triggers
            .iter()
            .map(|name| format!("DROP TRIGGER \"{}\"", name.replace('"', "\"\"")))
            .collect();
        intruder
            .execute_batch(&format!("BEGIN IMMEDIATE; {}; COMMIT", drops.join("; ")))
            .expect("drop");
        // If the triggers are not back yet, the log does not contain these changes.
        run.change_reserved();
        await_until("the triggers to be back", SOON, || self::triggers(&intruder) == triggers);
        run.await_more_reads(500);
    }
    run.await_readyz(instance, 200);
    run.read_until(&mut probe, instance, "fresh answers", is_fresh);
    // Changes without triggers do not advance the log, so tokens are not judged.
    run.finish(Some(probe), false);
}

fn triggers(connection: &rusqlite::Connection) -> Vec<String> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'items' \
        ORDER BY name";
    let mut statement = connection.prepare(sql).expect("the schema");
    let names = statement.query_map([], |row| row.get(0)).expect("names");
    names.collect::<Result<_, _>>().expect("names")
}

#[test]
fn an_instance_sees_what_another_pruned_before_it_could_read_it() {
    let (mut run, instance) = under_load(plan(), ReadProfile::default(), |config| config);
    let config = run.config();
    let other = run.serve(&config, &[]);
    run.await_more_reads(2000);
    run.server(other).stop();
    run.change_reserved();
    let end = run.database.log_end();
    let mut client = run.server(instance).client();
    await_until("the first instance to have read that far", SOON, || {
        client.get("/items/1").header("hotrow-position").is_some()
            && position(&run, instance) >= end
    });
    // The same as an instance does a minute after it has delivered.
    let old = end - 1;
    let pruner = run.database.another();
    let sql = format!(
        "BEGIN IMMEDIATE; UPDATE _hotrow_meta SET pruned_to = {old}; \
         DELETE FROM _hotrow_log WHERE seq <= {old}; COMMIT"
    );
    pruner.execute_batch(&sql).expect("prune");
    run.server(other).signal(Signal::CONT);
    await_until("the gap to be found", SOON, || run.losses(other, Some("log_pruned")) >= 1.0);
    run.await_readyz(other, 200);
    run.await_more_reads(3000);
    assert_eq!(
        run.losses(instance, None),
        0.0,
        "an instance that has read the entries loses nothing"
    );
    run.finish(None, true);
}

/// Returns the position up to which the instance has read the log.
fn position(run: &crate::contract::run::Run, instance: crate::contract::board::Instance) -> u64 {
    let status = run.server(instance).status();
    let text = status["sources"]["default"]["feed"]["position"].as_str().expect("a position");
    hotrow_verify::observation::Position::parse(text).expect("a position").at
}
