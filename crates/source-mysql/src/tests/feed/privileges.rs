//! Privileges that change while the feed runs. The server keeps global and database privileges as
//! they were at the login of a session.

use super::super::harness::wait;
use super::*;
use hotrow_source::{ReadSet, Source as _, SourceError};

/// Account that reads `a` by one grant and `b` by another.
struct Case {
    of_a: &'static str,
    of_b: &'static str,
}

const CASES: [Case; 3] = [
    Case { of_a: "SELECT ON test.a", of_b: "SELECT ON test.b" },
    // A grant on a whole database. `b` is in another one.
    Case { of_a: "SELECT ON test.*", of_b: "SELECT ON other.b" },
    Case { of_a: "SELECT ON *.*", of_b: "SELECT ON test.b" },
];

fn read(feed: &Feed, collection: usize) -> Result<ReadSet, SourceError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let key = feed.int(collection, 1);
    runtime.block_on(feed.source.read(key.collection(), vec![key]))
}

#[test]
fn revoked_and_returned_privileges_are_detected() {
    for Case { of_a, of_b } in CASES {
        let server = Server::start(&[]);
        server.batch(&format!(
            "CREATE DATABASE other; CREATE TABLE a (id INT PRIMARY KEY); INSERT INTO a VALUES (1);
             CREATE TABLE b (id INT PRIMARY KEY); CREATE TABLE other.b (id INT PRIMARY KEY);
             CREATE USER u@'%' IDENTIFIED BY 'p';
             GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO u@'%';
             GRANT SELECT ON test.b TO u@'%'; GRANT {of_a} TO u@'%'; GRANT {of_b} TO u@'%'"
        ));
        let b = if of_b.contains("other") { "other.b(id)" } else { "b(id)" };
        let feed = Feed::launch(config(server.url_for("u", "p"), &["a(id)", b]), |_| {});
        feed.settle();
        assert!(read(&feed, 0).is_ok() && read(&feed, 1).is_ok(), "{of_a}");
        for revoke in [true, false] {
            let from = feed.sink.len();
            let (verb, to) = if revoke { ("REVOKE", "FROM") } else { ("GRANT", "TO") };
            server.batch(&format!("{verb} {of_a} {to} u@'%'"));
            feed.sink.wait("a flush", |events| {
                let is_match =
                    |e: &Event| matches!(e, Event::Flush(c, FlushCause::Schema, None) if c.0 == 0);
                events[from..].iter().any(is_match).then_some(())
            });
            match revoke {
                true => {
                    assert!(matches!(read(&feed, 0), Err(SourceError::Broken { .. })), "{of_a}")
                }
                false => wait("the records to be served again", || read(&feed, 0).is_ok()),
            }
            assert!(read(&feed, 1).is_ok(), "{of_a}");
            let lost = feed.sink.since(from).into_iter().find(|e| matches!(e, Event::Loss(..)));
            assert_eq!(lost, None, "{of_a}");
        }
    }
}

#[test]
fn reads_fail_after_the_account_is_dropped() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE a (id INT PRIMARY KEY); INSERT INTO a VALUES (1)");
    let feed = Feed::start(&server, &["a(id)"]);
    assert!(read(&feed, 0).is_ok());
    let from = feed.sink.len();
    server.batch("DROP USER hotrow@'%'");
    feed.sink.loses(from, LossCause::Unavailable);
    assert!(matches!(read(&feed, 0), Err(SourceError::Unavailable { .. })));
}
