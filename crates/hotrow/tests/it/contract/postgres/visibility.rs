//! Race B: PostgreSQL sends a change once it is in the log, before other sessions see it. Forced: a
//! commit that waits for a standby that does not exist is in the log and invisible, for as long as
//! the test needs.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::PostgresRun;
use super::scene::{
    BOUND, KEY, OTHER, Scenario, ScenarioOutcome, assert_clean, config, first, stage,
};
use super::session::PostgresSession;
use crate::contract::engine::{Commit, Row, Session as _, Step};
use crate::contract::observation::{Outcome, Seen, Token};
use crate::contract::reader::ReadProfile;
use crate::contract::rows::payload;
use crate::contract::writer::{note, state};
use hotrow_testkit::harness::{Client, SOON, await_until};

/// Only sessions that set `synchronous_commit = on` wait for the standby, which does not exist.
const SETTINGS: [(&str, &str); 2] =
    [("synchronous_standby_names", "no_such_standby"), ("synchronous_commit", "local")];
const WAITERS: &str = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// A commit in the log that is not visible yet.
struct Hidden {
    key: u32,
    version: u64,
    commit: JoinHandle<Option<Commit>>,
}

impl Hidden {
    /// Commits a change of the key and waits until it is in the log.
    #[track_caller]
    fn begin(run: &PostgresRun, key: u32) -> Self {
        let version = run
            .writer_histories
            .iter()
            .find_map(|histories| Some(histories.lock().ok()?.get(&key)?.next_version()))
            .expect("a key");
        let row = Row { key, version, payload: payload(key, version, run.plan.sizes) };
        let first = "SET synchronous_commit = on";
        let mut session = PostgresSession::beginning_with(run.database.server.url(), first);
        let board = Arc::clone(&run.board);
        let commit =
            std::thread::spawn(move || session.commit(&[Step::Update { row, way: 2 }], &board));
        await_until("the commit to wait", SOON, || !run.database.server.query(WAITERS).is_empty());
        Self { key, version, commit }
    }

    /// Makes the commit visible and records it.
    #[track_caller]
    fn end(self, run: &PostgresRun) {
        run.database.server.batch(&format!("SELECT pg_cancel_backend(pid) FROM ({WAITERS}) w"));
        let commit = self.commit.join().expect("no panic").expect("it was committed");
        let mut all =
            run.writer_histories.iter().map(|histories| histories.lock().expect("no panics here"));
        let mut histories = all.find(|histories| histories.contains_key(&self.key)).expect("a key");
        let history = histories.get_mut(&self.key).expect("just found");
        assert_eq!(history.next_version(), self.version, "no other writer changes the key");
        history.push(state(&commit, true, u8::MAX));
        note(&run.board, &commit, 1);
    }
}

/// A change is delivered, and its key is read repeatedly while it is invisible: no old row may
/// stay.
pub(super) fn fence(environment: &[(&str, &str)]) -> ScenarioOutcome {
    let mut scenario = Scenario::start_with(&SETTINGS, environment);
    let before = scenario.delivered();
    let hidden = Hidden::begin(&scenario.run, KEY);
    scenario.await_delivery(before);
    // Probes run in the meantime; they must not end the fence while the commit is hidden.
    let due = scenario.run.board.now() + (BOUND * 3).as_nanos() as u64;
    await_until("some time to pass", SOON, || {
        assert_eq!(scenario.get(KEY), first(KEY), "the change is not visible yet");
        scenario.run.board.now() > due
    });
    hidden.end(&scenario.run);
    scenario.end(KEY, Vec::new())
}

/// Test of the reproducer.
#[test]
fn a_hidden_commit_is_in_the_log_and_invisible() {
    let mut run = stage(&SETTINGS);
    run.start_writers();
    let version = format!("SELECT version FROM items WHERE id = {KEY}");
    let before = run.database.log_end();
    let hidden = Hidden::begin(&run, KEY);
    assert!(run.database.log_end() > before);
    assert_eq!(run.database.server.query(&version), "0");
    run.change(OTHER);
    assert_eq!(run.database.server.query(&version), "0", "other sessions commit without a wait");
    hidden.end(&run);
    assert_eq!(run.database.server.query(&version), "1");
}

