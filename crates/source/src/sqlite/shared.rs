//! What the feed tells the readers: which file to read, how, or that there is none.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hotrow_cache::version::Position;
use parking_lot::RwLock;
use rusqlite::Connection;

use super::connect::{self, Located};
use super::file::FileId;
use super::inspect::Table;
use super::plan::Statements;
use super::{config::Watch, error::OpenError};

/// What readers read by.
#[derive(Debug)]
pub(crate) struct Plan {
    /// A connection opened for another generation reads another file, or the same in a state that is gone.
    pub(crate) generation: u64,
    /// Grows with every plan: prepared statements belong to one.
    pub(crate) serial: u64,
    /// Where the file is, links resolved.
    pub(crate) path: PathBuf,
    /// Which file it must be.
    pub(crate) file: FileId,
    /// Per collection the statement, or why there is none.
    pub(crate) collections: Vec<Result<Statements, String>>,
}

/// State shared by feed and readers.
#[derive(Debug)]
pub(crate) struct Shared {
    state: RwLock<Result<Arc<Plan>, Arc<str>>>,
    generation: AtomicU64,
    serial: AtomicU64,
    /// Queries sent since the start.
    pub(crate) queries: AtomicU64,
    /// Connections that readers and pruning have open.
    connections: AtomicUsize,
    /// How far the feed has delivered, for pruning.
    delivered: RwLock<Option<Position>>,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            state: RwLock::new(Err("the database is not open yet".into())),
            generation: AtomicU64::new(0),
            serial: AtomicU64::new(0),
            queries: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            delivered: RwLock::new(None),
        }
    }

    /// The current plan, or why nothing can be read.
    pub(crate) fn plan(&self) -> Result<Arc<Plan>, Arc<str>> {
        self.state.read().clone()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// From now on readers read so. `Self::down` comes before when it is another file.
    pub(crate) fn publish(&self, path: PathBuf, file: FileId, tables: &[Result<Table, OpenError>], watch: Watch) {
        let statements = |t: &Result<Table, OpenError>| match t {
            Ok(table) => Ok(Statements::new(table, watch)),
            Err(e) => Err(e.to_string()),
        };
        let plan = Plan {
            generation: self.generation(),
            serial: self.serial.fetch_add(1, Ordering::Relaxed) + 1,
            path,
            file,
            collections: tables.iter().map(statements).collect(),
        };
        *self.state.write() = Ok(Arc::new(plan));
    }

    /// From now on nothing can be read, and every open connection is of the past.
    pub(crate) fn down(&self, why: &str) {
        let mut state = self.state.write();
        self.generation.fetch_add(1, Ordering::AcqRel);
        *state = Err(why.into());
    }

    /// Tells readers more about why nothing can be read.
    pub(crate) fn explain(&self, why: &str) {
        let mut state = self.state.write();
        if state.is_err() {
            *state = Err(why.into());
        }
    }

    /// Whether a connection other than the feed's is open.
    pub(crate) fn has_connections(&self) -> bool {
        self.connections.load(Ordering::Acquire) > 0
    }

    pub(crate) fn delivered(&self) -> Option<Position> {
        *self.delivered.read()
    }

    pub(crate) fn set_delivered(&self, position: Option<Position>) {
        *self.delivered.write() = position;
    }
}

/// A connection that is counted while it is open, for the feed must know when all are closed.
pub(crate) struct Counted {
    pub(crate) conn: Connection,
    // After the connection: fields are dropped in order.
    _count: Count,
}

struct Count(Arc<Shared>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Counted {
    /// Opens a connection to the file of the plan, unless that plan is of the past.
    pub(crate) fn open(shared: &Arc<Shared>, plan: &Plan, busy: Duration) -> Result<Self, String> {
        shared.connections.fetch_add(1, Ordering::AcqRel);
        let count = Count(Arc::clone(shared));
        // Counted first, looked second: either the feed sees the count, or we see that it took the plan back.
        if shared.plan().map_or(u64::MAX, |now| now.generation) != plan.generation {
            return Err("the database is being opened again".into());
        }
        let at = Located { real: plan.path.clone(), file: plan.file };
        let conn = connect::open(&at, busy).map_err(|e| e.to_string())?;
        Ok(Self { conn, _count: count })
    }
}
