//! Reads of a source: rows, versions, plans, keys.

use std::sync::Arc;
use std::thread;

use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::{Position, Version};
use serde_json::json;

use super::harness::{Reader, config, wait};
use super::server::Server;
use crate::Hooks;
use hotrow_source::{Row, Source as _, SourceError};

#[test]
fn rows_have_the_requested_order_and_the_querys_version() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY, name text, price numeric(10,2));
         INSERT INTO t VALUES (1, 'one', 1.10), (2, NULL, NULL), (-3, 'x\"y', 0)",
    );
    let reader = Reader::on(&server, &["t(id)"]);
    assert_eq!(reader.text(0, "1"), r#"{"id":1,"name":"one","price":1.10}"#);
    // The last value does not fit an int4 column.
    let set = reader.read(0, &["-3", "9", "2", "-3", "99999999999"]).unwrap();
    let text = |row: &Row| match row {
        Row::Found(json) => String::from_utf8(json.clone()).unwrap(),
        other => format!("{other:?}"),
    };
    let rows: Vec<String> = set.rows.iter().map(text).collect();
    let minus_three = r#"{"id":-3,"name":"x\"y","price":0.00}"#;
    assert_eq!(
        rows,
        [minus_three, "Missing", r#"{"id":2,"name":null,"price":null}"#, minus_three, "Missing"]
    );
    assert!(matches!(set.version, Version::Snapshot { .. }));
    assert_eq!(hotrow_source::Source::queries_total(&*reader.source), 2);
}

#[test]
fn an_answer_without_rows_has_a_version() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (a int, b text, PRIMARY KEY (a, b))",
    );
    let reader = Reader::on(&server, &["t(id)", "u(a, b)"]);
    let end = || {
        let text = server.query(
            "SELECT pg_current_wal_insert_lsn() - '0/0', system_identifier # 1 \
                # (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8 \
                FROM pg_control_system()",
        );
        let (at, incarnation) = text.split_once('|').unwrap();
        let incarnation = incarnation.parse::<i64>().unwrap().cast_unsigned();
        Position { incarnation, at: at.parse().unwrap() }
    };
    for (collection, ids) in [
        (0, &["7"][..]),
        (0, &["7", "8"]),
        (0, &["99999999999"]),
        (1, &["1,x"]),
        (1, &["1,x", "2,y"]),
    ] {
        let before = end();
        let xid: u64 = server.query("SELECT pg_current_xact_id()").parse().unwrap();
        let set = reader.read(collection, ids).unwrap();
        assert!(set.rows.iter().all(|row| *row == Row::Missing));
        let Version::Snapshot { snapshot, .. } = set.version else { panic!("{:?}", set.version) };
        assert!(snapshot.contains(xid) && !snapshot.contains(snapshot.xmax));
        let position = set.position.unwrap();
        assert!(position.reaches(&before) && end().reaches(&position));
    }
}

