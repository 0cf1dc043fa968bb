//! Freshness while another process keeps the feed from the database.

use crate::config::Tuning;
use crate::config::{Config, Watch};
use crate::connect::{PriorState, link};
use crate::session::{Polled, Session, SessionContext};
use crate::shared::Shared;
use crate::{Hooks, open_with};
use hotrow_source::Source;
use hotrow_supervisor::Supervisor;

use super::harness::{Db, Recorder, spec};

/// Runs `steps` with a function that polls the database once. It returns the result and whether the
/// sink received a freshness report for this poll.
fn with_session(db: &Db, steps: impl FnOnce(&mut dyn FnMut() -> (Polled, bool))) {
    let config = Config { watch: Watch::None, ..db.config(vec![spec("t(id)")]) };
    let tuning = Tuning { install_busy: std::time::Duration::ZERO, ..Tuning::default() };
    let opened =
        open_with(config.clone(), Hooks::default(), tuning.clone(), &Supervisor::default())
            .unwrap();
    let sink = Recorder::default();
    let shared = Shared::new();
    let schemas = opened.source.schemas();
    let context =
        SessionContext { config: &config, tuning: &tuning, shared: &shared, schemas, sink: &sink };
    let link = link(&config, &tuning, PriorState::none()).unwrap();
    let mut session = Session::start(context, &link).unwrap();
    steps(&mut || {
        let before = sink.advances();
        (session.poll().unwrap(), sink.advances() > before)
    });
}

fn database(journal_mode: &str) -> Db {
    let db = Db::new("CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1, 'old')");
    db.writer.pragma_update(None, "journal_mode", journal_mode).unwrap();
    db
}

#[test]
fn an_exclusive_lock_without_a_commit_keeps_the_feed_fresh() {
    for journal_mode in ["DELETE", "TRUNCATE", "PERSIST"] {
        let db = database(journal_mode);
        with_session(&db, |poll| {
            assert_eq!(poll(), (Polled::Quiet, true));
            db.run("BEGIN EXCLUSIVE");
            assert_eq!(poll(), (Polled::Locked, true), "{journal_mode}");
            db.run("UPDATE t SET v = 'new'");
            assert_eq!(poll(), (Polled::Locked, true), "written and not committed");
            db.run("COMMIT");
            assert_eq!(poll(), (Polled::Changed, true));
            db.run("BEGIN EXCLUSIVE");
            assert_eq!(poll(), (Polled::Locked, true), "that commit is delivered");
            db.run("UPDATE t SET v = 'newer'; ROLLBACK");
            assert_eq!(poll(), (Polled::Quiet, true));
        });
    }
}

#[test]
fn a_commit_under_a_held_lock_ends_freshness() {
    let db = database("DELETE");
    with_session(&db, |poll| {
        assert_eq!(poll(), (Polled::Quiet, true));
        db.run("PRAGMA locking_mode = EXCLUSIVE; UPDATE t SET v = 'new'");
        assert_eq!(poll(), (Polled::Busy, false), "committed");
        // Only the first commit of such a connection increments the change counter.
        db.run("UPDATE t SET v = 'newer'");
        assert_eq!(poll(), (Polled::Busy, false));
        db.run("PRAGMA locking_mode = NORMAL; SELECT count(*) FROM t");
        assert_eq!(poll(), (Polled::Changed, true));
    });
}

#[test]
fn a_commit_between_two_polls_of_a_locked_database_ends_freshness() {
    let db = database("DELETE");
    with_session(&db, |poll| {
        assert_eq!(poll(), (Polled::Quiet, true));
        db.run("BEGIN EXCLUSIVE");
        assert_eq!(poll(), (Polled::Locked, true));
        db.run("UPDATE t SET v = 'new'; COMMIT; BEGIN EXCLUSIVE");
        assert_eq!(poll(), (Polled::Busy, false));
        db.run("COMMIT");
        assert_eq!(poll(), (Polled::Changed, true));
    });
}

#[test]
fn without_a_poll_before_the_lock_commits_are_unknown() {
    let db = database("DELETE");
    with_session(&db, |poll| {
        db.run("BEGIN EXCLUSIVE");
        assert_eq!(poll(), (Polled::Busy, false));
        db.run("COMMIT");
        assert_eq!(poll(), (Polled::Quiet, true));
    });
}
