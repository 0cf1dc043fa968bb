//! Reads: rows, versions, and failures.

use hotrow_types::version::{Position, Version};
use serde_json::json;

use super::harness::{Reader, config, spec, wait};
use super::server::{Flavor, Server, Stop};
use crate::plan::{Form, Records};
use crate::pool;
use crate::record_rows::RecordForm;
use hotrow_source::attempts::Fault;
use hotrow_source::spec::KeyTypeName;
use hotrow_source::{RowBudget, Source as _, SourceError};

#[test]
fn rows_come_in_request_order() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY, name text, price decimal(10,2));
         INSERT INTO t VALUES (1, 'one', 1.10), (2, NULL, NULL), (-3, 'x\"y', 0)",
    );
    let reader = Reader::on(&server, &["t(id)"]);
    assert_eq!(reader.answers(0, &["1"]), [r#"{"id":1,"name":"one","price":1.10}"#]);
    // The last id exceeds the range of an INT column.
    let rows = reader.answers(0, &["-3", "9", "2", "-3", "99999999999"]);
    let minus_three = r#"{"id":-3,"name":"x\"y","price":0.00}"#;
    assert_eq!(
        rows,
        [minus_three, "missing", r#"{"id":2,"name":null,"price":null}"#, minus_three, "missing"]
    );
    assert_eq!(reader.source.queries_total(), 2);
}

/// Returns the log's end according to the server.
fn end(server: &Server) -> u64 {
    let text = server.query("SHOW MASTER STATUS");
    let mut fields = text.split('\t');
    let file = fields.next().unwrap();
    let offset = fields.next().unwrap();
    let number: u64 = file.rsplit('.').next().unwrap().parse().unwrap();
    number << 40 | offset.parse::<u64>().unwrap()
}

#[test]
fn an_empty_answer_has_a_version_in_both_forms() {
    let server = Server::start_as(Flavor::MariaDb, &[]);
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY);
         CREATE TABLE u (a int, b varchar(9), PRIMARY KEY (a, b))",
    );
    let reader = Reader::on(&server, &["t(id)", "u(a, b)"]);
    let incarnation = server.incarnation();
    let recent = &reader.source.shared.published.plan().unwrap().recent;
    let requests = [
        (0, &["7"][..]),
        (0, &["7", "8"]),
        (0, &["99999999999"]),
        (1, &["1,x"]),
        (1, &["1,x", "2,y"]),
    ];
    for (collection, ids) in requests {
        let before = end(&server);
        recent.record_flush(before);
        let exact = reader.read(collection, ids).unwrap();
        let at = Position { incarnation, at: before };
        assert_eq!(
            (&exact.version, exact.position),
            (&Version::Span { from: at, to: at }, Some(at)),
            "{ids:?}"
        );
        // The previous read has reported everything up to there as visible.
        server.batch("INSERT INTO t VALUES (1); DELETE FROM t");
        let plain = reader.read(collection, ids).unwrap();
        let to = Position { incarnation, at: end(&server) };
        assert_eq!(
            (&plain.version, plain.position),
            (&Version::Span { from: at, to }, Some(to)),
            "{ids:?}"
        );
        assert!(
            reader.answers(collection, ids).iter().all(|row| row == "missing" || row == "alias")
        );
    }
}

