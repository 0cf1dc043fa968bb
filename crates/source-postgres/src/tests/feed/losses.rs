use std::time::Duration;

use super::*;
use crate::tests::server::Stop;

fn one_table() -> Server {
    let server = Server::start(&[]);
    server.batch("CREATE TABLE p (id int PRIMARY KEY, n int)");
    server
}

#[test]
fn an_ended_session_is_one_loss_and_a_new_start() {
    let server = one_table();
    let feed = Feed::start(&server, &["p(id)"]);
    for ends in [
        "SELECT pg_terminate_backend(pid) FROM pg_stat_replication",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE application_name = 'hotrow feed'",
    ] {
        let from = feed.sink.len();
        server.batch(ends);
        feed.recovers(from, LossCause::Unavailable);
        feed.settle();
        assert_eq!(feed.sink.losses_and_starts(from), ["Unavailable", "started"], "{ends}");
        assert_eq!(
            feed.keys(&server, "INSERT INTO p SELECT 1 + coalesce(max(id), 0) FROM p RETURNING id")
                .len(),
            1
        );
        // The old session's slot was dropped with it.
        let alone = |_: &[Event]| {
            (server.query("SELECT count(*) FROM pg_replication_slots") == "1").then_some(())
        };
        feed.sink.wait("the old slot to go", alone);
    }
}

#[test]
fn a_restart_and_a_crash_are_survived() {
    let mut server = one_table();
    let feed = Feed::start(&server, &["p(id)"]);
    for (i, how) in [Some(Stop::Fast), Some(Stop::Immediate), None].into_iter().enumerate() {
        let from = feed.sink.len();
        match how {
            Some(how) => server.stop(how),
            None => server.kill9(),
        }
        feed.sink.loses(from, LossCause::Unavailable);
        server.restart();
        feed.recovers(from, LossCause::Unavailable);
        feed.settle();
        assert_eq!(feed.sink.losses_and_starts(from), ["Unavailable", "started"], "{how:?}");
        let id = i64::try_from(i).unwrap();
        assert_eq!(feed.keys(&server, &format!("INSERT INTO p VALUES ({i})")), [feed.int(0, id)]);
    }
}

#[test]
fn a_stopped_server_makes_entries_stale_and_ends_the_session() {
    let server = one_table();
    let feed = Feed::launch(config(server.url(), &["p(id)"]), |tuning| {
        tuning.silence_max = Duration::from_secs(3)
    });
    feed.settle();
    let from = feed.sink.len();
    server.pause();
    let advances_to = feed.sink.newest_advance();
    let stood_still_at = hotrow_measure::clock::Nanos::now();
    let detail = feed.sink.loses(from, LossCause::Unavailable);
    assert!(detail.contains("has not answered for 3s"), "{detail}");
    // No freshness was reported in between: events that arrived late had been requested before.
    let newest = feed.sink.newest_advance();
    assert!(newest.is_none_or(|sent_at| sent_at <= stood_still_at), "{advances_to:?} {newest:?}");
    server.resume();
    feed.recovers(from, LossCause::Unavailable);
    feed.settle();
    assert_eq!(feed.keys(&server, "INSERT INTO p VALUES (1)"), [feed.int(0, 1)]);
}

#[test]
fn a_fail_over_is_another_log() {
    let mut server = one_table();
    let standby = server.standby(&[]);
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres",
        server.port(),
        standby.port()
    );
    let feed = Feed::launch(config(url, &["p(id)"]), |_| {});
    let before = feed.settle();
    let from = feed.sink.len();
    server.stop(Stop::Immediate);
    // While the other server is a replica, the feed does not start.
    standby.promote();
    feed.recovers(from, LossCause::OtherLog);
    let after = feed.settle();
    assert_eq!(feed.sink.losses_and_starts(from), ["Unavailable", "OtherLog", "started"]);
    assert_ne!(before.incarnation, after.incarnation);
    assert_eq!(feed.keys(&standby, "INSERT INTO p VALUES (1)"), [feed.int(0, 1)]);
}

