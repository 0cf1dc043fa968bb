//! A writer: one connection that changes the keys it owns, and writes down what it did.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use crate::board::Board;
use crate::harness::database::log_end;
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
    /// Chance of a transaction that is rolled back, in per cent.
    pub(crate) rollbacks: u64,
    /// Chance that a transaction changes several keys, in per cent.
    pub(crate) several: u64,
}

impl Default for Habit {
    fn default() -> Self {
        Self { pause_us: 6000, burst: 5, deletes: 12, rollbacks: 2, several: 8 }
    }
}

/// A version that no commit ever has: what is rolled back carries it.
const ROLLED_BACK: u64 = 1 << 40;

/// One writer with what it knows.
pub(crate) struct Writer {
    pub(crate) id: u8,
    pub(crate) connection: Connection,
    pub(crate) board: Arc<Board>,
    pub(crate) histories: BTreeMap<u32, History>,
    pub(crate) sizes: Sizes,
    pub(crate) habit: Habit,
    pub(crate) random: Random,
    /// Whether there is a change log.
    pub(crate) logged: bool,
}

impl Writer {
    /// Writes until the board says stop, and returns the histories.
    pub(crate) fn run(mut self) -> BTreeMap<u32, History> {
        let keys: Vec<u32> = self.histories.keys().copied().collect();
        while self.board.may_write() {
            let hot = keys[self.random.skewed(keys.len() as u64) as usize];
            self.board.touched(hot);
            for _ in 0..=self.random.below(self.habit.burst) {
                let changed = if self.random.percent(self.habit.several) {
                    let more = [self.random.one_of(&keys), self.random.one_of(&keys)];
                    let mut all = vec![hot, more[0], more[1]];
                    all.sort_unstable();
                    all.dedup();
                    all
                } else {
                    vec![hot]
                };
                if self.random.percent(self.habit.rollbacks) {
                    self.roll_back(hot);
                } else {
                    self.commit(&changed);
                }
            }
            self.board.touched(hot);
            std::thread::sleep(Duration::from_micros(self.random.below(self.habit.pause_us + 1)));
        }
        self.histories
    }

    /// Changes the keys in one transaction. A locked database is tried again by whoever calls next.
    pub(crate) fn commit(&mut self, keys: &[u32]) {
        match self.try_commit(keys) {
            Ok(()) => {}
            Err(error) if is_busy(&error) => {
                // Nothing was committed: SQLite says so of a busy COMMIT too.
                if !self.connection.is_autocommit() {
                    self.connection.execute_batch("ROLLBACK").expect("roll back");
                }
            }
            Err(error) => panic!("writer {}: {error}", self.id),
        }
    }

    fn try_commit(&mut self, keys: &[u32]) -> rusqlite::Result<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut present = Vec::with_capacity(keys.len());
        for key in keys {
            present.push(self.change(*key)?);
        }
        let at = self.board.log_base.load(Ordering::Acquire) + if self.logged { log_end(&self.connection) } else { 0 };
        let begun_ns = self.board.now();
        self.connection.execute_batch("COMMIT")?;
        let returned_ns = self.board.now();
        for (key, present) in keys.iter().zip(present) {
            let history = self.histories.get_mut(key).expect("a key of mine");
            history.push(State { present, begun_ns, returned_ns, at, writer: self.id });
        }
        self.board.newest_at.fetch_max(at, Ordering::AcqRel);
        self.board.changes.fetch_add(keys.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the key its next state, and says whether that is a row.
    fn change(&mut self, key: u32) -> rusqlite::Result<bool> {
        let history = &self.histories[&key];
        let version = history.next_version();
        let was_there = history.last().present;
        if was_there && self.random.percent(self.habit.deletes) {
            self.connection.prepare_cached("DELETE FROM items WHERE id = ?1")?.execute([key])?;
            return Ok(false);
        }
        // Three ways to the same row, as different tools go.
        let sql = match (was_there, self.random.below(4)) {
            (true, 0) => "INSERT OR REPLACE INTO items(id, version, payload) VALUES (?1, ?2, ?3)",
            (true, 1) => {
                "INSERT INTO items(id, version, payload) VALUES (?1, ?2, ?3)
                 ON CONFLICT(id) DO UPDATE SET version = excluded.version, payload = excluded.payload"
            }
            (true, _) => "UPDATE items SET version = ?2, payload = ?3 WHERE id = ?1",
            (false, _) => "INSERT INTO items(id, version, payload) VALUES (?1, ?2, ?3)",
        };
        let row = (key, version.cast_signed(), payload(key, version, self.sizes));
        let rows = self.connection.prepare_cached(sql)?.execute(row)?;
        assert_eq!(rows, 1, "key {key}: the history and the database disagree");
        Ok(true)
    }

    fn roll_back(&mut self, key: u32) {
        let row = (key, ROLLED_BACK.cast_signed(), "never committed");
        let sql = "INSERT OR REPLACE INTO items(id, version, payload) VALUES (?1, ?2, ?3)";
        if self.connection.execute_batch("BEGIN IMMEDIATE").is_ok() {
            self.connection.execute(sql, row).expect("write");
            self.connection.execute_batch("ROLLBACK").expect("roll back");
        }
    }
}

/// Someone else holds the lock.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
