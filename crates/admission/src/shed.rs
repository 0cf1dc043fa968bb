//! Load shedding: which requests are refused first.
//!
//! [`Pressure`] turns readings of the process into a [`Load`], and [`sheds`] decides what is
//! refused under it: database reads before answers from memory, low priority before high. Both are
//! pure; the server takes the readings.

mod codel;
mod pressure;

pub use self::codel::CoDel;
pub use self::pressure::{Config, Pressure, Reading, Source};

/// Level of pressure on the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Within its means.
    #[default]
    Normal,
    /// Near its limit: work that can wait is refused.
    Elevated,
    /// Past its limit: work that costs more than an answer from memory is refused.
    Critical,
}

impl Level {
    /// All levels, in order.
    pub const ALL: [Self; 3] = [Self::Normal, Self::Elevated, Self::Critical];

    /// Returns the level as metrics and documents name it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Elevated => "elevated",
            Self::Critical => "critical",
        }
    }
}

/// Importance of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Refused first: batch jobs, crawlers, requests that are retried later anyway.
    Low,
    /// Default.
    #[default]
    Normal,
    /// Refused last.
    High,
}

impl Priority {
    /// All priorities, in order.
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// Returns the priority as headers, configuration and metrics name it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

/// Cost class of a request, the cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One record from memory. It allocates nothing, so refusing it frees nothing.
    Hit,
    /// Several records: a body is built for the answer.
    Batch,
    /// A read of the database.
    Miss,
    /// A database read that the request demands although memory could answer (`no-cache`, a minimal
    /// position).
    Bypass,
}

impl Kind {
    /// All classes, in order.
    pub const ALL: [Self; 4] = [Self::Hit, Self::Batch, Self::Miss, Self::Bypass];

    /// Returns the class as metrics and documents name it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Batch => "batch",
            Self::Miss => "miss",
            Self::Bypass => "bypass",
        }
    }
}

/// Load of the process, as far as refusing requests reduces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Work waits: for the workers' loops, or for the database.
    pub delay: Level,
    /// Memory or file descriptors run out.
    pub room: Level,
}

impl Load {
    /// Returns the higher of both levels.
    #[must_use]
    pub fn level(self) -> Level {
        self.delay.max(self.room)
    }

    /// Packs the load into one byte, 0 when both levels are normal: for an atomic that every
    /// request reads.
    #[must_use]
    pub fn pack(self) -> u8 {
        self.delay as u8 | (self.room as u8) << 4
    }

    /// Unpacks the load of [`Load::pack`].
    #[must_use]
    pub fn unpack(byte: u8) -> Self {
        let level = |n: u8| Level::ALL.get(usize::from(n)).copied().unwrap_or(Level::Critical);
        Self { delay: level(byte & 15), room: level(byte >> 4) }
    }
}

/// Levels from which a request is refused: for delay and for room.
#[derive(Clone, Copy, Debug)]
struct Threshold {
    delay: Option<Level>,
    room: Option<Level>,
}

const fn from(delay: Option<Level>, room: Option<Level>) -> Threshold {
    Threshold { delay, room }
}

const NEVER: Option<Level> = None;
const FROM_ELEVATED: Option<Level> = Some(Level::Elevated);
const FROM_CRITICAL: Option<Level> = Some(Level::Critical);

/// By priority, then by cost class. `docs/overload.md` shows the same table.
const TABLE: [[Threshold; Kind::ALL.len()]; Priority::ALL.len()] = [
    [
        from(FROM_CRITICAL, FROM_CRITICAL),
        from(FROM_CRITICAL, FROM_ELEVATED),
        from(FROM_ELEVATED, FROM_ELEVATED),
        from(FROM_ELEVATED, FROM_ELEVATED),
    ],
    [
        from(NEVER, NEVER),
        from(NEVER, FROM_CRITICAL),
        from(FROM_CRITICAL, FROM_CRITICAL),
        from(FROM_CRITICAL, FROM_ELEVATED),
    ],
    [from(NEVER, NEVER), from(NEVER, NEVER), from(NEVER, NEVER), from(NEVER, FROM_CRITICAL)],
];

/// Returns whether a request is refused under this load.
pub fn sheds(load: Load, kind: Kind, priority: Priority) -> bool {
    let Threshold { delay, room } = TABLE[priority as usize][kind as usize];
    delay.is_some_and(|from| load.delay >= from) || room.is_some_and(|from| load.room >= from)
}

#[cfg(test)]
mod tests;
