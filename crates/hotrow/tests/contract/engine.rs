//! What a run needs of a database: to be created, configured, written and read. Everything else is the same for all engines.

use std::collections::BTreeMap;

use crate::board::Board;
use crate::harness::Config;
use crate::history::Ns;
use crate::run::Plan;

/// A database engine.
pub(crate) trait Engine: 'static {
    /// Lives as long as the run.
    type Database;
    /// A connection of a writer.
    type Session: Session;

    /// Whether an answer's token tells exactly which commits it saw; else it tells which it cannot have seen.
    const TOKENS_ARE_EXACT: bool;

    /// A database with the table `items`; every key of [`Plan::has_first_row`] has a row of version 0.
    fn create(plan: &Plan) -> Self::Database;

    /// A configuration that serves it.
    fn config(database: &Self::Database, plan: &Plan) -> Config;

    /// A connection for a writer.
    fn session(database: &Self::Database, plan: &Plan) -> Self::Session;

    /// Key and version of every row.
    fn rows(database: &Self::Database) -> BTreeMap<u32, u64>;
}

/// A writer's connection.
pub(crate) trait Session: Send + 'static {
    /// Makes the steps in one transaction. `None`: nothing was committed (a lock, a lost connection).
    fn commit(&mut self, steps: &[Step], board: &Board) -> Option<Commit>;

    /// Writes `version` to the key, and rolls back.
    fn roll_back(&mut self, key: u32, version: u64);
}

/// One change within a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Insert(Row),
    /// There is such a row. `way`: which of several statements does it.
    Update {
        row: Row,
        way: u64,
    },
    Delete {
        key: u32,
    },
    /// The row of the key `from` becomes this one, whose key had none.
    Move {
        from: u32,
        row: Row,
    },
}

/// A row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: u32,
    pub(crate) version: u64,
    pub(crate) payload: String,
}

impl Step {
    /// The keys whose state it changes, with whether each has a row afterwards.
    pub(crate) fn changes(&self) -> Vec<(u32, bool)> {
        match self {
            Self::Insert(row) | Self::Update { row, .. } => vec![(row.key, true)],
            Self::Delete { key } => vec![(*key, false)],
            Self::Move { from, row } => vec![(*from, false), (row.key, true)],
        }
    }
}

/// A commit, with the moments between which it became visible and the points of the log between which it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit {
    pub(crate) begun_ns: Ns,
    pub(crate) returned_ns: Ns,
    pub(crate) from: u64,
    pub(crate) at: u64,
}
