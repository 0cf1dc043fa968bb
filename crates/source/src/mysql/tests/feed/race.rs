use std::time::Duration;

use hotrow_cache::version::Version;

use super::*;

/// From now on commits wait, when they are in the log, for a replica that does not exist.
fn hold(server: &Server) {
    server.set(&[
        ("rpl_semi_sync_master_wait_point", "AFTER_SYNC"),
        ("rpl_semi_sync_master_timeout", "3600000"),
        ("rpl_semi_sync_master_wait_no_slave", "ON"),
        ("rpl_semi_sync_master_enabled", "ON"),
    ]);
}

/// Lets the commits go on that wait.
fn release(server: &Server) {
    server.batch("SET GLOBAL rpl_semi_sync_master_enabled = OFF");
}

#[test]
fn a_change_that_is_told_before_it_is_visible_is_not_seen_by_the_read() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, n INT); INSERT INTO p VALUES (1, 0), (2, 0)");
    let feed = Feed::start(&server, &["p(id)"]);
    let from = feed.sink.len();
    hold(&server);
    let mut writer = server.begin("UPDATE p SET n = 1 WHERE id = 1");
    let mark = feed.sink.wait("the change", |events| {
        events[from..].iter().find_map(|e| if let Event::Change(change) = e { Some(change.mark) } else { None })
    });
    assert!(writer.runs());
    assert_eq!(server.query("SELECT n FROM p WHERE id = 1"), "0");
    // The log has it, and a read knows that it does not see it.
    let version = feed.version_of_a_read(0, 1);
    assert!(!version.sees(&mark), "{version:?} {mark:?}");
    // The feed tells no such thing as visible, and goes on to be fresh: nothing was committed.
    feed.settle();
    assert!(!feed.sink.visible().sees(&mark));
    release(&server);
    writer.outcome().unwrap();
    assert_eq!(server.query("SELECT n FROM p WHERE id = 1"), "1");
    assert!(feed.version_of_a_read(0, 1).sees(&mark));
    feed.settle();
    assert!(feed.sink.visible().sees(&mark));
}

#[test]
fn a_feed_that_starts_while_a_commit_is_hidden_tells_of_it() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, n INT); INSERT INTO p VALUES (1, 0)");
    hold(&server);
    let end = server.query("SHOW MASTER STATUS");
    let mut writer = server.begin("UPDATE p SET n = 1 WHERE id = 1");
    let feed = {
        // It is in the log, and nobody sees it.
        let until = std::time::Instant::now() + Duration::from_secs(30);
        while server.query("SHOW MASTER STATUS") == end {
            assert!(std::time::Instant::now() < until, "the commit is not in the log");
        }
        Feed::start(&server, &["p(id)"])
    };
    assert!(writer.runs());
    assert_eq!(server.query("SELECT n FROM p WHERE id = 1"), "0");
    let mark = feed.sink.wait("the change", |events| {
        events.iter().find_map(|e| if let Event::Change(change) = e { Some(change.mark) } else { None })
    });
    let version = feed.version_of_a_read(0, 1);
    assert!(!version.sees(&mark), "{version:?} {mark:?}");
    release(&server);
    writer.outcome().unwrap();
}

#[test]
fn a_read_sees_nothing_past_its_version() {
    let server = Server::any();
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, n INT); INSERT INTO p VALUES (1, 0)");
    let feed = Feed::start(&server, &["p(id)"]);
    let before = feed.version_of_a_read(0, 1);
    let from = feed.sink.len();
    server.batch("UPDATE p SET n = 1");
    feed.settle();
    let events = feed.sink.since(from);
    let [Event::Change(change)] = &events[..] else { panic!("{events:?}") };
    assert!(!before.sees(&change.mark));
    let after = feed.version_of_a_read(0, 1);
    assert!(after.sees(&change.mark));
    if !matches!(after, Version::Gtids(_)) {
        assert!(after.covers(&before) && !before.covers(&after));
    }
}
