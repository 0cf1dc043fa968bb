//! Reads: each leases a connection, sends one query and parses its answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hotrow_types::key::{CollectionId, Key, KeySchema};
use hotrow_types::version::Version;
use tokio::time::Instant;

use super::MysqlSource;
use super::inspect;
use super::plan::{Form, ReadPlan};
use super::pool::{self, Lease};
use super::shared::Plan;
use hotrow_source::attempts::{ATTEMPTS_MAX, AttemptError, Fault, Repeated};
use hotrow_source::spec::Follow;
use hotrow_source::{KeysOfCollection, ReadSet, RowBudget, SourceError, preflight};

/// Keys of one collection, and the statement that reads them.
pub(super) struct Part<'a> {
    /// Place of the collection.
    index: usize,
    pub(super) statement: Arc<ReadPlan>,
    pub(super) schema: &'a KeySchema,
    pub(super) keys: &'a [Key],
}

pub(super) fn other_shape() -> Fault {
    let detail = "the database's answer does not match the table's definition";
    Fault::Stale(SourceError::broken(detail))
}

impl MysqlSource {
    pub(super) async fn read_keys(
        &self,
        parts: &[KeysOfCollection],
        budget: &Arc<RowBudget>,
    ) -> Result<ReadSet, SourceError> {
        let deadline = Instant::now() + self.read_timeout;
        let mut repeated = Repeated::default();
        for _ in 0..ATTEMPTS_MAX {
            let plan =
                self.shared.published.plan().map_err(|why| SourceError::unavailable(&*why))?;
            let lease = self.lease(&plan, deadline).await?;
            // The lease may have taken long. A query after a flush must use the plan that was
            // published before that flush.
            let plan =
                self.shared.published.plan().map_err(|why| SourceError::unavailable(&*why))?;
            if lease.generation() != plan.generation {
                continue;
            }
            budget.restart();
            match self.attempt(lease, &plan, parts, budget, deadline).await {
                Ok(set) => return Ok(set),
                Err(error) => repeated.once(error)?,
            }
        }
        Err(SourceError::unavailable(
            "the database connection was replaced too often during the read",
        ))
    }

    /// Leases a connection to the server of the plan.
    ///
    /// # Errors
    /// Same as [`hotrow_source::pool::Pool::lease`].
    pub(super) async fn lease(&self, plan: &Plan, deadline: Instant) -> Result<Lease, SourceError> {
        self.pool.lease(plan.generation, &plan.identity, deadline).await
    }

    async fn attempt(
        &self,
        lease: Lease,
        plan: &Plan,
        parts: &[KeysOfCollection],
        budget: &Arc<RowBudget>,
        deadline: Instant,
    ) -> Result<ReadSet, AttemptError> {
        let mut planned = Vec::with_capacity(parts.len());
        for (collection, keys) in parts {
            let index = usize::from(collection.0);
            match (plan.collections.get(index), self.shared.schemas().get(index)) {
                (Some(Ok(statement)), Some(schema)) => {
                    planned.push(Part { index, statement: Arc::clone(statement), schema, keys });
                }
                (other, _) => {
                    lease.release();
                    let why = other
                        .and_then(|r| r.as_ref().err())
                        .map_or("there is no such collection", |why| &**why);
                    return Err(AttemptError::Final(SourceError::broken(why)));
                }
            }
        }
        parts.iter().for_each(|(collection, keys)| self.hooks.before_read(*collection, keys));
        let age = lease.age();
        self.shared.queries.fetch_add(parts.len() as u64, Ordering::Relaxed);
        let read = match &planned[..] {
            [part] => self.read_one(lease, plan, part, budget, deadline).await,
            parts => self.transaction(lease, plan, parts, budget, deadline).await,
        };
        parts.iter().for_each(|(collection, keys)| self.hooks.after_read(*collection, keys));
        match read {
            Ok(set) => Ok(set),
            Err(Fault::Gone(e)) => Err(AttemptError::gone(e, age)),
            Err(Fault::Query(e)) => Err(AttemptError::Final(e)),
            Err(Fault::Stale(e)) => {
                // Which of several tables has changed is not known.
                let mut last = AttemptError::Final(e.clone());
                for Part { index, statement, .. } in &planned {
                    last = self.replan(plan, *index, statement, e.clone(), deadline).await;
                }
                Err(last)
            }
        }
    }

    async fn read_one(
        &self,
        lease: Lease,
        plan: &Plan,
        Part { statement, schema, keys, .. }: &Part<'_>,
        budget: &Arc<RowBudget>,
        deadline: Instant,
    ) -> Result<ReadSet, Fault> {
        // Before the query is sent: a later change invalidates the lease in the cache.
        let (form, visible) = match self.follow {
            Follow::Changes | Follow::Hub => statement.form(&plan.recent, keys),
            Follow::Nothing => (Form::Rows, None),
        };
        let (sql, records) = (statement.sql(keys, form), statement.records(form));
        let (sets, room) = pool::query(lease, sql, records, Arc::clone(budget), deadline).await?;
        let incarnation = plan.identity.incarnation;
        let answer = statement.answer(sets, keys, schema, form, incarnation, room).await;
        let (rows, observed) = answer.map_err(|_| other_shape())?;
        if let (Form::SnapshotPoint, Version::Span { from: seen, .. }) = (form, &observed.version) {
            plan.recent.mark_visible(seen.at);
        }
        let version = visible.map_or(observed.version, Version::Gtids);
        Ok(ReadSet { version, position: observed.position, rows })
    }

    /// Inspects the table of a failed statement again and publishes the result to all readers.
    async fn replan(
        &self,
        plan: &Plan,
        index: usize,
        failed: &Arc<ReadPlan>,
        e: SourceError,
        deadline: Instant,
    ) -> AttemptError {
        // Another reader was quicker.
        let current =
            self.shared.published.plan().ok().and_then(|plan| plan.collections.get(index).cloned());
        if current
            .is_some_and(|current| !current.is_ok_and(|current| Arc::ptr_eq(&current, failed)))
        {
            return AttemptError::Replanned(e);
        }
        let (Ok(lease), Some(spec)) = (self.lease(plan, deadline).await, self.specs.get(index))
        else {
            return AttemptError::Final(e);
        };
        let identity = plan.identity.clone();
        let database = self.pool.connector().target.database.clone();
        let spec = spec.clone();
        // Collections are numbered with 16 bits.
        let collection = CollectionId(index as u16);
        let inspection = pool::run(
            lease,
            Box::new(move |conn| {
                Box::pin(async move {
                    inspect::table(conn, &identity, &database, collection, &spec).await
                })
            }),
            deadline,
        );
        match inspection.await {
            Ok(table) => {
                self.shared
                    .set_table(index, &table.map_err(|findings| preflight::one_line(&findings)));
                AttemptError::Replanned(e)
            }
            Err(_) => AttemptError::Final(e),
        }
    }
}
