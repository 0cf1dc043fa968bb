use std::time::Duration;

use hotrow_types::version::Version;

use super::*;

/// Blocks commits between the log and visibility, by waiting for a semi-synchronous replica that
/// does not exist.
fn block_commits(server: &Server) {
    server.set(&[
        ("rpl_semi_sync_master_wait_point", "AFTER_SYNC"),
        ("rpl_semi_sync_master_timeout", "3600000"),
        ("rpl_semi_sync_master_wait_no_slave", "ON"),
        ("rpl_semi_sync_master_enabled", "ON"),
    ]);
}

/// Releases blocked commits.
fn release_commits(server: &Server) {
    server.batch("SET GLOBAL rpl_semi_sync_master_enabled = OFF");
}

#[test]
fn a_change_delivered_before_it_is_visible_is_not_in_a_reads_version() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, n INT); INSERT INTO p VALUES (1, 0), (2, 0)");
    let feed = Feed::start(&server, &["p(id)"]);
    let from = feed.sink.len();
    block_commits(&server);
    let mut writer = server.begin("UPDATE p SET n = 1 WHERE id = 1");
    let mark = feed.sink.wait("the change", |events| {
        events[from..]
            .iter()
            .find_map(|e| if let Event::Change(change) = e { Some(change.mark) } else { None })
    });
    assert!(writer.runs());
    assert_eq!(server.query("SELECT n FROM p WHERE id = 1"), "0");
    // The log has the change, and the read's version excludes it.
    let version = feed.version_of_a_read(0, 1);
    assert!(!version.contains(&mark), "{version:?} {mark:?}");
    // The feed does not report the change as visible, and it stays fresh because nothing was
    // committed.
    feed.settle();
    assert!(!feed.sink.visible().contains(&mark));
    release_commits(&server);
    writer.outcome().unwrap();
    assert_eq!(server.query("SELECT n FROM p WHERE id = 1"), "1");
    assert!(feed.version_of_a_read(0, 1).contains(&mark));
    feed.settle();
    assert!(feed.sink.visible().contains(&mark));
}

#[test]
fn a_feed_that_starts_while_a_commit_is_hidden_delivers_it() {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, n INT); INSERT INTO p VALUES (1, 0)");
    block_commits(&server);
    let end = server.query("SHOW MASTER STATUS");
    let mut writer = server.begin("UPDATE p SET n = 1 WHERE id = 1");
    let feed = {
        // The commit is in the log, but no session sees it.
        let until = std::time::Instant::now() + Duration::from_secs(30);
        while server.query("SHOW MASTER STATUS") == end {
            assert!(std::time::Instant::now() < until, "the commit is not in the log");
        }
        Feed::launch(config(server.url(), &["p(id)"]), |_| {})
    };
    assert!(writer.runs());
    assert_eq!(server.query("SELECT n FROM p WHERE id = 1"), "0");
    if server.flavor() == Flavor::MySql {
        // It begins once the commit is visible, and need not deliver it.
        assert!(feed.sink.since(0).iter().all(|e| !matches!(e, Event::Started(_))));
        release_commits(&server);
        writer.outcome().unwrap();
        feed.settle();
        assert_eq!(feed.keys(&server, "UPDATE p SET n = 2"), [feed.int(0, 1)]);
        return;
    }
    feed.settle();
    let mark = feed.sink.wait("the change", |events| {
        events
            .iter()
            .find_map(|e| if let Event::Change(change) = e { Some(change.mark) } else { None })
    });
    let version = feed.version_of_a_read(0, 1);
    assert!(!version.contains(&mark), "{version:?} {mark:?}");
    release_commits(&server);
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
    assert!(!before.contains(&change.mark));
    let after = feed.version_of_a_read(0, 1);
    assert!(after.contains(&change.mark));
    if !matches!(after, Version::Gtids(_)) {
        assert!(after.dominates(&before) && !before.dominates(&after));
    }
}
