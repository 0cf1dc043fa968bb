//! Keys other than a primary key of a signed integer.

use super::super::harness::refusal;
use super::*;

#[test]
fn unsigned_keys_have_all_64_bits() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE p (id BIGINT UNSIGNED PRIMARY KEY, n INT);
         CREATE TABLE z (id BIGINT ZEROFILL PRIMARY KEY)",
    );
    let feed = Feed::start(&server, &["p(id)", "z(id)"]);
    let ids = ["0", "7", "9223372036854775807", "9223372036854775808", "18446744073709551615"];
    for (collection, table) in ["p", "z"].iter().enumerate() {
        for id in ids {
            let key = feed.schema(collection).parse_url(id).unwrap();
            let sql = format!(
                "INSERT INTO {table} (id) VALUES ({id}); DELETE FROM {table} WHERE id = {id}"
            );
            assert_eq!(feed.keys(&server, &sql), [key.clone(), key], "{table} {id}");
        }
    }
    assert!(
        feed.schema(0).parse_url("-1").is_err()
            && feed.schema(0).parse_url("18446744073709551616").is_err()
    );
}

#[test]
fn a_unique_index_is_a_key_for_every_row_image() {
    let server = Server::any();
    server.batch(
        "CREATE TABLE p (id INT PRIMARY KEY, sku VARCHAR(20) COLLATE utf8mb4_bin, a INT NOT NULL,
             b INT NOT NULL, UNIQUE (sku), UNIQUE ab (a, b));
         CREATE TABLE q (sku VARCHAR(20) COLLATE utf8mb4_bin NOT NULL UNIQUE)",
    );
    let feed = Feed::start(&server, &["p(sku)", "p(b,a)", "q(sku)"]);
    let sku = |text: &str| feed.key(0, &[KeyPart::Text(text)]);
    let pair = |b, a| feed.key(1, &[KeyPart::Integer(b), KeyPart::Integer(a)]);
    let sorted = |mut keys: Vec<_>| {
        keys.sort_by(|a: &hotrow_types::key::Key, b| a.as_bytes().cmp(b.as_bytes()));
        keys
    };
    let all = |sql: &str| sorted(feed.keys(&server, sql));
    assert_eq!(all("INSERT INTO p VALUES (1, 'x', 2, 3)"), sorted(vec![sku("x"), pair(3, 2)]));
    assert_eq!(
        all("UPDATE p SET sku = 'y', a = 5"),
        sorted(vec![sku("x"), sku("y"), pair(3, 2), pair(3, 5)])
    );
    assert_eq!(all("DELETE FROM p"), sorted(vec![sku("y"), pair(3, 5)]));
    // No id can address a row whose unique columns are NULL.
    assert_eq!(all("INSERT INTO p VALUES (2, NULL, 1, 1)"), [pair(1, 1)]);
    assert_eq!(all("UPDATE p SET sku = 'z' WHERE id = 2"), sorted(vec![sku("z"), pair(1, 1)]));
    assert_eq!(all("INSERT INTO q VALUES ('t')"), [feed.key(2, &[KeyPart::Text("t")])]);
    // A row image with only the primary key does not identify the others.
    let events = feed.delivered(&server, "SET SESSION binlog_row_image = MINIMAL; DELETE FROM p");
    for collection in [0, 1] {
        let is_flush = |e: &Event| match e {
            Event::Flush(c, FlushCause::Bulk, Some(_)) => c.0 == collection,
            _ => false,
        };
        assert!(events.iter().any(is_flush), "{collection}: {events:?}");
    }
}

#[test]
fn a_unique_index_is_refused_if_deletes_are_logged_without_it() {
    let server = Server::start(&[("binlog-row-image", "MINIMAL")]);
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, u INT NOT NULL UNIQUE)");
    drop(Feed::launch(config(server.url(), &["p(id)"]), |_| {}));
    let text = refusal(config(server.url(), &["p(u)"]));
    for expected in [
        "`binlog_row_image` is MINIMAL",
        "is the unique index `u`",
        "SET GLOBAL binlog_row_image = FULL;",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
