//! Reader threads, each with a connection and prepared statements of its own.

mod query;
mod snapshot;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key, KeySchema};
use rusqlite::Connection;
use tokio::sync::oneshot;

use self::query::{Prepared, Query};
use super::SqliteSource;
use super::error::{Fault, OpenError, fault};
use super::file::{FILE_REPLACED, identify};
use super::queue::{Answer, Job, Next, Queue, WAITING_READS_MAX};
use super::shared::{Counted, Plan, Shared};
use hotrow_source::database_name::DatabaseName;
use hotrow_source::field_schema::FieldSchema;
use hotrow_source::hooks::Hooks;
use hotrow_source::{BoxFuture, KeysOfCollection, RowBudget, Source, SourceError};
use hotrow_supervisor::{self as supervisor, Supervisor};

/// Page cache of each reader: enough for the inner pages of large tables. The other pages are in
/// the kernel's cache, and frequently read records are in Hotrow's.
const PAGE_CACHE_KIB: i64 = 512;
/// Steps of SQLite's virtual machine between two checks of the deadline: some tenths of a
/// millisecond.
const STEPS_PER_CHECK: i32 = 10_000;

impl Source for SqliteSource {
    fn read_within(
        &self,
        collection: CollectionId,
        keys: Vec<Key>,
        rows: Arc<RowBudget>,
    ) -> BoxFuture<'_, Answer> {
        self.read_snapshot(vec![(collection, keys)], rows)
    }

    fn read_snapshot(
        &self,
        parts: Vec<KeysOfCollection>,
        rows: Arc<RowBudget>,
    ) -> BoxFuture<'_, Answer> {
        let (answer, answered) = oneshot::channel();
        let deadline = Nanos::now().after(self.read_timeout);
        if let Err(why) = self.shared.published.plan() {
            return Box::pin(std::future::ready(Err(unavailable(&why))));
        }
        if self.queue.push(Job { parts, deadline, rows, answer }).is_err() {
            let detail = format!(
                "more than {WAITING_READS_MAX} reads wait for the {} readers",
                self.readers
            );
            return Box::pin(std::future::ready(Err(SourceError::Unavailable { detail })));
        }
        Box::pin(async {
            answered
                .await
                .unwrap_or_else(|_| Err(unavailable("the reader stopped before it answered")))
        })
    }
    fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    fn fields(&self, CollectionId(id): CollectionId) -> Option<Arc<[FieldSchema]>> {
        let plan = self.shared.published.plan().ok()?;
        plan.collections.get(usize::from(id))?.as_ref().ok().map(|read| Arc::clone(&read.schemas))
    }

    fn queries_total(&self) -> u64 {
        self.shared.queries.load(Ordering::Relaxed)
    }

    fn health(&self) -> Result<(), String> {
        self.shared.published.plan().map(drop).map_err(|why| why.to_string())
    }

    fn database(&self) -> DatabaseName {
        self.name.clone()
    }

    fn unseen_changes(&self) -> &'static str {
        "triggers that a writer dropped or disabled, `PRAGMA writable_schema`, \
         a file edited by another program \
         (docs/sqlite.md)"
    }

    fn watch(&self) -> &'static str {
        self.watch.name()
    }
}

impl Drop for SqliteSource {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn unavailable(why: &str) -> SourceError {
    SourceError::Unavailable { detail: why.into() }
}

/// Starts the threads.
///
/// # Errors
/// Fails if the system has no thread left.
pub(crate) fn start(
    readers: usize,
    shared: &Arc<Shared>,
    queue: &Arc<Queue>,
    hooks: &Hooks,
    supervisor: &Supervisor,
) -> Result<(), OpenError> {
    for i in 0..readers {
        let reader =
            Reader { shared: Arc::clone(shared), queue: Arc::clone(queue), hooks: hooks.clone() };
        let closed = Arc::clone(queue);
        // A panic drops the sender, so that the read is answered with an error, and the connection.
        let body = move || {
            reader.run();
            Ok(())
        };
        let spawned =
            supervisor.spawn(&format!("sqlite-read-{i}"), move || closed.is_closed(), || (), body);
        if let Err(e) = spawned {
            queue.close();
            return Err(OpenError::Thread { detail: e.to_string() });
        }
    }
    Ok(())
}

struct Reader {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    hooks: Hooks,
}

/// Reason to close a connection, with the job that needs another one.
enum ConnectionEnd {
    Closed,
    Reopen(Option<Job>),
}

impl Reader {
    fn run(&self) {
        let mut carried = None;
        loop {
            let job = match carried.take() {
                Some(job) => job,
                None => match self.queue.next() {
                    Next::Job(job) => job,
                    Next::Idle => continue,
                    Next::Closed => return,
                },
            };
            let opened =
                self.shared.published.plan().map_err(|why| unavailable(&why)).and_then(|plan| {
                    let deadline = Arc::new(AtomicU64::new(job.deadline.0));
                    open(&self.shared, &plan, &deadline).map(|conn| (conn, plan, deadline))
                });
            match opened {
                Err(e) => _ = job.answer.send(Err(e)),
                Ok((conn, plan, deadline)) => match self.serve(&conn.conn, plan, &deadline, job) {
                    ConnectionEnd::Closed => return,
                    ConnectionEnd::Reopen(job) => carried = job,
                },
            }
        }
    }

