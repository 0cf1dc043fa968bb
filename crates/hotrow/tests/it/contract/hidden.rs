//! Commits that are in the log, and so in the feed, before other sessions see them (race B).

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::contract::engine::{Commit, Row, Session as _, Step};
use crate::contract::networked::Networked;
use crate::contract::rows::payload;
use crate::contract::run::Trial;
use crate::contract::writer::{note, record};
use hotrow_testkit::harness::{SOON, await_until};
use hotrow_verify::history::History;

/// Kind of update with one plain statement, on all engines.
const PLAIN: u64 = 3;

/// A commit in the log that is not visible yet.
pub(crate) struct Hidden {
    key: u32,
    pub(crate) version: u64,
    commit: JoinHandle<Option<Commit>>,
}

impl Hidden {
    /// Commits a change of the key and waits until it is in the log.
    #[track_caller]
    pub(crate) fn begin<E: Networked>(run: &Trial<E>, key: u32) -> Self {
        let version = with_history(run, key, |history| history.next_version());
        let row = Row { key, version, payload: payload(key, version, run.plan.sizes) };
        let board = Arc::clone(&run.board);
        let (mut session, is_in_the_log) = run.database.hidden_session();
        let steps = [Step::Update { row, way: PLAIN }];
        let commit = std::thread::spawn(move || session.commit(&steps, &board));
        await_until("the commit to be in the log", SOON, is_in_the_log);
        Self { key, version, commit }
    }

    /// Makes the commit visible and records it.
    #[track_caller]
    pub(crate) fn end<E: Networked>(self, run: &Trial<E>) {
        assert!(!self.commit.is_finished(), "the commit waits until it is visible");
        run.database.show_commits();
        let commit = self.commit.join().expect("no panic").expect("it was committed");
        with_history(run, self.key, |history| {
            assert_eq!(history.next_version(), self.version, "no other writer changes the key");
            record(history, &commit, true);
        });
        note(&run.board, &commit, 1);
    }
}

/// Applies `change` to the key's history.
fn with_history<E: Networked, T>(
    run: &Trial<E>,
    key: u32,
    change: impl FnOnce(&mut History) -> T,
) -> T {
    let mut all =
        run.writer_histories.iter().map(|histories| histories.lock().expect("no panics here"));
    let mut histories = all.find(|histories| histories.contains_key(&key)).expect("a key");
    change(histories.get_mut(&key).expect("just found"))
}
