//! Keys of every supported type: an id finds its row, and the feed reports the row's changes under
//! the same key.

use super::recorder::{Event, Feed};
use super::server::Server;
use hotrow_source::{Row, Source as _};

/// A type of keys: its SQL, a stored value, ids that name it, and texts that are not ids.
struct Case {
    ty: &'static str,
    value: &'static str,
    ids: &'static [&'static str],
    other: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case { ty: "boolean", value: "true", ids: &["true"], other: &["t", "TRUE", "1", "yes"] },
    Case {
        ty: "numeric",
        value: "-1234567890123456789012.50",
        ids: &["-1234567890123456789012.5", "-1234567890123456789012.500"],
        other: &["1e3", "+1", "007", "-0", "NaN", "Infinity"],
    },
    Case { ty: "numeric(10, 2)", value: "7", ids: &["7", "7.0", "7.00"], other: &["7.", ".7"] },
    Case {
        ty: "date",
        value: "'2024-02-29'",
        ids: &["2024-02-29"],
        other: &["2023-02-29", "infinity", "20240229"],
    },
    Case {
        ty: "timestamp",
        value: "'2024-02-29 13:14:15.25'",
        ids: &["2024-02-29T13:14:15.25"],
        other: &["2024-02-29 13:14:15.25", "2024-02-29T13:14:15.25Z", "2024-02-29T13:14:15.250"],
    },
    Case {
        ty: "timestamptz",
        value: "'2024-02-29 13:14:15+02'",
        ids: &["2024-02-29T11:14:15Z", "2024-02-29T11%3A14%3A15Z"],
        other: &["2024-02-29T13:14:15+02:00", "2024-02-29T11:14:15"],
    },
    Case { ty: "mood", value: "'so, so'", ids: &["so, so", "so%2C%20so"], other: &[] },
    Case { ty: "moods", value: "'good'", ids: &["good"], other: &[] },
    Case { ty: "char(5)", value: "'ab'", ids: &["ab", "ab%20", "ab%20%20%20"], other: &[] },
    Case { ty: "amount", value: "12.30", ids: &["12.3", "12.30"], other: &["12,3"] },
];

/// Starts a server whose settings for dates differ from those of the feed's sessions, with a table
/// for each case.
fn server() -> Server {
    let server = Server::start(&[("datestyle", "German, DMY"), ("timezone", "Asia/Kolkata")]);
    server.batch(
        "CREATE TYPE mood AS ENUM ('good', 'so, so'); CREATE DOMAIN moods AS mood; \
         CREATE DOMAIN amount AS numeric(8, 2);
         CREATE SCHEMA apart; CREATE EXTENSION citext SCHEMA apart;
         CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', \
         deterministic = false)",
    );
    for (i, case) in CASES.iter().enumerate() {
        server.batch(&format!("CREATE TABLE t{i} (id {} PRIMARY KEY, n int)", case.ty));
    }
    server
}