#[test]
fn a_snapshot_of_two_tables_lacks_what_commits_between_its_queries() {
    let server = Arc::new(Server::start(&[]));
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE u (id int PRIMARY KEY, n int);
         INSERT INTO t VALUES (1, 0); INSERT INTO u VALUES (1, 0)",
    );
    let writer = Arc::clone(&server);
    let change = move |collection: CollectionId, _: &[Key]| {
        let server = Arc::clone(&writer);
        let sql = "BEGIN; UPDATE t SET n = n + 1; UPDATE u SET n = n + 1; COMMIT";
        if collection == CollectionId(1) {
            thread::spawn(move || server.batch(sql)).join().unwrap();
        }
    };
    let hooks = Hooks { before_read: Some(Arc::new(change)), after_read: None };
    let reader = Reader::try_open(config(&server.url(), &["t(id)", "u(id)"]), hooks).unwrap();
    let record = |n: u32| Row::Found(format!(r#"{{"id":1,"n":{n}}}"#).into_bytes());
    for n in 0..2 {
        let end = || server.query("SELECT pg_current_wal_insert_lsn() - '0/0'").parse().unwrap();
        let before: u64 = end();
        let set = reader.read_snapshot(&["1", "1"]).unwrap();
        assert_eq!(set.rows, [record(n), record(n)], "none of the change");
        let Version::Snapshot { snapshot, .. } = set.version else { panic!("{:?}", set.version) };
        let xid: u64 = server.query("SELECT max(xmin::text::int8) FROM t").parse().unwrap();
        assert!(!snapshot.contains(xid));
        let position = set.position.unwrap().at;
        assert!(before <= position && position < end(), "before the change");
    }
    // An error within it leaves no transaction open, and the table is inspected again.
    server.batch("ALTER TABLE u ALTER COLUMN n TYPE bigint");
    assert_eq!(reader.read_snapshot(&["1", "1"]).unwrap().rows, [record(3), record(3)]);
    assert_eq!(reader.read(0, &["1"]).unwrap().rows, [record(4)], "not of an old snapshot");
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'";
    assert_eq!(server.query(open), "0");
}

#[test]
fn a_running_transaction_is_not_visible() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    // A prepared transaction needs no session to stay open.
    server.set_for_restart(&[("max_prepared_transactions", "2")]);
    let mut server = server;
    server.restart();
    let reader = Reader::on(&server, &["t(id)"]);
    server.batch("BEGIN; DELETE FROM t; PREPARE TRANSACTION 'open'");
    let xid: u64 = server.query("SELECT transaction::text FROM pg_prepared_xacts").parse().unwrap();
    let set = reader.read(0, &["1"]).unwrap();
    let Version::Snapshot { snapshot, .. } = set.version else { panic!("{:?}", set.version) };
    assert!(!snapshot.contains(xid) && matches!(set.rows[0], Row::Found(_)));
    server.batch("COMMIT PREPARED 'open'");
    let set = reader.read(0, &["1"]).unwrap();
    let Version::Snapshot { snapshot, .. } = set.version else { panic!("{:?}", set.version) };
    assert!(snapshot.contains(xid) && set.rows[0] == Row::Missing);
}

