//! Looks at the process ten times a second, off every request's path, and sets the load that requests are judged by.

mod files;
mod memory;
mod pace;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_admit::shed::{Level, Pressure, Reading, Source};
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
        let nobody_waits = || (self.shared.waiting.get() == 0).then_some(Duration::ZERO);
        let connections = self.workers.iter().map(|worker| worker.open()).sum();
        Reading {
            loop_delays: self.workers.iter().map(|worker| worker.pace.delay(now)).collect(),
            database_wait: self.shared.shedding.take_wait().or_else(nobody_waits),
            memory: resident_bytes().zip(self.memory_limit).map(|(used, limit)| used as f64 / limit as f64),
            files: self.files.share(files::limit(), connections, now),
        }
    }
}

/// A level rises at once and falls slowly, so these lines are few.
fn tell(source: Source, level: Level, reading: &Reading) {
    let pressure = source.label();
    let shown = match source {
        Source::LoopDelay => format!("{:?} late", reading.loop_delays.iter().max().copied().unwrap_or_default()),
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
