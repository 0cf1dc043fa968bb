//! Models of request processing: the same requests through one thread, a thread per request,
//! batches, pools, an I/O-aware pool, work stealing, async and an event loop. Each model is a file
//! of its own and can be read as a lesson.
//!
//! Reading order: [`Model`] and [`catalogue`], [`work`] (a request, and the expected totals of a
//! run), `job` (the requests of a run), `sequential`, `thread_per_request`, `batches`, `queue` and
//! `pool`, `slots` and `io_aware`, `stealing`, `asynchronous`, `event_loop`; [`floor`] (lower
//! bounds of the run time), [`limits`] (limits on threads), [`child`] (a model in its own process),
//! [`harness`] (the parent of that process), [`undo`], [`results`], `published`, [`report`].

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
mod pool;
mod queue;
mod raise;
mod raw;
pub mod report;
pub mod results;
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

use self::floor::FloorRule;
use self::job::Job;
use self::limits::{Evidence, Limit};

/// Most requests of a run: minutes of work.
pub const REQUESTS_MAX: u64 = 10_000_000;
/// Requests of a run by default, as in the published experiments.
pub const REQUESTS_DEFAULT: u64 = 100_000;
/// Name of the model that may run into a limit on threads.
pub const THREAD_PER_REQUEST: &str = "thread-per-request";
/// Capacity of the pools' queues.
const QUEUE_CAPACITY: usize = 1_024;

/// A model of request processing.
pub(crate) trait Model: Send + Sync {
    /// Returns its name, as on the command line.
    fn name(&self) -> String;
    /// Returns its published workload, W14 to W18; empty if there is none.
    fn workload(&self) -> &'static str;
    /// Describes its design and its limit.
    fn design(&self) -> [&'static str; 2];
    /// Explains its result.
    fn explanation(&self) -> [&'static str; 3];
    /// Returns the most threads that serve requests at a time.
    fn threads(&self, requests: u64) -> u64;
    /// Returns the rule for its floor.
    fn floor_rule(&self, requests: u64) -> FloorRule;
    /// Serves every request of the job and returns after all its threads have ended.
    ///
    /// # Errors
    /// The system refused a thread; the requests started before are done.
    fn run(&self, job: &Arc<Job>) -> Result<(), ThreadRefused>;
}

/// Refusal of a thread by the system.
#[derive(Debug)]
pub(crate) struct ThreadRefused {
    /// Threads started before the refusal.
    started: u64,
    /// The limit; `None` if the evidence must decide.
    limit: Option<Limit>,
    /// Kernel counters at that moment.
    evidence: Box<Evidence>,
}

impl ThreadRefused {
    /// Creates the refusal from the system's error.
    fn now(started: u64, error: &io::Error) -> Self {
        Self { started, limit: None, evidence: Box::new(Evidence::now(&error.to_string())) }
    }
}

/// Returns all models for a machine with `cores` cores, in listing order.
pub(crate) fn catalogue(cores: usize) -> Vec<Box<dyn Model>> {
    let cores = cores.max(1);
    let batches = |name, size: usize| -> Box<dyn Model> {
        Box::new(batches::Batches { name, size: size as u64 })
    };
    let pool = |name, threads| -> Box<dyn Model> { Box::new(pool::Pool { name, threads }) };
    let io_aware = |threads_per_core| -> Box<dyn Model> {
        Box::new(io_aware::IoAware { cores, threads_per_core })
    };
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
        io_aware(io_aware::THREADS_PER_CORE_PUBLISHED),
        io_aware(io_aware::THREADS_PER_CORE),
        Box::new(stealing::Stealing { threads: 4 * cores }),
        Box::new(asynchronous::Async { cores }),
        Box::new(event_loop::EventLoop),
    ]
}

/// Description of a model for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Name, as on the command line.
    pub name: String,
    /// Its design and its limit.
    pub lines: [&'static str; 2],
}

/// Returns the descriptions of all models.
pub fn list(cores: usize) -> Vec<ModelInfo> {
    catalogue(cores)
        .iter()
        .map(|model| ModelInfo { name: model.name(), lines: model.design() })
        .collect()
}

/// Returns the names of the models that `requested` selects: a name, or a prefix of several (`pool`
/// selects all pools); all if `requested` is empty. In listing order, without duplicates.
///
/// # Errors
/// The first name that selects none.
pub fn chosen(requested: &[String], cores: usize) -> Result<Vec<String>, String> {
    let names: Vec<String> = catalogue(cores).iter().map(|model| model.name()).collect();
    let means = |requested: &str, name: &str| {
        name == requested
            || name
                .strip_prefix(requested)
                .is_some_and(|rest| requested.is_empty() || rest.starts_with('-'))
    };
    if let Some(unknown) = requested
        .iter()
        .find(|requested| requested.is_empty() || !names.iter().any(|name| means(requested, name)))
    {
        return Err(unknown.clone());
    }
    let wanted = |name: &String| {
        requested.is_empty() || requested.iter().any(|requested| means(requested, name))
    };
    Ok(names.into_iter().filter(wanted).collect())
}

/// Returns the number of CPUs that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod tests {
    mod schedules;
}
