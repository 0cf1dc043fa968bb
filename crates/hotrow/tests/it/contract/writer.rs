//! A writer: one connection that changes its keys and records their histories.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::contract::board::Board;
use crate::contract::engine::{Commit, Row, Session, Step};
use crate::contract::rows::{Random, Sizes, payload};
use hotrow_verify::history::{History, KeyState, LogInterval, WriteOutcome};

/// Behaviour of writers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteProfile {
    /// Longest pause between two bursts, in microseconds.
    pub(crate) pause_us: u64,
    /// Most commits in a burst.
    pub(crate) burst: u64,
    /// Chance of a delete, in per cent. A key without a row is inserted again.
    pub(crate) deletes: u64,
    /// Chance that a row moves to another key, in per cent.
    pub(crate) moves: u64,
    /// Chance of a rolled-back transaction, in per cent.
    pub(crate) rollbacks: u64,
    /// Chance of a transaction on several keys, in per cent.
    pub(crate) several: u64,
}

impl Default for WriteProfile {
    fn default() -> Self {
        Self { pause_us: 6000, burst: 5, deletes: 12, moves: 3, rollbacks: 2, several: 8 }
    }
}

/// Version in rolled-back transactions, which no commit has.
const ROLLED_BACK: u64 = 1 << 40;
/// Number of keys tried as the target of a move.
const MOVE_TARGET_TRIES: usize = 8;

/// Histories of a writer's keys. The test changes them only while the writers are paused.
pub(crate) type SharedHistories = Arc<Mutex<BTreeMap<u32, History>>>;

/// One writer.
pub(crate) struct Writer<S> {
    pub(crate) session: S,
    pub(crate) board: Arc<Board>,
    pub(crate) histories: SharedHistories,
    pub(crate) sizes: Sizes,
    pub(crate) write_profile: WriteProfile,
    pub(crate) random: Random,
}

impl<S: Session> Writer<S> {
    /// Writes until the board stops writers.
    pub(crate) fn run(mut self) {
        let keys: Vec<u32> =
            self.histories.lock().expect("no panics here").keys().copied().collect();
        while self.board.may_write() {
            let hot = keys[self.random.skewed(keys.len() as u64) as usize];
            self.board.mark_recent(hot);
            for _ in 0..=self.random.below(self.write_profile.burst) {
                if self.random.percent(self.write_profile.rollbacks) {
                    self.session.roll_back(hot, ROLLED_BACK);
                } else {
                    let steps = self.choose(hot, &keys);
                    self.commit(&steps);
                }
            }
            self.board.mark_recent(hot);
            std::thread::sleep(Duration::from_micros(
                self.random.below(self.write_profile.pause_us + 1),
            ));
        }
    }

    /// Changes the key in its own transaction.
    pub(crate) fn change(&mut self, key: u32) {
        let step = self.step(key);
        self.commit(&[step]);
    }

    fn choose(&mut self, hot: u32, keys: &[u32]) -> Vec<Step> {
        if self.random.percent(self.write_profile.moves)
            && let Some(step) = self.choose_move(hot, keys)
        {
            return vec![step];
        }
        let mut changed = vec![hot];
        if self.random.percent(self.write_profile.several) {
            changed.extend([self.random.one_of(keys), self.random.one_of(keys)]);
            changed.sort_unstable();
            changed.dedup();
        }
        changed.into_iter().map(|key| self.step(key)).collect()
    }

    /// Returns a move of the row of `hot` to a key without a row, if one is found.
    fn choose_move(&mut self, hot: u32, keys: &[u32]) -> Option<Step> {
        let histories = self.histories.lock().expect("no panics here");
        let present = |key: u32| histories[&key].last().present;
        let to =
            (0..MOVE_TARGET_TRIES).map(|_| self.random.one_of(keys)).find(|key| !present(*key))?;
        let version = histories[&to].next_version();
        present(hot).then(|| Step::Move { from: hot, row: row(to, version, self.sizes) })
    }

    /// Returns the step that gives the key its next state.
    fn step(&mut self, key: u32) -> Step {
        let histories = self.histories.lock().expect("no panics here");
        let history = &histories[&key];
        let row = || row(key, history.next_version(), self.sizes);
        match history.last().present {
            true if self.random.percent(self.write_profile.deletes) => Step::Delete { key },
            true => Step::Update { row: row(), way: self.random.below(4) },
            false => Step::Insert(row()),
        }
    }

    /// Runs the steps in one transaction and records the result; after a failure nothing is
    /// recorded.
    pub(crate) fn commit(&mut self, steps: &[Step]) {
        let Some(commit) = self.session.commit(steps, &self.board) else { return };
        let changes: Vec<(u32, bool)> = steps.iter().flat_map(Step::changes).collect();
        let mut histories = self.histories.lock().expect("no panics here");
        for (key, present) in &changes {
            let history = histories.get_mut(key).expect("a key of this writer");
            record(history, &commit, *present);
        }
        note(&self.board, &commit, changes.len());
    }
}

/// Appends the state that a commit gave a key.
pub(crate) fn record(history: &mut History, commit: &Commit, present: bool) {
    let Commit { begun_ns, returned_ns, from, at } = *commit;
    let last = history.last();
    assert!(
        last.returned_ns() <= Some(begun_ns)
            && last.log.is_none_or(|log| log.at <= at)
            && from <= at,
        "a key's commits do not overlap"
    );
    history.push(KeyState {
        version: history.next_version(),
        present,
        transaction: 0,
        commit_sent_ns: Some(begun_ns),
        outcome: WriteOutcome::Committed { returned_ns },
        log: Some(LogInterval { from, at }),
    });
}

/// Publishes a commit to the readers.
pub(crate) fn note(board: &Board, commit: &Commit, changes: usize) {
    board.newest_at.fetch_max(commit.at, Ordering::AcqRel);
    board.changes.fetch_add(changes as u64, Ordering::Relaxed);
}

fn row(key: u32, version: u64, sizes: Sizes) -> Row {
    Row { key, version, payload: payload(key, version, sizes) }
}
