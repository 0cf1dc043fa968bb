use std::time::Duration;

use super::*;

fn one_table() -> Server {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, n INT)");
    server
}

/// Kills the sessions of the process list that match a condition.
fn kill(server: &Server, which: &str) {
    let ids = server.query(&format!(
        "SELECT id FROM information_schema.PROCESSLIST WHERE {which} AND id <> CONNECTION_ID()"
    ));
    assert!(!ids.is_empty(), "no session: {which}");
    ids.lines().for_each(|id| _ = server.try_query(&format!("KILL {id}")));
}

#[test]
fn an_ended_session_is_one_loss_and_a_new_start() {
    let server = one_table();
    let feed = Feed::start(&server, &["p(id)"]);
    for (id, which) in
        ["command = 'Binlog Dump'", "command IN ('Sleep', 'Query')"].into_iter().enumerate()
    {
        let from = feed.sink.len();
        kill(&server, which);
        feed.recovers(from, LossCause::Unavailable);
        feed.settle();
        assert_eq!(feed.sink.losses_and_starts(from), ["Unavailable", "started"], "{which}");
        let id = i64::try_from(id).unwrap();
        assert_eq!(
            feed.keys(&server, &format!("INSERT INTO p VALUES ({id}, 0)")),
            [feed.int(0, id)]
        );
    }
}

#[test]
fn the_feed_recovers_from_a_restart_and_a_crash() {
    let mut server = one_table();
    let feed = Feed::start(&server, &["p(id)"]);
    for (id, how) in [Stop::Fast, Stop::Kill].into_iter().enumerate() {
        let from = feed.sink.len();
        server.stop(how);
        feed.sink.loses(from, LossCause::Unavailable);
        server.restart();
        feed.recovers(from, LossCause::Unavailable);
        feed.settle();
        assert_eq!(feed.sink.losses_and_starts(from), ["Unavailable", "started"], "{how:?}");
        let id = i64::try_from(id).unwrap();
        assert_eq!(
            feed.keys(&server, &format!("INSERT INTO p VALUES ({id}, 0)")),
            [feed.int(0, id)]
        );
    }
}

#[test]
fn a_paused_server_makes_the_feed_stale_and_ends_its_session() {
    let server = one_table();
    let feed = Feed::launch(config(server.url(), &["p(id)"]), |tuning| {
        tuning.heartbeat = Duration::from_millis(100);
        tuning.silence_max = Duration::from_secs(3);
    });
    feed.settle();
    let from = feed.sink.len();
    server.pause();
    let paused_at = hotrow_measure::clock::Nanos::now();
    let detail = feed.sink.loses(from, LossCause::Unavailable);
    assert!(detail.contains("has not answered for 3s"), "{detail}");
    // Nothing claimed to be fresh since the pause: an answer that arrived late was requested
    // before.
    let newest = feed.sink.newest_advance();
    assert!(newest.is_none_or(|sent_at| sent_at <= paused_at), "{newest:?}");
    server.resume();
    feed.recovers(from, LossCause::Unavailable);
    feed.settle();
    assert_eq!(feed.keys(&server, "INSERT INTO p VALUES (1, 0)"), [feed.int(0, 1)]);
}

#[test]
fn a_log_that_is_reset_is_another_log() {
    let server = one_table();
    let feed = Feed::start(&server, &["p(id)"]);
    server.batch("FLUSH BINARY LOGS; FLUSH BINARY LOGS; INSERT INTO p VALUES (1, 0)");
    feed.settle();
    let from = feed.sink.len();
    let before = feed.settle();
    server.batch("RESET MASTER; INSERT INTO p VALUES (2, 0)");
    feed.sink.wait("the loss and a start", |events| {
        let lost = events[from..].iter().position(|e| matches!(e, Event::Loss(..)))?;
        events[from + lost..].iter().any(|e| matches!(e, Event::Started(_))).then_some(())
    });
    // Points recur with another meaning, and must not be confused with those from before the reset.
    assert_ne!(feed.settle().incarnation, before.incarnation);
    // Readers and feed use the same incarnation.
    let events = feed.delivered(&server, "INSERT INTO p VALUES (3, 0)");
    let [Event::Change(change)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(change.key, feed.int(0, 3));
    assert!(feed.version_of_a_read(0, 3).contains(&change.mark));
}

#[test]
fn a_log_purged_while_the_feed_is_away_is_a_loss() {
    let mut server = one_table();
    let feed = Feed::start(&server, &["p(id)"]);
    let from = feed.sink.len();
    server.stop(Stop::Fast);
    // Changes that the feed has not seen are written and purged while it is away.
    server.restart();
    server.batch("INSERT INTO p VALUES (1, 0); FLUSH BINARY LOGS");
    let newest = server.query("SHOW MASTER STATUS");
    _ = server.try_query(&format!("PURGE BINARY LOGS TO '{}'", newest.split('\t').next().unwrap()));
    feed.recovers(from, LossCause::Unavailable);
    feed.settle();
    assert_eq!(feed.keys(&server, "INSERT INTO p VALUES (2, 0)"), [feed.int(0, 2)]);
}

#[test]
fn another_server_is_another_database() {
    let mut server = one_table();
    let other = one_table();
    let url = server.url().replace("/test", &format!(",127.0.0.1:{}/test", other.port()));
    let feed = Feed::launch(config(url, &["p(id)"]), |_| {});
    let before = feed.settle();
    let from = feed.sink.len();
    server.stop(Stop::Fast);
    feed.recovers(from, LossCause::OtherDatabase);
    let after = feed.settle();
    assert_eq!(feed.sink.losses_and_starts(from), ["Unavailable", "OtherDatabase", "started"]);
    assert_ne!(before.incarnation, after.incarnation);
    assert_eq!(feed.keys(&other, "INSERT INTO p VALUES (1, 0)"), [feed.int(0, 1)]);
}

#[test]
fn a_replica_with_the_same_number_ends_the_session() {
    let server = one_table();
    let mut first = config(server.url(), &["p(id)"]);
    first.server_id = Some(4711);
    let feed = Feed::launch(first.clone(), |_| {});
    feed.settle();
    let from = feed.sink.len();
    let second = Feed::launch(first, |_| {});
    let detail = feed.sink.wait("the loss", |events| {
        events[from..]
            .iter()
            .find_map(|e| if let Event::Loss(_, detail) = e { Some(detail.clone()) } else { None })
    });
    drop(second);
    feed.settle();
    assert!(detail.contains("`source.server_id`"), "{detail}");
}
