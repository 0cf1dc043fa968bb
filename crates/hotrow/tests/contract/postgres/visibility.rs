//! Race B: PostgreSQL sends a change when it is in the log, which is before other sessions see it. By force: a commit that
//! waits for a standby that does not exist is in the log and invisible, for as long as the test wants.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::PostgresRun;
use super::scene::{BOUND, Ended, KEY, OTHER, Scene, assert_clean, config, first, stage};
use super::session::PostgresSession;
use crate::engine::{Commit, Row, Session as _, Step};
use crate::harness::{Client, SOON, await_until};
use crate::observation::{Outcome, Seen, Token};
use crate::reader::Taste;
use crate::rows::payload;
use crate::writer::{note, state};

/// Nobody waits for the standby that there is not, except who says so.
const SETTINGS: [(&str, &str); 2] = [("synchronous_standby_names", "nobody"), ("synchronous_commit", "local")];
const WAITERS: &str = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// A commit that is in the log and that nobody sees.
struct Hidden {
    key: u32,
    version: u64,
    commit: JoinHandle<Option<Commit>>,
}

impl Hidden {
    /// Commits a change of the key, and waits until it is in the log.
    #[track_caller]
    fn begin(run: &PostgresRun, key: u32) -> Self {
        let version =
            run.kept.iter().find_map(|kept| Some(kept.lock().ok()?.get(&key)?.next_version())).expect("a key");
        let row = Row { key, version, payload: payload(key, version, run.plan.sizes) };
        let first = "SET synchronous_commit = on";
        let mut session = PostgresSession::beginning_with(run.database.server.url(), first);
        let board = Arc::clone(&run.board);
        let commit = std::thread::spawn(move || session.commit(&[Step::Update { row, way: 2 }], &board));
        await_until("the commit to wait", SOON, || !run.database.server.query(WAITERS).is_empty());
        Self { key, version, commit }
    }

    /// Lets it become visible; the commit returns.
    #[track_caller]
    fn end(self, run: &PostgresRun) {
        run.database.server.batch(&format!("SELECT pg_cancel_backend(pid) FROM ({WAITERS}) w"));
        let commit = self.commit.join().expect("no panic").expect("it was committed");
        let mut kept = run.kept.iter().map(|kept| kept.lock().expect("no panics here"));
        let mut kept = kept.find(|kept| kept.contains_key(&self.key)).expect("a key");
        let history = kept.get_mut(&self.key).expect("just found");
        assert_eq!(history.next_version(), self.version, "nobody else writes the key");
        history.push(state(&commit, true, u8::MAX));
        note(&run.board, &commit, 1);
    }
}

/// A change is delivered, and read before it is visible, again and again: none of what is read may stay.
pub(super) fn fence(environment: &[(&str, &str)]) -> Ended {
    let mut scene = Scene::start_with(&SETTINGS, environment);
    let before = scene.delivered();
    let hidden = Hidden::begin(&scene.run, KEY);
    scene.await_delivery(before);
    // Probes pass meanwhile; they must not make the fence forget what is still hidden.
    let due = scene.run.board.now() + (BOUND * 3).as_nanos() as u64;
    await_until("some time to pass", SOON, || {
        assert_eq!(scene.get(KEY), first(KEY), "nobody can see the change yet");
        scene.run.board.now() > due
    });
    hidden.end(&scene.run);
    scene.end(KEY, Vec::new())
}

/// The reproducer checked.
#[test]
fn a_hidden_commit_is_in_the_log_and_nobody_sees_it() {
    let mut run = stage(&SETTINGS);
    run.start_writers();
    let version = format!("SELECT version FROM items WHERE id = {KEY}");
    let before = run.database.log_end();
    let hidden = Hidden::begin(&run, KEY);
    assert!(run.database.log_end() > before);
    assert_eq!(run.database.server.query(&version), "0");
    run.change(OTHER);
    assert_eq!(run.database.server.query(&version), "0", "others commit and do not wait");
    hidden.end(&run);
    assert_eq!(run.database.server.query(&version), "1");
}