    /// Answers reads through one connection while it is valid.
    fn serve(
        &self,
        conn: &Connection,
        mut plan: Arc<Plan>,
        deadline: &AtomicU64,
        first: Job,
    ) -> ConnectionEnd {
        let opened_for = plan.generation;
        let mut prepared = Prepared::new(conn, plan.collections.len());
        let mut next = Next::Job(first);
        loop {
            match next {
                Next::Closed => return ConnectionEnd::Closed,
                Next::Idle if self.shared.published.generation() != opened_for => {
                    return ConnectionEnd::Reopen(None);
                }
                Next::Idle => {}
                Next::Job(job) => {
                    // The plan is checked before each query: a plan published before a flush
                    // applies to every read that begins after the flush.
                    match self.shared.published.plan() {
                        Ok(current) if current.generation == opened_for => {
                            if current.serial != plan.serial {
                                prepared.clear();
                                plan = current;
                            }
                        }
                        _ => return ConnectionEnd::Reopen(Some(job)),
                    }
                    if self.answer(&plan, &mut prepared, deadline, job) == Condition::Unusable {
                        return ConnectionEnd::Reopen(None);
                    }
                }
            }
            next = self.queue.next();
        }
    }

    fn answer(
        &self,
        plan: &Plan,
        prepared: &mut Prepared<'_>,
        deadline: &AtomicU64,
        job: Job,
    ) -> Condition {
        // The caller has gone: no query is sent.
        if job.answer.is_closed() {
            return Condition::Usable;
        }
        if Nanos::now() >= job.deadline {
            let detail = "its deadline passed before a reader thread was free".into();
            _ = job.answer.send(Err(SourceError::Timeout { detail }));
            return Condition::Usable;
        }
        // An open connection reads a replaced file for ever, and the feed may notice only later:
        // such a read would be as of now and show the past.
        if identify(&plan.path) != Ok(plan.file) {
            _ = job.answer.send(Err(unavailable(FILE_REPLACED)));
            return Condition::Usable;
        }
        supervisor::turn();
        deadline.store(job.deadline.0, Ordering::Relaxed);
        let parts = &job.parts;
        parts.iter().for_each(|(collection, keys)| self.hooks.before_read(*collection, keys));
        let (budget, queries) = (&*job.rows, &self.shared.queries);
        let all: Vec<Query<'_>> = parts
            .iter()
            .map(|(collection, keys)| Query { collection: *collection, keys, budget, queries })
            .collect();
        let run = match &all[..] {
            [only] => only.run(plan, prepared),
            several => snapshot::run(several, plan, prepared),
        };
        let (answer, connection) = match run {
            Ok(answer) => (answer, Condition::Usable),
            Err(e) => {
                let fits = || all.iter().all(|query| query.fits(plan, prepared));
                let (error, connection) = translate(&e, fits);
                (Err(error), connection)
            }
        };
        parts.iter().for_each(|(collection, keys)| self.hooks.after_read(*collection, keys));
        // Before the answer is sent: from then on the caller's clone alone decides how long the
        // bytes stay reserved.
        let Job { rows, answer: sender, .. } = job;
        drop(rows);
        _ = sender.send(answer);
        connection
    }
}

/// Condition of a connection after a query.
#[derive(PartialEq, Eq)]
enum Condition {
    Usable,
    Unusable,
}

/// `fits` returns whether the statement can be prepared again, in other words, whether the error is
/// one of its rows.
fn translate(e: &rusqlite::Error, fits: impl FnOnce() -> bool) -> (SourceError, Condition) {
    let detail = e.to_string();
    match fault(e) {
        Fault::Busy | Fault::Interrupted => (SourceError::Timeout { detail }, Condition::Usable),
        Fault::Unusable => (SourceError::Unavailable { detail }, Condition::Unusable),
        // Hotrow's own tables are restored within moments; the user's tables are not.
        Fault::Statement
            if detail.contains(super::names::TRIGGER_PREFIX)
                || detail.contains("sqlite_sequence") =>
        {
            (SourceError::Unavailable { detail }, Condition::Usable)
        }
        fault => match (fault, e.sqlite_error().is_some() && fits()) {
            // The connection keeps pages that it has read, also when the file is restored.
            (Fault::Damage, true) => (SourceError::Data { detail }, Condition::Unusable),
            (_, true) => (SourceError::Data { detail }, Condition::Usable),
            (Fault::Damage, false) => (SourceError::Unavailable { detail }, Condition::Unusable),
            (_, false) => (SourceError::Broken { detail }, Condition::Usable),
        },
    }
}

/// Opens a connection that cannot write and that stops at the deadline, both in waits for locks and
/// in queries.
fn open(
    shared: &Arc<Shared>,
    plan: &Plan,
    deadline: &Arc<AtomicU64>,
) -> Result<Counted, SourceError> {
    let mut counted = Counted::open(shared, plan, Duration::ZERO).map_err(|e| unavailable(&e))?;
    let conn = &mut counted.conn;
    let over = |deadline: &Arc<AtomicU64>| {
        let deadline = Arc::clone(deadline);
        move || Nanos::now().0 >= deadline.load(Ordering::Relaxed)
    };
    let working = over(deadline);
    let waiting = over(deadline);
    let set_up = conn
        .progress_handler(STEPS_PER_CHECK, Some(working))
        .and_then(|()| {
            conn.busy_handler(Some(move |tries: i32| {
                // Short at first: most locks of a database are held for moments.
                std::thread::sleep(Duration::from_micros(100 << tries.clamp(0, 6)));
                !waiting()
            }))
        })
        .and_then(|()| conn.pragma_update(None, "query_only", true))
        .and_then(|()| conn.pragma_update(None, "cache_size", -PAGE_CACHE_KIB));
    // Setting the cache size reads the schema, so it waits for locks as a query does.
    set_up.map_err(|e| translate(&e, || false).0)?;
    Ok(counted)
}
