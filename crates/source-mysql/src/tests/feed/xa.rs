//! Prepared transactions (XA).

use super::super::harness::wait;
use super::*;

#[test]
fn a_prepared_transaction_is_delivered_at_its_commit() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, n INT); INSERT INTO p VALUES (1, 0), (2, 0)");
    let feed = Feed::start(&server, &["p(id)"]);
    let prepare = |name: &str, id: i64| {
        format!(
            "XA START '{name}'; UPDATE p SET n = n + 1 WHERE id = {id}; XA END '{name}';
             XA PREPARE '{name}'"
        )
    };
    assert_eq!(feed.keys(&server, &prepare("x1", 1)), []);
    // Later commits are delivered in their own order.
    assert_eq!(feed.keys(&server, "INSERT INTO p VALUES (3, 0)"), [feed.int(0, 3)]);
    let events = feed.delivered(&server, "XA COMMIT 'x1'");
    assert!(!events.is_empty());
    for event in events {
        let Event::Change(change) = event else { panic!("{event:?}") };
        assert_eq!(change.key, feed.int(0, 1));
        assert!(feed.version_of_a_read(0, 1).contains(&change.mark));
    }
    assert_eq!(feed.keys(&server, &prepare("x2", 2)), []);
    assert_eq!(feed.keys(&server, "XA ROLLBACK 'x2'"), []);
    let one_phase =
        "XA START 'x3'; UPDATE p SET n = 9 WHERE id = 2; XA END 'x3'; XA COMMIT 'x3' ONE PHASE";
    assert_eq!(feed.keys(&server, one_phase), [feed.int(0, 2)]);
}

#[test]
fn a_transaction_prepared_before_the_start_flushes_everything() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, n INT); INSERT INTO p VALUES (1, 0)");
    server.batch("XA START 'old'; UPDATE p SET n = 1; XA END 'old'; XA PREPARE 'old'");
    let feed = Feed::start(&server, &["p(id)"]);
    let events = feed.delivered(&server, "XA COMMIT 'old'");
    assert!(
        events.iter().any(|e| matches!(e, Event::Flush(_, FlushCause::Bulk, Some(_)))),
        "{events:?}"
    );
}

/// Returns the number of times that the server was asked for its prepared transactions.
fn lists_sent(server: &Server) -> u64 {
    let text = server.query("SHOW GLOBAL STATUS LIKE 'Com_xa_recover'");
    text.split('\t').nth(1).unwrap().trim().parse().unwrap()
}

/// A server that waits for a replica between log and engine shows the order that every commit of
/// XA has on MariaDB. The replica never answers.
#[test]
fn a_commit_that_the_engine_has_not_made_is_held_back() {
    let settings = [
        ("rpl-semi-sync-master-wait-point", "AFTER_SYNC"),
        ("rpl-semi-sync-master-timeout", "600000"),
    ];
    let server = Server::start_as(Flavor::MariaDb, &settings);
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, n INT); INSERT INTO p VALUES (1, 0)");
    let feed = Feed::start(&server, &["p(id)"]);
    server.batch("XA START 'x'; UPDATE p SET n = 7; XA END 'x'; XA PREPARE 'x'");
    feed.settle();
    let (log_end, from) = (server.query("SHOW MASTER STATUS"), feed.sink.len());
    server.batch("SET GLOBAL rpl_semi_sync_master_enabled = ON");
    let committing = server.begin("XA COMMIT 'x'");
    wait("the commit in the log", || server.query("SHOW MASTER STATUS") != log_end);
    let sent = "SELECT 1 FROM information_schema.PROCESSLIST WHERE COMMAND = 'Binlog Dump' AND \
                STATE LIKE '%waiting for more updates%'";
    wait("the log to be sent", || !server.query(sent).is_empty());
    let lists = lists_sent(&server);
    wait("the feed to look three times", || lists_sent(&server) >= lists + 3);
    assert!(server.query("XA RECOVER").contains('x'));
    let is_change = |event: &Event| matches!(event, Event::Change(_) | Event::Flush(..));
    assert!(!feed.sink.since(from).iter().any(is_change), "{:?}", feed.sink.since(from));
    server.batch("SET GLOBAL rpl_semi_sync_master_enabled = OFF");
    feed.sink.wait("the change", |events| events[from..].iter().any(is_change).then_some(()));
    assert!(format!("{:?}", feed.read(0, 1)).contains('7'));
    drop(committing);
}

/// While the name of a committed transaction is prepared anew, the server lists it again.
#[test]
fn a_name_that_is_used_again_holds_nothing_back() {
    let server = Server::any();
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, n INT); INSERT INTO p VALUES (1, 0), (2, 0)");
    let feed = Feed::start(&server, &["p(id)"]);
    let prepare = |id: i64| {
        format!(
            "XA START 'again'; UPDATE p SET n = n + 1 WHERE id = {id}; XA END 'again'; \
             XA PREPARE 'again'"
        )
    };
    assert_eq!(feed.keys(&server, &prepare(1)), []);
    let from = feed.sink.len();
    server.batch(&format!("XA COMMIT 'again'; {}", prepare(2)));
    feed.sink.wait("the first change", |events| {
        let key = feed.int(0, 1);
        let is_it = |event: &Event| matches!(event, Event::Change(change) if change.key == key);
        events[from..].iter().any(is_it).then_some(())
    });
    assert_eq!(feed.keys(&server, "XA COMMIT 'again'"), [feed.int(0, 2)]);
}
