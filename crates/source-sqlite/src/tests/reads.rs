use super::harness::*;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::config::Tuning;
use crate::config::{Config, KeyTypeName, Watch};
use crate::inspect::inspect;
use crate::json::BODY_BYTES_MAX;
use crate::plan::{SIZES, Statements};
use crate::{Hooks, OpenError};
use hotrow_source::{Row, Source, SourceError};
use hotrow_supervisor::Supervisor;
use hotrow_types::key::CollectionId;
use hotrow_types::version::{Position, Version};
use proptest::prelude::*;

#[test]
fn every_kind_of_key_is_found_by_its_index() {
    let db = Db::new(
        "CREATE TABLE i(k INTEGER PRIMARY KEY, v); CREATE TABLE n(k TEXT UNIQUE, v);
         CREATE TABLE c(k TEXT COLLATE NOCASE PRIMARY KEY, v); CREATE TABLE r(k TEXT, v); \
         CREATE UNIQUE INDEX rk ON r(k COLLATE RTRIM);
         CREATE TABLE b(k BLOB PRIMARY KEY, v) WITHOUT ROWID; \
         CREATE TABLE d(k DECIMAL PRIMARY KEY, v);
         CREATE TABLE m(a INT, k TEXT COLLATE NOCASE, x BLOB, v, PRIMARY KEY (k, x, a)) \
         WITHOUT ROWID;",
    );
    for t in ["i", "n", "c", "r", "b", "d"] {
        db.run(&format!(
            "WITH RECURSIVE s(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM s \
             WHERE x < 500) INSERT INTO {t} SELECT x, x FROM s"
        ));
    }
    db.run("ANALYZE");
    let mut specs: Vec<_> = ["i(k)", "n(k)", "c(k)", "r(k)", "b(k)", "d(k)", "m(a, k, x)"]
        .iter()
        .map(|s| spec(s))
        .collect();
    specs[4].key_types = vec![KeyTypeName::Uuid];
    specs[5].key_types = vec![KeyTypeName::Integer];
    specs[6].key_types = vec![KeyTypeName::Integer, KeyTypeName::Text, KeyTypeName::Bytes];
    // Creates the log.
    let engine = Engine::start(db.config(specs.clone()), Tuning::default());
    for spec in &specs {
        let table = inspect(&db.writer, CollectionId(0), spec, Watch::Triggers).unwrap();
        let statements = Statements::new(&table, Watch::Triggers);
        for size in SIZES {
            let sql = format!("EXPLAIN QUERY PLAN {}", statements.sql(size));
            let mut plan = db.writer.prepare(&sql).unwrap();
            // Unbound parameters are NULL; the plan is the same.
            let lines: Vec<String> =
                plan.raw_query().mapped(|r| r.get(3)).map(Result::unwrap).collect();
            let searches = lines.iter().any(|l| l.starts_with("SEARCH t USING"));
            let scans = lines.iter().any(|l| l.starts_with("SCAN t") || l.contains("AUTOMATIC"));
            assert!(searches && !scans, "{} at {size}: {lines:#?}", spec.table);
            let parts = if spec.table == "m" { "k=? AND x=? AND a=?" } else { "=?)" };
            assert!(
                lines.iter().any(|l| l.contains(parts)),
                "{} at {size}: {lines:#?}",
                spec.table
            );
        }
    }
    assert_eq!(engine.source.schemas().len(), 7);
}

