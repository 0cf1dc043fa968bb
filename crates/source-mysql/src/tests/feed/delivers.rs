use std::time::Duration;

use super::*;

#[test]
fn rows_come_as_keys_with_the_end_of_their_transaction() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, name TEXT)");
    let feed = Feed::start(&server, &["p(id)"]);
    let from = feed.sink.len();
    server.batch("INSERT INTO p VALUES (1, 'a')");
    let end = feed.settle();
    let events = feed.sink.since(from);
    let [Event::Change(change)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(change.key, feed.int(0, 1));
    match change.mark {
        ChangeId::Commit(at) => assert_eq!(at, end),
        ChangeId::Gtid(_) => assert_eq!(server.flavor(), Flavor::MySql),
        other => panic!("{other:?}"),
    }
    assert!(feed.version_of_a_read(0, 1).contains(&change.mark));
    assert_eq!(feed.keys(&server, "UPDATE p SET name = 'b'"), [feed.int(0, 1)]);
    assert_eq!(feed.keys(&server, "UPDATE p SET id = 5"), [feed.int(0, 1), feed.int(0, 5)]);
    assert_eq!(feed.keys(&server, "DELETE FROM p"), [feed.int(0, 5)]);
    assert_eq!(feed.keys(&server, "BEGIN; INSERT INTO p VALUES (9, ''); ROLLBACK"), []);
    assert_eq!(
        feed.keys(
            &server,
            "INSERT INTO p VALUES (1, ''); BEGIN; REPLACE INTO p VALUES (1, 'x'), (2, 'y'); COMMIT"
        ),
        [feed.int(0, 1), feed.int(0, 1), feed.int(0, 2)]
    );
}

#[test]
fn partial_row_images_contain_the_key() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE p (a VARCHAR(9), x TEXT, b INT UNSIGNED, y BLOB, PRIMARY KEY (b, a))
             COLLATE utf8mb4_bin",
    );
    let feed = Feed::start(&server, &["p(b,a)"]);
    let key = |b, a| feed.key(0, &[KeyPart::Integer(b), KeyPart::Text(a)]);
    for image in ["MINIMAL", "NOBLOB", "FULL"] {
        let keys = |sql: &str| {
            feed.keys(&server, &format!("SET SESSION binlog_row_image = {image}; {sql}"))
        };
        assert_eq!(
            keys("INSERT INTO p (a, b) VALUES ('é', 4000000000)"),
            [key(4_000_000_000, "é")],
            "{image}"
        );
        assert_eq!(keys("UPDATE p SET x = 'x'"), [key(4_000_000_000, "é")], "{image}");
        assert_eq!(keys("UPDATE p SET b = 1"), [key(1, "é"), key(4_000_000_000, "é")], "{image}");
        assert_eq!(keys("UPDATE p SET a = 'e', y = 'y'"), [key(1, "e"), key(1, "é")], "{image}");
        assert_eq!(keys("DELETE FROM p"), [key(1, "e")], "{image}");
    }
}

#[test]
fn keys_after_columns_of_every_type_are_decoded() {
    let server = Server::any();
    // The key comes last, so that every column before it must be decoded.
    server.batch(
        "CREATE TABLE p (t TINYINT, s SMALLINT, m MEDIUMINT, b BIGINT, f FLOAT, d DOUBLE,
         n DECIMAL(30, 11), y YEAR, da DATE, ti TIME(3), ts TIMESTAMP(6) NULL, dt DATETIME(2),
         bi BIT(11), c CHAR(255), v VARCHAR(300), lo VARBINARY(10), bl BLOB, te TINYTEXT,
         ml MEDIUMBLOB, ll LONGTEXT, e ENUM('a', 'b'), se SET('x', 'y', 'z'), j JSON, g GEOMETRY,
         bin BINARY(5), id INT PRIMARY KEY)",
    );
    let feed = Feed::start(&server, &["p(id)"]);
    let row = "-1, -2, -3, -4, 1.5, 2.5, -1234567890123456789.12345678901, 2024, '2024-02-29',
         '-838:59:58.999', '2024-01-02 03:04:05.678901', '2024-01-02 03:04:05.67', b'10000000001',
         REPEAT('ü', 255), REPEAT('é', 300), 'lo', REPEAT('b', 1000), 'tiny', REPEAT('m', 70000),
         'long', 'b', 'x,z', '{\"a\": [1, 2.5, null]}', POINT(1, 2), x'0100'";
    assert_eq!(feed.keys(&server, &format!("INSERT INTO p VALUES ({row}, 7)")), [feed.int(0, 7)]);
    assert_eq!(feed.keys(&server, "INSERT INTO p (id) VALUES (8)"), [feed.int(0, 8)]);
    assert_eq!(
        feed.keys(&server, "UPDATE p SET j = '[]', id = id + 10"),
        [7, 8, 17, 18].map(|id| feed.int(0, id))
    );
    assert_eq!(feed.keys(&server, "DELETE FROM p"), [17, 18].map(|id| feed.int(0, id)));
}

