use super::harness::*;
use crate::config::KeyTypeName;
use crate::config::Tuning;
use hotrow_source::FlushCause;
use hotrow_types::version::ChangeId;

const ITEMS: &str = "CREATE TABLE items(id INTEGER PRIMARY KEY, sku TEXT UNIQUE, n INT); \
                     INSERT INTO items VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3);";

#[test]
fn every_kind_of_write_names_its_rows() {
    let db = Db::new(ITEMS);
    let engine = db.start(&["items(id)"]);
    let deliveries_of = |sql: &str| engine.during(|| db.run(sql));
    deliveries_of("INSERT INTO items VALUES (4, 'd', 4)").only(&["0:4"]);
    deliveries_of("UPDATE items SET n = 9 WHERE id = 1").only(&["0:1"]);
    deliveries_of("UPDATE items SET id = 10 WHERE id = 2").only(&["0:2", "0:10"]);
    deliveries_of("DELETE FROM items WHERE id = 3").only(&["0:3"]);
    deliveries_of("INSERT INTO items VALUES (1, 'z', 0) ON CONFLICT (id) DO UPDATE SET n = 5")
        .only(&["0:1"]);
    deliveries_of("INSERT INTO items VALUES (1, 'z', 0) ON CONFLICT DO NOTHING").only(&[]);
    deliveries_of("REPLACE INTO items VALUES (1, 'a', 7)").only(&["0:1"]);
    deliveries_of("BEGIN; UPDATE items SET n = 0; ROLLBACK").only(&[]);
    deliveries_of(
        "BEGIN; UPDATE items SET n = 1 WHERE id = 1; SAVEPOINT s; \
         UPDATE items SET n = 1 WHERE id = 4; ROLLBACK TO s; COMMIT",
    )
    .only(&["0:1"]);
    deliveries_of("DELETE FROM items").only(&["0:1", "0:4", "0:10"]);
    deliveries_of("CREATE TABLE other(x); INSERT INTO other VALUES (1)").only(&[]);
}

#[test]
fn rows_evicted_by_a_replace_are_named() {
    let db = Db::new(ITEMS);
    assert!(!db.one::<bool>("PRAGMA recursive_triggers"));
    let engine = db.start(&["items(id)"]);
    let deliveries_of = |sql: &str| engine.during(|| db.run(sql));
    // Row 1 is evicted by its sku, row 2 by its id.
    deliveries_of("INSERT OR REPLACE INTO items VALUES (2, 'a', 0)").only(&["0:1", "0:2"]);
    assert_eq!(engine.row(0, "1"), None);
    deliveries_of("UPDATE OR REPLACE items SET sku = 'c' WHERE id = 2").only(&["0:2", "0:3"]);
    deliveries_of("INSERT INTO items VALUES (5, 'e', 0), (6, 'f', 0), (7, 'g', 0)")
        .only(&["0:5", "0:6", "0:7"]);
    deliveries_of("INSERT OR REPLACE INTO items SELECT id + 100, sku, n FROM items WHERE id >= 6")
        .only(&["0:6", "0:7", "0:106", "0:107"]);
    deliveries_of("UPDATE OR REPLACE items SET id = 106 WHERE id = 5").only(&["0:5", "0:106"]);
    deliveries_of("UPDATE items SET n = 3 WHERE id = 107").only(&["0:107"]);
}

