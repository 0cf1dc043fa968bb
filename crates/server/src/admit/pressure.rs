//! Looks at the process ten times a second, off every request's path, and sets the load that requests are judged by.

mod files;
mod memory;
mod pace;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_admit::shed::{Level, Pressure, Reading, Source};
use hotrow_cache::key::CollectionId;
use hotrow_measure::clock::Nanos;

pub(crate) use self::memory::resident_bytes;
pub(crate) use self::pace::LoopPace;

use crate::config::Shed;
use crate::metrics::WorkerMetrics;
use crate::shared::Shared;

/// Between two looks. Each costs some microseconds: it reads one small file of /proc.
const PERIOD: Duration = Duration::from_millis(100);

/// Starts the thread that looks until [`super::shed::Shedding::end`].
pub(crate) fn start(shared: Arc<Shared>, workers: Vec<Arc<WorkerMetrics>>, config: Shed) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("pressure".to_owned()).spawn(move || {
        let mut watch = Watch::new(shared, workers, &config);
        watch.look(Nanos::now());
        while watch.shared.shedding.pause(PERIOD) {
            watch.look(Nanos::now());
        }
    })
}

struct Watch {
    shared: Arc<Shared>,
    workers: Vec<Arc<WorkerMetrics>>,
    pressure: Pressure,
    memory_limit: Option<u64>,
    files: files::Files,
}

impl Watch {
    fn new(shared: Arc<Shared>, workers: Vec<Arc<WorkerMetrics>>, config: &Shed) -> Self {
        let memory_limit = config.memory_limit_bytes.or_else(memory::limit_bytes);
        tracing::debug!(memory_limit, "memory is watched");
        let capacity = shared.cache.config().capacity_bytes;
        let share = config.pressure.memory_share;
        if shared.cache.config().enabled && memory_limit.is_some_and(|limit| memory::presses(capacity, share, limit)) {
            tracing::warn!(
                capacity,
                memory_limit,
                memory_share = share,
                "a full cache will press on the memory limit for good and make the service refuse requests; lower \
                 cache.capacity, or raise the limit to 1.3 × capacity / memory_share at least"
            );
        }
        Self {
            shared,
            workers,
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
        self.shared.shedding.set(load, levels);
        for ((source, before), level) in Source::ALL.into_iter().zip(before).zip(levels) {
            if before != level {
                tell(source, level, &reading);
            }
        }
    }

    fn reading(&mut self, now: Nanos) -> Reading {
        let (mut waiting_keys, mut standing) = (0, false);
        for i in 0..self.shared.collections.len() {
            // At most 1,000 collections: see the configuration.
            let stats = self.shared.cache.stats(CollectionId(i as u16));
            waiting_keys += stats.waiting_keys;
            // The turn is told when a query is put together: of an empty queue it may be an old tale.
            standing |= stats.newest_first == 1 && stats.waiting_keys > 0;
        }
        let nobody_waits = || (waiting_keys == 0).then_some(Duration::ZERO);
        let connections = self.workers.iter().map(|worker| worker.open()).sum();
        let budget = self.shared.limits.connections as u64;
        Reading {
            loop_delays: self.workers.iter().map(|worker| worker.pace.delay(now)).collect(),
            database_wait: self.shared.shedding.take_wait().or_else(nobody_waits),
            standing,
            memory: resident_bytes().zip(self.memory_limit).map(|(used, limit)| used as f64 / limit as f64),
            files: self.files.share(files::limit(), connections, budget, now),
        }
    }
}

/// A level rises at once and falls slowly, so these lines are few.
fn tell(source: Source, level: Level, reading: &Reading) {
    let pressure = source.label();
    let shown = match source {
        Source::LoopDelay => format!("{:?} late", reading.loop_delays.iter().max().copied().unwrap_or_default()),
        Source::DatabaseWait if reading.standing => "the queue stands".to_owned(),
        Source::DatabaseWait => format!("{:?} before a query is sent", reading.database_wait.unwrap_or_default()),
        Source::Memory => format!("{:.0} % used", 100.0 * reading.memory.unwrap_or_default()),
        Source::OpenFiles => format!("{:.0} % used", 100.0 * reading.files.unwrap_or_default()),
    };
    match level {
        Level::Calm => tracing::info!(pressure, shown, "overload: calm again"),
        Level::Busy => tracing::warn!(pressure, shown, "overload: busy, what is of low priority is refused first"),
        Level::Hard => tracing::warn!(pressure, shown, "overload: hard, what costs more than a hit is refused"),
    }
}

#[cfg(test)]
mod tests;
