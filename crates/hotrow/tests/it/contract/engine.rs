//! Database engine interface: creation, configuration, writes and reads. The rest of a run is the
//! same for all engines.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::contract::board::Board;
use crate::contract::run::Plan;
use hotrow_testkit::harness::Config;
use hotrow_verify::history::Ns;

/// Longest time without a server.
const OUTAGE_MAX: Duration = Duration::from_secs(60);
/// Wait between two attempts to reach a server.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// A database engine.
pub(crate) trait Engine: 'static {
    /// Database handle, kept for the whole run.
    type Database;
    /// A connection of a writer.
    type Session: Session;

    /// True when an answer's token names exactly the commits that it reflects; otherwise the token
    /// is an upper bound.
    const TOKENS_ARE_EXACT: bool;
    /// True when a restart of the server invalidates its tokens: older ones get 400 from then on.
    const RESTARTS_END_TOKENS: bool = false;

    /// Creates a database with the table `items`; each key of [`Plan::has_first_row`] has a row of
    /// version 0.
    fn create(plan: &Plan) -> Self::Database;

    /// Returns a configuration that serves the database.
    fn config(database: &Self::Database, plan: &Plan) -> Config;

    /// Opens a writer's connection.
    fn session(database: &Self::Database, plan: &Plan) -> Self::Session;

    /// Returns key and version of every row.
    fn rows(database: &Self::Database) -> BTreeMap<u32, u64>;
}

/// A writer's connection.
pub(crate) trait Session: Send + 'static {
    /// Runs the steps in one transaction. `None`: nothing was committed (a lock, a lost
    /// connection).
    fn commit(&mut self, steps: &[Step], board: &Board) -> Option<Commit>;

    /// Writes `version` to the key and rolls back.
    fn roll_back(&mut self, key: u32, version: u64);
}

/// Repeats an attempt of a writer until the server answers. A writer survives crashes of its
/// server.
pub(crate) fn until_answered<T, E: Display>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let end = Instant::now() + OUTAGE_MAX;
    loop {
        match attempt() {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < end, "a writer has no server: {error}"),
        }
        std::thread::sleep(RETRY_PAUSE);
    }
}

/// One change within a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Insert(Row),
    /// Updates an existing row; `way` selects one of several statements.
    Update {
        row: Row,
        way: u64,
    },
    Delete {
        key: u32,
    },
    /// Changes the row with key `from` into this row, whose key had none.
    Move {
        from: u32,
        row: Row,
    },
}

/// A row of `items`.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: u32,
    pub(crate) version: u64,
    pub(crate) payload: String,
}

impl Step {
    /// Returns the keys that the step changes, with whether each has a row afterwards.
    pub(crate) fn changes(&self) -> Vec<(u32, bool)> {
        match self {
            Self::Insert(row) | Self::Update { row, .. } => vec![(row.key, true)],
            Self::Delete { key } => vec![(*key, false)],
            Self::Move { from, row } => vec![(*from, false), (row.key, true)],
        }
    }

    /// Returns the key that shows whether the step was committed, and the version of its row then.
    pub(crate) fn proof(&self) -> (u32, Option<u64>) {
        match self {
            Self::Insert(row) | Self::Update { row, .. } | Self::Move { row, .. } => {
                (row.key, Some(row.version))
            }
            Self::Delete { key } => (*key, None),
        }
    }
}

/// Times of a commit's visibility and its bounds in the log: it became visible between `begun_ns`
/// and `returned_ns`, and lies between the log points `from` and `at`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit {
    pub(crate) begun_ns: Ns,
    pub(crate) returned_ns: Ns,
    pub(crate) from: u64,
    pub(crate) at: u64,
}
