//! Settings of the server that sessions inherit, and that must not change an answer.

use super::harness::Reader;
use super::recorder::{Feed, config};
use super::server::{Server, globals};
use hotrow_source::Row;
use hotrow_source::spec::{EmbedConfig, OrderBy};

const TABLES: &str = "
    CREATE TABLE t (id int PRIMARY KEY, c char(5), d decimal(9,3), f float, j json, b bit(9),
        s varchar(200) CHARACTER SET latin1, ts timestamp NULL, dt datetime(3), n int);
    INSERT INTO t SELECT seq, 'é', 1.5, 0.1, '{\"a\": 1}', 5, 'ü\\\\\\'', FROM_UNIXTIME(86400 + seq),
        '2024-05-06 07:08:09.123', 0 FROM seq_1_to_50;
    CREATE TABLE c (id int PRIMARY KEY, p int NOT NULL, s varchar(200), KEY (p));
    INSERT INTO c SELECT seq, 1, CONCAT(REPEAT('x', 100), CHAR(64 + seq % 26), seq)
        FROM seq_1_to_30;
    CREATE VIEW v AS SELECT id, -n + id AS m FROM t WHERE id IS NOT NULL;
    GRANT SHOW VIEW ON v TO hotrow";

/// Returns the answers of reads of one row, of many, of embedded rows and of a view.
fn answers(server: &Server) -> Vec<String> {
    let mut settings = config(server.url(), &["t(id)", "v(id)"]);
    settings.server.collections[0].embed = vec![EmbedConfig {
        name: "children".into(),
        table: "c".into(),
        on: "p".into(),
        columns: None,
        order_by: vec![OrderBy { column: "s".into(), is_descending: true }],
        limit: 20,
    }];
    let reader = Reader::open(settings);
    let ids: Vec<String> = (1..=50).map(|id: i32| id.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    [0, 1]
        .into_iter()
        .flat_map(|i| [reader.answers(i, &ids[..1]), reader.answers(i, &ids)])
        .flatten()
        .collect()
}

#[test]
fn globals_change_no_answer() {
    let server = Server::start(&[]);
    server.batch(TABLES);
    let expected = answers(&server);
    assert!(expected[0].contains("é") && expected.iter().all(|row| row.starts_with('{')));
    for (name, value) in globals(server.flavor()) {
        server.batch(&format!("SET GLOBAL {name} = {value}"));
        assert_eq!(answers(&server), expected, "{name} = {value}");
        server.batch(&format!("SET GLOBAL {name} = DEFAULT"));
    }
    // All of them, and with a feed, whose sessions must not keep a snapshot either.
    let all: Vec<String> =
        globals(server.flavor()).map(|(name, value)| format!("GLOBAL {name} = {value}")).collect();
    server.batch(&format!("SET {}", all.join(", ")));
    assert_eq!(answers(&server), expected);
    let feed = Feed::start(&server, &["t(id)"]);
    for n in 1..4 {
        let sql = format!("SET SESSION autocommit = 1; UPDATE t SET n = {n} WHERE id = 7");
        assert_eq!(feed.keys(&server, &sql), [feed.int(0, 7)]);
        let Row::Found(json) = &feed.read(0, 7).rows[0] else { panic!("no row") };
        let json = String::from_utf8_lossy(json);
        assert!(json.ends_with(&format!("\"n\":{n}}}")), "{json}");
    }
}