#[test]
fn evictions_by_each_kind_of_unique_constraint_are_seen() {
    let db = Db::new(
        "CREATE TABLE a(code TEXT PRIMARY KEY COLLATE NOCASE, \
         alt TEXT NOT NULL DEFAULT 'none' COLLATE RTRIM UNIQUE, x INT);
         CREATE TABLE b(id INTEGER PRIMARY KEY, code TEXT UNIQUE, x INT);
         CREATE TABLE c(p INT, q INT, code TEXT UNIQUE, PRIMARY KEY (p, q)) WITHOUT ROWID;
         CREATE TABLE d(id INTEGER PRIMARY KEY, name TEXT, gone INT);
         CREATE UNIQUE INDEX d_live ON d(name COLLATE NOCASE) WHERE gone IS NULL;
         CREATE TABLE e(id INTEGER PRIMARY KEY, u INT UNIQUE ON CONFLICT REPLACE, \
         g AS (u * 2) UNIQUE ON CONFLICT REPLACE);
         INSERT INTO a VALUES ('A', 'none  ', 1), ('B', 'y', 2);
         INSERT INTO b VALUES (1, 'one', 1), (2, 'two', 2);
         INSERT INTO c VALUES (1, 1, 'one'), (1, 2, 'two');
         INSERT INTO d VALUES (1, 'Ann', NULL), (2, 'ann', 1);
         INSERT INTO e(id, u) VALUES (1, 1), (2, 2);",
    );
    let engine = db.start(&["a(code)", "b(code)", "c(code)", "d(id)", "e(id)"]);
    let deliveries_of = |sql: &str| engine.during(|| db.run(sql));
    // The key is folded; the rowid and the collation of the other index apply.
    deliveries_of("UPDATE a SET x = 5 WHERE code = 'a'").only(&["0:a"]);
    deliveries_of("INSERT OR REPLACE INTO a(code, alt) VALUES ('C', 'none')").only(&["0:a", "0:c"]);
    deliveries_of("INSERT OR REPLACE INTO a(rowid, code, alt) VALUES (2, 'D', 'z')")
        .only(&["0:b", "0:d"]);
    // NULL becomes the default, which evicts.
    deliveries_of("INSERT OR REPLACE INTO a(code, alt) VALUES ('E', NULL)").only(&["0:c", "0:e"]);
    // The key is another column than the INTEGER PRIMARY KEY.
    deliveries_of("INSERT OR REPLACE INTO b VALUES (1, 'uno', 1)").only(&["1:one", "1:uno"]);
    deliveries_of("UPDATE OR REPLACE b SET id = 1 WHERE id = 2").only(&["1:two", "1:uno"]);
    deliveries_of("INSERT INTO b(code) VALUES ('new')").only(&["1:new"]);
    // The key is another column than the PRIMARY KEY of a WITHOUT ROWID table.
    deliveries_of("INSERT OR REPLACE INTO c VALUES (1, 2, 'dos')").only(&["2:two", "2:dos"]);
    // A partial index, with another collation than the column.
    deliveries_of("INSERT OR REPLACE INTO d VALUES (3, 'ANN', NULL)").only(&["3:1", "3:3"]);
    // The conflict clause of the schema, and a generated column.
    deliveries_of("INSERT INTO e(id, u) VALUES (3, 1)").only(&["4:1", "4:3"]);
    for (i, table) in ["a", "b", "c", "d", "e"].iter().enumerate() {
        let code = if i < 3 { "code" } else { "id" };
        let there: i64 = db.one(&format!("SELECT count(*) FROM {table}"));
        let key: String = db.one(&format!("SELECT CAST({code} AS TEXT) FROM {table} LIMIT 1"));
        assert!(there > 0 && engine.row(i as u16, &key).is_some(), "{table} {key}");
    }
}

#[test]
fn a_statement_that_fails_half_way_leaves_the_log_whole() {
    let db = Db::new(ITEMS);
    let engine = db.start(&["items(id)"]);
    let deliveries_of = |sql: &str| engine.during(|| _ = db.writer.execute_batch(sql));
    deliveries_of(
        "INSERT OR FAIL INTO items VALUES (10, 'x', 0), (11, 'y', 0), (1, 'v', 0), (12, 'w', 0)",
    )
    .only(&["0:10", "0:11"]);
    // SQLite does not update the sequence in this case, but the rows exist.
    assert!(db.one::<bool>("SELECT coalesce((SELECT seq FROM sqlite_sequence), 0) < 2"));
    let position = engine.settle().unwrap();
    assert_eq!(
        i64::try_from(position.at).unwrap(),
        db.one::<i64>("SELECT max(seq) FROM _hotrow_log")
    );
    assert_eq!(engine.read(0, &["10"]).unwrap().position, Some(position));
    deliveries_of("INSERT OR IGNORE INTO items VALUES (20, 'x', 0), (21, 'n', 0)")
        .only(&["0:10", "0:21"]);
    deliveries_of("INSERT INTO items VALUES (30, 'p', 0), (30, 'q', 0)").only(&[]);
    deliveries_of("INSERT INTO items VALUES (31, 'q', 0)").only(&["0:31"]);
}

#[test]
fn foreign_key_actions_are_seen() {
    let db = Db::new(
        "CREATE TABLE parent(id INTEGER PRIMARY KEY);
         CREATE TABLE child(id INTEGER PRIMARY KEY, \
         p REFERENCES parent ON DELETE CASCADE ON UPDATE SET NULL);
         INSERT INTO parent VALUES (1), (2); INSERT INTO child VALUES (7, 1), (8, 2);",
    );
    let engine = db.start(&["child(id)"]);
    db.run("PRAGMA foreign_keys = ON");
    engine.during(|| db.run("DELETE FROM parent WHERE id = 1")).only(&["0:7"]);
    engine.during(|| db.run("UPDATE parent SET id = 3")).only(&["0:8"]);
}

