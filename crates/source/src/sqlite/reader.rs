//! Reading records: a few threads, each with a connection and prepared statements of its own.

mod query;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hotrow_cache::key::{CollectionId, Key, KeySchema};
use hotrow_measure::clock::Nanos;
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use tokio::sync::oneshot;

use self::query::{Prepared, Query};
use super::error::{Fault, OpenError, fault};
use super::shared::{Counted, Plan, Shared};
use super::{Hooks, SqliteSource};
use crate::{BoxFuture, ReadError, ReadSet, Source};

/// Reads that may wait for a reader thread; more are refused.
pub(crate) const WAITING_READS_MAX: usize = 4096;
/// How often an idle reader looks whether its connection is still of use, should a nudge have passed it by.
const IDLE_CHECK_EVERY: Duration = Duration::from_secs(1);
/// Page cache of each reader: enough for the inner pages of large tables. The rest is in the kernel's cache, and what is
/// read often is in ours.
const PAGE_CACHE_KIB: i64 = 512;
/// Steps of SQLite's machine between two looks at the clock: some tenths of a millisecond.
const STEPS_PER_CHECK: i32 = 10_000;

type Answer = Result<ReadSet, ReadError>;

/// A read on its way to a thread.
struct Job {
    collection: CollectionId,
    keys: Vec<Key>,
    deadline: Nanos,
    answer: oneshot::Sender<Answer>,
}

/// Reads waiting for a thread.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    closed: bool,
    /// Counts the calls of [`Queue::nudge`].
    nudges: u64,
}

enum Next {
    Job(Job),
    /// Nothing came; look whether the connection is still of use.
    Idle,
    Closed,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Queue {
    fn push(&self, job: Job) -> Result<(), Job> {
        let mut waiting = self.waiting.lock();
        if waiting.closed || waiting.jobs.len() >= WAITING_READS_MAX {
            return Err(job);
        }
        waiting.jobs.push_back(job);
        drop(waiting);
        self.changed.notify_one();
        Ok(())
    }

    fn next(&self) -> Next {
        let mut waiting = self.waiting.lock();
        let nudges = waiting.nudges;
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                return Next::Job(job);
            }
            if waiting.closed {
                return Next::Closed;
            }
            if waiting.nudges != nudges || self.changed.wait_for(&mut waiting, IDLE_CHECK_EVERY).timed_out() {
                return Next::Idle;
            }
        }
    }

    /// Makes idle readers look whether their connection is still of use.
    pub(crate) fn nudge(&self) {
        self.waiting.lock().nudges += 1;
        self.changed.notify_all();
    }

    fn close(&self) {
        self.waiting.lock().closed = true;
        self.changed.notify_all();
    }
}