#[test]
fn a_read_of_the_snapshot_point_matches_its_version() {
    let server = Server::start_as(Flavor::MariaDb, &[]);
    server.batch("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)");
    let reader = Reader::on(&server, &["t(id)"]);
    let recent = std::sync::Arc::clone(&reader.source.shared.published.plan().unwrap().recent);
    // The log has this transaction, but no session sees it.
    server.batch("XA START 'x'; UPDATE t SET v = 1; XA END 'x'; XA PREPARE 'x'");
    recent.record_flush(end(&server));
    let set = reader.read(0, &["1"]).unwrap();
    assert!(matches!(set.version, Version::Span { .. }), "{:?}", set.version);
    assert_eq!(reader.answers(0, &["1"]), [r#"{"id":1,"v":0}"#]);
    server.batch("XA COMMIT 'x'");
    recent.record_flush(end(&server));
    let after = reader.read(0, &["1"]).unwrap();
    assert!(after.version.dominates(&set.version) && !set.version.dominates(&after.version));
    assert_eq!(reader.answers(0, &["1"]), [r#"{"id":1,"v":1}"#]);
}

#[test]
fn every_kind_of_key_finds_its_row() {
    let server = Server::any();
    let uuid = server.flavor().choose("uuid", "char(36)");
    server.batch(&format!(
        "CREATE TABLE a (k tinyint unsigned PRIMARY KEY); INSERT INTO a VALUES (255);
         CREATE TABLE b (k bigint unsigned PRIMARY KEY, n int);
         INSERT INTO b VALUES (9223372036854775807, 1), (18446744073709551615, 2);
         CREATE TABLE c (k varchar(20) COLLATE utf8mb4_bin PRIMARY KEY);
         INSERT INTO c VALUES ('a'), ('A'), ('née '), ('back\\\\slash''s');
         CREATE TABLE d (k binary(16) PRIMARY KEY, n int);
         INSERT INTO d VALUES (x'00112233445566778899aabbccddee00', 1);
         CREATE TABLE e (k varbinary(9) PRIMARY KEY); INSERT INTO e VALUES (x'00ff');
         CREATE TABLE f (k {uuid} PRIMARY KEY, n int);
         INSERT INTO f VALUES ('123e4567-e89b-12d3-a456-426614174000', 1);
         CREATE TABLE g (a int, b varchar(9) CHARACTER SET latin1 COLLATE latin1_bin, c bigint,
             PRIMARY KEY (c, a, b), n int);
         INSERT INTO g VALUES (1, 'é€', 2, 5), (1, 'x', 2, 6)",
    ));
    let mut settings =
        config(&server.url(), &["a(k)", "b(k)", "c(k)", "d(k)", "e(k)", "f(k)", "g(a, b, c)"]);
    let mut d = spec("d(k)");
    d.name = "d2".into();
    d.key_types = vec![KeyTypeName::Uuid];
    settings.server.collections.push(d);
    let reader = Reader::open(settings);
    assert_eq!(
        reader.answers(0, &["255", "256", "-1", "0"]),
        [r#"{"k":255}"#, "missing", "missing", "missing"]
    );
    assert_eq!(reader.answers(1, &["9223372036854775807"]), [r#"{"k":9223372036854775807,"n":1}"#]);
    // Trailing blanks are ignored, case is not.
    assert_eq!(
        reader.answers(2, &["a", "A", "%C3%A1"]),
        [r#"{"k":"a"}"#, r#"{"k":"A"}"#, "missing"]
    );
    assert_eq!(
        reader.answers(2, &["n%C3%A9e", "back%5Cslash's"]),
        [r#"{"k":"née "}"#, r#"{"k":"back\\slash's"}"#]
    );
    assert_eq!(
        reader.json(3, "00112233445566778899AABBCCDDEE00"),
        json!({"k": "00112233445566778899aabbccddee00", "n": 1})
    );
    assert_eq!(reader.answers(3, &["00"]), ["missing"]);
    assert_eq!(
        reader.json(7, "00112233-4455-6677-8899-aabbccddee00"),
        json!({"k": "00112233-4455-6677-8899-aabbccddee00", "n": 1})
    );
    assert_eq!(reader.answers(4, &["00ff", "00"]), [r#"{"k":"00ff"}"#, "missing"]);
    let spelling = "123e4567-e89b-12d3-a456-426614174000";
    assert_eq!(
        reader.json(5, server.flavor().choose("123E4567E89B12D3A456426614174000", spelling)),
        json!({"k": "123e4567-e89b-12d3-a456-426614174000", "n": 1})
    );
    assert_eq!(reader.json(6, "1,%C3%A9%E2%82%AC,2")["n"], 5);
    let three = reader.answers(6, &["1,x,2", "1,%E6%97%A5,2", "1,%C3%A9%E2%82%AC,2"]);
    assert!(
        three[0].contains("\"n\":6") && three[1] == "missing" && three[2].contains("\"n\":5"),
        "{three:?}"
    );
}

#[test]
fn another_spelling_finds_the_row_and_is_not_cached() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE t (k varchar(20) COLLATE utf8mb4_unicode_ci PRIMARY KEY, n int);
         INSERT INTO t VALUES ('Ärger', 1), ('b', 2);
         CREATE TABLE u (a int, k char(5) CHARACTER SET latin1 COLLATE latin1_swedish_ci,
             PRIMARY KEY (a, k));
         INSERT INTO u VALUES (1, 'X')",
    );
    let reader = Reader::on(&server, &["t(k)", "u(a, k)"]);
    let arger = r#"{"k":"Ärger","n":1}"#;
    assert_eq!(reader.answers(0, &["%C3%84rger"]), [arger]);
    assert_eq!(reader.answers(0, &["ARGER"]), [format!("alias {arger}")]);
    assert_eq!(reader.answers(0, &["absent"]), ["alias"]);
    // Two spellings of one row in one query.
    let rows = reader.answers(0, &["arger", "B", "%C3%84rger", "absent", "b"]);
    let b = r#"{"k":"b","n":2}"#;
    assert_eq!(
        rows,
        [format!("alias {arger}"), format!("alias {b}"), arger.into(), "alias".into(), b.into()]
    );
    let x = r#"{"a":1,"k":"X"}"#;
    assert_eq!(
        reader.answers(1, &["1,X", "1,x", "1,%E6%97%A5"]),
        [x.into(), format!("alias {x}"), "alias".into()]
    );
    assert_eq!(reader.answers(1, &["1,%E6%97%A5", "1,%E6%97%A6"]), ["alias", "alias"]);
}

#[test]
fn no_key_makes_the_server_scan_the_table() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE i (k bigint unsigned PRIMARY KEY, n int);
         INSERT INTO i SELECT seq, 1 FROM seq_1_to_20000;
         CREATE TABLE c (k varchar(20) COLLATE utf8mb4_unicode_ci PRIMARY KEY);
         INSERT INTO c SELECT concat('k', seq) FROM seq_1_to_20000;
         CREATE TABLE l (k varchar(20) CHARACTER SET latin1 COLLATE latin1_general_ci PRIMARY KEY);
         INSERT INTO l SELECT concat('k', seq) FROM seq_1_to_20000;
         CREATE TABLE p (a int, b varchar(9) COLLATE utf8mb4_bin, PRIMARY KEY (a, b));
         INSERT INTO p SELECT seq, 'x' FROM seq_1_to_20000",
    );
    let reader = Reader::on(&server, &["i(k)", "c(k)", "l(k)", "p(a, b)"]);
    let plan = reader.source.shared.published.plan().unwrap();
    let rows_scanned = |sql: &str| {
        let text = server.query(&format!("FLUSH STATUS; {sql}; SHOW STATUS LIKE 'Handler_read%'"));
        let count = |name: &str| {
            let line = text
                .lines()
                .find(|l| l.to_lowercase().starts_with(name))
                .unwrap_or_else(|| panic!("{text}"));
            line.split('\t').nth(1).unwrap().parse::<u64>().unwrap()
        };
        count("handler_read_next") + count("handler_read_rnd_next") + count("handler_read_first")
    };
    for (i, id) in ["5", "K5", "%C3%A9", "5,x"].iter().enumerate() {
        let statement = plan.collections[i].as_ref().unwrap();
        let schema = &reader.source.schemas()[i];
        let one = schema.parse_url(id).unwrap();
        let other = schema.parse_url(&id.replace('5', "77")).unwrap();
        for keys in [vec![one.clone()], vec![one, other]] {
            let sql = statement.sql(&keys, super::super::plan::Form::Plain { from: 0 });
            let select = sql.rsplit_once(';').unwrap().0;
            assert!(rows_scanned(select) < 20, "{select}: {}", rows_scanned(select));
        }
    }
}

#[test]
fn a_thousand_keys_are_one_query() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE i (k int PRIMARY KEY); INSERT INTO i SELECT seq FROM seq_1_to_500;
         CREATE TABLE c (k varchar(20) COLLATE utf8mb4_general_ci PRIMARY KEY);
         INSERT INTO c SELECT seq FROM seq_1_to_500",
    );
    let reader = Reader::on(&server, &["i(k)", "c(k)"]);
    let ids: Vec<String> = (1..=1000).map(|i| i.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for (collection, absent) in [(0, "missing"), (1, "alias")] {
        let rows = reader.answers(collection, &ids);
        assert!(
            rows[..500].iter().zip(&ids).all(|(row, id)| row.contains(*id)),
            "{:?}",
            &rows[..3]
        );
        assert!(rows[500..].iter().all(|row| row == absent));
    }
    assert_eq!(reader.source.queries_total(), 2);
}

#[test]
fn a_changed_table_is_read_by_its_new_definition() {
    let server = Server::any();
    server
        .batch("CREATE TABLE t (id int PRIMARY KEY, a int, b int); INSERT INTO t VALUES (1, 2, 3)");
    let reader = Reader::on(&server, &["t(id)"]);
    assert_eq!(reader.answers(0, &["1"]), [r#"{"id":1,"a":2,"b":3}"#]);
    server.batch("ALTER TABLE t DROP COLUMN b");
    assert_eq!(reader.answers(0, &["1"]), [r#"{"id":1,"a":2}"#]);
    server.batch("ALTER TABLE t MODIFY a varchar(9)");
    assert_eq!(reader.answers(0, &["1"]), [r#"{"id":1,"a":"2"}"#]);
    server.batch("ALTER TABLE t MODIFY a varbinary(9)");
    assert_eq!(reader.answers(0, &["1"]), [r#"{"id":1,"a":"Mg=="}"#]);
    server.batch("DROP TABLE t");
    let gone = reader.read(0, &["1"]).unwrap_err();
    assert!(matches!(&gone, SourceError::Broken { .. }), "{gone}");
    server.batch("CREATE TABLE t (id varchar(9) PRIMARY KEY)");
    // A key of another type needs a restart. Until then reads fail.
    assert!(matches!(reader.read(0, &["1"]), Err(SourceError::Broken { .. })));
}

#[test]
fn a_connection_that_died_is_replaced_and_a_slow_query_ends() {
    let mut server = Server::start(&[]);
    server.batch("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let mut settings = config(&server.url(), &["t(id)"]);
    settings.server.read_timeout = std::time::Duration::from_secs(3);
    let reader = Reader::open(settings);
    assert_eq!(reader.answers(0, &["1"]), [r#"{"id":1}"#]);
    server.batch(
        "SELECT concat('KILL ', id) INTO @k FROM information_schema.processlist
         WHERE user = 'hotrow' AND command = 'Sleep' AND db = database() LIMIT 1;
         PREPARE k FROM @k; EXECUTE k",
    );
    assert_eq!(reader.answers(0, &["1"]), [r#"{"id":1}"#]);
    let locking = server.begin("LOCK TABLES t WRITE; DO SLEEP(30)");
    let locked = || {
        server.query(
            "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'DO SLEEP%'",
        )
    };
    wait("the lock", || locked() == "1");
    let slow = reader.read(0, &["1"]).unwrap_err();
    assert!(matches!(slow, SourceError::Timeout { .. }), "{slow}");
    locking.kill();
    wait("the lock to go", || locked() == "0");
    assert_eq!(reader.answers(0, &["1"]), [r#"{"id":1}"#]);
    server.stop(Stop::Kill);
    let gone = reader.read(0, &["1"]).unwrap_err();
    assert!(matches!(gone, SourceError::Unavailable { .. }), "{gone}");
    assert!(reader.source.health().is_err());
    // For readers a restarted server is another one, until a feed has checked it.
    server.restart();
    let again = Reader::on(&server, &["t(id)"]);
    assert_eq!(again.answers(0, &["1"]), [r#"{"id":1}"#]);
    assert_eq!(again.source.health(), Ok(()));
}

#[test]
fn the_readers_sessions_are_read_only_and_in_utc() {
    let server = Server::any();
    server.batch("CREATE TABLE t (id int PRIMARY KEY)");
    let reader = Reader::on(&server, &["t(id)"]);
    let plan = reader.source.shared.published.plan().unwrap();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    let lease = reader.block_on(reader.source.lease(&plan, deadline)).unwrap();
    let (of_transaction, limit) = server
        .flavor()
        .choose(("tx", "max_statement_time"), ("transaction", "max_execution_time / 1000"));
    let sql = format!(
        "SELECT @@time_zone, @@character_set_results, @@{of_transaction}_read_only, \
         @@{of_transaction}_isolation, CAST(@@{limit} AS DOUBLE)"
    );
    let none = crate::plan::Records { at: usize::MAX, form: RecordForm::Row };
    let budget = RowBudget::unlimited();
    let query = crate::pool::query(lease, sql, none, budget, deadline);
    let (sets, _) = reader.block_on(query).unwrap();
    let row = sets[0].1[0].clone();
    let row: (String, String, u8, String, f64) = mysql_async::from_row(row);
    assert_eq!(row, ("+00:00".into(), "utf8mb4".into(), 1, "REPEATABLE-READ".into(), 10.0));
}

#[test]
fn a_query_keeps_the_rows_that_have_room() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY, v text);
         INSERT INTO t VALUES (1, repeat('x', 1000)), (2, repeat('x', 1000)), (3, 'small')",
    );
    let reader = Reader::on(&server, &["t(id)"]);
    let short = |rows: Vec<String>| -> Vec<String> {
        rows.iter().map(|t| t.chars().take(8).collect()).collect()
    };
    let ids = ["1", "2", "3", "9"];
    assert_eq!(
        short(reader.answers_within(&ids, 1_200, 10_000)),
        ["{\"id\":1,", "not read", "not read", "not read"]
    );
    assert_eq!(
        short(reader.answers_within(&ids, 10_000, 1_200)),
        ["{\"id\":1,", "no room", "no room", "no room"]
    );
    assert_eq!(short(reader.answers_within(&ids, 10_000, 10_000))[2..], ["{\"id\":3,", "missing"]);
}

#[test]
fn the_tenant_stands_before_the_record_in_every_form() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE t (id int PRIMARY KEY, name text, org varchar(9));
         INSERT INTO t VALUES (1, 'one', 'a\"b'), (2, 'two', NULL), (3, 'three', '');
         CREATE TABLE u (org varchar(9), id bigint, PRIMARY KEY (org, id));
         INSERT INTO u VALUES ('Acme', 7)",
    );
    let mut config = config(&server.url(), &["t(id)", "t(id)", "u(org, id)", "t(id)"]);
    let collections = &mut config.server.collections;
    for (i, tenant) in ["org", "org", "org", "id"].into_iter().enumerate() {
        collections[i].name = format!("c{i}");
        collections[i].tenant = Some(tenant.into());
    }
    collections[1].columns = Some(vec!["name".into()]);
    collections[3].exclude = vec!["id".into(), "org".into()];
    let reader = Reader::open(config);
    let first = r#""a\"b"{"id":1,"name":"one","org":"a\"b"}"#;
    assert_eq!(
        reader.answers(0, &["2", "9", "1"]),
        [r#"null{"id":2,"name":"two","org":null}"#, "missing", first]
    );
    assert_eq!(reader.answers(1, &["3"]), [r#"""{"name":"three"}"#]);
    // The key has a collation that ignores case, the tenant has none.
    let rows = reader.answers(2, &["Acme,7", "acme,7"]);
    assert!(rows.iter().all(|row| row.ends_with(r#""Acme"{"org":"Acme","id":7}"#)), "{rows:?}");
    assert_eq!(reader.answers(3, &["1"]), [r#"1{"name":"one"}"#]);
}

/// The driver keeps an error of a later statement for the next query.
#[test]
fn a_query_that_is_killed_in_any_statement_of_a_read_fails_alone() {
    let server = Server::any();
    server.batch("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let reader = Reader::on(&server, &["t(id)"]);
    let plan = reader.source.shared.published.plan().unwrap();
    let statement = plan.collections[0].as_ref().unwrap();
    let keys = [reader.source.schemas()[0].parse_url("1").unwrap()];
    let flavor = server.flavor();
    for form in
        flavor.choose([Form::Plain { from: 0 }, Form::SnapshotPoint], [Form::Visible, Form::Gtids])
    {
        let sql = statement.sql(&keys, form);
        let statements: Vec<&str> = sql.split("; ").collect();
        assert!(statements.len() >= 2, "{sql}");
        for killed in 0..statements.len() {
            let mut statements = statements.clone();
            statements[killed] = "KILL QUERY CONNECTION_ID()";
            let outcome = reader.block_on(async {
                let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
                let lease = reader.source.lease(&plan, deadline).await.unwrap();
                let records = statement.records(form);
                let sql = statements.join("; ");
                pool::query(lease, sql, records, RowBudget::unlimited(), deadline).await
            });
            let Err(Fault::Query(SourceError::Timeout { detail })) = outcome else {
                panic!("{statements:?}: {outcome:?}");
            };
            assert!(detail.contains("error 1317"), "{detail}");
            assert_eq!(reader.answers(0, &["1"]), [r#"{"id":1}"#], "{statements:?}");
        }
    }
}

/// Only a proxy between can begin one, because each session begins with a rollback.
#[test]
fn a_session_with_an_open_transaction_gives_no_answer_and_does_not_stay() {
    let server = Server::any();
    server.batch("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let reader = Reader::on(&server, &["t(id)"]);
    let plan = reader.source.shared.published.plan().unwrap();
    for sql in ["START TRANSACTION", "SET autocommit = 0; SELECT 1 FROM t"] {
        let outcome = reader.block_on(async {
            let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
            let lease = reader.source.lease(&plan, deadline).await.unwrap();
            let records = Records { at: 0, form: RecordForm::Row };
            pool::query(lease, sql.into(), records, RowBudget::unlimited(), deadline).await
        });
        assert!(matches!(outcome, Err(Fault::Gone(_))), "{sql}: {outcome:?}");
        assert_eq!(reader.answers(0, &["1"]), [r#"{"id":1}"#], "{sql}");
    }
}
