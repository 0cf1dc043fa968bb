use super::harness::*;
use crate::config::Tuning;
use hotrow_source::{FlushCause, LossCause, SourceError};

const T: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'x'); \
                 CREATE TABLE other(id INTEGER PRIMARY KEY);";

/// Asserts that the engine flushed `t` because of its schema, without losses or other flushes.
#[track_caller]
fn flushed(deliveries: &Deliveries) {
    assert!(
        !deliveries.flushes.is_empty()
            && deliveries.flushes.iter().all(|f| *f == (0, FlushCause::Schema)),
        "{deliveries:?}"
    );
    assert!(deliveries.losses.is_empty(), "{deliveries:?}");
}

fn broken(engine: &Engine, why: &str) {
    let error = engine.read(0, &["1"]).unwrap_err();
    assert!(matches!(&error, SourceError::Broken { detail } if detail.contains(why)), "{error:?}");
}

#[test]
fn columns_come_and_go() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)", "other(id)"]);
    assert_eq!(engine.row(0, "1").unwrap(), r#"{"id":1,"a":"x"}"#);
    flushed(&engine.during(|| db.run("ALTER TABLE t ADD COLUMN b INT DEFAULT 5")));
    assert_eq!(engine.row(0, "1").unwrap(), r#"{"id":1,"a":"x","b":5}"#);
    flushed(&engine.during(|| db.run("ALTER TABLE t RENAME COLUMN a TO name")));
    assert_eq!(engine.row(0, "1").unwrap(), r#"{"id":1,"name":"x","b":5}"#);
    flushed(&engine.during(|| db.run("ALTER TABLE t DROP COLUMN name")));
    assert_eq!(engine.row(0, "1").unwrap(), r#"{"id":1,"b":5}"#);
    engine.during(|| db.run("UPDATE t SET b = 6")).only(&["0:1"]);
    // Changes that concern no collection flush none.
    engine.during(|| db.run("CREATE TABLE third(x); CREATE INDEX tb ON t(b)")).only(&[]);
}

#[test]
fn a_missing_column_or_key_breaks_the_collection_until_it_is_back() {
    let db = Db::new(T);
    let mut config = db.config(vec![spec("t(id)"), spec("other(id)")]);
    config.collections[0].columns = Some(vec!["a".into()]);
    let engine = Engine::start(config, Tuning::default());
    for (away, back, why) in [
        (
            "ALTER TABLE t RENAME COLUMN a TO z",
            "ALTER TABLE t RENAME COLUMN z TO a",
            "no column `a`",
        ),
        (
            "ALTER TABLE t RENAME COLUMN id TO z",
            "ALTER TABLE t RENAME COLUMN z TO id",
            "no column `id`",
        ),
        ("ALTER TABLE t RENAME TO z", "ALTER TABLE z RENAME TO t", "no table `t`"),
        ("DROP TABLE t", T.split_inclusive(';').take(2).collect::<String>().leak(), "no table `t`"),
        ("CREATE UNIQUE INDEX e ON t(abs(id))", "DROP INDEX e", "expression"),
    ] {
        flushed(&engine.during(|| db.run(away)));
        broken(&engine, why);
        assert!(engine.read(1, &["1"]).is_ok(), "the other collection is not affected");
        flushed(&engine.during(|| db.run(back)));
        assert_eq!(engine.row(0, "1").unwrap(), r#"{"a":"x"}"#, "{back}");
        engine.during(|| db.run("UPDATE t SET a = 'x'")).only(&["0:1"]);
    }
}

#[test]
fn a_key_of_another_type_breaks_the_collection() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    flushed(&engine.during(|| db.run("DROP TABLE t; CREATE TABLE t(id TEXT PRIMARY KEY)")));
    broken(&engine, "changed its type");
}

#[test]
fn a_recreated_table_is_watched_again() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    // The procedure of SQLite's documentation for changes that ALTER TABLE cannot make.
    let deliveries = engine.during(|| {
        db.run(
            "BEGIN; CREATE TABLE new_t(id INTEGER PRIMARY KEY, a TEXT, c); \
             INSERT INTO new_t SELECT id, a, 7 FROM t;
             DROP TABLE t; ALTER TABLE new_t RENAME TO t; COMMIT; UPDATE t SET c = 8",
        );
    });
    flushed(&deliveries);
    assert_eq!(engine.row(0, "1").unwrap(), r#"{"id":1,"a":"x","c":8}"#);
    engine.during(|| db.run("UPDATE t SET c = 9")).only(&["0:1"]);
}

#[test]
fn dropped_triggers_are_restored_and_every_instance_flushes() {
    let db = Db::new(T);
    let one = db.start(&["t(id)"]);
    let two = db.start(&["t(id)"]);
    let before = one.settle().unwrap();
    let from = two.sink.len();
    let deliveries = one.during(|| {
        db.run(
            "BEGIN; DROP TRIGGER \"_hotrow_update_\"\"t\"\"(\"\"id\"\")\"; \
             UPDATE t SET a = 'unseen'; COMMIT",
        );
    });
    flushed(&deliveries);
    let after = one.settle().unwrap();
    assert!(after.at > before.at && after.incarnation == before.incarnation);
    // Either instance may have restored the trigger; the other cannot know what it missed and must
    // flush too.
    two.sink.wait("a flush at the other instance", |events| {
        events[from..]
            .iter()
            .any(|e| matches!(e, Event::Flush(_, FlushCause::Schema)))
            .then_some(())
    });
    one.during(|| db.run("UPDATE t SET a = 'seen'")).only(&["0:1"]);
    two.during(|| db.run("UPDATE t SET a = 'seen'")).only(&["0:1"]);
}

#[test]
fn a_new_unique_index_is_watched_too() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    flushed(&engine.during(|| db.run("CREATE UNIQUE INDEX ta ON t(a)")));
    engine.during(|| db.run("REPLACE INTO t VALUES (2, 'x')")).only(&["0:1", "0:2"]);
}

#[test]
fn triggers_with_other_text_are_replaced() {
    let db = Db::new(T);
    drop(db.start(&["t(id)"]));
    let name = "\"_hotrow_insert_\"\"t\"\"(\"\"id\"\")\"";
    db.run(&format!(
        "DROP TRIGGER {name}; CREATE TRIGGER {name} AFTER INSERT ON t BEGIN SELECT 1; END"
    ));
    let engine = db.start(&["t(id)"]);
    engine.during(|| db.run("INSERT INTO t VALUES (9, 'y')")).only(&["0:9"]);
}

#[test]
fn a_start_without_need_writes_nothing() {
    let db = Db::new(T);
    drop(db.start(&["t(id)"]));
    let before: i64 = db.one("PRAGMA data_version");
    let engine = db.start(&["T(ID)"]);
    engine.settle();
    assert_eq!(db.one::<i64>("PRAGMA data_version"), before);
}

#[test]
fn a_dropped_log_is_created_again() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    let before = engine.settle().unwrap();
    for table in ["_hotrow_log", "_hotrow_meta"] {
        let from = engine.sink.len();
        db.run(&format!("DROP TABLE {table}"));
        let after = engine.sink.wait("a new start", |events| {
            let lost =
                events[from..].iter().position(|e| *e == Event::Loss(LossCause::NotWatched))?;
            events[from + lost..]
                .iter()
                .find_map(|e| if let Event::Started(p) = e { *p } else { None })
        });
        assert_ne!(after.incarnation, before.incarnation);
        // Without a statement of its own the writer would use its cached schema, inside triggers
        // too.
        assert_eq!(
            db.one::<i64>(&format!("SELECT count(*) FROM sqlite_schema WHERE name = '{table}'")),
            1
        );
        engine.during(|| db.run("UPDATE t SET a = 'y'")).only(&["0:1"]);
        assert_eq!(engine.row(0, "1").unwrap(), r#"{"id":1,"a":"y"}"#);
    }
}
