//! A writer: one connection that changes the keys it owns, and writes down what it did.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::board::Board;
use crate::engine::{Commit, Row, Session, Step};
use crate::history::{History, State};
use crate::rows::{Random, Sizes, payload};

/// How writers behave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habit {
    /// Longest pause between bursts, in microseconds.
    pub(crate) pause_us: u64,
    /// Most commits of one burst.
    pub(crate) burst: u64,
    /// Chance of a delete, in per cent; a key without a row is inserted again.
    pub(crate) deletes: u64,
    /// Chance that a row gets another key, in per cent.
    pub(crate) moves: u64,
    /// Chance of a transaction that is rolled back, in per cent.
    pub(crate) rollbacks: u64,
    /// Chance that a transaction changes several keys, in per cent.
    pub(crate) several: u64,
}

impl Default for Habit {
    fn default() -> Self {
        Self { pause_us: 6000, burst: 5, deletes: 12, moves: 3, rollbacks: 2, several: 8 }
    }
}

/// A version that no commit ever has: what is rolled back carries it.
const ROLLED_BACK: u64 = 1 << 40;
/// Keys that are looked at for one without a row, to move a row there.
const LOOKS_FOR_A_GAP: usize = 8;

/// The histories of a writer's keys. The test changes them only while the writers pause.
pub(crate) type Kept = Arc<Mutex<BTreeMap<u32, History>>>;

/// One writer with what it knows.
pub(crate) struct Writer<S> {
    pub(crate) id: u8,
    pub(crate) session: S,
    pub(crate) board: Arc<Board>,
    pub(crate) histories: Kept,
    pub(crate) sizes: Sizes,
    pub(crate) habit: Habit,
    pub(crate) random: Random,
}

impl<S: Session> Writer<S> {
    /// Writes until the board says stop.
    pub(crate) fn run(mut self) {
        let keys: Vec<u32> = self.histories.lock().expect("no panics here").keys().copied().collect();
        while self.board.may_write() {
            let hot = keys[self.random.skewed(keys.len() as u64) as usize];
            self.board.touched(hot);
            for _ in 0..=self.random.below(self.habit.burst) {
                if self.random.percent(self.habit.rollbacks) {
                    self.session.roll_back(hot, ROLLED_BACK);
                } else {
                    let steps = self.choose(hot, &keys);
                    self.commit(&steps);
                }
            }
            self.board.touched(hot);
            std::thread::sleep(Duration::from_micros(self.random.below(self.habit.pause_us + 1)));
        }
    }

    /// Changes the key in a transaction of its own.
    pub(crate) fn change(&mut self, key: u32) {
        let step = self.step(key);
        self.commit(&[step]);
    }

    fn choose(&mut self, hot: u32, keys: &[u32]) -> Vec<Step> {
        if self.random.percent(self.habit.moves)
            && let Some(step) = self.choose_move(hot, keys)
        {
            return vec![step];
        }
        let mut changed = vec![hot];
        if self.random.percent(self.habit.several) {
            changed.extend([self.random.one_of(keys), self.random.one_of(keys)]);
            changed.sort_unstable();
            changed.dedup();
        }
        changed.into_iter().map(|key| self.step(key)).collect()
    }

    /// The row of `hot` to a key that has none, if one is found soon.
    fn choose_move(&mut self, hot: u32, keys: &[u32]) -> Option<Step> {
        let histories = self.histories.lock().expect("no panics here");
        let present = |key: u32| histories[&key].last().present;
        let to = (0..LOOKS_FOR_A_GAP).map(|_| self.random.one_of(keys)).find(|key| !present(*key))?;
        let version = histories[&to].next_version();
        present(hot).then(|| Step::Move { from: hot, row: row(to, version, self.sizes) })
    }

    /// What gives the key its next state.
    fn step(&mut self, key: u32) -> Step {
        let histories = self.histories.lock().expect("no panics here");
        let history = &histories[&key];
        let row = || row(key, history.next_version(), self.sizes);
        match history.last().present {
            true if self.random.percent(self.habit.deletes) => Step::Delete { key },
            true => Step::Update { row: row(), way: self.random.below(4) },
            false => Step::Insert(row()),
        }
    }

    /// Makes the steps in one transaction and notes what it did; a failure changes nothing, and the next call tries anew.
    pub(crate) fn commit(&mut self, steps: &[Step]) {
        let Some(commit) = self.session.commit(steps, &self.board) else { return };
        let changes: Vec<(u32, bool)> = steps.iter().flat_map(Step::changes).collect();
        let mut histories = self.histories.lock().expect("no panics here");
        for (key, present) in &changes {
            histories.get_mut(key).expect("a key of mine").push(state(&commit, *present, self.id));
        }
        note(&self.board, &commit, changes.len());
    }
}

/// The state that a commit gives a key.
pub(crate) fn state(commit: &Commit, present: bool, writer: u8) -> State {
    let Commit { begun_ns, returned_ns, from, at } = *commit;
    State { present, begun_ns, returned_ns, from, at, writer }
}

/// Tells the readers of a commit.
pub(crate) fn note(board: &Board, commit: &Commit, changes: usize) {
    board.newest_at.fetch_max(commit.at, Ordering::AcqRel);
    board.changes.fetch_add(changes as u64, Ordering::Relaxed);
}

fn row(key: u32, version: u64, sizes: Sizes) -> Row {
    Row { key, version, payload: payload(key, version, sizes) }
}
