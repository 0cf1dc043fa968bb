use super::harness::*;
use crate::config::Tuning;
use hotrow_source::LossCause;
use hotrow_types::version::Position;
use std::time::Duration;

const T: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT); INSERT INTO t VALUES (1, 0);";

fn writes(db: &Db, n: usize) {
    for _ in 0..n {
        db.run("UPDATE t SET a = a + 1");
    }
}

/// Runs `act` and waits until the feed has reported a loss with this cause and has started again.
#[track_caller]
fn lost(engine: &Engine, cause: &LossCause, act: impl FnOnce()) -> Position {
    engine.settle();
    let from = engine.sink.len();
    act();
    engine.sink.wait("loss and start", |events| {
        let rest = &events[from - 1..];
        let lost = rest.iter().position(|e| *e == Event::Loss(*cause))?;
        rest[lost..].iter().find_map(|e| if let Event::Started(p) = e { *p } else { None })
    })
}

#[test]
fn the_log_is_pruned_without_a_loss_for_instances_that_kept_up() {
    let db = Db::new(T);
    let tuning = Tuning {
        prune_every: Duration::from_millis(5),
        prune_after: Duration::ZERO,
        prune_rows: 3,
        ..Tuning::default()
    };
    let engine = Engine::start(db.config(vec![spec("t(id)")]), tuning);
    let from = engine.sink.len();
    writes(&db, 50);
    let until = std::time::Instant::now() + DEADLINE;
    while db.one::<i64>("SELECT count(*) FROM _hotrow_log") > 1 {
        assert!(std::time::Instant::now() < until);
        std::thread::yield_now();
    }
    assert_eq!(db.one::<i64>("SELECT pruned_to FROM _hotrow_meta"), 49);
    assert_eq!(engine.settle().unwrap().at, 50);
    assert_eq!(engine.read(0, &["1"]).unwrap().position, engine.settle());
    engine.during(|| writes(&db, 1)).only(&["0:1"]);
    engine.sink.wait("no loss", |events| {
        assert!(events[from..].iter().all(|e| !matches!(e, Event::Loss(_))));
        Some(())
    });
    // An instance that starts later starts at the end.
    let position = engine.settle();
    assert_eq!(db.start(&["t(id)"]).settle(), position);
}

#[test]
fn rows_pruned_by_another_instance_are_a_loss() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    let before = engine.settle().unwrap();
    let after = lost(&engine, &LossCause::LogPruned, || {
        let held = engine.sink.hold();
        writes(&db, 5);
        db.run(
            "BEGIN; UPDATE _hotrow_meta SET pruned_to = 3; \
             DELETE FROM _hotrow_log WHERE seq <= 3; COMMIT",
        );
        drop(held);
    });
    assert_eq!(after, Position { at: 5, ..before });
}

#[test]
fn the_log_stays_bounded_without_pruning() {
    let db = Db::new(T);
    let tuning = Tuning { log_rows_max: 20, log_bound_step: 5, ..Tuning::default() };
    drop(Engine::start(db.config(vec![spec("t(id)")]), tuning.clone()));
    writes(&db, 203);
    assert_eq!(db.one::<i64>("SELECT count(*) FROM _hotrow_log"), 23);
    assert_eq!(db.one::<i64>("SELECT pruned_to FROM _hotrow_meta"), 180);
    let engine = Engine::start(db.config(vec![spec("t(id)")]), tuning);
    assert_eq!(engine.settle().unwrap().at, 203);
    lost(&engine, &LossCause::LogPruned, || {
        let held = engine.sink.hold();
        writes(&db, 100);
        drop(held);
    });
    engine.during(|| writes(&db, 1)).only(&["0:1"]);
}

