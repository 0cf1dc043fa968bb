//! Views over one table: which are served, and how changes of the table reach them.

use hotrow_types::key::CollectionId;

use super::harness::*;
use crate::config::{Tuning, Watch};
use crate::inspect::{Refused, inspect};
use crate::plan::{SIZES, Statements};
use hotrow_source::{FlushCause, SourceError};

const T: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, price INT, \"a b\" TEXT); \
    WITH s(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM s WHERE x < 300) \
    INSERT INTO t SELECT x, 'n' || x, x * 100, NULL FROM s; \
    CREATE TABLE codes(code TEXT COLLATE NOCASE PRIMARY KEY, v INT) WITHOUT ROWID; \
    INSERT INTO codes VALUES ('Ab', 1), ('cd', -1); ";

fn db(views: &str) -> Db {
    Db::new(&format!("{T}{views}"))
}

#[test]
fn a_change_of_the_table_is_one_of_the_view() {
    let db = db("CREATE VIEW v(title, nr, twice) AS -- as typed\n\
           SELECT upper(p.name), [p].\"id\", p.price * 2 FROM main.T AS p WHERE p.price > 150; \
         CREATE VIEW w AS SELECT v AS n, code AS c FROM codes WHERE v > 0; \
         CREATE VIEW whole AS SELECT * FROM t;");
    let engine = db.start(&["v(nr)", "w(c)", "whole(id)", "t(id)"]);
    assert_eq!(engine.row(0, "2").unwrap(), r#"{"title":"N2","nr":2,"twice":400}"#);
    assert_eq!(engine.row(0, "1"), None);
    assert_eq!(engine.row(1, "AB").unwrap(), r#"{"n":1,"c":"Ab"}"#);
    assert_eq!(engine.row(1, "cd"), None);
    let changed = ["0:1", "2:1", "3:1"];
    engine.during(|| db.run("UPDATE t SET price = 200 WHERE id = 1")).only(&changed);
    assert_eq!(engine.row(0, "1").unwrap(), r#"{"title":"N1","nr":1,"twice":400}"#);
    engine.during(|| db.run("UPDATE t SET price = 0 WHERE id = 1")).only(&changed);
    assert_eq!(engine.row(0, "1"), None);
    let moved = ["0:2", "2:2", "3:2", "0:900", "2:900", "3:900"];
    engine.during(|| db.run("UPDATE t SET id = 900 WHERE id = 2")).only(&moved);
    assert!(engine.row(0, "2").is_none() && engine.row(0, "900").is_some());
    engine.during(|| db.run("UPDATE codes SET v = 5 WHERE code = 'CD'")).only(&["1:cd"]);
    assert_eq!(engine.row(1, "CD").unwrap(), r#"{"n":5,"c":"cd"}"#);
    // A batch, with keys that are hidden.
    assert_eq!(engine.read(0, &["3", "1", "900", "7000"]).unwrap().rows.len(), 4);
}

#[test]
fn another_text_is_a_change_of_shape_and_so_is_one_of_the_table() {
    let db = db("CREATE VIEW v AS SELECT id, name FROM t WHERE price > 150;");
    let engine = db.start(&["v(id)"]);
    let flushed = |sql: &str| {
        let deliveries = engine.during(|| db.run(sql));
        let all = deliveries.flushes.iter().all(|flush| *flush == (0, FlushCause::Schema));
        assert!(!deliveries.flushes.is_empty() && all, "{sql}: {deliveries:?}");
        assert!(deliveries.losses.is_empty(), "{sql}: {deliveries:?}");
    };
    let broken = |why: &str| {
        let error = engine.read(0, &["2"]).unwrap_err();
        let is_expected = matches!(&error, SourceError::Broken { detail } if detail.contains(why));
        assert!(is_expected, "{why}: {error:?}");
    };
    // Only WHERE differs.
    flushed(
        "BEGIN; DROP VIEW v; CREATE VIEW v AS SELECT id, name FROM t WHERE price > 250; COMMIT",
    );
    assert_eq!(engine.row(0, "2"), None);
    flushed("ALTER TABLE t RENAME COLUMN name TO title");
    assert_eq!(engine.row(0, "3").unwrap(), r#"{"id":3,"title":"n3"}"#);
    engine.during(|| db.run("UPDATE t SET title = 'x' WHERE id = 3")).only(&["0:3"]);
    flushed(
        "BEGIN; DROP VIEW v; \
         CREATE VIEW v AS SELECT id, (SELECT max(price) FROM t) AS m FROM t; COMMIT",
    );
    broken("a subquery");
    flushed("DROP VIEW v");
    broken("there is no table `v`");
    flushed("CREATE VIEW v AS SELECT id, price AS p FROM t");
    assert_eq!(engine.row(0, "2").unwrap(), r#"{"id":2,"p":200}"#);
    flushed("BEGIN; DROP TABLE t; CREATE TABLE t(id INTEGER PRIMARY KEY, price); COMMIT");
    assert_eq!(engine.row(0, "2"), None);
    engine.during(|| db.run("INSERT INTO t VALUES (2, 5)")).only(&["0:2"]);
    flushed("DROP TABLE t");
    broken("there is no table `t`");
    flushed("CREATE TABLE t(id INTEGER PRIMARY KEY, price)");
    assert_eq!(engine.row(0, "2"), None);
}

#[test]
fn reads_search_the_index_of_the_table() {
    let db =
        db("CREATE VIEW v AS SELECT price + 1 AS p, id AS nr, coalesce(name, '') AS n FROM t \
           WHERE price > 150 OR name IN ('n1', 'n2'); \
         CREATE VIEW w AS SELECT code, v FROM codes WHERE v > 0; ANALYZE;");
    let specs = ["v(nr)", "w(code)"].map(spec);
    let _engine = Engine::start(db.config(specs.to_vec()), Tuning::default());
    for spec in &specs {
        let table = inspect(&db.writer, CollectionId(0), spec, Watch::Triggers).unwrap();
        let statements = Statements::new(&table, Watch::Triggers);
        for size in SIZES {
            let sql = format!("EXPLAIN QUERY PLAN {}", statements.sql(size));
            let mut plan = db.writer.prepare(&sql).unwrap();
            let lines: Vec<String> =
                plan.raw_query().mapped(|r| r.get(3)).map(Result::unwrap).collect();
            let has = |part: &str| lines.iter().any(|line| line.contains(part));
            let is_search = has("SEARCH t USING") || has("SEARCH codes USING");
            let is_scan = has("SCAN t") || has("SCAN codes") || has("MATERIALIZE");
            assert!(is_search && !is_scan, "{} at {size}: {lines:#?}", spec.table);
        }
    }
}

#[test]
fn what_may_depend_on_more_than_the_row_is_refused_with_the_reason() {
    let cases = [
        ("SELECT DISTINCT id FROM t", "no accepted expression"),
        ("SELECT id, count(*) AS n FROM t GROUP BY id", "a function other than abs"),
        ("SELECT id FROM t GROUP BY id", "something besides columns, one table and WHERE"),
        ("SELECT id FROM t UNION ALL SELECT id FROM t", "something besides columns, one table"),
        ("SELECT p.id FROM t p JOIN t q USING (id)", "something besides columns, one table"),
        ("SELECT id FROM t LIMIT 5", "something besides columns, one table"),
        ("WITH w AS (SELECT 1) SELECT id FROM t", "something other than SELECT"),
        ("SELECT id, row_number() OVER () AS n FROM t", "a function other than"),
        ("SELECT 1 AS id", "something other than FROM"),
        ("SELECT id FROM (SELECT id FROM t)", "a subquery or a join"),
        ("SELECT id, (SELECT max(price) FROM t) AS m FROM t", "a subquery"),
        ("SELECT id FROM t WHERE id IN (SELECT id FROM codes)", "a subquery"),
        ("SELECT id FROM t WHERE id IN t", "no `(`"),
        ("SELECT id, CURRENT_TIMESTAMP AS at FROM t", "no accepted expression"),
        ("SELECT id, random() AS r FROM t", "a function other than"),
        ("SELECT id, datetime('now') AS r FROM t", "a function other than"),
        ("SELECT id, changes() AS r FROM t", "a function other than"),
        ("SELECT id + 0 AS id, name FROM t", "computes its key column `id`"),
        ("SELECT (id) AS id, name FROM t", "computes its key column `id`"),
        ("SELECT price AS id FROM t", "(price) is not unique"),
        ("SELECT id FROM plain", "selects from another view"),
        ("SELECT id FROM f", "`f` is a virtual table"),
        ("SELECT rowid AS id FROM t", "uses `rowid`, which is not the name of a column"),
        ("SELECT id, name AS x FROM t WHERE x > 5", "uses `x`, which is not the name of a column"),
        ("SELECT id FROM t WHERE name = \"text\"", "uses `text`, which is not the name"),
        ("SELECT id, name COLLATE NOCASE AS n FROM t", "something other than FROM"),
        ("SELECT id, name LIKE 'a%' AS n FROM t", "something other than FROM"),
        ("SELECT key AS id FROM json_each('[1]')", "a function in FROM"),
        ("SELECT name FROM pragma_table_list AS id", "there is no table `pragma_table_list`"),
        ("SELECT name AS id FROM sqlite_schema", "there is no table `sqlite_schema`"),
        ("SELECT id FROM t WHERE price GLOB 'a*'", "something besides columns, one table"),
    ];
    let db = db("CREATE VIEW plain AS SELECT id FROM t; CREATE VIRTUAL TABLE f USING fts5(id);");
    for (i, (query, reason)) in cases.iter().enumerate() {
        db.run(&format!("CREATE VIEW v{i} AS {query}"));
        let collection = spec(&format!("v{i}(id)"));
        let why = match inspect(&db.writer, CollectionId(0), &collection, Watch::Triggers) {
            Err(Refused::Rule(error)) => error.to_string(),
            other => panic!("{query}: {other:?}"),
        };
        assert!(why.contains(reason), "{query}: {reason:?} is not in {why:?}");
    }
}

#[test]
fn expressions_over_the_row_alone_are_served() {
    let db =
        db("CREATE VIEW forms AS SELECT id, \"a b\" AS \"we\"\"ird\", coalesce(price, 0) AS p, \
           CASE WHEN price > 5 THEN 'much' ELSE 'little' END AS amount, \
           price IN (100, 300) AS listed, price IS NULL OR NOT (price < 3) AS odd, \
           name || '!' AS loud, price BETWEEN 1 AND 5 AS few, -price % 7 AS m FROM t;");
    let engine = db.start(&["forms(id)"]);
    assert_eq!(
        engine.row(0, "1").unwrap(),
        "{\"id\":1,\"we\\\"ird\":null,\"p\":100,\"amount\":\"much\",\"listed\":1,\"odd\":1,\
         \"loud\":\"n1!\",\"few\":0,\"m\":-2}"
    );
    engine.during(|| db.run("UPDATE t SET \"a b\" = 'x' WHERE id = 1")).only(&["0:1"]);
}

/// The second witness alone: a text that the grammar would accept by mistake.
#[test]
fn the_authorizer_refuses_what_the_text_does_not_show() {
    let db = db("CREATE TABLE u(id);");
    let facts = super::super::inspect::facts_of(&db.writer, "t");
    let why = |query: &str| {
        let sql = format!("CREATE VIEW v AS {query}");
        super::super::inspect::witness("v", &sql, &facts).expect_err(query)
    };
    for (query, reason) in [
        ("SELECT id FROM t, u", "cannot be compiled with its table alone: no such table"),
        ("SELECT id, random() AS r FROM t", "does more than read columns of its table"),
        ("SELECT id, (SELECT max(price) FROM t) AS m FROM t", "max"),
        ("SELECT id FROM t WHERE id IN (SELECT price FROM t)", "contains a subquery"),
        ("SELECT id FROM t UNION SELECT price FROM t", "contains a subquery"),
        ("SELECT rowid AS id FROM t", "does more than read columns of its table"),
        ("SELECT id FROM t WHERE name = \"text\"", "no such column"),
        ("SELECT value AS id FROM t, json_each(name)", "does more than read columns"),
        ("WITH r(x) AS (SELECT 1) SELECT id FROM t, r", "does more than read columns"),
    ] {
        let why = why(query);
        assert!(why.contains(reason), "{query}: {reason:?} is not in {why:?}");
    }
}