fn read(feed: &Feed, collection: usize, ids: &[&str]) -> Vec<Row> {
    let schema = feed.schema(collection);
    let keys = ids.iter().map(|id| schema.parse_url(id).unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(feed.source.read(schema.collection(), keys)).unwrap().rows
}

fn is_found(row: &Row) -> bool {
    matches!(row, Row::Found(_))
}

#[test]
fn an_id_and_the_feed_give_the_same_key() {
    let server = server();
    let collections: Vec<String> = (0..CASES.len()).map(|i| format!("t{i}(id)")).collect();
    let feed = Feed::start(&server, &collections.iter().map(String::as_str).collect::<Vec<_>>());
    for (i, Case { ty, value, ids, other }) in CASES.iter().enumerate() {
        let schema = feed.schema(i);
        let key = schema.parse_url(ids[0]).unwrap();
        assert_eq!(read(&feed, i, &[ids[0]]), [Row::Missing], "{ty}");
        assert_eq!(
            feed.keys(&server, &format!("INSERT INTO t{i} VALUES ({value}, 1)")),
            std::slice::from_ref(&key),
            "{ty}"
        );
        assert_eq!(
            feed.keys(&server, &format!("UPDATE t{i} SET n = 2")),
            std::slice::from_ref(&key),
            "{ty}"
        );
        for id in *ids {
            assert_eq!(schema.parse_url(id).as_ref(), Ok(&key), "{ty} {id}");
            assert!(is_found(&read(&feed, i, &[id])[0]), "{ty} {id}");
        }
        // Beside ids without a row.
        let none = match *ty {
            "boolean" => "false",
            "date" => "2024-03-01",
            "timestamp" => "2024-03-01T00:00:00",
            "timestamptz" => "2024-03-01T00:00:00Z",
            "mood" | "moods" | "char(5)" => "no such label",
            _ => "1",
        };
        let rows = read(&feed, i, &[none, ids[0], none]);
        assert!(
            is_found(&rows[1]) && rows[0] == Row::Missing && rows[2] == Row::Missing,
            "{ty}: {rows:?}"
        );
        for text in *other {
            assert!(schema.parse_url(&text.replace(' ', "%20")).is_err(), "{ty} {text}");
        }
        assert_eq!(feed.keys(&server, &format!("DELETE FROM t{i}")), [key], "{ty}");
    }
}

#[test]
fn values_that_no_id_can_name_are_harmless() {
    let server = server();
    let feed = Feed::start(&server, &["t1(id)", "t3(id)", "t5(id)"]);
    for sql in [
        "INSERT INTO t1 VALUES ('NaN', 1), ('Infinity', 1)",
        "INSERT INTO t3 VALUES ('infinity', 1), ('0044-03-15 BC', 1), ('10000-01-01', 1)",
        "INSERT INTO t5 VALUES ('-infinity', 1), ('0044-03-15 12:00:00 BC', 1), ('10000-06-01', 1)",
    ] {
        assert_eq!(feed.keys(&server, sql), [], "{sql}");
    }
}

#[test]
fn parts_of_a_composite_key_may_have_these_types() {
    let server = server();
    server.batch("CREATE TABLE c (d date, m mood, a numeric(6, 2), n int, PRIMARY KEY (d, m, a))");
    let feed = Feed::start(&server, &["c(d, m, a)"]);
    let key = feed.schema(0).parse_url("2024-02-29,good,1.5").unwrap();
    assert_eq!(feed.keys(&server, "INSERT INTO c VALUES ('2024-02-29', 'good', 1.50, 1)"), [key]);
    let rows =
        read(&feed, 0, &["2024-02-29,good,1.5", "2024-02-29,bad,1.5", "2024-02-28,good,1.5"]);
    assert_eq!(rows.iter().map(is_found).collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn an_alias_of_the_stored_key_is_answered_and_not_cached() {
    let server = server();
    server.batch(
        "CREATE TABLE folded (id apart.citext PRIMARY KEY, n int); \
         CREATE TABLE loosely (id text COLLATE loose PRIMARY KEY, n int);
         CREATE TABLE composed (a int, id apart.citext, n int, PRIMARY KEY (a, id))",
    );
    let feed = Feed::start(&server, &["folded(id)", "loosely(id)", "composed(a, id)"]);
    for (i, table) in ["folded", "loosely", "composed"].into_iter().enumerate() {
        assert!(feed.source.has_aliases(feed.schema(i).collection()), "{table}");
        let (a, id) = if table == "composed" { ("7, ", "7,") } else { ("", "") };
        let [stored, alias, none] = ["Strat", "STRAT", "none"].map(|text| format!("{id}{text}"));
        let key = feed.schema(i).parse_url(&stored).unwrap();
        assert_eq!(
            feed.keys(&server, &format!("INSERT INTO {table} VALUES ({a}'Strat', 1)")),
            std::slice::from_ref(&key),
            "{table}"
        );
        let rows = read(&feed, i, &[&stored, &alias, &none]);
        assert!(is_found(&rows[0]), "{table}: {rows:?}");
        assert!(matches!(&rows[1], Row::Uncacheable(Some(_))), "{table}: {rows:?}");
        // An insert may use another spelling.
        assert_eq!(rows[2], Row::Uncacheable(None), "{table}");
        assert!(matches!(&read(&feed, i, &[&alias])[0], Row::Uncacheable(Some(_))), "{table}");
        // Only the spelling changes: both are reported.
        let keys = feed.keys(&server, &format!("UPDATE {table} SET id = 'sTRAT'"));
        let respelled = feed.schema(i).parse_url(&format!("{id}sTRAT")).unwrap();
        assert_eq!(keys, [key, respelled], "{table}");
    }
}

#[test]
fn an_added_or_renamed_label_is_served_by_its_new_name() {
    let server = server();
    let feed = Feed::start(&server, &["t6(id)"]);
    server.batch("INSERT INTO t6 VALUES ('good', 1)");
    let from = feed.sink.len();
    server.batch("ALTER TYPE mood RENAME VALUE 'good' TO 'fine'");
    feed.sink.wait("the new label", |events| {
        events[from..].iter().any(|e| matches!(e, Event::Flush(..))).then_some(())
    });
    assert!(is_found(&read(&feed, 0, &["fine"])[0]));
    assert_eq!(read(&feed, 0, &["good"]), [Row::Missing]);
}