#[test]
fn delivered_keys_equal_the_keys_of_ids() {
    let db = Db::new(
        "CREATE TABLE \"odd \"\"table\"(\"select\" BLOB PRIMARY KEY, v);
         CREATE TABLE plain(k PRIMARY KEY, v);
         CREATE TABLE pair(a INT, b TEXT COLLATE RTRIM, v, PRIMARY KEY (b, a)) WITHOUT ROWID;",
    );
    let mut config =
        db.config(vec![spec("odd \"table(select)"), spec("PLAIN(K)"), spec("pair(a, b)")]);
    config.collections[0].key_types = vec![KeyTypeName::Uuid];
    config.collections[1].key_types = vec![KeyTypeName::Integer];
    let engine = Engine::start(config, Tuning::default());
    let deliveries_of = |sql: &str| engine.during(|| db.run(sql));
    let uuid = "000102030405060708090a0b0c0d0e0f";
    deliveries_of(&format!("INSERT INTO \"odd \"\"table\" VALUES (x'{uuid}', 1)"))
        .only(&[&format!("0:{uuid}")]);
    assert_eq!(
        engine.row(0, uuid).unwrap(),
        "{\"select\":\"00010203-0405-0607-0809-0a0b0c0d0e0f\",\"v\":1}"
    );
    // Rows that no id can name are not served either.
    deliveries_of("INSERT INTO \"odd \"\"table\" VALUES (x'00', 1), ('text', 2), (NULL, 3)")
        .only(&[]);
    // SQLite compares 5.0 as equal to 5.
    deliveries_of("INSERT INTO plain VALUES (5.0, 1), (5.5, 2), ('5', 3)").only(&["1:5"]);
    assert_eq!(engine.row(1, "5").unwrap(), "{\"k\":5.0,\"v\":1}");
    deliveries_of("INSERT INTO pair VALUES (1, 'x  ', 1)").only(&["2:1,x"]);
    assert_eq!(engine.row(2, "1,x%20").unwrap(), "{\"a\":1,\"b\":\"x  \",\"v\":1}");
    deliveries_of("UPDATE pair SET b = 'x' WHERE a = 1").only(&["2:1,x"]);
    deliveries_of("UPDATE pair SET b = 'y' WHERE a = 1").only(&["2:1,x", "2:1,y"]);
}

#[test]
fn one_table_serves_two_collections() {
    let db = Db::new(ITEMS);
    let engine = db.start(&["items(id)", "Items(SKU)", "ITEMS(id)"]);
    let deliveries = engine.during(|| db.run("UPDATE items SET sku = 'q' WHERE id = 1"));
    deliveries.only(&["0:1", "1:a", "1:q", "2:1"]);
    assert_eq!(engine.row(1, "q"), engine.row(2, "1"));
}

#[test]
fn many_changes_become_a_flush() {
    let db = Db::new(
        "CREATE TABLE items(id INTEGER PRIMARY KEY); CREATE TABLE few(id INTEGER PRIMARY KEY);",
    );
    let tuning = Tuning { bulk_keys: 50, chunk_rows: 7, ..Tuning::default() };
    let engine = Engine::start(db.config(vec![spec("items(id)"), spec("few(id)")]), tuning);
    let fill = |n: i64| {
        db.run(&format!(
            "BEGIN; INSERT INTO few VALUES ({n}); \
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n})
             INSERT INTO items SELECT i + 1000 * {n} FROM n; INSERT INTO few VALUES (-{n}); COMMIT"
        ));
    };
    let deliveries = engine.during(|| fill(50));
    assert_eq!((deliveries.keys.len(), deliveries.flushes.len()), (52, 0));
    let deliveries = engine.during(|| fill(51));
    assert_eq!(deliveries.flushes, [(0, FlushCause::Bulk)]);
    assert!(
        deliveries.keys.contains("1:51") && deliveries.keys.contains("1:-51"),
        "{deliveries:?}"
    );
    assert_eq!(deliveries.last_mark, Some(ChangeId::Log(engine.settle().unwrap())));
}

#[test]
fn changes_of_the_sqlite3_program_are_seen() {
    let db = Db::new(ITEMS);
    let engine = db.start(&["items(id)"]);
    let deliveries = engine.during(|| {
        let path = db.path.to_str().unwrap();
        program(
            "sqlite3",
            &[path, "UPDATE items SET n = 77 WHERE id = 2; REPLACE INTO items VALUES (9, 'a', 0)"],
        );
    });
    deliveries.only(&["0:1", "0:2", "0:9"]);
    assert_eq!(engine.row(0, "2").unwrap(), "{\"id\":2,\"sku\":\"b\",\"n\":77}");
}

#[test]
fn without_triggers_every_commit_flushes_all_collections() {
    for mode in ["WAL", "DELETE"] {
        let db = Db::new(ITEMS);
        db.writer.pragma_update(None, "journal_mode", mode).unwrap();
        let mut config = db.config(vec![spec("items(id)"), spec("items(sku)")]);
        config.watch = crate::config::Watch::None;
        let engine = Engine::start(config, Tuning::default());
        let deliveries = engine.during(|| db.run("UPDATE items SET n = n + 1 WHERE id = 2"));
        assert_eq!(
            deliveries.flushes,
            [(0, FlushCause::Unlisted), (1, FlushCause::Unlisted)],
            "{mode}"
        );
        assert_eq!((deliveries.keys.len(), deliveries.losses.len()), (0, 0), "{mode}");
        let set = engine.read(0, &["2", "99"]).unwrap();
        assert_eq!((set.position, set.version), (None, hotrow_types::version::Version::Unknown));
        assert_eq!(engine.settle(), None);
        assert_eq!(
            db.one::<i64>("SELECT count(*) FROM sqlite_schema WHERE name LIKE '%hotrow%'"),
            0
        );
    }
}
