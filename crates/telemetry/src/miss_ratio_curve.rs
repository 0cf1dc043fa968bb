//! The miss-ratio curve of the running service: how the hit ratio depends on the capacity.
//!
//! Workers push sampled lookups into rings of their own, the cache's log has the other events of
//! sampled keys, and one thread replays all of them in small copies of the store
//! ([`hotrow_cache::miniature`]). Once a second it publishes the curve, or why there is none.

mod merge;
mod predictor;
mod ring;
mod sentence;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_cache::Cache;
use hotrow_cache::miniature::Curve;
use hotrow_cache::miniature::curve::LOOKUPS_MIN;
use hotrow_cache::miniature::sampling::{Sample, SamplingRate};
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};
use parking_lot::Mutex;
use tokio::time::sleep;

use self::predictor::Predictor;
use self::ring::SampleRing;
pub use self::sentence::sentence;
use crate::lookups::WorkerLookups;

/// Most lookups that wait in all rings together, of up to 128 workers: 0.75 MiB.
const RINGS_LOOKUPS_MAX: usize = 1 << 15;
/// Most and fewest that wait in one ring.
const RING_LOOKUPS_MAX: usize = 1 << 13;
const RING_LOOKUPS_MIN: usize = 1 << 8;
/// Time between two looks at the rings, with lookups and without. With the size of a ring it bounds
/// the cost: a worker hands over at most 41,000 lookups a second.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_IDLE: Duration = Duration::from_millis(250);

/// The curve, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The curve.
    Known(Box<Curve>),
    /// No curve.
    Unknown(Unknown),
}

/// Reason for which the hit ratio at other capacities is unknown.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Unknown {
    /// By configuration.
    #[error("cache.miss_ratio_curve is off")]
    Off,
    /// By configuration.
    #[error("cache.enabled is off")]
    CacheOff,
    /// The weight of the entries is not known yet.
    #[error("the cache has {entries} entries so far, and the first {entries_min} show their size")]
    FewEntries {
        /// Entries now.
        entries: u64,
        /// Entries needed.
        entries_min: u64,
    },
    /// The copies would be too small.
    #[error(
        "too small to predict: the capacity holds about {entries} entries, and at least \
         {entries_min} are needed"
    )]
    TooSmall {
        /// Entries that the capacity holds.
        entries: u64,
        /// Entries that it must hold.
        entries_min: u64,
    },
    /// The copies would need too much memory.
    #[error(
        "the copies need more than their {} MiB: the entries are too many and too small",
        hotrow_cache::miniature::MEMORY_BYTES_MAX >> 20
    )]
    Memory,
    /// The observation has just begun.
    #[error("too few lookups so far: {sampled} of the {LOOKUPS_MIN} sampled ones that are needed")]
    FewLookups {
        /// Sampled lookups now.
        sampled: u64,
    },
}

/// What workers, the predictor and the admin side share.
#[derive(Debug)]
pub struct MissRatioCurve {
    rings: Mutex<Rings>,
    ring_lookups: usize,
    published: Mutex<Published>,
}

/// The rings of all workers.
#[derive(Debug, Default)]
struct Rings {
    list: Vec<Arc<SampleRing>>,
    /// They have memory, and a later one gets it at once: the predictor has begun to sample.
    are_allocated: bool,
}

/// What the predictor shows.
#[derive(Clone, Debug)]
pub struct Published {
    /// The curve, or why there is none.
    pub report: Report,
    /// Memory of the copies, in bytes.
    pub memory_bytes: u64,
    /// Share of the keys that are sampled.
    pub rate: SamplingRate,
    /// Events that were replayed, since the start.
    pub replayed_total: u64,
    /// Events that were lost.
    pub dropped_total: u64,
}

/// Sampled lookups of one worker.
#[derive(Clone, Debug)]
pub struct WorkerSamples(Arc<SampleRing>);

impl WorkerSamples {
    /// See [`SampleRing::admits`].
    #[inline]
    pub fn admits(&self) -> bool {
        self.0.admits()
    }

    /// Queues a lookup that the ring [admits](Self::admits).
    #[cold]
    #[inline(never)]
    pub fn push(&self, sample: &Sample) {
        self.0.push(sample);
    }
}

impl MissRatioCurve {
    /// Creates it for a number of workers.
    pub fn new(workers: usize, is_on: bool, is_cached: bool) -> Self {
        let ring_lookups = RINGS_LOOKUPS_MAX / workers.max(1);
        let unknown = match (is_on, is_cached) {
            (false, _) => Unknown::Off,
            (true, false) => Unknown::CacheOff,
            (true, true) => Unknown::FewEntries { entries: 0, entries_min: predictor::ENTRIES_MIN },
        };
        Self {
            rings: Mutex::default(),
            ring_lookups: ring_lookups.clamp(RING_LOOKUPS_MIN, RING_LOOKUPS_MAX),
            published: Mutex::new(Published {
                report: Report::Unknown(unknown),
                memory_bytes: 0,
                rate: SamplingRate::NONE,
                replayed_total: 0,
                dropped_total: 0,
            }),
        }
    }

    /// Returns whether the predictor runs.
    fn is_on(&self) -> bool {
        let report = &self.published.lock().report;
        !matches!(report, Report::Unknown(Unknown::Off | Unknown::CacheOff))
    }

    /// Creates the ring of a worker. The ring of one that ended is forgotten when it is empty.
    pub fn worker(&self) -> WorkerSamples {
        let ring = Arc::new(SampleRing::new(self.ring_lookups));
        let mut rings = self.rings.lock();
        if rings.are_allocated {
            ring.allocate();
        }
        rings.list.push(Arc::clone(&ring));
        WorkerSamples(ring)
    }

    /// Gives all rings their memory, before anything is sampled. Returns how many lookups fit.
    fn allocate(&self) -> usize {
        let mut rings = self.rings.lock();
        rings.are_allocated = true;
        rings.list.iter().for_each(|ring| ring.allocate());
        rings.list.len() * self.ring_lookups
    }

    /// Returns what the predictor published last.
    pub fn published(&self) -> Published {
        self.published.lock().clone()
    }
}

/// Starts the thread of the predictor, if it is on. `newest` returns the cache under the settings
/// in force.
///
/// # Errors
/// The system has no thread left.
pub fn start(
    curve: Arc<MissRatioCurve>,
    newest: impl Fn() -> Arc<Cache<ReadFailure>> + Clone + Send + Sync + 'static,
    lookups: Vec<Arc<WorkerLookups>>,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<Option<JoinHandle<Option<()>>>> {
    if !curve.is_on() {
        return Ok(None);
    }
    let ending = shutdown.clone();
    let shutdown = shutdown.clone();
    let failed = newest();
    // Until the thread runs again nothing is sampled.
    let after_failure = move || failed.samples().set_rate(SamplingRate::NONE);
    let body = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let newest = Box::new(newest.clone());
        let predictor = Predictor::new(curve.clone(), newest, lookups.clone());
        runtime.block_on(async {
            tokio::select! {
                () = shutdown.ending() => {}
                never = run(predictor) => match never {},
            }
        });
        Ok(())
    };
    let is_stopping = move || ending.is_ending();
    supervisor.spawn("miss-ratio", is_stopping, after_failure, body).map(Some)
}

async fn run(mut predictor: Predictor) -> Infallible {
    loop {
        supervisor::turn();
        let is_busy = predictor.step(Nanos::now());
        sleep(if is_busy { PAUSE } else { PAUSE_IDLE }).await;
    }
}
