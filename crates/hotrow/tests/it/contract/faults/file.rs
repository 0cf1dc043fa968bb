//! Faults of the database file: removal, replacement, damage.

use std::path::PathBuf;

use rusqlite::Connection;

use super::{is_fresh, is_refused, plan, shell, under_load};
use crate::contract::board::Instance;
use crate::contract::engine::Commit;
use crate::contract::reader::{ReadProfile, Reader};
use crate::contract::rows::{CREATE, payload};
use crate::contract::run::Run;
use crate::contract::writer::record;
use hotrow_testkit::harness::{Config, SOON, await_until};
use hotrow_verify::observation::{Claim, Observation, Outcome, Position};

/// Start of the log points of the other database, beyond those of the first.
const OTHER_LOG: u64 = 1 << 40;
/// Moves a database with all its files from $1 to $2. The database file leaves first and returns
/// last, because opening a database without its WAL creates a new WAL, which would be lost.
const MOVE_AWAY: &str =
    "for end in '' -wal -shm; do if [ -e \"$1$end\" ]; then mv \"$1$end\" \"$2$end\"; fi; done";
const MOVE_BACK: &str =
    "for end in -wal -shm ''; do if [ -e \"$1$end\" ]; then mv \"$1$end\" \"$2$end\"; fi; done";

#[test]
fn while_the_file_is_gone_reads_are_refused() {
    remove_and_put_back("bypass", is_refused);
}

#[test]
fn while_the_file_is_gone_the_policy_stale_serves_marked_answers() {
    remove_and_put_back("stale", |o| o.outcome == Outcome::Stale || is_refused(o));
}

#[test]
fn while_the_file_is_gone_the_policy_refuse_refuses() {
    remove_and_put_back("refuse", is_refused);
}

fn remove_and_put_back(policy: &str, permitted: impl Fn(&Observation) -> bool) {
    let configure = |config: Config| {
        config
            .set("cache.when_stale", &format!("\"{policy}\""))
            .set("admin.ready_when", "\"fresh\"")
    };
    let (mut run, instance) = under_load(plan(), ReadProfile::without_positions(), configure);
    let mut probe = run.reader(ReadProfile::plain());
    run.reserved_keys().for_each(|key| _ = probe.get(instance, key));
    run.board.pause_writers(run.writer_count());
    run.change_reserved();
    let file = run.database.path().to_owned();
    let away = run.database.folder().join("away.db");
    shell(MOVE_AWAY, &[&file, &away]);
    run.await_readyz(instance, 503);
    run.read_until(&mut probe, instance, "the policy to act", |o| permitted(o));
    // From here on every answer must match the policy.
    run.pass(run.plan.max_staleness);
    for key in run.reserved_keys().cycle().take(500) {
        let answer = probe.get(instance, key);
        assert!(permitted(answer), "{policy}: {answer:?}");
    }
    await_until("a gap in the feed", SOON, || run.losses(instance, None) >= 1.0);
    shell(MOVE_BACK, &[&away, &file]);
    run.await_readyz(instance, 200);
    run.read_until(&mut probe, instance, "fresh answers", is_fresh);
    run.board.resume_writers();
    run.await_more_reads(2000);
    run.finish(Some(probe), true);
}

#[test]
fn a_replacement_database_is_served_from_then_on() {
    let (mut run, instance) = under_load(plan(), ReadProfile::without_positions(), |config| config);
    let mut probe = run.reader(ReadProfile::plain());
    run.reserved_keys().for_each(|key| _ = probe.get(instance, key));
    let old_log = run.database.log_end();
    let old_token =
        Position { log: run.board.log.load(std::sync::atomic::Ordering::Relaxed), at: old_log };
    run.stop_writers();
    checkpoint(&run);
    let file = run.database.path().to_owned();
    let other = other_database(&run);
    let begun_ns = run.board.now();
    shell("rm -f \"$1-wal\" \"$1-shm\"; mv \"$2\" \"$1\"", &[&file, &other]);
    let returned_ns = run.board.now();
    let swap = Commit { begun_ns, returned_ns, from: OTHER_LOG, at: OTHER_LOG };
    for (key, history) in run.histories.iter_mut().enumerate() {
        record(history, &swap, is_in_other(key as u32));
    }
    await_until("a loss", SOON, || run.losses(instance, None) >= 1.0);
    run.await_readyz(instance, 200);
    run.read_until(&mut probe, instance, "fresh answers", is_fresh);
    run.await_more_reads(5000);
    let mut client = run.server(instance).client();
    let answer = client.get_with("/items/1", &[("Hotrow-Min-Position", &old_token.to_string())]);
    assert_eq!(answer.status, 400, "a token of the database that was there before: {answer:?}");
    run.finish(Some(probe), true);
}

