//! Age of the shapes in use: the catalogue check has a watermark, like the log.

use std::time::{Duration, Instant};

use hotrow_measure::clock::Nanos;
use hotrow_types::version::Version;
use rustix::process::{Pid, Signal, kill_process};

use super::super::recorder::DEADLINE;
use super::*;
use hotrow_source::Row;

const HOUR: Duration = Duration::from_hours(1);

/// Returns the session of the catalogue checks.
fn catalogue_session(server: &Server) -> Pid {
    let pid = server.query(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'hotrow feed' \
         AND datname = current_database() AND backend_type = 'client backend'",
    );
    Pid::from_raw(pid.parse().unwrap()).unwrap()
}

/// A stopped process; it continues when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn stop(pid: Pid) -> Self {
        kill_process(pid, Signal::STOP).unwrap();
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        _ = kill_process(self.0, Signal::CONT);
    }
}

fn row(feed: &Feed) -> String {
    match feed.read(0, 1).rows.remove(0) {
        Row::Found(json) => String::from_utf8(json).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stopped_catalogue_session_neither_stays_fresh_nor_keeps_the_old_shape() {
    let server = Server::any();
    server.batch("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1)");
    // The session never ends, so its end is not what replaces the old shape.
    let feed = Feed::launch(config(server.url(), &["a(id)"]), |tuning| tuning.silence_max = HOUR);
    feed.settle();
    assert_eq!(row(&feed), r#"{"id":1}"#);
    let stopped = Stopped::stop(catalogue_session(&server));
    let stopped_at = Nanos::now();
    server.batch("ALTER TABLE a ADD b int DEFAULT 7");
    let until = Instant::now() + DEADLINE;
    while row(&feed) != r#"{"id":1,"b":7}"# {
        assert!(
            Instant::now() < until,
            "the old shape is served for as long as the session is stopped"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    // The time on which the policy for stale entries is based.
    let newest = feed.sink.newest_advance();
    assert!(newest.is_some_and(|at| at <= stopped_at), "{newest:?} is after {stopped_at:?}");
    drop(stopped);
    feed.settle();
    assert_eq!(row(&feed), r#"{"id":1,"b":7}"#);
}

#[test]
fn a_watermark_is_never_newer_than_the_last_catalogue_check_allows() {
    let server = Server::any();
    server.batch("CREATE TABLE a (id int PRIMARY KEY)");
    // Probes are sent continuously, catalogue checks every quarter of an hour, and a shape may be
    // as old as the bound at most.
    let mut settings = config(server.url(), &["a(id)"]);
    settings.server.schema_poll = HOUR;
    let feed = Feed::launch(settings, |tuning| tuning.max_staleness = HOUR);
    let first = feed.sink.wait("an advance", |events| {
        events.iter().find_map(|e| match e {
            Event::Advance(sent_at, ..) => Some(*sent_at),
            _ => None,
        })
    });
    let xid: u64 = server
        .query("INSERT INTO a VALUES (1) RETURNING pg_current_xact_id()::text")
        .parse()
        .unwrap();
    feed.sink.wait("a probe that was sent after the change", |_| {
        matches!(feed.sink.visible(), Version::Snapshot { snapshot, .. } if snapshot.contains(xid))
            .then_some(())
    });
    assert_eq!(feed.sink.newest_advance(), Some(first));
}