impl Source for SqliteSource {
    fn read(&self, collection: CollectionId, keys: Vec<Key>) -> BoxFuture<'_, Answer> {
        let (answer, answered) = oneshot::channel();
        let deadline = Nanos::now().after(self.read_timeout);
        if let Err(why) = self.shared.plan() {
            return Box::pin(std::future::ready(Err(unavailable(&why))));
        }
        if self.queue.push(Job { collection, keys, deadline, answer }).is_err() {
            let detail = format!("more than {WAITING_READS_MAX} reads wait for the {} readers", self.readers);
            return Box::pin(std::future::ready(Err(ReadError::Unavailable { detail })));
        }
        Box::pin(async { answered.await.unwrap_or_else(|_| Err(unavailable("the readers have stopped"))) })
    }

    fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    fn queries_total(&self) -> u64 {
        self.shared.queries.load(Ordering::Relaxed)
    }

    fn health(&self) -> Result<(), String> {
        self.shared.plan().map(drop).map_err(|why| why.to_string())
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

fn unavailable(why: &str) -> ReadError {
    ReadError::Unavailable { detail: why.into() }
}

/// Starts the threads.
///
/// # Errors
/// When the system has none left.
pub(crate) fn start(readers: usize, shared: &Arc<Shared>, queue: &Arc<Queue>, hooks: &Hooks) -> Result<(), OpenError> {
    for i in 0..readers {
        let reader = Reader { shared: Arc::clone(shared), queue: Arc::clone(queue), hooks: hooks.clone() };
        let spawned = std::thread::Builder::new().name(format!("sqlite-read-{i}")).spawn(move || reader.run());
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

/// Why a connection is given up; the job that needs another one comes along.
enum Leave {
    Closed,
    Reopen(Option<Job>),
}

impl Reader {
    fn run(self) {
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
            let opened = self.shared.plan().map_err(|why| unavailable(&why)).and_then(|plan| {
                let deadline = Arc::new(AtomicU64::new(job.deadline.0));
                open(&self.shared, &plan, &deadline).map(|conn| (conn, plan, deadline))
            });
            match opened {
                Err(e) => _ = job.answer.send(Err(e)),
                Ok((conn, plan, deadline)) => match self.serve(&conn.conn, plan, &deadline, job) {
                    Leave::Closed => return,
                    Leave::Reopen(job) => carried = job,
                },
            }
        }
    }

    /// Answers reads through one connection for as long as it is of use.
    fn serve(&self, conn: &Connection, mut plan: Arc<Plan>, deadline: &AtomicU64, first: Job) -> Leave {
        let opened_for = plan.generation;
        let mut prepared = Prepared::new(conn, plan.collections.len());
        let mut next = Next::Job(first);
        loop {
            match next {
                Next::Closed => return Leave::Closed,
                Next::Idle if self.shared.generation() != opened_for => return Leave::Reopen(None),
                Next::Idle => {}
                Next::Job(job) => {
                    // The plan is looked at before each query: what is published before a flush holds for every read
                    // that begins after it.
                    match self.shared.plan() {
                        Ok(current) if current.generation == opened_for => {
                            if current.serial != plan.serial {
                                prepared.clear();
                                plan = current;
                            }
                        }
                        _ => return Leave::Reopen(Some(job)),
                    }
                    if self.answer(&plan, &mut prepared, deadline, job) == Use::Spent {
                        return Leave::Reopen(None);
                    }
                }
            }
            next = self.queue.next();
        }
    }

    fn answer(&self, plan: &Plan, prepared: &mut Prepared<'_>, deadline: &AtomicU64, job: Job) -> Use {
        // Whoever asked is gone: the database is spared.
        if job.answer.is_closed() {
            return Use::Good;
        }
        if Nanos::now() >= job.deadline {
            let detail = "its time was over before a reader was free".into();
            _ = job.answer.send(Err(ReadError::Timeout { detail }));
            return Use::Good;
        }
        deadline.store(job.deadline.0, Ordering::Relaxed);
        self.hooks.before_read(job.collection, &job.keys);
        let query = Query { collection: job.collection, keys: &job.keys, queries: &self.shared.queries };
        let (answer, connection) = match query.run(plan, prepared) {
            Ok(answer) => (answer, Use::Good),
            Err(e) => {
                let (error, connection) = translate(&e);
                (Err(error), connection)
            }
        };
        self.hooks.after_read(job.collection, &job.keys);
        _ = job.answer.send(answer);
        connection
    }
}

/// Whether a connection can be used on.
#[derive(PartialEq, Eq)]
enum Use {
    Good,
    Spent,
}

fn translate(e: &rusqlite::Error) -> (ReadError, Use) {
    let detail = e.to_string();
    match fault(e) {
        Fault::Busy | Fault::Interrupted => (ReadError::Timeout { detail }, Use::Good),
        Fault::Unusable => (ReadError::Unavailable { detail }, Use::Spent),
        // Our own tables are put back within moments; the user's are not ours to mend.
        Fault::Statement if detail.contains(super::names::TRIGGER_PREFIX) || detail.contains("sqlite_sequence") => {
            (ReadError::Unavailable { detail }, Use::Good)
        }
        Fault::Statement => (ReadError::Broken { detail }, Use::Good),
    }
}

/// Opens a connection that cannot write and gives up at the deadline, whether it waits for a lock or works.
fn open(shared: &Arc<Shared>, plan: &Plan, deadline: &Arc<AtomicU64>) -> Result<Counted, ReadError> {
    let mut counted = Counted::open(shared, plan, Duration::ZERO).map_err(|e| unavailable(&e))?;
    let conn = &mut counted.conn;
    let over = |deadline: &Arc<AtomicU64>| {
        let deadline = Arc::clone(deadline);
        move || Nanos::now().0 >= deadline.load(Ordering::Relaxed)
    };
    let (working, waiting) = (over(deadline), over(deadline));
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
    // Setting the cache's size reads the schema, and so waits for locks as a query does.
    set_up.map_err(|e| translate(&e).0)?;
    Ok(counted)
}
