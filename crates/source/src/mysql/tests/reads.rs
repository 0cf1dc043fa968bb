//! What a read brings.

use hotrow_cache::version::{Position, Version};
use serde_json::json;

use super::harness::{Reader, config, spec, wait};
use super::server::{Server, Stop};
use crate::spec::KeyTypeName;
use crate::{ReadError, Source as _};

#[test]
fn rows_come_in_the_order_asked_with_what_the_query_saw() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY, name text, price decimal(10,2));
         INSERT INTO t VALUES (1, 'one', 1.10), (2, NULL, NULL), (-3, 'x\"y', 0)",
    );
    let reader = Reader::on(&server, &["t(id)"]);
    assert_eq!(reader.told(0, &["1"]), [r#"{"id":1,"name":"one","price":1.10}"#]);
    // The last cannot be in an INT column at all.
    let rows = reader.told(0, &["-3", "9", "2", "-3", "99999999999"]);
    let minus_three = r#"{"id":-3,"name":"x\"y","price":0.00}"#;
    assert_eq!(rows, [minus_three, "missing", r#"{"id":2,"name":null,"price":null}"#, minus_three, "missing"]);
    assert_eq!(reader.source.queries_total(), 2);
}

/// The log's end, as the server tells it.
fn end(server: &Server) -> u64 {
    let text = server.query("SHOW MASTER STATUS");
    let mut fields = text.split('\t');
    let (file, offset) = (fields.next().unwrap(), fields.next().unwrap());
    let number: u64 = file.rsplit('.').next().unwrap().parse().unwrap();
    number << 40 | offset.parse::<u64>().unwrap()
}

#[test]
fn an_answer_without_rows_tells_what_it_saw_in_both_forms() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (a int, b varchar(9), PRIMARY KEY (a, b))");
    let reader = Reader::on(&server, &["t(id)", "u(a, b)"]);
    let incarnation = server
        .query("SELECT LEFT(SHA2(CONCAT_WS('|', @@server_id, @@hostname, @@port, @@datadir, @@server_uid), 256), 16)");
    let incarnation = u64::from_str_radix(&incarnation, 16).unwrap();
    let recent = &reader.source.shared.plan().unwrap().recent;
    let asked = [(0, &["7"][..]), (0, &["7", "8"]), (0, &["99999999999"]), (1, &["1,x"]), (1, &["1,x", "2,y"])];
    for (collection, ids) in asked {
        let before = end(&server);
        recent.flushing(before);
        let exact = reader.read(collection, ids).unwrap();
        let at = Position { incarnation, at: before };
        assert_eq!((&exact.version, exact.position), (&Version::Span { from: at, to: at }, Some(at)), "{ids:?}");
        // That read has told that everything up to there is visible.
        server.batch("INSERT INTO t VALUES (1); DELETE FROM t");
        let plain = reader.read(collection, ids).unwrap();
        let to = Position { incarnation, at: end(&server) };
        assert_eq!((&plain.version, plain.position), (&Version::Span { from: at, to }, Some(to)), "{ids:?}");
        assert!(reader.told(collection, ids).iter().all(|row| row == "missing" || row == "alias"));
    }
}

#[test]
fn a_read_that_asks_sees_what_its_version_says() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)");
    let reader = Reader::on(&server, &["t(id)"]);
    let recent = std::sync::Arc::clone(&reader.source.shared.plan().unwrap().recent);
    // The log is past this transaction, and no session sees it.
    server.batch("XA START 'x'; UPDATE t SET v = 1; XA END 'x'; XA PREPARE 'x'");
    recent.flushing(end(&server));
    let set = reader.read(0, &["1"]).unwrap();
    assert!(matches!(set.version, Version::Span { .. }), "{:?}", set.version);
    assert_eq!(reader.told(0, &["1"]), [r#"{"id":1,"v":0}"#]);
    server.batch("XA COMMIT 'x'");
    recent.flushing(end(&server));
    let after = reader.read(0, &["1"]).unwrap();
    assert!(after.version.covers(&set.version) && !set.version.covers(&after.version));
    assert_eq!(reader.told(0, &["1"]), [r#"{"id":1,"v":1}"#]);
}

#[test]
fn every_kind_of_key_finds_its_row() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE a (k tinyint unsigned PRIMARY KEY); INSERT INTO a VALUES (255);
         CREATE TABLE b (k bigint unsigned PRIMARY KEY, n int); INSERT INTO b VALUES (9223372036854775807, 1), (18446744073709551615, 2);
         CREATE TABLE c (k varchar(20) COLLATE utf8mb4_bin PRIMARY KEY); INSERT INTO c VALUES ('a'), ('A'), ('née '), ('back\\\\slash''s');
         CREATE TABLE d (k binary(16) PRIMARY KEY, n int); INSERT INTO d VALUES (x'00112233445566778899aabbccddee00', 1);
         CREATE TABLE e (k varbinary(9) PRIMARY KEY); INSERT INTO e VALUES (x'00ff');
         CREATE TABLE f (k uuid PRIMARY KEY, n int); INSERT INTO f VALUES ('123e4567-e89b-12d3-a456-426614174000', 1);
         CREATE TABLE g (a int, b varchar(9) CHARACTER SET latin1 COLLATE latin1_bin, c bigint, PRIMARY KEY (c, a, b), n int);
         INSERT INTO g VALUES (1, 'é€', 2, 5), (1, 'x', 2, 6)",
    );
    let mut settings = config(&server.url(), &["a(k)", "b(k)", "c(k)", "d(k)", "e(k)", "f(k)", "g(a, b, c)"]);
    let mut d = spec("d(k)");
    (d.name, d.key_types) = ("d2".into(), vec![KeyTypeName::Uuid]);
    settings.collections.push(d);
    let reader = Reader::open(settings);
    assert_eq!(reader.told(0, &["255", "256", "-1", "0"]), [r#"{"k":255}"#, "missing", "missing", "missing"]);
    assert_eq!(reader.told(1, &["9223372036854775807"]), [r#"{"k":9223372036854775807,"n":1}"#]);
    // Blanks at the end are passed over, letters' case is not.
    assert_eq!(reader.told(2, &["a", "A", "%C3%A1"]), [r#"{"k":"a"}"#, r#"{"k":"A"}"#, "missing"]);
    assert_eq!(reader.told(2, &["n%C3%A9e", "back%5Cslash's"]), [r#"{"k":"née "}"#, r#"{"k":"back\\slash's"}"#]);
    assert_eq!(
        reader.json(3, "00112233445566778899AABBCCDDEE00"),
        json!({"k": "00112233445566778899aabbccddee00", "n": 1})
    );
    assert_eq!(reader.told(3, &["00"]), ["missing"]);
    assert_eq!(
        reader.json(7, "00112233-4455-6677-8899-aabbccddee00"),
        json!({"k": "00112233-4455-6677-8899-aabbccddee00", "n": 1})
    );
    assert_eq!(reader.told(4, &["00ff", "00"]), [r#"{"k":"00ff"}"#, "missing"]);
    assert_eq!(
        reader.json(5, "123E4567E89B12D3A456426614174000"),
        json!({"k": "123e4567-e89b-12d3-a456-426614174000", "n": 1})
    );
    assert_eq!(reader.json(6, "1,%C3%A9%E2%82%AC,2")["n"], 5);
    let three = reader.told(6, &["1,x,2", "1,%E6%97%A5,2", "1,%C3%A9%E2%82%AC,2"]);
    assert!(three[0].contains("\"n\":6") && three[1] == "missing" && three[2].contains("\"n\":5"), "{three:?}");
}

#[test]
fn another_spelling_finds_the_row_and_is_not_to_be_kept() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE t (k varchar(20) COLLATE utf8mb4_unicode_ci PRIMARY KEY, n int); INSERT INTO t VALUES ('Ärger', 1), ('b', 2);
         CREATE TABLE u (a int, k char(5) CHARACTER SET latin1 COLLATE latin1_swedish_ci, PRIMARY KEY (a, k)); INSERT INTO u VALUES (1, 'X')",
    );
    let reader = Reader::on(&server, &["t(k)", "u(a, k)"]);
    let arger = r#"{"k":"Ärger","n":1}"#;
    assert_eq!(reader.told(0, &["%C3%84rger"]), [arger]);
    assert_eq!(reader.told(0, &["ARGER"]), [format!("alias {arger}")]);
    assert_eq!(reader.told(0, &["nobody"]), ["alias"]);
    // Two spellings of one row in one query.
    let rows = reader.told(0, &["arger", "B", "%C3%84rger", "nobody", "b"]);
    let b = r#"{"k":"b","n":2}"#;
    assert_eq!(rows, [format!("alias {arger}"), format!("alias {b}"), arger.into(), "alias".into(), b.into()]);
    let x = r#"{"a":1,"k":"X"}"#;
    assert_eq!(reader.told(1, &["1,X", "1,x", "1,%E6%97%A5"]), [x.into(), format!("alias {x}"), "alias".into()]);
    assert_eq!(reader.told(1, &["1,%E6%97%A5", "1,%E6%97%A6"]), ["alias", "alias"]);
}

#[test]
fn no_key_makes_the_server_walk_the_table() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE i (k bigint unsigned PRIMARY KEY, n int); INSERT INTO i SELECT seq, 1 FROM seq_1_to_20000;
         CREATE TABLE c (k varchar(20) COLLATE utf8mb4_unicode_ci PRIMARY KEY); INSERT INTO c SELECT concat('k', seq) FROM seq_1_to_20000;
         CREATE TABLE l (k varchar(20) CHARACTER SET latin1 COLLATE latin1_general_ci PRIMARY KEY); INSERT INTO l SELECT concat('k', seq) FROM seq_1_to_20000;
         CREATE TABLE p (a int, b varchar(9) COLLATE utf8mb4_bin, PRIMARY KEY (a, b)); INSERT INTO p SELECT seq, 'x' FROM seq_1_to_20000",
    );
    let reader = Reader::on(&server, &["i(k)", "c(k)", "l(k)", "p(a, b)"]);
    let plan = reader.source.shared.plan().unwrap();
    let walked = |sql: &str| {
        let text = server.query(&format!("FLUSH STATUS; {sql}; SHOW STATUS LIKE 'Handler_read%'"));
        let count = |name: &str| {
            let line = text.lines().find(|l| l.to_lowercase().starts_with(name)).unwrap_or_else(|| panic!("{text}"));
            line.split('\t').nth(1).unwrap().parse::<u64>().unwrap()
        };
        count("handler_read_next") + count("handler_read_rnd_next") + count("handler_read_first")
    };
    for (i, id) in ["5", "K5", "%C3%A9", "5,x"].iter().enumerate() {
        let (statement, schema) = (plan.collections[i].as_ref().unwrap(), &reader.source.schemas()[i]);
        let one = schema.parse_url(id).unwrap();
        let other = schema.parse_url(&id.replace('5', "77")).unwrap();
        for keys in [vec![one.clone()], vec![one, other]] {
            let sql = statement.sql(&keys, super::super::plan::Form::Plain { from: 0 });
            let select = sql.rsplit_once(';').unwrap().0;
            assert!(walked(select) < 20, "{select}: {}", walked(select));
        }
    }
}

#[test]
fn a_thousand_keys_are_one_query() {
    let server = Server::start(&[]);
    server.batch(
        "CREATE TABLE i (k int PRIMARY KEY); INSERT INTO i SELECT seq FROM seq_1_to_500;
         CREATE TABLE c (k varchar(20) COLLATE utf8mb4_general_ci PRIMARY KEY); INSERT INTO c SELECT seq FROM seq_1_to_500",
    );
    let reader = Reader::on(&server, &["i(k)", "c(k)"]);
    let ids: Vec<String> = (1..=1000).map(|i| i.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for (collection, absent) in [(0, "missing"), (1, "alias")] {
        let rows = reader.told(collection, &ids);
        assert!(rows[..500].iter().zip(&ids).all(|(row, id)| row.contains(*id)), "{:?}", &rows[..3]);
        assert!(rows[500..].iter().all(|row| row == absent));
    }
    assert_eq!(reader.source.queries_total(), 2);
}

#[test]
fn a_table_that_changes_is_read_as_it_is_now() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE t (id int PRIMARY KEY, a int, b int); INSERT INTO t VALUES (1, 2, 3)");
    let reader = Reader::on(&server, &["t(id)"]);
    assert_eq!(reader.told(0, &["1"]), [r#"{"id":1,"a":2,"b":3}"#]);
    server.batch("ALTER TABLE t DROP COLUMN b");
    assert_eq!(reader.told(0, &["1"]), [r#"{"id":1,"a":2}"#]);
    server.batch("ALTER TABLE t MODIFY a varchar(9)");
    assert_eq!(reader.told(0, &["1"]), [r#"{"id":1,"a":"2"}"#]);
    server.batch("ALTER TABLE t MODIFY a varbinary(9)");
    assert_eq!(reader.told(0, &["1"]), [r#"{"id":1,"a":"Mg=="}"#]);
    server.batch("DROP TABLE t");
    let gone = reader.read(0, &["1"]).unwrap_err();
    assert!(matches!(&gone, ReadError::Broken { .. }), "{gone}");
    server.batch("CREATE TABLE t (id varchar(9) PRIMARY KEY)");
    // A key of another type needs a restart; nothing is guessed.
    assert!(matches!(reader.read(0, &["1"]), Err(ReadError::Broken { .. })));
}

#[test]
fn a_connection_that_died_is_replaced_and_a_slow_query_ends() {
    let mut server = Server::start(&[]);
    server.batch("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let mut settings = config(&server.url(), &["t(id)"]);
    settings.read_timeout = std::time::Duration::from_secs(3);
    let reader = Reader::open(settings);
    assert_eq!(reader.told(0, &["1"]), [r#"{"id":1}"#]);
    server.batch("SELECT concat('KILL ', id) INTO @k FROM information_schema.processlist WHERE user = 'root' AND command = 'Sleep' AND db = database() LIMIT 1; EXECUTE IMMEDIATE @k");
    assert_eq!(reader.told(0, &["1"]), [r#"{"id":1}"#]);
    let locking = server.begin("LOCK TABLES t WRITE; DO SLEEP(30)");
    let locked = || server.query("SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'DO SLEEP%'");
    wait("the lock", || locked() == "1");
    let slow = reader.read(0, &["1"]).unwrap_err();
    assert!(matches!(slow, ReadError::Timeout { .. }), "{slow}");
    locking.kill();
    wait("the lock to go", || locked() == "0");
    assert_eq!(reader.told(0, &["1"]), [r#"{"id":1}"#]);
    server.stop(Stop::Kill);
    let gone = reader.read(0, &["1"]).unwrap_err();
    assert!(matches!(gone, ReadError::Unavailable { .. }), "{gone}");
    assert!(reader.source.health().is_err());
    server.restart();
    wait("the server to be found again", || reader.read(0, &["1"]).is_ok());
    assert_eq!(reader.source.health(), Ok(()));
}

#[test]
fn the_readers_sessions_are_read_only_and_in_utc() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE t (id int PRIMARY KEY)");
    let reader = Reader::on(&server, &["t(id)"]);
    let plan = reader.source.shared.plan().unwrap();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    let lease = reader.block_on(reader.source.pool.lease(&plan, deadline)).unwrap();
    let sql = "SELECT @@time_zone, @@character_set_results, @@tx_read_only, @@tx_isolation, @@max_statement_time";
    let sets = reader.block_on(lease.query(sql.into(), deadline)).unwrap();
    let row = sets[0].1[0].clone();
    let row: (String, String, u8, String, f64) = mysql_async::from_row(row);
    assert_eq!(row, ("+00:00".into(), "utf8mb4".into(), 1, "REPEATABLE-READ".into(), 10.0));
}