#[test]
fn a_row_read_before_its_change_is_visible_is_not_kept() {
    assert_clean(fence(&[]));
}

#[test]
fn what_has_nothing_hidden_is_kept_while_something_else_is() {
    let mut scene = Scene::start_with(&SETTINGS, &[]);
    let hidden = Hidden::begin(&scene.run, KEY);
    // Past the bound, so that the feed's progress and not luck keeps the entry good.
    scene.run.pass(BOUND * 3);
    scene.change_and_deliver(OTHER);
    let seen = scene.get(OTHER);
    assert_ne!(seen, first(OTHER));
    await_until("a hit", SOON, || {
        let again = scene.reader.get(scene.instance, OTHER);
        again.outcome == Outcome::Hit && again.seen == seen
    });
    hidden.end(&scene.run);
    assert_clean(scene.end(KEY, Vec::new()));
}

#[test]
fn a_position_past_a_hidden_change_is_not_answered_with_the_row_before_it() {
    let scene = Scene::start_with(&SETTINGS, &[]);
    let hidden = Hidden::begin(&scene.run, KEY);
    let (log, at) = (scene.run.database.incarnation(), scene.run.database.log_end());
    let position = Token { log, at }.to_string();
    let mut client = Client::connect(scene.instance.data);
    let path = format!("/items/{KEY}");
    let waiting = std::thread::spawn(move || client.get_with(&path, &[("Hotrow-Min-Position", &position)]));
    scene.run.pass(BOUND * 2);
    assert!(!waiting.is_finished(), "it can neither be answered nor be given up yet");
    let version = hidden.version;
    hidden.end(&scene.run);
    let answer = waiting.join().expect("an answer");
    assert_eq!((answer.status, answer.json()["version"].as_u64()), (200, Some(version)), "{answer:?}");
    assert_clean(scene.end(KEY, Vec::new()));
}

#[test]
fn a_position_past_a_change_that_stays_hidden_is_a_time_out() {
    let mut run = stage(&SETTINGS);
    let config = config(&run).set("limits.request_timeout", "\"700ms\"");
    let instance = run.serve(&config, &[]);
    run.start_writers();
    let hidden = Hidden::begin(&run, KEY);
    let position = Token { log: run.database.incarnation(), at: run.database.log_end() }.to_string();
    let answer =
        run.server(instance).client().get_with(&format!("/items/{KEY}"), &[("Hotrow-Min-Position", &position)]);
    // 503 where its time is over before the next try begins.
    assert!([503, 504].contains(&answer.status), "{answer:?}");
    hidden.end(&run);
    run.finish(None, true);
}

/// A feed that starts begins after the hidden commit's record, so it never delivers it. Until it is visible, nothing that is
/// read may be taken for good.
#[test]
fn a_change_hidden_since_before_the_feed_began_is_not_missed() {
    let mut run = stage(&SETTINGS);
    run.start_writers();
    let hidden = Hidden::begin(&run, KEY);
    let server = crate::harness::Server::start_with(&config(&run), &[]);
    let instance = crate::board::Instance { id: 0, data: server.data, admin: server.admin };
    run.servers.push(server);
    run.board.add_instance(instance);
    let mut reader = run.reader(Taste::plain());
    let mut admin = Client::connect(instance.admin);
    let due = run.board.now() + (BOUND * 5).as_nanos() as u64;
    await_until("some time to pass", SOON, || {
        let answer = reader.get(instance, KEY);
        assert!(matches!(answer.seen, Seen::Refused(_)) || answer.seen == first(KEY), "{answer:?}");
        assert_eq!(admin.get("/readyz").status, 503, "the feed knows nothing yet");
        run.board.now() > due
    });
    hidden.end(&run);
    run.await_readyz(instance, 200);
    run.finish(Some(reader), true);
}
