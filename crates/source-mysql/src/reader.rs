//! Reads: each leases a connection, sends one query and parses its answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::Version;
use tokio::time::Instant;

use super::MysqlSource;
use super::inspect;
use super::plan::{Form, ReadPlan};
use super::pool::{Age, Fault, Lease, unavailable};
use super::shared::Plan;
use hotrow_source::preflight;
use hotrow_source::spec::Follow;
use hotrow_source::{ReadSet, RowBudget, SourceError};

/// Attempts of one read: the first, one after a dead connection, one after a changed table, and one
/// after a change of the server.
const ATTEMPTS_MAX: usize = 4;

/// Reason that an attempt ended without an answer.
enum AttemptError {
    /// The connection had died. Another one may work.
    Reconnect(SourceError),
    /// The table had changed and was inspected again.
    Replanned(SourceError),
    Final(SourceError),
}

impl MysqlSource {
    pub(super) async fn read_keys(
        &self,
        collection: CollectionId,
        keys: &[Key],
        budget: &Arc<RowBudget>,
    ) -> Result<ReadSet, SourceError> {
        let deadline = Instant::now() + self.read_timeout;
        let mut reconnected = false;
        let mut replanned = false;
        for _ in 0..ATTEMPTS_MAX {
            let plan = self.shared.plan().map_err(|why| unavailable(&why))?;
            let lease = self.pool.lease(&plan, deadline).await?;
            // The lease may have taken long. A query after a flush must use the plan that was
            // published before that flush.
            let plan = self.shared.plan().map_err(|why| unavailable(&why))?;
            if lease.generation() != plan.generation {
                continue;
            }
            budget.restart();
            match self.attempt(lease, &plan, (collection, keys, budget), deadline).await {
                Ok(set) => return Ok(set),
                Err(AttemptError::Reconnect(_)) if !reconnected => reconnected = true,
                Err(AttemptError::Replanned(_)) if !replanned => replanned = true,
                Err(
                    AttemptError::Reconnect(e)
                    | AttemptError::Replanned(e)
                    | AttemptError::Final(e),
                ) => return Err(e),
            }
        }
        Err(unavailable("the database connection was replaced too often during the read"))
    }

    async fn attempt(
        &self,
        lease: Lease,
        plan: &Plan,
        (collection, keys, budget): (CollectionId, &[Key], &Arc<RowBudget>),
        deadline: Instant,
    ) -> Result<ReadSet, AttemptError> {
        let index = usize::from(collection.0);
        let (statement, schema) =
            match (plan.collections.get(index), self.shared.schemas().get(index)) {
                (Some(Ok(statement)), Some(schema)) => (Arc::clone(statement), schema),
                (other, _) => {
                    lease.release();
                    let why = other
                        .and_then(|r| r.as_ref().err())
                        .map_or("there is no such collection", |why| &**why);
                    return Err(AttemptError::Final(SourceError::Broken { detail: why.into() }));
                }
            };
        self.hooks.before_read(collection, keys);
        let age = lease.age;
        // Before the query is sent: a later change invalidates the lease in the cache.
        let form = match self.follow {
            Follow::Changes => statement.form(plan.recent.plain_read_point(keys)),
            Follow::Nothing => Form::Rows,
        };
        self.shared.queries.fetch_add(1, Ordering::Relaxed);
        let rows = (form.rows_at(), Arc::clone(budget));
        let outcome = lease.query(statement.sql(keys, form), rows, deadline).await;
        self.hooks.after_read(collection, keys);
        let fault = match outcome {
            Ok((sets, room)) => match statement
                .answer(sets, keys, schema, form, plan.identity.incarnation, room)
                .await
            {
                Ok((rows, observed)) => {
                    if let (Form::SnapshotPoint, Version::Span { from: seen, .. }) =
                        (form, &observed.version)
                    {
                        plan.recent.mark_visible(seen.at);
                    }
                    return Ok(ReadSet {
                        version: observed.version,
                        position: observed.position,
                        rows,
                    });
                }
                Err(_) => Fault::Stale(SourceError::Broken {
                    detail: "the database's answer does not match the table's definition".into(),
                }),
            },
            Err(fault) => fault,
        };
        Err(match fault {
            Fault::Connection(e) if age == Age::Used => AttemptError::Reconnect(e),
            Fault::Connection(e) | Fault::Query(e) => AttemptError::Final(e),
            Fault::Stale(e) => self.replan(plan, index, &statement, e, deadline).await,
        })
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
        let current = self.shared.plan().ok().and_then(|plan| plan.collections.get(index).cloned());
        if current
            .is_some_and(|current| !current.is_ok_and(|current| Arc::ptr_eq(&current, failed)))
        {
            return AttemptError::Replanned(e);
        }
        let (Ok(lease), Some(spec)) =
            (self.pool.lease(plan, deadline).await, self.specs.get(index))
        else {
            return AttemptError::Final(e);
        };
        let identity = plan.identity.clone();
        let database = self.pool.database().to_owned();
        let spec = spec.clone();
        // Collections are numbered with 16 bits.
        let collection = CollectionId(index as u16);
        let inspection = lease.run(
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
