//! Race B: a stream may tell of a change before majority reads see it. By force: the stand-in holds visibility back for as long
//! as the test wants, and with it the answer to the commit, as a server does that waits for a majority.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::MongoRun;
use super::scene::{BOUND, Ended, KEY, OTHER, Scene, assert_clean, first, stage};
use super::session::MongoSession;
use crate::engine::{Commit, Row, Session as _, Step};
use crate::harness::{SOON, await_until};
use crate::observation::{Outcome, Seen};
use crate::reader::Taste;
use crate::rows::payload;
use crate::writer::{note, state};

/// A commit that is in the oplog and that nobody sees.
struct Hidden {
    key: u32,
    version: u64,
    commit: JoinHandle<Option<Commit>>,
}

impl Hidden {
    /// Commits a change of the key, and waits until it is in the oplog.
    #[track_caller]
    fn begin(run: &MongoRun, key: u32) -> Self {
        let version =
            run.kept.iter().find_map(|kept| Some(kept.lock().ok()?.get(&key)?.next_version())).expect("a key");
        let row = Row { key, version, payload: payload(key, version, run.plan.sizes) };
        let mut session = MongoSession::new(run.database.url(), run.database.name());
        let board = Arc::clone(&run.board);
        let standin = run.database.standin();
        standin.hold_visibility();
        let (updates, before) = (standin.commands("update"), standin.now());
        let commit = std::thread::spawn(move || session.commit(&[Step::Update { row, way: 2 }], &board));
        await_until("the commit to wait", SOON, || standin.commands("update") > updates && standin.now() > before);
        Self { key, version, commit }
    }

    /// Lets it become visible; the commit returns.
    #[track_caller]
    fn end(self, run: &MongoRun) {
        assert!(!self.commit.is_finished(), "it waits for its visibility");
        run.database.standin().release_visibility();
        let commit = self.commit.join().expect("no panic").expect("it was committed");
        let mut kept = run.kept.iter().map(|kept| kept.lock().expect("no panics here"));
        let mut kept = kept.find(|kept| kept.contains_key(&self.key)).expect("a key");
        let history = kept.get_mut(&self.key).expect("just found");
        assert_eq!(history.next_version(), self.version, "nobody else writes the key");
        history.push(state(&commit, true, u8::MAX));
        note(&run.board, &commit, 1);
    }
}

/// A change is delivered while it is invisible and a reader asks for its key: whatever that read gets and whenever, no old
/// document may stay. A read that asks for the time of the change waits for it; one that does not must not be kept.
pub(super) fn fence(environment: &[(&str, &str)]) -> Ended {
    let scene = Scene::start(environment);
    let before = scene.delivered();
    let hidden = Hidden::begin(&scene.run, KEY);
    scene.await_delivery(before);
    let mut waiting = scene.run.reader(Taste::plain());
    let sent_ns = waiting.send(scene.instance, &[super::scene::read(KEY)]);
    // Probes pass meanwhile; they must not make the fence forget what is still hidden.
    scene.run.pass(BOUND * 3);
    hidden.end(&scene.run);
    waiting.receive(scene.instance, &[super::scene::read(KEY)], sent_ns);
    scene.end(KEY, vec![waiting])
}

/// The reproducer checked.
#[test]
fn a_hidden_commit_is_in_the_oplog_and_nobody_sees_it() {
    let mut run = stage();
    run.start_writers();
    let (now, version) = (run.database.standin().now(), || {
        let majority = ::mongodb::options::ReadConcern::majority();
        let filter = ::mongodb::bson::doc! { "_id": KEY as i32 };
        let found = run.database.ask(async |database| {
            super::collection_of(database, super::ITEMS).find_one(filter).read_concern(majority).await
        });
        found.expect("a document").get_i64("version").expect("a version")
    });
    let hidden = Hidden::begin(&run, KEY);
    assert!(run.database.standin().now() > now);
    assert_eq!(version(), 0);
    hidden.end(&run);
    assert_eq!(version(), 1);
}

#[test]
fn a_document_read_before_its_change_is_visible_is_not_kept() {
    assert_clean(fence(&[]));
}

#[test]
fn what_has_nothing_hidden_is_kept_while_something_else_is() {
    let mut scene = Scene::start(&[]);
    let hidden = Hidden::begin(&scene.run, KEY);
    // Past the bound, so that the feed's progress and not luck keeps the entry good.
    scene.run.pass(BOUND * 3);
    let seen = scene.get(OTHER);
    assert_eq!(seen, first(OTHER));
    await_until("a hit", SOON, || {
        let again = scene.reader.get(scene.instance, OTHER);
        again.outcome == Outcome::Hit && again.seen == seen
    });
    hidden.end(&scene.run);
    await_until("the new document", Duration::from_secs(5), || scene.get(KEY) == Seen::Version(1));
    assert_clean(scene.end(OTHER, Vec::new()));
}
