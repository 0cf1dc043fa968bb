//! Samples the process ten times a second, off the path of requests, and sets the load that decides
//! on shedding.

mod files;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_admission::shed::{Level, Load, Pressure, Reading, Source};
use hotrow_answer::collections::Collections;
use hotrow_answer::memory::{self, resident_bytes};
use hotrow_answer::metrics::WorkerMetrics;
use hotrow_answer::shed::LoadShedder;
use hotrow_cache::Cache;
use hotrow_config::Shed;
use hotrow_gate::read::{Fetcher, SourceReads};
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_supervisor::{self as supervisor, Supervisor};
use hotrow_types::source::SourceId;

use crate::in_force::{InForce, Snapshot};

/// Time between two samples. Each costs some microseconds: it reads one small file of /proc.
const PERIOD: Duration = Duration::from_millis(100);

/// Starts the thread that samples until everything must end.
///
/// # Errors
/// The system has no thread left.
pub fn start(
    in_force: Arc<InForce>,
    workers: Vec<Arc<WorkerMetrics>>,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<JoinHandle<Option<()>>> {
    let failed = Arc::clone(&in_force.newest().shared.fetcher);
    let ending = shutdown.clone();
    let shutdown = shutdown.clone();
    let is_stopping = move || ending.is_ending();
    // Without sampling, the last sample must not keep refusing requests.
    let after_failure = move || reset(&failed);
    supervisor.spawn("pressure", is_stopping, after_failure, move || {
        let mut following =
            Following { in_force: in_force.clone(), seen: None, watches: Vec::new() };
        following.look(&workers, Nanos::now());
        while shutdown.pause(PERIOD) {
            supervisor::turn();
            following.look(&workers, Nanos::now());
        }
        Ok(())
    })
}

fn reset(fetcher: &Fetcher) {
    let shedders = fetcher.sources.iter().map(|reads| &reads.load_shedder);
    shedders.for_each(|shedder| shedder.set(Load::default(), Default::default()));
}

/// A watch of each source by the settings in force; none while shedding is disabled. What presses
/// on the process counts for all sources, a slow database for its own collections.
struct Following {
    in_force: Arc<InForce>,
    seen: Option<Arc<Snapshot>>,
    watches: Vec<Watch>,
}

impl Following {
    fn look(&mut self, workers: &[Arc<WorkerMetrics>], now: Nanos) {
        let newest = self.in_force.newest();
        if !self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &newest)) {
            self.follow(&newest, workers);
            self.seen = Some(newest);
        }
        self.watches.iter_mut().for_each(|watch| watch.look(now));
    }

    /// Watches by other settings. The levels reached so far are kept if shedding is set as before.
    fn follow(&mut self, newest: &Snapshot, workers: &[Arc<WorkerMetrics>]) {
        let shared = &newest.shared;
        let connections_max = shared.limits.connections;
        let shed = self.seen.as_ref().map(|seen| &seen.config.shed);
        if shed == Some(&newest.config.shed) {
            for watch in &mut self.watches {
                watch.watched.connections_max = connections_max;
            }
            return;
        }
        reset(&shared.fetcher);
        let watched = |reads: &SourceReads| Watched {
            load_shedder: Arc::clone(&reads.load_shedder),
            source: (reads.id, reads.name.clone()),
            cache: Arc::clone(&shared.cache),
            collections: Arc::clone(&shared.collections),
            workers: workers.to_vec(),
            connections_max,
        };
        let watch = |shed: &Shed| {
            let watched = shared.fetcher.sources.iter().map(watched);
            watched.map(|watched| Watch::new(watched, shed)).collect()
        };
        self.watches = newest.config.shed.as_ref().map(watch).unwrap_or_default();
    }
}

/// Parts of the process that are sampled, and the receiver of the load.
#[derive(Clone)]
pub(crate) struct Watched {
    /// Gets the load; reports how long reads waited.
    pub(crate) load_shedder: Arc<LoadShedder>,
    /// The source whose collections are watched, with its name.
    pub(crate) source: (SourceId, String),
    /// Its queues of keys.
    pub(crate) cache: Arc<Cache<ReadFailure>>,
    /// The served collections.
    pub(crate) collections: Arc<Collections>,
    /// Their delays and connections.
    pub(crate) workers: Vec<Arc<WorkerMetrics>>,
    /// `limits.connections`.
    pub(crate) connections_max: usize,
}