/// Creates a database in which every row has the version after its last one, with another set of
/// rows.
fn other_database(run: &Run) -> PathBuf {
    let path = run.database.folder().join("other.db");
    let connection = Connection::open(&path).expect("create");
    connection.execute_batch("PRAGMA journal_mode = WAL").expect("WAL");
    connection.execute_batch(CREATE).expect("create");
    connection.execute_batch("BEGIN").expect("begin");
    for (key, history) in
        run.histories.iter().enumerate().filter(|(key, _)| is_in_other(*key as u32))
    {
        let key = key as u32;
        let version = history.next_version();
        let row = (key, version.cast_signed(), payload(key, version, run.plan.sizes));
        connection.execute("INSERT INTO items VALUES (?1, ?2, ?3)", row).expect("a row");
    }
    connection.execute_batch("COMMIT").expect("commit");
    drop(connection);
    path
}

fn is_in_other(key: u32) -> bool {
    !key.is_multiple_of(5)
}

#[test]
fn a_file_overwritten_with_garbage_causes_no_wrong_answer() {
    let script = "size=$(stat -c %s \"$1\"); tr '\\0' '\\377' </dev/zero | \
         dd iflag=fullblock of=\"$1\" bs=4096 count=$((size / 4096)) conv=notrunc 2>&1";
    damage_and_restore(script, true);
}

#[test]
fn a_file_cut_to_half_causes_no_wrong_answer() {
    damage_and_restore("truncate -s $(($(stat -c %s \"$1\") / 8192 * 4096)) \"$1\"", true);
}

#[test]
fn a_file_cut_to_nothing_causes_no_wrong_answer() {
    damage_and_restore("truncate -s 0 \"$1\"", true);
}

#[test]
fn garbage_within_the_file_causes_no_wrong_answer() {
    // The first page stays intact, so only reads of other pages find the damage.
    let script = "size=$(stat -c %s \"$1\"); tr '\\0' '\\377' </dev/zero | \
         dd iflag=fullblock of=\"$1\" bs=4096 seek=1 count=$((size / 4096 - 1)) conv=notrunc 2>&1";
    damage_and_restore(script, false);
}

/// Damages the file in place while writers are paused, then restores its bytes. `shows`: the feed
/// must find the damage.
fn damage_and_restore(script: &str, shows: bool) {
    // A small cache, so that most reads reach the file.
    let plan = crate::contract::run::Plan { keys: 4000, ..plan() };
    let (mut run, instance) = under_load(plan, ReadProfile::without_positions(), |config| config);
    run.board.pause_writers(run.writer_count());
    run.change_reserved();
    checkpoint(&run);
    let file = run.database.path().to_owned();
    let good = run.database.folder().join("good.db");
    shell("cp \"$1\" \"$2\"", &[&file, &good]);
    shell(script, &[&file]);
    let mut probe = run.reader(ReadProfile::plain());
    if shows {
        run.await_readyz(instance, 503);
        run.read_until(&mut probe, instance, "a refusal", is_refused);
        await_until("a loss", SOON, || run.losses(instance, None) >= 1.0);
    } else {
        await_refusal_of_some_key(&run, &mut probe, instance);
    }
    run.await_more_reads(2000);
    shell("cp \"$2\" \"$1\"", &[&file, &good]);
    run.await_readyz(instance, 200);
    run.read_until(&mut probe, instance, "fresh answers", is_fresh);
    run.board.resume_writers();
    run.await_more_reads(2000);
    let run = run.finish(Some(probe), true);
    let refused = run.observations.iter().filter(|o| is_refused(o)).count();
    let answered = run.observations.iter().filter(|o| matches!(o.seen, Claim::Version(_))).count();
    println!("refused {refused}, answered {answered}");
}

fn await_refusal_of_some_key(run: &Run, probe: &mut Reader, instance: Instance) {
    let mut keys = (0..run.plan.keys).cycle();
    await_until("a refusal", SOON, || {
        is_refused(probe.get(instance, keys.next().expect("endless")))
    });
}

/// Moves the write-ahead log's contents into the file.
fn checkpoint(run: &Run) {
    let connection = run.database.another();
    await_until("a checkpoint", SOON, || {
        let busy: i64 = connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
            .expect("checkpoint");
        busy == 0
    });
}