#[test]
fn a_huge_transaction_becomes_a_flush() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE p (id INT AUTO_INCREMENT PRIMARY KEY, n TEXT);
         CREATE TABLE q (id INT PRIMARY KEY)",
    );
    let feed = Feed::start(&server, &["p(id)", "q(id)"]);
    let rows = vec!["('x')"; 10_001].join(",");
    let events = feed.delivered(
        &server,
        &format!("BEGIN; INSERT INTO p (n) VALUES {rows}; INSERT INTO q VALUES (1); COMMIT"),
    );
    let changes: Vec<&Event> = events.iter().filter(|e| matches!(e, Event::Change(_))).collect();
    let flushes: Vec<&Event> = events.iter().filter(|e| matches!(e, Event::Flush(..))).collect();
    assert!(
        matches!(flushes[..], [Event::Flush(c, FlushCause::Bulk, Some(_))] if c.0 == 0),
        "{flushes:?}"
    );
    assert!(
        matches!(changes[..], [Event::Change(change)] if change.key == feed.int(1, 1)),
        "{changes:?}"
    );
    // One row fewer is delivered as keys, in several calls.
    let rows = vec!["('x')"; 10_000].join(",");
    assert_eq!(feed.keys(&server, &format!("INSERT INTO p (n) VALUES {rows}")).len(), 10_000);
    assert!(feed.sink.longest_portion() <= 1000);
}

#[test]
fn an_idle_feed_stays_fresh_across_log_files() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE p (id INT PRIMARY KEY)");
    let feed = Feed::start(&server, &["p(id)"]);
    for _ in 0..3 {
        server.batch("FLUSH BINARY LOGS");
        feed.settle();
        feed.settle();
    }
    assert_eq!(feed.keys(&server, "INSERT INTO p VALUES (1)"), [feed.int(0, 1)]);
    assert!(feed.sink.since(0).iter().all(|e| !matches!(e, Event::Loss(..))));
}

#[test]
fn a_busy_server_stays_fresh() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE p (id INT PRIMARY KEY, n INT);
         CREATE TABLE other (id INT PRIMARY KEY, n INT)",
    );
    server.batch("INSERT INTO p SELECT seq, 0 FROM seq_1_to_100");
    let mut config = config(server.url(), &["p(id)"]);
    config.server.max_staleness = Duration::from_secs(1);
    let feed = Feed::launch(config, |_| {});
    feed.settle();
    let from = feed.sink.len();
    let updates: String =
        (0..4000).map(|i| format!("UPDATE p SET n = n + 1 WHERE id = {};", 1 + i % 100)).collect();
    let mostly_fresh = || {
        let mut writer = server.begin(&updates);
        let mut samples = 0;
        let mut late = 0;
        while writer.runs() {
            let age =
                feed.sink.newest_advance().map(|at| hotrow_measure::clock::Nanos::now().since(at));
            samples += 1;
            late += u32::from(age.is_none_or(|age| age > Duration::from_secs(1)));
            std::thread::sleep(Duration::from_millis(2));
        }
        writer.outcome().unwrap();
        println!("{late} of {samples} samples were older than a second");
        late * 100 <= samples
    };
    // Only one attempt must succeed, because the machine may stall.
    let times = 1 + (0..5).position(|_| mostly_fresh()).expect("it is never fresh");
    feed.settle();
    let (changes, others): (Vec<_>, Vec<_>) =
        feed.sink.since(from).into_iter().partition(|e| matches!(e, Event::Change(_)));
    assert_eq!(changes.len(), 4000 * times, "{others:?}");
}