struct Watch {
    watched: Watched,
    pressure: Pressure,
    memory_limit: Option<u64>,
    files: files::Files,
}

impl Watch {
    fn new(watched: Watched, config: &Shed) -> Self {
        let memory_limit = config.memory_limit_bytes.or_else(memory::limit_bytes);
        tracing::debug!(memory_limit, "monitoring memory");
        let capacity = watched.cache.capacity_bytes();
        let share = config.pressure.memory_share;
        if watched.source.0 == SourceId::FIRST
            && watched.cache.config().enabled
            && memory_limit.is_some_and(|limit| memory::exceeds_when_full(capacity, share, limit))
        {
            tracing::warn!(
                capacity,
                memory_limit,
                memory_share = share,
                "a full cache will exceed the memory target for good and make the service refuse \
                 requests; lower cache.capacity, or raise the limit to at least 1.3 × capacity / \
                 memory_share"
            );
        }
        Self {
            watched,
            pressure: Pressure::new(config.pressure.clone()),
            memory_limit,
            files: files::Files::default(),
        }
    }

    fn look(&mut self, now: Nanos) {
        let before = self.pressure.levels();
        let reading = self.reading(now);
        let load = self.pressure.observe(&reading, now);
        let levels = self.pressure.levels();
        self.watched.load_shedder.set(load, levels);
        for ((source, before), level) in Source::ALL.into_iter().zip(before).zip(levels) {
            // What presses on the process is in the log once.
            let is_own = source == Source::DatabaseWait;
            if before != level && (is_own || self.watched.source.0 == SourceId::FIRST) {
                record((source, &self.watched.source.1), level, &reading);
            }
        }
    }

    fn reading(&mut self, now: Nanos) -> Reading {
        let mut waiting_keys = 0;
        let mut standing = false;
        for id in self.watched.collections.of_source(self.watched.source.0) {
            let stats = self.watched.cache.stats(id);
            waiting_keys += stats.waiting_keys;
            // The order is reported when a query is put together; for an empty queue it may be out
            // of date.
            standing |= stats.lifo == 1 && stats.waiting_keys > 0;
        }
        let no_wait = || (waiting_keys == 0).then_some(Duration::ZERO);
        let connections = self.watched.workers.iter().map(|worker| worker.open()).sum();
        let budget = self.watched.connections_max as u64;
        Reading {
            loop_delays: self.watched.workers.iter().map(|worker| worker.pace.delay(now)).collect(),
            database_wait: self.watched.load_shedder.take_wait().or_else(no_wait),
            standing,
            memory: resident_bytes()
                .zip(self.memory_limit)
                .map(|(used, limit)| used as f64 / limit as f64),
            files: self.files.share(files::limit(), connections, budget, now),
        }
    }
}

/// Logs a change of level. A level rises at once and falls slowly, so these lines are few.
fn record((source, database): (Source, &str), level: Level, reading: &Reading) {
    let pressure = source.label();
    let shown = match source {
        Source::LoopDelay => {
            format!("{:?} late", reading.loop_delays.iter().max().copied().unwrap_or_default())
        }
        Source::DatabaseWait if reading.standing => format!("standing queue of {database}"),
        Source::DatabaseWait => {
            let wait = reading.database_wait.unwrap_or_default();
            format!("{wait:?} before a query of {database} is sent")
        }
        Source::Memory => format!("{:.0} % used", 100.0 * reading.memory.unwrap_or_default()),
        Source::OpenFiles => format!("{:.0} % used", 100.0 * reading.files.unwrap_or_default()),
    };
    match level {
        Level::Normal => tracing::info!(pressure, shown, "overload: level normal again"),
        Level::Elevated => tracing::warn!(
            pressure,
            shown,
            "overload: level elevated, low-priority requests are refused first"
        ),
        Level::Critical => {
            tracing::warn!(pressure, shown, "overload: level critical, only hits are served")
        }
    }
}

#[cfg(test)]
mod tests;
