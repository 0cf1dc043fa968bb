//! Race B: a stream may deliver a change before majority reads see it. Forced: the stand-in delays
//! visibility, and with it the answer to the commit, like a server that waits for a majority.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::MongoRun;
use super::scene::{BOUND, KEY, OTHER, Scenario, ScenarioOutcome, assert_clean, first, stage};
use super::session::MongoSession;
use crate::contract::engine::{Commit, Row, Session as _, Step};
use crate::contract::observation::{Outcome, Seen};
use crate::contract::reader::ReadProfile;
use crate::contract::rows::payload;
use crate::contract::writer::{note, state};
use hotrow_testkit::harness::{SOON, await_until};

/// A commit in the oplog that is not visible yet.
struct Hidden {
    key: u32,
    version: u64,
    commit: JoinHandle<Option<Commit>>,
}

impl Hidden {
    /// Commits a change of the key and waits until it is in the oplog.
    #[track_caller]
    fn begin(run: &MongoRun, key: u32) -> Self {
        let version = run
            .writer_histories
            .iter()
            .find_map(|histories| Some(histories.lock().ok()?.get(&key)?.next_version()))
            .expect("a key");
        let row = Row { key, version, payload: payload(key, version, run.plan.sizes) };
        let mut session = MongoSession::new(run.database.url(), run.database.name());
        let board = Arc::clone(&run.board);
        let standin = run.database.standin();
        standin.hold_visibility();
        let updates = standin.commands("update");
        let before = standin.now();
        let commit =
            std::thread::spawn(move || session.commit(&[Step::Update { row, way: 2 }], &board));
        await_until("the commit to wait", SOON, || {
            standin.commands("update") > updates && standin.now() > before
        });
        Self { key, version, commit }
    }

    /// Makes the commit visible and records it.
    #[track_caller]
    fn end(self, run: &MongoRun) {
        assert!(!self.commit.is_finished(), "the commit waits until it is visible");
        run.database.standin().release_visibility();
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

/// A change is delivered while it is invisible and its key is read: no old document may stay. A
/// read at the change's time waits for it; any other must not be cached.
pub(super) fn fence(environment: &[(&str, &str)]) -> ScenarioOutcome {
    let scenario = Scenario::start(environment);
    let before = scenario.delivered();
    let hidden = Hidden::begin(&scenario.run, KEY);
    scenario.await_delivery(before);
    let mut waiting = scenario.run.reader(ReadProfile::plain());
    let sent_ns = waiting.send(scenario.instance, &[super::scene::read(KEY)]);
    // Probes run in the meantime; they must not end the fence while the commit is hidden.
    scenario.run.pass(BOUND * 3);
    hidden.end(&scenario.run);
    waiting.receive(scenario.instance, &[super::scene::read(KEY)], sent_ns);
    scenario.end(KEY, vec![waiting])
}

/// Test of the reproducer.
#[test]
fn a_hidden_commit_is_in_the_oplog_and_invisible() {
    let mut run = stage();
    run.start_writers();
    let now = run.database.standin().now();
    let version = || {
        let majority = ::mongodb::options::ReadConcern::majority();
        let filter = ::mongodb::bson::doc! { "_id": KEY as i32 };
        let found = run.database.ask(async |database| {
            super::collection_of(database, super::ITEMS)
                .find_one(filter)
                .read_concern(majority)
                .await
        });
        found.expect("a document").get_i64("version").expect("a version")
    };
    let hidden = Hidden::begin(&run, KEY);
    assert!(run.database.standin().now() > now);
    assert_eq!(version(), 0);
    hidden.end(&run);
    assert_eq!(version(), 1);
}

#[test]
fn a_document_read_before_its_change_is_visible_is_not_cached() {
    assert_clean(fence(&[]));
}

#[test]
fn a_key_without_a_hidden_change_stays_cached() {
    let mut scenario = Scenario::start(&[]);
    let hidden = Hidden::begin(&scenario.run, KEY);
    // Past the bound, so that the entry stays valid by the feed's progress and not by chance.
    scenario.run.pass(BOUND * 3);
    let seen = scenario.get(OTHER);
    assert_eq!(seen, first(OTHER));
    await_until("a hit", SOON, || {
        let again = scenario.reader.get(scenario.instance, OTHER);
        again.outcome == Outcome::Hit && again.seen == seen
    });
    hidden.end(&scenario.run);
    await_until("the new document", Duration::from_secs(5), || {
        scenario.get(KEY) == Seen::Version(1)
    });
    assert_clean(scenario.end(OTHER, Vec::new()));
}