#[test]
fn a_row_read_before_its_change_is_visible_is_not_cached() {
    assert_clean(fence(&[]));
}

#[test]
fn a_key_without_a_hidden_change_stays_cached() {
    let mut scenario = Scenario::start_with(&SETTINGS, &[]);
    let hidden = Hidden::begin(&scenario.run, KEY);
    // Past the bound, so that the entry stays valid by the feed's progress and not by chance.
    scenario.run.pass(BOUND * 3);
    scenario.change_and_deliver(OTHER);
    let seen = scenario.get(OTHER);
    assert_ne!(seen, first(OTHER));
    await_until("a hit", SOON, || {
        let again = scenario.reader.get(scenario.instance, OTHER);
        again.outcome == Outcome::Hit && again.seen == seen
    });
    hidden.end(&scenario.run);
    assert_clean(scenario.end(KEY, Vec::new()));
}

#[test]
fn a_position_past_a_hidden_change_waits_for_the_new_row() {
    let scenario = Scenario::start_with(&SETTINGS, &[]);
    let hidden = Hidden::begin(&scenario.run, KEY);
    let log = scenario.run.database.incarnation();
    let at = scenario.run.database.log_end();
    let position = Token { log, at }.to_string();
    let mut client = Client::connect(scenario.instance.data);
    let path = format!("/items/{KEY}");
    let waiting =
        std::thread::spawn(move || client.get_with(&path, &[("Hotrow-Min-Position", &position)]));
    scenario.run.pass(BOUND * 2);
    assert!(!waiting.is_finished(), "the request must wait: no answer and no time-out yet");
    let version = hidden.version;
    hidden.end(&scenario.run);
    let answer = waiting.join().expect("an answer");
    assert_eq!(
        (answer.status, answer.json()["version"].as_u64()),
        (200, Some(version)),
        "{answer:?}"
    );
    assert_clean(scenario.end(KEY, Vec::new()));
}

#[test]
fn a_position_past_a_hidden_change_times_out() {
    let mut run = stage(&SETTINGS);
    let config = config(&run).set("limits.request_timeout", "\"700ms\"");
    let instance = run.serve(&config, &[]);
    run.start_writers();
    let hidden = Hidden::begin(&run, KEY);
    let position =
        Token { log: run.database.incarnation(), at: run.database.log_end() }.to_string();
    let answer = run
        .server(instance)
        .client()
        .get_with(&format!("/items/{KEY}"), &[("Hotrow-Min-Position", &position)]);
    // 503 if the time ends before the next attempt begins.
    assert!([503, 504].contains(&answer.status), "{answer:?}");
    hidden.end(&run);
    run.finish(None, true);
}

/// A new feed begins after the hidden commit's record, so it never delivers that commit. Until the
/// commit is visible, no read result may be taken for current.
#[test]
fn a_change_hidden_before_the_feed_began_is_not_missed() {
    let mut run = stage(&SETTINGS);
    run.start_writers();
    let hidden = Hidden::begin(&run, KEY);
    let server = hotrow_testkit::harness::Server::start_with(&config(&run), &[]);
    let instance =
        crate::contract::board::Instance { id: 0, data: server.data, admin: server.admin };
    run.servers.push(server);
    run.board.add_instance(instance);
    let mut reader = run.reader(ReadProfile::plain());
    let mut admin = Client::connect(instance.admin);
    let due = run.board.now() + (BOUND * 5).as_nanos() as u64;
    await_until("some time to pass", SOON, || {
        let answer = reader.get(instance, KEY);
        assert!(matches!(answer.seen, Seen::Refused(_)) || answer.seen == first(KEY), "{answer:?}");
        assert_eq!(admin.get("/readyz").status, 503, "the feed is not current yet");
        run.board.now() > due
    });
    hidden.end(&run);
    run.await_readyz(instance, 200);
    run.finish(Some(reader), true);
}
