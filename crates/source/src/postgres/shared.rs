//! What the feed tells the readers: which server to read, how each collection is read, or that nothing can be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_cache::key::KeySchema;
use parking_lot::RwLock;

use super::inspect::Table;
use super::plan::ReadPlan;
use super::server::Identity;

/// What readers read by.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// A connection opened for another generation leads to another server, or to the same in a state that is gone.
    pub(crate) generation: u64,
    /// Which server and database it must be.
    pub(crate) identity: Identity,
    /// Per collection the statement, or why there is none.
    pub(crate) collections: Vec<Result<Arc<ReadPlan>, Arc<str>>>,
}

/// State shared by feed and readers.
#[derive(Debug)]
pub(crate) struct Shared {
    schemas: Arc<[KeySchema]>,
    state: RwLock<Result<Arc<Plan>, Arc<str>>>,
    generation: AtomicU64,
    /// Queries sent since the start.
    pub(crate) queries: AtomicU64,
}

impl Shared {
    /// Nothing can be read until [`Shared::publish`]. `schemas` are the keys as they were at the start; a table whose
    /// key is another one by now cannot be read.
    pub(crate) fn new(schemas: Arc<[KeySchema]>) -> Self {
        Self {
            schemas,
            state: RwLock::new(Err("the database has not been looked at yet".into())),
            generation: AtomicU64::new(0),
            queries: AtomicU64::new(0),
        }
    }

    /// The current plan, or why nothing can be read.
    pub(crate) fn plan(&self) -> Result<Arc<Plan>, Arc<str>> {
        self.state.read().clone()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// From now on readers read this server, and so. Connections to another one are of the past.
    pub(crate) fn publish(&self, identity: Identity, tables: &[Result<Table, String>]) {
        let mut state = self.state.write();
        if state.as_ref().is_ok_and(|plan| plan.identity != identity) {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        let collections = tables.iter().enumerate().map(|(i, table)| self.statement(i, table)).collect();
        *state = Ok(Arc::new(Plan { generation: self.generation(), identity, collections }));
    }

    /// From now on one collection is read so, or cannot be. Nothing happens when that is so already, or when nothing can
    /// be read at all.
    pub(crate) fn set_table(&self, collection: usize, table: &Result<Table, String>) {
        let statement = self.statement(collection, table);
        let mut state = self.state.write();
        if let Ok(plan) = state.as_mut()
            && plan.collections.get(collection).is_some_and(|current| *current != statement)
        {
            Arc::make_mut(plan).collections[collection] = statement;
        }
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

    pub(crate) fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    fn statement(&self, collection: usize, table: &Result<Table, String>) -> Result<Arc<ReadPlan>, Arc<str>> {
        match table {
            // Ids in flight, and the feed's keys, were made by the key at the start.
            Ok(table) if self.schemas.get(collection).is_none_or(|s| s.types() != table.key_schema().types()) => {
                Err(format!(
                    "the key of `{}` changed its type since the start; restart to serve it by the new one",
                    table.name
                )
                .into())
            }
            Ok(table) => Ok(Arc::new(ReadPlan::new(table))),
            Err(why) => Err(why.as_str().into()),
        }
    }
}