#[test]
fn rows_come_in_the_order_of_the_keys() {
    let db = Db::new(
        "CREATE TABLE t(a INT, b TEXT COLLATE NOCASE, v, PRIMARY KEY (a, b)) WITHOUT ROWID;",
    );
    db.run(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 4999) \
         INSERT INTO t SELECT i, 'K' || i, -i FROM n WHERE i % 3 <> 0",
    );
    let engine = db.start(&["t(a, b)"]);
    let before = engine.source.queries_total();
    let sizes = [1, 2, 4, 5, 64, 65, 1000, 4096, 4097, 5000];
    for size in sizes {
        // Backwards and with each key twice, to test order and repetition.
        let ids: Vec<i64> = (0..size).map(|i: i64| (4999 - i / 2 * 7).rem_euclid(5000)).collect();
        let keys: Vec<String> = ids.iter().map(|i| format!("{i},k{i}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let set = engine.read(0, &keys).unwrap();
        assert_eq!(set.rows.len(), ids.len());
        for (id, row) in ids.iter().zip(set.rows) {
            let expected = format!("{{\"a\":{id},\"b\":\"K{id}\",\"v\":{}}}", -id);
            match row {
                Row::Found(json) => assert_eq!(String::from_utf8_lossy(&json), expected),
                Row::Missing => assert_eq!(id % 3, 0),
                row => panic!("{row:?}"),
            }
        }
    }
    // One statement per query, two if one cannot name all keys.
    assert_eq!(engine.source.queries_total() - before, sizes.len() as u64 + 2);
    assert_eq!(engine.read(0, &[]).unwrap().rows, []);
}

#[test]
fn a_read_returns_the_end_of_the_log_with_and_without_rows() {
    let db = Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY)");
    let engine = db.start(&["t(id)"]);
    let empty = engine.read(0, &["1"]).unwrap();
    assert_eq!(empty.rows, [Row::Missing]);
    let at = |at| Position { at, ..empty.position.unwrap() };
    assert_eq!(empty.position, Some(at(0)));
    db.run("INSERT INTO t VALUES (1), (2); DELETE FROM t WHERE id = 2");
    for keys in [&["1"][..], &["2"], &["1", "2", "3"]] {
        let set = engine.read(0, keys).unwrap();
        assert_eq!((set.position, set.version), (Some(at(3)), Version::Log(at(3))));
    }
    assert_eq!(engine.settle(), Some(at(3)));
    db.run("BEGIN; INSERT INTO t VALUES (7)");
    assert_eq!(engine.read(0, &["7"]).unwrap().position, Some(at(3)));
    db.run("COMMIT");
    assert_eq!(engine.read(0, &["7"]).unwrap().position, Some(at(4)));
}

#[test]
fn columns_are_chosen_and_named_as_the_table_does() {
    let db = Db::new(
        "CREATE TABLE t(Id INTEGER PRIMARY KEY, \"a \"\"b\\\" TEXT, secret, \"näme\" , \
         g AS (Id * 2)); INSERT INTO t VALUES (1, 'x', 's', 'ü')",
    );
    let mut specs = vec![spec("T(ID)"), spec("t(id)"), spec("t(id)")];
    specs[1].exclude = vec!["SECRET".into()];
    specs[2].columns = Some(vec!["g".into(), "NäME".into(), "g".into()]);
    let engine = Engine::start(db.config(specs), Tuning::default());
    assert_eq!(
        engine.row(0, "1").unwrap(),
        r#"{"Id":1,"a \"b\\":"x","secret":"s","näme":"ü","g":2}"#
    );
    assert_eq!(engine.row(1, "1").unwrap(), r#"{"Id":1,"a \"b\\":"x","näme":"ü","g":2}"#);
    assert_eq!(engine.row(2, "1").unwrap(), r#"{"g":2,"näme":"ü"}"#);
}

#[test]
fn a_row_that_is_too_large_fails_alone() {
    let db = Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v)");
    let engine = db.start(&["t(id)"]);
    // `{"id":1,"v":""}` around it.
    let fits = BODY_BYTES_MAX - 15;
    db.run(&format!(
        "INSERT INTO t VALUES (1, hex(zeroblob({})) || 'x'), \
         (2, zeroblob({BODY_BYTES_MAX})), (3, 'small')",
        fits / 2
    ));
    db.run(&format!(
        "INSERT INTO t VALUES (4, (SELECT v || 'y' FROM t WHERE id = 1)), (5, zeroblob({}))",
        BODY_BYTES_MAX / 4 * 3
    ));
    let set = engine.read(0, &["1", "2", "3", "4", "5"]).unwrap();
    assert_eq!(
        matches!(&set.rows[0], Row::Found(json) if json.len() == BODY_BYTES_MAX),
        fits % 2 == 1,
        "{:?}",
        fits
    );
    assert!(
        matches!(&set.rows[1], Row::Unreadable(why) if why.contains("larger than 16777216 bytes"))
    );
    assert_eq!(set.rows[2], Row::Found(b"{\"id\":3,\"v\":\"small\"}".to_vec()));
    assert!(matches!(&set.rows[3], Row::Unreadable(_)));
    assert!(matches!(&set.rows[4], Row::Unreadable(_)));
}

#[test]
fn reads_of_a_locked_database_time_out_until_the_lock_is_released() {
    let db = Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1)");
    db.writer.pragma_update(None, "journal_mode", "DELETE").unwrap();
    let config = Config {
        watch: Watch::None,
        read_timeout: Duration::from_secs(1),
        ..db.config(vec![spec("t(id)")])
    };
    let engine = Engine::start(config, Tuning::default());
    engine.settle();
    db.run("BEGIN EXCLUSIVE");
    let began = std::time::Instant::now();
    let locked = engine.read(0, &["1"]).unwrap_err();
    assert!(
        matches!(&locked, SourceError::Timeout { detail } if detail.contains("locked")),
        "{locked:?}"
    );
    assert!(began.elapsed() >= Duration::from_secs(1) && began.elapsed() < DEADLINE);
    db.run("COMMIT");
    assert_eq!(engine.row(0, "1").unwrap(), "{\"id\":1}");
    // Nothing was missed, so there is no loss.
    assert!(engine.during(|| ()).losses.is_empty());
}

