//! Models of request processing: the same requests through one thread, a thread for each, batches, pools, an I/O-aware pool, work
//! stealing, async and an event loop. Each model is a file of its own, to be read as a lesson.
//!
//! Reading order: [`Model`] and [`catalogue`], [`work`] (what a request is, and what all must add up to), `job` (what a model
//! is given), `sequential`, `thread_per_request`, `batches`, `queue` and `pool`, `slots` and `io_aware`, `stealing`,
//! `asynchronous`, `event_loop`; [`floor`] (what none can beat), [`limits`] (what kills a thread per request), [`child`]
//! (a model in its own process), [`harness`] (that process from outside), [`undo`], [`results`], `original`, [`report`].

mod asynchronous;
mod batches;
pub mod child;
mod counted;
mod event_loop;
pub mod floor;
pub mod harness;
mod io_aware;
mod job;
pub mod limits;
mod original;
mod pool;
mod queue;
mod raise;
mod raw;
pub mod report;
pub mod results;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod schedules;
mod sequential;
mod slots;
mod stealing;
mod sync;
mod thread_per_request;
pub mod timeline;
pub mod undo;
pub mod work;

use std::io;
use std::sync::Arc;

use self::floor::Bound;
use self::job::Job;
use self::limits::{Evidence, Limit};

/// Most requests of a run: a bit and a 64th of a thread's time each; enough for minutes.
pub const REQUESTS_MAX: u64 = 10_000_000;
/// Requests of the original.
pub const REQUESTS_DEFAULT: u64 = 100_000;
/// Name of the model that may not be able to finish.
pub const THREAD_PER_REQUEST: &str = "thread-per-request";
/// Stack of every thread that serves requests: a request needs a few kilobytes.
const STACK_BYTES: usize = 64 << 10;
/// Room of the pools' queues.
const QUEUE_CAPACITY: usize = 1_024;

/// A way to process requests.
pub(crate) trait Model: Send + Sync {
    /// As on the command line.
    fn name(&self) -> String;
    /// The workload of the original that it is, W14 to W18; empty when it is none.
    fn workload(&self) -> &'static str;
    /// What it does, and what limits it.
    fn about(&self) -> [&'static str; 2];
    /// Why it comes to what it comes to.
    fn why(&self) -> [&'static str; 3];
    /// Most threads that serve requests at a time.
    fn threads(&self, requests: u64) -> u64;
    /// What its floor follows from.
    fn bound(&self, requests: u64) -> Bound;
    /// Serves every request of the job, and ends when all its threads have.
    ///
    /// # Errors
    /// When the system refused a thread; what was begun until then is done.
    fn run(&self, job: &Arc<Job>) -> Result<(), Stopped>;
}

/// A thread could not be had.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// Threads that there were until then.
    started: u64,
    /// Which limit it was; none when the evidence must tell.
    limit: Option<Limit>,
    /// The counts of the moment.
    evidence: Box<Evidence>,
}

impl Stopped {
    /// The system has just refused.
    fn now(started: u64, error: &io::Error) -> Self {
        Self { started, limit: None, evidence: Box::new(Evidence::now(&error.to_string())) }
    }
}

/// All models, for a machine with so many cores; in the order in which they are told.
pub(crate) fn catalogue(cores: usize) -> Vec<Box<dyn Model>> {
    let cores = cores.max(1);
    let batches = |name, size: usize| -> Box<dyn Model> { Box::new(batches::Batches { name, size: size as u64 }) };
    let pool = |name, threads| -> Box<dyn Model> { Box::new(pool::Pool { name, threads }) };
    vec![
        Box::new(sequential::Sequential),
        Box::new(thread_per_request::ThreadPerRequest),
        batches("100", 100),
        batches("50", 50),
        batches("16", 16),
        batches("cores", cores),
        pool("100", 100),
        pool("4x", 4 * cores),
        pool("2x", 2 * cores),
        pool("1x", cores),
        pool("half", cores.div_ceil(2)),
        Box::new(io_aware::IoAware { cores }),
        Box::new(stealing::Stealing { threads: 4 * cores }),
        Box::new(asynchronous::Async { cores }),
        Box::new(event_loop::EventLoop),
    ]
}

/// What a list shows of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// As on the command line.
    pub name: String,
    /// What it does, and what limits it.
    pub lines: [&'static str; 2],
}

/// All models, explained.
#[must_use]
pub fn list(cores: usize) -> Vec<About> {
    catalogue(cores).iter().map(|model| About { name: model.name(), lines: model.about() }).collect()
}

/// Names of the models that are meant by `asked`: a name, or the beginning of several (`pool` is all pools); all when nothing is
/// asked. In the order of the list, each once.
///
/// # Errors
/// What means none.
pub fn chosen(asked: &[String], cores: usize) -> Result<Vec<String>, String> {
    let names: Vec<String> = catalogue(cores).iter().map(|model| model.name()).collect();
    let means = |asked: &str, name: &str| {
        name == asked || name.strip_prefix(asked).is_some_and(|rest| asked.is_empty() || rest.starts_with('-'))
    };
    if let Some(unknown) = asked.iter().find(|asked| asked.is_empty() || !names.iter().any(|name| means(asked, name))) {
        return Err(unknown.clone());
    }
    let wanted = |name: &String| asked.is_empty() || asked.iter().any(|asked| means(asked, name));
    Ok(names.into_iter().filter(wanted).collect())
}

/// CPUs that this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
