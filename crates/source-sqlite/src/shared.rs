//! State shared by feed and readers: the file to read and its statements, or the reason why nothing
//! can be read.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hotrow_types::version::Position;
use parking_lot::RwLock;
use rusqlite::Connection;

use super::connect::{self, Located};
use super::file::FileId;
use super::inspect::Table;
use super::plan::Statements;
use super::{config::Watch, error::OpenError};
use hotrow_source::published::Published;

/// Plan by which the readers read.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Generation of the file. A connection of another generation reads another file, or an
    /// outdated state of the same file.
    pub(crate) generation: u64,
    /// Number of the plan; prepared statements belong to one plan.
    pub(crate) serial: u64,
    /// Path of the file, links resolved.
    pub(crate) path: PathBuf,
    /// Identity that the file must have.
    pub(crate) file: FileId,
    /// Statement per collection, or the reason why there is none.
    pub(crate) collections: Vec<Result<Statements, String>>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) published: Published<Plan>,
    serial: AtomicU64,
    /// Queries sent since the start.
    pub(crate) queries: AtomicU64,
    /// Open connections of readers and pruning.
    connections: AtomicUsize,
    /// Position up to which the feed has delivered, for pruning.
    delivered: RwLock<Option<Position>>,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            published: Published::nothing("the database is not open yet"),
            serial: AtomicU64::new(0),
            queries: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            delivered: RwLock::new(None),
        }
    }

    /// Publishes a new plan to the readers. For another file, [`Published::down`] must come first.
    pub(crate) fn publish(
        &self,
        path: PathBuf,
        file: FileId,
        tables: &[Result<Table, OpenError>],
        watch: Watch,
    ) {
        let statements = |t: &Result<Table, OpenError>| match t {
            Ok(table) => Ok(Statements::new(table, watch)),
            Err(e) => Err(e.to_string()),
        };
        let plan = Plan {
            generation: self.published.generation(),
            serial: self.serial.fetch_add(1, Ordering::Relaxed) + 1,
            path,
            file,
            collections: tables.iter().map(statements).collect(),
        };
        *self.published.write() = Ok(Arc::new(plan));
    }

    /// Returns whether a connection other than the feed's is open.
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

/// Connection that is counted while it is open, because the feed must know when all are closed.
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
    /// Opens a connection to the file of the plan, unless that plan is outdated.
    pub(crate) fn open(shared: &Arc<Shared>, plan: &Plan, busy: Duration) -> Result<Self, String> {
        shared.connections.fetch_add(1, Ordering::AcqRel);
        let count = Count(Arc::clone(shared));
        // The connection is counted before the plan is checked: either the feed sees the count, or
        // this check sees that the feed withdrew the plan.
        if shared.published.plan().map_or(u64::MAX, |now| now.generation) != plan.generation {
            return Err("the database is being opened again".into());
        }
        let at = Located { real: plan.path.clone(), file: plan.file };
        let conn = connect::open(&at, busy).map_err(|e| e.to_string())?;
        Ok(Self { conn, _count: count })
    }
}