#[test]
fn a_query_over_its_time_limit_is_ended() {
    let db = Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY, a, b, c, d, e)");
    db.run(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) \
         INSERT INTO t SELECT i, 1, 2, 3, 4, 5 FROM n",
    );
    let config =
        Config { read_timeout: Duration::from_millis(1), ..db.config(vec![spec("t(id)")]) };
    let engine = Engine::start(config, Tuning::default());
    let keys: Vec<String> = (1..=20_000).map(|i| i.to_string()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let cut = engine.read(0, &keys).unwrap_err();
    assert!(matches!(cut, SourceError::Timeout { .. }), "{cut:?}");
}

#[test]
fn hooks_hold_a_read_on_either_side_of_the_database() {
    let db = Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1, 'old')");
    let (at_end, ended) = mpsc::sync_channel(0);
    let (go, may_go) = mpsc::sync_channel::<()>(0);
    let may_go = parking_lot::Mutex::new(may_go);
    let after_read: crate::Hook = Arc::new(move |_, keys| {
        at_end.send(keys.len()).unwrap();
        may_go.lock().recv().unwrap();
    });
    let engine = Engine::start_hooked(
        db.config(vec![spec("t(id)")]),
        Tuning::default(),
        Hooks { before_read: None, after_read: Some(after_read) },
    );
    let source = Arc::clone(&engine.source);
    let key = source.schemas()[0].parse_url("1").unwrap();
    let read = std::thread::spawn(move || block_on(source.read(CollectionId(0), vec![key])));
    assert_eq!(ended.recv().unwrap(), 1);
    // The old row is read, and the change is delivered before the answer: race A of
    // docs/consistency.md.
    engine.during(|| db.run("UPDATE t SET v = 'new'")).only(&["0:1"]);
    go.send(()).unwrap();
    let set = read.join().unwrap().unwrap();
    assert_eq!(set.rows, [Row::Found(b"{\"id\":1,\"v\":\"old\"}".to_vec())]);
    assert!(!set.version.dominates(&Version::Log(engine.settle().unwrap())));
}

#[test]
fn many_readers_read_while_one_writes() {
    let db = Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 0)");
    let engine = db.start(&["t(id)"]);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let source = Arc::clone(&engine.source);
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let key = source.schemas()[0].parse_url("1").unwrap();
                let mut reads = 0;
                let mut newest = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let set = block_on(source.read(CollectionId(0), vec![key.clone()])).unwrap();
                    let Row::Found(json) = &set.rows[0] else { panic!("{set:?}") };
                    let value: serde_json::Value = serde_json::from_slice(json).unwrap();
                    // Each write adds one to the value and one row to the log, so both must match.
                    let at = set.position.unwrap().at;
                    assert_eq!(value["v"].as_u64().unwrap(), at);
                    assert!(at >= newest);
                    newest = at;
                    reads += 1;
                }
                reads
            })
        })
        .collect();
    for _ in 0..1000 {
        db.run("UPDATE t SET v = v + 1");
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let reads: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    assert!(reads > 0);
    assert_eq!(engine.settle().unwrap().at, 1000);
}