#[test]
fn every_kind_of_key_finds_its_row() {
    let server = Server::any();
    server.batch(
        r#"CREATE TABLE small (id int2 PRIMARY KEY, v int); INSERT INTO small VALUES (-32768, 1);
           CREATE TABLE big (id int8 PRIMARY KEY, v int);
           INSERT INTO big VALUES (9223372036854775807, 2);
           CREATE TABLE word (id text PRIMARY KEY, v int);
           INSERT INTO word VALUES ('a,b/c "ü" %''\', 3), ('', 4), ('A', 5), ('a', 6), ('a ', 7);
           CREATE TABLE code (id varchar(5) PRIMARY KEY, v int); INSERT INTO code VALUES ('x', 8);
           CREATE TABLE u (id uuid PRIMARY KEY, v int);
           INSERT INTO u VALUES ('00112233-4455-6677-8899-AABBCCDDEEFF', 9);
           CREATE TABLE b (id bytea PRIMARY KEY, v int); INSERT INTO b VALUES ('\x00ff', 10);
           CREATE DOMAIN number AS int CHECK (VALUE > 0);
           CREATE TABLE d (id number PRIMARY KEY, v int); INSERT INTO d VALUES (5, 11);
           CREATE TABLE c (a int, b text, c uuid, d bytea, v int, PRIMARY KEY (d, a, b, c));
           INSERT INTO c VALUES (1, 'x,y', '00112233-4455-6677-8899-aabbccddeeff', '\x01', 12);
           CREATE SCHEMA "Other";
           CREATE TABLE "Other"."Odd "" name" ("Id" int PRIMARY KEY, "V x" int);
           INSERT INTO "Other"."Odd "" name" VALUES (1, 13);"#,
    );
    let tables = [
        "small(id)",
        "big(id)",
        "word(id)",
        "code(id)",
        "u(id)",
        "b(id)",
        "d(id)",
        "c(a, b, c, d)",
        "Other.Odd \" name(Id)",
    ];
    let reader = Reader::on(&server, &tables);
    let uuid = "00112233-4455-6677-8899-aabbccddeeff";
    for (collection, id, v) in [
        (0, "-32768", 1),
        (1, "9223372036854775807", 2),
        (2, "a,b%2Fc%20%22ü%22%20%25'\\", 3),
        (2, "", 4),
        (2, "A", 5),
        (2, "a", 6),
        (2, "a%20", 7),
        (3, "x", 8),
        (4, uuid, 9),
        (4, "00112233445566778899AABBCCDDEEFF", 9),
        (5, "00FF", 10),
        (6, "5", 11),
    ] {
        assert_eq!(reader.json(collection, id)["v"], json!(v), "{collection} {id}");
    }
    assert_eq!(reader.json(7, &format!("1,x%2Cy,{uuid},01"))["v"], json!(12));
    assert_eq!(reader.json(8, "1"), json!({"Id": 1, "V x": 13}));
    assert_eq!(reader.json(5, "00ff")["id"], json!("00ff"), "a key is served in the form of an id");
    for (collection, id) in [
        (0, "1"),
        (0, "40000"),
        (2, "b"),
        (3, "longer than five"),
        (6, "-5"),
        (7, &format!("1,x,{uuid},01")),
    ] {
        assert_eq!(
            reader.read(collection, &[id]).unwrap().rows,
            [Row::Missing],
            "{collection} {id}"
        );
    }
    // Many at once, existing and missing.
    let ids: Vec<String> = (0..5000).map(|i| i.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let set = reader.read(6, &ids).unwrap();
    assert_eq!(set.rows.iter().filter(|row| matches!(row, Row::Found(_))).count(), 1);
    assert!(matches!(set.rows[5], Row::Found(_)));
}

#[test]
fn only_the_columns_wanted_are_served() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY, a int, b int, c int); \
         INSERT INTO t VALUES (1, 2, 3, 4)",
    );
    let mut both = config(&server.url(), &["t(id)", "t(id)"]);
    both.server.collections[0].columns = Some(vec!["c".into(), "a".into()]);
    both.server.collections[1].exclude = vec!["b".into(), "id".into()];
    let reader = Reader::open(both);
    assert_eq!(reader.text(0, "1"), r#"{"c":4,"a":2}"#);
    assert_eq!(reader.text(1, "1"), r#"{"a":2,"c":4}"#);
    assert_eq!(reader.read(0, &["2", "1"]).unwrap().rows[0], Row::Missing);
}

#[test]
fn a_record_that_is_too_large_affects_no_other() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY, v text); \
         INSERT INTO t VALUES (1, repeat('x', 17000000)), (2, 'y')",
    );
    let reader = Reader::on(&server, &["t(id)"]);
    let rows = reader.read(0, &["1", "2"]).unwrap().rows;
    assert!(matches!(&rows[0], Row::Unreadable(why) if why.contains("larger than")));
    assert!(matches!(&rows[1], Row::Found(_)));
}

