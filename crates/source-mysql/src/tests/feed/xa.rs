use super::*;

#[test]
fn a_prepared_transaction_is_delivered_at_its_commit() {
    let server = Server::any();
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
    let server = Server::any();
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, n INT); INSERT INTO p VALUES (1, 0)");
    server.batch("XA START 'old'; UPDATE p SET n = 1; XA END 'old'; XA PREPARE 'old'");
    let feed = Feed::start(&server, &["p(id)"]);
    let events = feed.delivered(&server, "XA COMMIT 'old'");
    assert!(
        events.iter().any(|e| matches!(e, Event::Flush(_, FlushCause::Bulk, Some(_)))),
        "{events:?}"
    );
}
