//! From readings of the process to its load: which readings exceed their bound for how long, and
//! how the level falls again.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::{CoDel, Level, Load};

/// Settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Delay that is too long in a standing queue. Above 0.
    pub queue_delay_target: Duration,
    /// Time for which the queue must stand. Above 0.
    pub queue_delay_interval: Duration,
    /// Share of the memory from which it counts as nearly used up, between 0 and 1.
    pub memory_share: f64,
    /// The same for file descriptors.
    pub open_files_threshold: f64,
}

/// Multiple of the target from which a standing delay is critical.
const CRITICAL_TIMES: u32 = 10;
/// Intervals of lower readings after which the level falls one step.
const RECOVERY_INTERVALS: u32 = 2;

/// Source of pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The workers' event loops are late.
    LoopDelay,
    /// Cold keys wait before their query is sent.
    DatabaseWait,
    /// Memory.
    Memory,
    /// File descriptors.
    OpenFiles,
}

impl Source {
    /// All sources, in the order of [`Pressure::levels`].
    pub const ALL: [Self; 4] = [Self::LoopDelay, Self::DatabaseWait, Self::Memory, Self::OpenFiles];

    /// Returns the source as metrics and the log name it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::LoopDelay => "loop_delay",
            Self::DatabaseWait => "database_wait",
            Self::Memory => "memory",
            Self::OpenFiles => "open_files",
        }
    }
}

/// One reading of the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Delay of each worker's loop.
    pub loop_delays: Vec<Duration>,
    /// Least wait of a cold key before its query was sent, among those that ended since the last
    /// reading. `None`: none ended, and some wait; then nothing is known.
    pub database_wait: Option<Duration>,
    /// `true`: a queue for the database is standing and read newest first. Then a key that gets a
    /// query has waited for almost nothing, and the least wait says nothing about the others, which
    /// are rejected.
    pub standing: bool,
    /// Used share of the memory; `None` without a known limit.
    pub memory: Option<f64>,
    /// Used share of the file descriptors; `None` without a known limit.
    pub files: Option<f64>,
}

/// The pressure over time.
#[derive(Debug)]
pub struct Pressure {
    config: Config,
    loops: Vec<[CoDel; 2]>,
    database: CoDel,
    held: [Held; Source::ALL.len()],
}

impl Pressure {
    /// Creates a state without pressure.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let database = CoDel::new(config.queue_delay_target, config.queue_delay_interval);
        Self { config, loops: Vec::new(), database, held: Default::default() }
    }

    /// Records a reading at `now` and returns the load that follows.
    pub fn observe(&mut self, reading: &Reading, now: Nanos) -> Load {
        let hold = self.config.queue_delay_interval.saturating_mul(RECOVERY_INTERVALS);
        let levels = [
            Some(self.of_loops(&reading.loop_delays, now)),
            // Never above elevated: the queue for the database has a bound and an order of its own,
            // and refusing everything before it would let it run empty between two readings.
            self.of_database(reading, now),
            Some(of_share(reading.memory, self.config.memory_share)),
            Some(of_share(reading.files, self.config.open_files_threshold)),
        ];
        for (held, level) in self.held.iter_mut().zip(levels) {
            level.into_iter().for_each(|level| held.observe(level, now, hold));
        }
        self.load()
    }

    /// Returns the level of each source, in the order of [`Source::ALL`].
    pub fn levels(&self) -> [Level; Source::ALL.len()] {
        self.held.each_ref().map(|held| held.level)
    }

    /// Returns the load as it was last observed.
    pub fn load(&self) -> Load {
        let [loops, database, memory, files] = self.levels();
        Load { delay: loops.max(database), room: memory.max(files) }
    }

    fn of_database(&mut self, reading: &Reading, now: Nanos) -> Option<Level> {
        // Waits are part of every reading.
        let by_waits = reading
            .database_wait
            .map(|wait| edge(self.database.observe(wait, now), Level::Elevated));
        if reading.standing { Some(Level::Elevated) } else { by_waits }
    }

    /// Judges the worst worker: each has a queue of its own.
    fn of_loops(&mut self, delays: &[Duration], now: Nanos) -> Level {
        let Config { queue_delay_target: target, queue_delay_interval: interval, .. } = self.config;
        let new = || {
            [
                CoDel::new(target, interval),
                CoDel::new(target.saturating_mul(CRITICAL_TIMES), interval),
            ]
        };
        self.loops.resize_with(delays.len(), new);
        let level = |([elevated, critical], delay): (&mut [CoDel; 2], &Duration)| {
            // Both detectors see every reading.
            let elevated = elevated.observe(*delay, now);
            let critical = critical.observe(*delay, now);
            edge(elevated, Level::Elevated).max(edge(critical, Level::Critical))
        };
        self.loops.iter_mut().zip(delays).map(level).max().unwrap_or_default()
    }
}

fn edge(is: bool, level: Level) -> Level {
    if is { level } else { Level::Normal }
}

/// Elevated from `elevated_share` on; critical when two thirds of the rest are used too.
fn of_share(used: Option<f64>, elevated_share: f64) -> Level {
    let critical_share = 1.0 - (1.0 - elevated_share) / 3.0;
    match used {
        Some(used) if used >= critical_share => Level::Critical,
        Some(used) if used >= elevated_share => Level::Elevated,
        Some(_) | None => Level::Normal,
    }
}

/// A level that rises at once and falls slowly, one step at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    level: Level,
    lower_since: Option<Nanos>,
}

impl Held {
    fn observe(&mut self, level: Level, now: Nanos, hold: Duration) {
        if level >= self.level {
            *self = Self { level, lower_since: None };
        } else if now.since(*self.lower_since.get_or_insert(now)) >= hold {
            let lower = if self.level == Level::Critical { Level::Elevated } else { Level::Normal };
            *self = Self { level: lower, lower_since: Some(now) };
        }
    }
}