#[derive(Clone, Debug)]
enum Value {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::Integer),
        any::<f64>()
            .prop_filter("SQLite stores NaN as NULL", |f| !f.is_nan())
            .prop_map(Value::Real),
        "(\\PC|[\\x00-\\x1f\"\\\\]){0,20}".prop_map(Value::Text),
        any::<Vec<u8>>().prop_map(Value::Blob),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn json_agrees_with_sqlite(
        rows in proptest::collection::vec(proptest::collection::vec(value(), 3), 1..60)
    ) {
        let db = Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY, a, b, c)");
        let engine = db.start(&["t(id)"]);
        for row in &rows {
            let bound: Vec<rusqlite::types::Value> = row.iter().map(|v| match v {
                Value::Null => rusqlite::types::Value::Null,
                Value::Integer(i) => (*i).into(),
                Value::Real(r) => (*r).into(),
                Value::Text(t) => t.clone().into(),
                Value::Blob(b) => b.clone().into(),
            }).collect();
            let insert = "INSERT INTO t(a, b, c) VALUES (?1, ?2, ?3)";
            db.writer.execute(insert, rusqlite::params_from_iter(bound)).unwrap();
        }
        let keys: Vec<String> = (1..=rows.len()).map(|i| i.to_string()).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let set = engine.read(0, &keys).unwrap();
        for (id, row) in keys.iter().zip(&set.rows) {
            let Row::Found(json) = row else { panic!("{row:?}") };
            let text = String::from_utf8(json.clone()).unwrap();
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            for column in ["a", "b", "c"] {
                let types =
                    format!("SELECT typeof({column}), hex({column}) FROM t WHERE id = {id}");
                let (ty, hex): (String, String) =
                    db.writer.query_row(&types, [], |r| Ok((r.get(0)?, r.get(1)?))).unwrap();
                // Compared as text: serde_json does not parse every number exactly.
                let after = text.split_once(&format!("\"{column}\":")).unwrap().1;
                let number = after.split([',', '}']).next().unwrap();
                let select = format!("SELECT {column} FROM t WHERE id = {id}");
                agrees(&db, &json[column], number, (&ty, &hex), &select);
            }
        }
    }
}

/// Compares with SQLite's own view: the type by `typeof`, texts and BLOBs by `hex`, numbers by `=`.
fn agrees(db: &Db, json: &serde_json::Value, number: &str, (ty, hex): (&str, &str), select: &str) {
    use base64::Engine as _;
    let upper = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02X}")).collect::<String>();
    let equal = |n: &str| db.one::<bool>(&format!("SELECT ({select}) = {n}"));
    match (ty, json) {
        ("null", serde_json::Value::Null) => {}
        ("integer", n) if n.is_i64() => assert!(equal(&format!("CAST('{n}' AS INTEGER)")), "{n}"),
        ("real", n) if n.is_f64() => {
            let real: f64 = db.one(select);
            assert_eq!(number.parse::<f64>().unwrap().to_bits(), real.to_bits());
        }
        ("real", n) => assert!(equal(if n == "Infinity" { "9e999" } else { "-9e999" }), "{n}"),
        ("text", serde_json::Value::String(s)) => assert_eq!(upper(s.as_bytes()), hex),
        ("blob", serde_json::Value::String(s)) => {
            assert_eq!(upper(&base64::engine::general_purpose::STANDARD.decode(s).unwrap()), hex);
        }
        _ => panic!("{ty} {json}"),
    }
}

#[test]
fn a_missing_table_fails_the_start() {
    let db = Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY)");
    let error = crate::open(
        db.config(vec![spec("t(id)"), spec("u(id)")]),
        Hooks::default(),
        &Supervisor::default(),
    )
    .unwrap_err();
    assert!(matches!(error, OpenError::NoTable { .. }));
}

#[test]
fn a_query_ends_at_its_memory_limit() {
    let db = Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v)");
    let engine = db.start(&["t(id)"]);
    db.run("INSERT INTO t VALUES (1, hex(zeroblob(500))), (2, hex(zeroblob(500))), (3, 'small')");
    engine.settle();
    let schema = &engine.source.schemas()[0];
    let keys: Vec<_> =
        ["1", "7", "2", "3"].iter().map(|id| schema.parse_url(id).unwrap()).collect();
    let budget = hotrow_admission::byte_budget::ByteBudget::new(1_500);
    let read = |keys: &[hotrow_types::key::Key], query_bytes| {
        let rows = hotrow_source::RowBudget::new(&budget, query_bytes, || true);
        let set = block_on(engine.source.read_within(CollectionId(0), keys.to_vec(), rows.clone()))
            .unwrap();
        let names = set.rows.iter().map(|row| match row {
            Row::Found(_) => "found",
            Row::Missing => "missing",
            Row::NotRead => "not read",
            Row::NoRoom => "no room",
            Row::Uncacheable(_) | Row::Unreadable(_) => "other",
        });
        assert!(set.position.is_some(), "the rows read are of one known snapshot");
        (names.collect::<Vec<_>>(), rows.bytes())
    };
    assert_eq!(read(&keys, 1_200).0, ["found", "missing", "not read", "not read"]);
    assert_eq!(read(&keys, 10).0, ["found", "missing", "not read", "not read"], "one row at least");
    let (rows, bytes) = read(&keys, 10_000);
    assert_eq!(rows, ["found", "missing", "no room", "no room"], "all queries together");
    assert!((1_000..1_500).contains(&bytes), "{bytes}");
    assert_eq!(budget.used_bytes(), 0);
    assert_eq!(read(&keys[3..], 10_000).0, ["found"], "the connection stays usable");
}

