//! One read: a lease on a connection, one query, its answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hotrow_cache::key::{CollectionId, Key};
use hotrow_cache::version::Version;
use tokio::time::Instant;

use super::MysqlSource;
use super::inspect;
use super::plan::{Form, ReadPlan};
use super::pool::{Age, Fault, Lease, unavailable};
use super::shared::Plan;
use crate::spec::Follow;
use crate::{ReadError, ReadSet};

/// Attempts of one read: the first, one for a connection that died unnoticed, one for a table that changed, and one more
/// for a change of the server meanwhile.
const ATTEMPTS_MAX: usize = 4;

/// How an attempt ended without an answer.
enum Again {
    /// The connection had died: another one may do.
    Reconnect(ReadError),
    /// The table has changed and was looked at again.
    Replanned(ReadError),
    Final(ReadError),
}

impl MysqlSource {
    pub(super) async fn read_keys(&self, collection: CollectionId, keys: &[Key]) -> Result<ReadSet, ReadError> {
        let deadline = Instant::now() + self.read_timeout;
        let (mut reconnected, mut replanned) = (false, false);
        for _ in 0..ATTEMPTS_MAX {
            let plan = self.shared.plan().map_err(|why| unavailable(&why))?;
            let lease = self.pool.lease(&plan, deadline).await?;
            // Waiting may have taken long: what is published before a flush holds for every query that begins after it.
            let plan = self.shared.plan().map_err(|why| unavailable(&why))?;
            if lease.generation() != plan.generation {
                continue;
            }
            match self.attempt(lease, &plan, collection, keys, deadline).await {
                Ok(set) => return Ok(set),
                Err(Again::Reconnect(_)) if !reconnected => reconnected = true,
                Err(Again::Replanned(_)) if !replanned => replanned = true,
                Err(Again::Reconnect(e) | Again::Replanned(e) | Again::Final(e)) => return Err(e),
            }
        }
        Err(unavailable("the database was being opened again and again"))
    }

    async fn attempt(
        &self,
        lease: Lease,
        plan: &Plan,
        collection: CollectionId,
        keys: &[Key],
        deadline: Instant,
    ) -> Result<ReadSet, Again> {
        let index = usize::from(collection.0);
        let (statement, schema) = match (plan.collections.get(index), self.shared.schemas().get(index)) {
            (Some(Ok(statement)), Some(schema)) => (Arc::clone(statement), schema),
            (other, _) => {
                lease.give_back();
                let why = other.and_then(|r| r.as_ref().err()).map_or("there is no such collection", |why| &**why);
                return Err(Again::Final(ReadError::Broken { detail: why.into() }));
            }
        };
        self.hooks.before_read(collection, keys);
        let age = lease.age;
        // Told before the query is sent: what is told after this kills the lease in the cache.
        let form = match self.follow {
            Follow::Changes => statement.form(plan.recent.plain(keys)),
            Follow::Nothing => Form::Rows,
        };
        self.shared.queries.fetch_add(1, Ordering::Relaxed);
        let outcome = lease.query(statement.sql(keys, form), deadline).await;
        self.hooks.after_read(collection, keys);
        let fault = match outcome {
            Ok(sets) => match statement.answer(&sets, keys, schema, form, plan.identity.incarnation) {
                Ok((rows, saw)) => {
                    if let (Form::Asked, Version::Span { from: seen, .. }) = (form, &saw.version) {
                        plan.recent.saw(seen.at);
                    }
                    return Ok(ReadSet { version: saw.version, position: saw.position, rows });
                }
                Err(_) => Fault::Stale(ReadError::Broken {
                    detail: "the database's answer does not have the table's shape as it was looked up".into(),
                }),
            },
            Err(fault) => fault,
        };
        Err(match fault {
            Fault::Gone(e) if age == Age::Used => Again::Reconnect(e),
            Fault::Gone(e) | Fault::Query(e) => Again::Final(e),
            Fault::Stale(e) => self.replan(plan, index, &statement, e, deadline).await,
        })
    }

    /// Looks at a table again whose statement failed, and tells the other readers what it found.
    async fn replan(
        &self,
        plan: &Plan,
        index: usize,
        failed: &Arc<ReadPlan>,
        e: ReadError,
        deadline: Instant,
    ) -> Again {
        // Somebody else was quicker.
        let current = self.shared.plan().ok().and_then(|plan| plan.collections.get(index).cloned());
        if current.is_some_and(|current| !current.is_ok_and(|current| Arc::ptr_eq(&current, failed))) {
            return Again::Replanned(e);
        }
        let (Ok(lease), Some(spec)) = (self.pool.lease(plan, deadline).await, self.specs.get(index)) else {
            return Again::Final(e);
        };
        let (identity, database, spec) = (plan.identity.clone(), self.pool.database().to_owned(), spec.clone());
        // Collections are numbered with 16 bits.
        let collection = CollectionId(index as u16);
        let look = lease.run(
            Box::new(move |conn| {
                Box::pin(async move { inspect::table(conn, &identity, &database, collection, &spec).await })
            }),
            deadline,
        );
        match look.await {
            Ok(table) => {
                self.shared.set_table(index, &table.map_err(|findings| inspect::told(&findings)));
                Again::Replanned(e)
            }
            Err(_) => Again::Final(e),
        }
    }
}
