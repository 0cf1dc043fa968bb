//! State that the feed publishes to the readers: the server, the read plan of each collection or
//! the reason that it has none, and recently changed keys whose changes may not be visible to reads
//! yet.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use hotrow_types::key::KeySchema;

use super::embedded_rules::EmbeddedRules;
use super::inspect::Table;
use super::plan::ReadPlan;
use super::recent::Recent;
use super::server::Identity;
use hotrow_source::origin::Origins;
use hotrow_source::published::{Published, key_is_unchanged};
use tokio::sync::Notify;

/// Plan that readers use.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Generation of the connections. One of another generation leads to another server or to an
    /// outdated state of this one.
    pub(crate) generation: u64,
    pub(crate) identity: Identity,
    /// Per collection the statement, or the reason that it has none.
    pub(crate) collections: Vec<Result<Arc<ReadPlan>, Arc<str>>>,
    /// Recent changes of the feed's current session.
    pub(crate) recent: Arc<Recent>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    schemas: Arc<[KeySchema]>,
    pub(crate) published: Published<Plan>,
    /// Queries sent since the start.
    pub(crate) queries: AtomicU64,
    /// The server that the feed's sessions lead to, for a service that follows a change hub.
    pub(crate) origins: Arc<Origins>,
    /// The change hub reports that the log went back: earlier positions have another meaning.
    pub(crate) went_back: Notify,
    embedded_rules: EmbeddedRules,
}

impl Shared {
    /// Creates the state in which nothing can be read until [`Shared::publish`]. `schemas` are the
    /// keys of the start. A table whose key has changed since cannot be read.
    pub(crate) fn new(schemas: Arc<[KeySchema]>, embedded_rules: EmbeddedRules) -> Self {
        Self {
            schemas,
            published: Published::nothing("the database has not been inspected yet"),
            queries: AtomicU64::new(0),
            origins: Arc::default(),
            went_back: Notify::new(),
            embedded_rules,
        }
    }

    /// Publishes the server and tables that readers use from now on. Connections to another server
    /// become outdated. Returns the recent changes of the feed's new session: points of an earlier
    /// one are meaningless now.
    pub(crate) fn publish(
        &self,
        identity: Identity,
        tables: &[Result<Table, String>],
    ) -> Arc<Recent> {
        let mut current = self.published.write();
        if current.as_ref().is_ok_and(|plan| plan.identity != identity) {
            self.published.next_generation();
        }
        let collections = tables
            .iter()
            .enumerate()
            .map(|(i, table)| self.statement(i, table, &identity))
            .collect();
        let recent = Arc::new(Recent::new());
        let plan = Plan {
            generation: self.published.generation(),
            identity,
            collections,
            recent: Arc::clone(&recent),
        };
        *current = Ok(Arc::new(plan));
        recent
    }

    /// Replaces the plan of one collection. Does nothing if it is unchanged or if nothing can be
    /// read.
    pub(crate) fn set_table(&self, collection: usize, table: &Result<Table, String>) {
        let mut current = self.published.write();
        let Ok(plan) = current.as_mut() else { return };
        let statement = self.statement(collection, table, &plan.identity);
        if plan.collections.get(collection).is_some_and(|before| *before != statement) {
            Arc::make_mut(plan).collections[collection] = statement;
        }
    }

    /// Returns whether readers know no definition of a collection that fits.
    pub(crate) fn is_unreadable(&self, collection: usize) -> bool {
        let plan = self.published.plan();
        plan.is_ok_and(|plan| plan.collections.get(collection).is_some_and(Result::is_err))
    }

    /// Forgets recent changes: the feed starts anew, and points of before may mean other commits.
    pub(crate) fn renew_recent(&self) {
        if let Ok(plan) = self.published.write().as_mut() {
            Arc::make_mut(plan).recent = Arc::new(Recent::new());
        }
    }

    /// Makes readers open new connections, because the account's privileges changed and open
    /// connections keep some privileges of their login.
    pub(crate) fn reconnect(&self) {
        let mut current = self.published.write();
        let generation = self.published.next_generation();
        if let Ok(plan) = current.as_mut() {
            Arc::make_mut(plan).generation = generation;
        }
    }

    pub(crate) fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    fn statement(
        &self,
        collection: usize,
        table: &Result<Table, String>,
        identity: &Identity,
    ) -> Result<Arc<ReadPlan>, Arc<str>> {
        let table = table.as_ref().map_err(|why| Arc::<str>::from(why.as_str()))?;
        key_is_unchanged(
            self.schemas.get(collection),
            &table.key_schema(),
            &table.read_name().table,
        )?;
        Ok(Arc::new(ReadPlan::new(table, identity, self.embedded_rules)))
    }
}