#[test]
fn a_changed_table_is_read_as_it_is_now() {
    let server = Server::any();
    server
        .batch("CREATE TABLE t (id int PRIMARY KEY, a int, b int); INSERT INTO t VALUES (1, 2, 3)");
    let reader = Reader::on(&server, &["t(id)"]);
    assert_eq!(reader.text(0, "1"), r#"{"id":1,"a":2,"b":3}"#);
    for (sql, expected) in [
        ("ALTER TABLE t DROP COLUMN b", r#"{"id":1,"a":2}"#),
        ("ALTER TABLE t ALTER COLUMN a TYPE text USING 'was ' || a", r#"{"id":1,"a":"was 2"}"#),
        ("ALTER TABLE t RENAME COLUMN a TO c", r#"{"id":1,"c":"was 2"}"#),
        (
            "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, z bool); \
             INSERT INTO t VALUES (1, true)",
            r#"{"id":1,"z":true}"#,
        ),
        (
            "CREATE TYPE pair AS (x int, y int); \
             ALTER TABLE t DROP COLUMN z, ADD COLUMN p pair DEFAULT '(1,2)', ADD z int",
            r#"{"id":1,"p":{"x":1,"y":2},"z":null}"#,
        ),
        (
            "ALTER TYPE pair DROP ATTRIBUTE y, ADD ATTRIBUTE w text",
            r#"{"id":1,"p":{"x":1,"w":null},"z":null}"#,
        ),
    ] {
        server.batch(sql);
        assert_eq!(reader.text(0, "1"), expected, "{sql}");
    }
    server.batch("DROP TABLE t");
    for _ in 0..2 {
        let error = reader.read(0, &["1"]).unwrap_err();
        assert!(matches!(&error, SourceError::Broken { .. }), "{error}");
    }
}

#[test]
fn a_plan_made_for_a_small_table_serves_a_large_one() {
    let server = Server::start(&[("autovacuum", "off")]);
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (a int, b text, PRIMARY KEY (a, b))",
    );
    let reader = Reader::on(&server, &["t(id)", "u(a, b)"]);
    for _ in 0..8 {
        reader.read(0, &["1", "2"]).unwrap();
        reader.read(1, &["1,1", "2,2"]).unwrap();
    }
    server.batch(
        "INSERT INTO t SELECT generate_series(1, 100000); \
         INSERT INTO u SELECT i, i::text FROM generate_series(1, 100000) i",
    );
    assert_eq!(reader.text(0, "77777"), r#"{"id":77777}"#);
    assert_eq!(reader.text(1, "77777,77777"), r#"{"a":77777,"b":"77777"}"#);
    // Sequential scans count the rows that they read. The counts arrive when a session ends.
    drop(reader);
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hotrow'";
    wait("the sessions to end", || server.query(sessions) == "0");
    let by_index = "SELECT string_agg(relname || seq_tup_read || ' ' || (idx_scan > 0), ',' \
                    ORDER BY relname) FROM pg_stat_user_tables";
    wait("the counts to arrive", || server.query(by_index) == "t0 true,u0 true");
}

#[test]
fn a_new_plan_of_the_feed_applies_from_the_next_read_on() {
    let server = Server::any();
    server.batch("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let reader = Reader::on(&server, &["t(id)"]);
    let shared = &reader.source.shared;
    let plan = reader.source.shared.published.plan().unwrap();
    let sessions = "SELECT string_agg(pid::text, ',') FROM pg_stat_activity \
                    WHERE application_name = 'hotrow' AND datname = current_database()";
    let first = server.query(sessions);
    shared.published.down("the feed reconnects");
    shared.published.explain("the feed is still looking");
    let error = reader.read(0, &["1"]).unwrap_err();
    assert!(
        matches!(&error, SourceError::Unavailable { detail } if detail == "the feed is still \
            looking"),
        "{error}"
    );
    assert!(reader.source.health().is_err());
    wait("idle connections to be closed", || server.query(sessions).is_empty());
    shared.publish(plan.identity, &[Err("the table is gone".into())]);
    let error = reader.read(0, &["1"]).unwrap_err();
    assert!(
        matches!(&error, SourceError::Broken { detail } if detail == "the table is gone"),
        "{error}"
    );
    // Another timeline of the same server: no server has this identity.
    let other = crate::server::Identity { timeline: 2, ..plan.identity };
    shared.publish(other, &[Err("the table is gone".into())]);
    let error = reader.read(0, &["1"]).unwrap_err();
    assert!(
        matches!(&error, SourceError::Unavailable { detail } if detail.contains("not the server")),
        "{error}"
    );
    assert_ne!(first, "");
}

#[test]
fn a_key_of_another_type_is_not_read() {
    let server = Server::any();
    server.batch("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let reader = Reader::on(&server, &["t(id)"]);
    reader.text(0, "1");
    server.batch("ALTER TABLE t ALTER COLUMN id TYPE text");
    let error = reader.read(0, &["1"]).unwrap_err();
    assert!(
        matches!(&error, SourceError::Broken { detail } if detail.contains("restart")),
        "{error}"
    );
}

#[test]
fn a_query_without_room_ends_and_its_connection_is_reused() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY, v text);
         INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 1000) i",
    );
    let reader = Reader::on(&server, &["t(id)"]);
    let ids: Vec<String> = (1..=1000).map(|id| id.to_string()).collect();
    let schema = &reader.source.schemas()[0];
    let budget = hotrow_admission::byte_budget::ByteBudget::new(60_000);
    for (query_bytes, rest) in [(50_000, Row::NotRead), (100_000, Row::NoRoom)] {
        let keys = ids.iter().map(|id| schema.parse_url(id).unwrap()).collect();
        let rows = hotrow_source::RowBudget::new(&budget, query_bytes, || true);
        let set = reader
            .block_on(reader.source.read_within(
                hotrow_types::key::CollectionId(0),
                keys,
                rows.clone(),
            ))
            .unwrap();
        let found = set.rows.iter().filter(|row| matches!(row, Row::Found(_))).count();
        assert!((40..60).contains(&found), "{found}");
        assert_eq!(set.rows.iter().filter(|row| **row == rest).count(), 1000 - found);
        assert_eq!((rows.bytes(), set.position.is_some()), (budget.used_bytes(), true));
        drop(rows);
        assert!(matches!(reader.read(0, &["7"]).unwrap().rows[..], [Row::Found(_)]));
    }
}

#[test]
fn the_tenant_stands_before_the_record_in_every_form() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY, name text, org text);
         INSERT INTO t VALUES (1, 'one', 'a\"b'), (2, 'two', NULL), (3, 'three', '');
         CREATE TABLE u (org uuid, id int, PRIMARY KEY (org, id));
         INSERT INTO u VALUES ('A0000000-0000-0000-0000-000000000001', 7);
         CREATE TABLE n (id int PRIMARY KEY, org bigint, padded char(4));
         INSERT INTO n VALUES (1, -7, 'a')",
    );
    let mut config = config(&server.url(), &["t(id)", "t(id)", "u(org, id)", "n(id)", "n(id)"]);
    let collections = &mut config.server.collections;
    for (i, tenant) in ["org", "org", "org", "org", "padded"].into_iter().enumerate() {
        collections[i].name = format!("c{i}");
        collections[i].tenant = Some(tenant.into());
    }
    collections[1].columns = Some(vec!["name".into()]);
    collections[4].exclude = vec!["padded".into(), "org".into()];
    let reader = Reader::open(config);
    assert_eq!(reader.text(0, "1"), r#""a\"b"{"id":1,"name":"one","org":"a\"b"}"#);
    assert_eq!(reader.text(0, "2"), r#"null{"id":2,"name":"two","org":null}"#);
    assert_eq!(reader.text(1, "3"), r#"""{"name":"three"}"#);
    let id = "a0000000-0000-0000-0000-000000000001";
    let row = format!("\"{id}\"{{\"org\":\"{id}\",\"id\":7}}");
    assert_eq!(reader.text(2, &format!("{id},7")), row);
    assert_eq!(reader.text(3, "1"), r#"-7{"id":1,"org":-7,"padded":"a   "}"#);
    assert_eq!(reader.text(4, "1"), r#""a   "{"id":1}"#);
    let both = reader.read(0, &["2", "9", "1"]).unwrap().rows;
    assert!(matches!(&both[..], [Row::Found(_), Row::Missing, Row::Found(_)]), "{both:?}");
}
