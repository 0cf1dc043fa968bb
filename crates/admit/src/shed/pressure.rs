//! From readings of the process to its load: what is above its bound for how long, and how it calms down again.

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::{CoDel, Level, Load};

/// Settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Delay in a queue that is too much when it stands. Above 0.
    pub queue_delay_target: Duration,
    /// For how long it must stand. Above 0.
    pub queue_delay_interval: Duration,
    /// Share of the memory from which on it counts as nearly gone, between 0 and 1.
    pub memory_share: f64,
    /// The same of the file descriptors.
    pub files_share: f64,
}

/// A standing delay of so many targets is not at the edge any more but past it.
const HARD_TIMES: u32 = 10;
/// The level falls one step when the readings have been lower for so many intervals.
const CALM_INTERVALS: u32 = 2;

/// What presses.
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

    /// The source as metrics and the log name it.
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

/// One look at the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// How late each worker's loop is.
    pub loop_delays: Vec<Duration>,
    /// The least wait of a cold key before its query was sent, of those that ended since the last look. `None`: none ended, and some
    /// wait; then nothing is known.
    pub database_wait: Option<Duration>,
    /// Whether a queue for the database stands by its own judgement and is read newest first. Then those who get a query have waited
    /// for next to nothing, and the least wait says nothing of the others, who are refused.
    pub standing: bool,
    /// Used share of the memory; `None` where no limit is known.
    pub memory: Option<f64>,
    /// Used share of the file descriptors; `None` where no limit is known.
    pub files: Option<f64>,
}

/// The judgement over time.
#[derive(Debug)]
pub struct Pressure {
    config: Config,
    loops: Vec<[CoDel; 2]>,
    database: CoDel,
    held: [Held; Source::ALL.len()],
}

impl Pressure {
    /// Calm.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let database = CoDel::new(config.queue_delay_target, config.queue_delay_interval);
        Self { config, loops: Vec::new(), database, held: Default::default() }
    }

    /// Takes in a look at `now`, and gives the load that follows.
    pub fn observe(&mut self, reading: &Reading, now: Nanos) -> Load {
        let hold = self.config.queue_delay_interval.saturating_mul(CALM_INTERVALS);
        let levels = [
            Some(self.of_loops(&reading.loop_delays, now)),
            // Never worse than busy: the queue for the database has a bound and an order of its own, and all or nothing in front of
            // it would let it run empty between two looks.
            self.of_database(reading, now),
            Some(of_share(reading.memory, self.config.memory_share)),
            Some(of_share(reading.files, self.config.files_share)),
        ];
        for (held, level) in self.held.iter_mut().zip(levels) {
            level.into_iter().for_each(|level| held.observe(level, now, hold));
        }
        self.load()
    }

    /// The level of each source, in the order of [`Source::ALL`].
    #[must_use]
    pub fn levels(&self) -> [Level; Source::ALL.len()] {
        self.held.each_ref().map(|held| held.level)
    }

    /// The load as it was last observed.
    #[must_use]
    pub fn load(&self) -> Load {
        let [loops, database, memory, files] = self.levels();
        Load { delay: loops.max(database), room: memory.max(files) }
    }

    fn of_database(&mut self, reading: &Reading, now: Nanos) -> Option<Level> {
        // Waits take part in every look.
        let by_waits = reading.database_wait.map(|wait| edge(self.database.observe(wait, now), Level::Busy));
        if reading.standing { Some(Level::Busy) } else { by_waits }
    }

    /// The worst worker: each has a queue of its own.
    fn of_loops(&mut self, delays: &[Duration], now: Nanos) -> Level {
        let Config { queue_delay_target: target, queue_delay_interval: interval, .. } = self.config;
        let new = || [CoDel::new(target, interval), CoDel::new(target.saturating_mul(HARD_TIMES), interval)];
        self.loops.resize_with(delays.len(), new);
        let level = |([busy, hard], delay): (&mut [CoDel; 2], &Duration)| {
            // Both take part in every look.
            let (busy, hard) = (busy.observe(*delay, now), hard.observe(*delay, now));
            edge(busy, Level::Busy).max(edge(hard, Level::Hard))
        };
        self.loops.iter_mut().zip(delays).map(level).max().unwrap_or_default()
    }
}

fn edge(is: bool, level: Level) -> Level {
    if is { level } else { Level::Calm }
}

/// Busy from `busy` on, hard when two thirds of what was left then are gone too.
fn of_share(used: Option<f64>, busy: f64) -> Level {
    let hard = 1.0 - (1.0 - busy) / 3.0;
    match used {
        Some(used) if used >= hard => Level::Hard,
        Some(used) if used >= busy => Level::Busy,
        Some(_) | None => Level::Calm,
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
            let lower = if self.level == Level::Hard { Level::Busy } else { Level::Calm };
            *self = Self { level: lower, lower_since: Some(now) };
        }
    }
}