#[test]
fn the_tenant_stands_before_the_record_in_every_form() {
    let db = Db::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, name, org COLLATE NOCASE);
         INSERT INTO t VALUES (1, 'one', 'a\"b'), (2, 'two', NULL), (3, 'three', 7), \
         (4, 'four', 7.0), (5, 'five', x'00'), (6, 'six', '');",
    );
    let mut specs = [spec("t(id)"), spec("t(id)"), spec("t(id)")];
    for (i, spec) in specs.iter_mut().enumerate() {
        spec.name = format!("c{i}");
        spec.tenant = Some("ORG".into());
    }
    specs[1].columns = Some(vec!["name".into()]);
    specs[2].exclude = vec!["org".into(), "name".into()];
    let engine = Engine::start(db.config(specs.into()), Tuning::default());
    let rows = |collection, ids: &[&str]| -> Vec<String> {
        let set = engine.read(collection, ids).unwrap();
        let text = |row: Row| match row {
            Row::Found(json) => String::from_utf8(json).unwrap(),
            other => format!("{other:?}"),
        };
        set.rows.into_iter().map(text).collect()
    };
    assert_eq!(
        rows(0, &["1", "2", "9", "3"]),
        [
            r#""a\"b"{"id":1,"name":"one","org":"a\"b"}"#,
            r#"null{"id":2,"name":"two","org":null}"#,
            "Missing",
            r#"7{"id":3,"name":"three","org":7}"#,
        ]
    );
    assert_eq!(rows(1, &["4", "5"]), [r#"7.0{"name":"four"}"#, r#""AA=="{"name":"five"}"#]);
    assert_eq!(rows(2, &["6"]), [r#"""{"id":6}"#]);
}

#[test]
fn an_error_of_a_row_leaves_the_other_rows() {
    let db = Db::new(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 1), (2, -2), \
         (3, -9223372036854775808); CREATE VIEW v AS SELECT id, abs(v) AS distance FROM t; \
         CREATE TABLE damaged(id INTEGER PRIMARY KEY, v TEXT); \
         INSERT INTO damaged VALUES (1, hex(zeroblob(15000))), (2, 'sound'); \
         UPDATE damaged SET v = replace(v, '0', 'A') WHERE id = 1",
    );
    db.run("PRAGMA wal_checkpoint(TRUNCATE)");
    // The second overflow page of the value names a page that does not exist.
    let bytes = std::fs::read(&db.path).unwrap();
    let is_overflow = |page: &&[u8]| page[4..].iter().all(|byte| *byte == b'A');
    let page = bytes.chunks(4096).filter(is_overflow).nth(1).expect("an overflow page");
    let at = page.as_ptr() as usize - bytes.as_ptr() as usize;
    let file = std::fs::OpenOptions::new().write(true).open(&db.path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &0x0fff_ffff_u32.to_be_bytes(), at as u64)
        .unwrap();
    // Closing it would release the locks of this process's connections to the same file.
    std::mem::forget(file);
    let engine = db.start(&["v(id)", "damaged(id)"]);
    for (collection, bad, good, detail) in
        [(0, "3", "2", "integer overflow"), (1, "1", "2", "malformed")]
    {
        for ids in [&[bad][..], &[bad, good]] {
            let error = engine.read(collection, ids).unwrap_err();
            let is_of_data =
                matches!(&error, SourceError::Data { detail: why } if why.contains(detail));
            assert!(is_of_data, "{error}");
        }
        assert!(engine.row(collection, good).is_some());
    }
    // A statement that no longer fits is not a fault of its rows.
    db.run("DROP VIEW v");
    let gone = engine.read(0, &["2"]).unwrap_err();
    assert!(matches!(gone, SourceError::Broken { .. }), "{gone}");
}