#[test]
fn a_log_emptied_by_another_program_is_a_loss() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    writes(&db, 7);
    let before = engine.settle().unwrap();
    let emptied = lost(&engine, &LossCause::OtherLog, || db.run("DELETE FROM _hotrow_log"));
    assert_eq!(emptied.at, 7);
    assert_ne!(emptied.incarnation, before.incarnation);
    engine.during(|| writes(&db, 3)).only(&["0:1"]);
    // The sequence starts again from one.
    let reset = lost(&engine, &LossCause::OtherLog, || {
        db.run("BEGIN; DELETE FROM _hotrow_log; DELETE FROM sqlite_sequence; COMMIT")
    });
    assert_ne!(reset.incarnation, emptied.incarnation);
    assert_eq!(reset.at, 0);
    writes(&db, 3);
    // The sequence starts again from one and passes the feed's position before the next poll, with
    // the same content.
    assert_eq!(engine.settle().unwrap().at, 3);
    lost(&engine, &LossCause::OtherLog, || {
        db.run("BEGIN; DELETE FROM _hotrow_log; DELETE FROM sqlite_sequence");
        writes(&db, 6);
        db.run("COMMIT");
    });
    // Rows missing from the middle are noticed too.
    engine.settle();
    lost(&engine, &LossCause::OtherLog, || {
        let held = engine.sink.hold();
        writes(&db, 5);
        db.run("DELETE FROM _hotrow_log WHERE seq = (SELECT max(seq) - 2 FROM _hotrow_log)");
        drop(held);
    });
}

#[test]
fn a_log_that_loses_rows_without_its_guard_is_a_loss_too() {
    const UNGUARDED: &str = "BEGIN; PRAGMA recursive_triggers = OFF; \
                             DROP TRIGGER _hotrow_guard_log; DELETE FROM _hotrow_log; \
                             DELETE FROM sqlite_sequence";
    for (rows, what) in
        [(0, "it went back"), (3, "it went back"), (9, "the last row read is another one")]
    {
        let db = Db::new(T);
        db.run("INSERT INTO t VALUES (2, 0)");
        let engine = db.start(&["t(id)"]);
        writes(&db, 2);
        db.run("UPDATE t SET a = 1 WHERE id = 1");
        let before = engine.settle().unwrap();
        let after = lost(&engine, &LossCause::OtherLog, || {
            db.run(UNGUARDED);
            (0..rows).for_each(|_| db.run("UPDATE t SET a = 1 WHERE id = 2"));
            db.run("COMMIT");
        });
        assert!(after.incarnation != before.incarnation || after.at >= before.at, "{what}");
        engine.during(|| db.run("UPDATE t SET a = 1 WHERE id = 2")).only(&["0:2"]);
    }
}

#[test]
fn clearing_all_sequences_does_no_harm() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    writes(&db, 3);
    let deliveries = engine.during(|| {
        db.run("DELETE FROM sqlite_sequence");
        writes(&db, 2);
    });
    deliveries.only(&["0:1"]);
    assert_eq!(engine.settle().unwrap().at, 5);
    assert_eq!(engine.read(0, &["1"]).unwrap().position, engine.settle());
}

#[test]
fn a_log_with_another_id_is_a_loss() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    let after =
        lost(&engine, &LossCause::OtherLog, || db.run("UPDATE _hotrow_meta SET log_id = 77"));
    assert_eq!(after.incarnation, 77);
}

#[test]
fn many_instances_may_start_at_once() {
    let db = Db::new(T);
    let configs: Vec<_> = (0..6).map(|_| db.config(vec![spec("t(id)")])).collect();
    let engines: Vec<Engine> = std::thread::scope(|scope| {
        let starting: Vec<_> = configs
            .into_iter()
            .map(|c| scope.spawn(|| Engine::start(c, Tuning::default())))
            .collect();
        starting.into_iter().map(|t| t.join().unwrap()).collect()
    });
    engines.iter().for_each(|e| _ = e.settle());
    let id = engines[0].settle().unwrap().incarnation;
    for engine in &engines {
        engine.during(|| writes(&db, 1)).only(&["0:1"]);
        assert_eq!(engine.settle().unwrap().incarnation, id);
    }
    assert_eq!(db.one::<i64>("SELECT count(*) FROM _hotrow_log"), 6);
}

#[test]
fn a_restart_continues_the_log_and_a_copy_gets_a_new_id() {
    let db = Db::new(T);
    let first = db.start(&["t(id)"]).settle().unwrap();
    writes(&db, 2);
    let again = db.start(&["t(id)"]).settle().unwrap();
    assert_eq!(again, Position { at: 2, ..first });
    let copy = db.dir.path().join("copy.db");
    db.run(&format!("VACUUM INTO '{}'", copy.display()));
    writer(&copy).pragma_update(None, "journal_mode", "WAL").unwrap();
    let config = crate::config::Config { path: copy, ..db.config(vec![spec("t(id)")]) };
    let other = Engine::start(config, Tuning::default()).settle().unwrap();
    assert_ne!(other.incarnation, first.incarnation);
}