#[test]
fn a_restart_begins_another_incarnation() {
    let mut server = one_table();
    let feed = Feed::start(&server, &["p(id)"]);
    let before = feed.settle();
    let from = feed.sink.len();
    server.restart();
    feed.recovers(from, LossCause::Unavailable);
    let after = feed.settle();
    assert_ne!(before.incarnation, after.incarnation);
    assert!(after.at > before.at, "the log itself continues: {before:?} {after:?}");
    assert_eq!(feed.sink.losses_and_starts(from), ["Unavailable", "started"]);
    // A read reports the same incarnation.
    assert_eq!(feed.position_of_a_read(0, 1).incarnation, after.incarnation);
}

#[test]
fn a_log_that_went_backwards_is_another_history() {
    let server = one_table();
    let feed = Feed::start(&server, &["p(id)"]);
    let before = feed.settle();
    // Simulates a server that reported this position and lost the end of its log without a restart.
    feed.source.shared.record_log_end(before.at + (1 << 40));
    let from = feed.sink.len();
    server.batch("SELECT pg_terminate_backend(pid) FROM pg_stat_replication");
    feed.recovers(from, LossCause::OtherLog);
    let after = feed.settle();
    assert_ne!(before.incarnation, after.incarnation);
    assert_eq!(feed.sink.losses_and_starts(from), ["Unavailable", "OtherLog", "started"]);
    assert_eq!(feed.position_of_a_read(0, 1).incarnation, after.incarnation);
    // Once only: the next session continues the log that this one has seen.
    let from = feed.sink.len();
    server.batch("SELECT pg_terminate_backend(pid) FROM pg_stat_replication");
    feed.recovers(from, LossCause::Unavailable);
    assert_eq!(feed.settle().incarnation, after.incarnation);
    assert_eq!(feed.sink.losses_and_starts(from), ["Unavailable", "started"]);
}

#[test]
fn another_cluster_is_another_database() {
    let mut server = one_table();
    let other = Server::start_other(&[]);
    other.batch("CREATE TABLE p (id int PRIMARY KEY, n int)");
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres",
        server.port(),
        other.port()
    );
    let feed = Feed::launch(config(url, &["p(id)"]), |_| {});
    feed.settle();
    let from = feed.sink.len();
    server.stop(Stop::Fast);
    feed.recovers(from, LossCause::OtherDatabase);
    feed.settle();
    assert_eq!(feed.keys(&other, "INSERT INTO p VALUES (1)"), [feed.int(0, 1)]);
}

#[test]
fn the_feed_starts_once_a_slot_is_free() {
    let server = Server::start(&[("max_replication_slots", "2")]);
    server.batch("CREATE TABLE p (id int PRIMARY KEY)");
    let feed = Feed::start(&server, &["p(id)"]);
    let from = feed.sink.len();
    server.batch("SELECT pg_create_physical_replication_slot('a')");
    // Another slot takes the free place before the feed returns; the feed cannot log in until then.
    server.batch(
        "SET statement_timeout = '30s'; ALTER ROLE postgres NOLOGIN; \
         SELECT pg_terminate_backend(pid) FROM pg_stat_replication;
         DO $$ BEGIN LOOP BEGIN PERFORM pg_create_physical_replication_slot('b'); EXIT;
         EXCEPTION WHEN configuration_limit_exceeded THEN NULL; END; END LOOP; END $$; \
         ALTER ROLE postgres LOGIN",
    );
    feed.sink.wait("the loss", |events| {
        events[from..].iter().any(|e| matches!(e, Event::Loss(..))).then_some(())
    });
    let got =
        server.query("SELECT count(*) FROM pg_replication_slots WHERE slot_name IN ('a', 'b')");
    assert_eq!(got, "2");
    server.batch("SELECT pg_drop_replication_slot('b')");
    feed.recovers(from, LossCause::Unavailable);
    feed.settle();
    assert_eq!(feed.sink.losses_and_starts(from), ["Unavailable", "started"]);
}
