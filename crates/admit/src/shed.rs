//! What is refused first when there is too much of everything.
//!
//! [`Pressure`] turns readings of the process into a [`Load`], and [`sheds`] says what is refused under it: reads of the database
//! before answers from memory, low priority before high. Both are pure; who reads the process and how often is the server's part.

mod codel;
mod pressure;

pub use self::codel::CoDel;
pub use self::pressure::{Config, Pressure, Reading, Source};

/// How far past its means the process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Within its means.
    #[default]
    Calm,
    /// At their edge: what can wait is refused.
    Busy,
    /// Past them: what costs more than memory's answers is refused.
    Hard,
}

impl Level {
    /// All levels, in order.
    pub const ALL: [Self; 3] = [Self::Calm, Self::Busy, Self::Hard];

    /// The level as metrics and documents name it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Busy => "busy",
            Self::Hard => "hard",
        }
    }
}

/// How important a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Refused first: batch jobs, crawlers, what is tried again later anyway.
    Low,
    /// Everything that says nothing.
    #[default]
    Normal,
    /// Refused last.
    High,
}

impl Priority {
    /// All priorities, in order.
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// The priority as headers, configuration and metrics name it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

/// What a request costs, the cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One record out of memory. It allocates nothing, so refusing it frees nothing.
    Hit,
    /// Several records: a body is built for the answer.
    Batch,
    /// A read of the database.
    Miss,
    /// A read of the database that the request wishes although memory could answer (`no-cache`, a minimal position).
    Bypass,
}

impl Kind {
    /// All kinds, in order.
    pub const ALL: [Self; 4] = [Self::Hit, Self::Batch, Self::Miss, Self::Bypass];

    /// The kind as metrics and documents name it.
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

/// The state of the process, as far as refusing can help it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Work waits: for the workers' loops, or for the database.
    pub delay: Level,
    /// Memory or file descriptors run out.
    pub room: Level,
}

impl Load {
    /// The worse of both.
    #[must_use]
    pub fn level(self) -> Level {
        self.delay.max(self.room)
    }

    /// As one byte, 0 when all is calm: for an atomic that every request looks at.
    #[must_use]
    pub fn pack(self) -> u8 {
        self.delay as u8 | (self.room as u8) << 4
    }

    /// The load of [`Load::pack`].
    #[must_use]
    pub fn unpack(byte: u8) -> Self {
        let level = |n: u8| Level::ALL.get(usize::from(n)).copied().unwrap_or(Level::Hard);
        Self { delay: level(byte & 15), room: level(byte >> 4) }
    }
}

/// From which level on something is refused, for want of time and for want of room.
#[derive(Clone, Copy, Debug)]
struct Threshold {
    delay: Option<Level>,
    room: Option<Level>,
}

const fn from(delay: Option<Level>, room: Option<Level>) -> Threshold {
    Threshold { delay, room }
}

const NEVER: Option<Level> = None;
const BUSY: Option<Level> = Some(Level::Busy);
const HARD: Option<Level> = Some(Level::Hard);

/// By priority, then by kind. `docs/overload.md` shows the same table.
const TABLE: [[Threshold; Kind::ALL.len()]; Priority::ALL.len()] = [
    [from(HARD, HARD), from(HARD, BUSY), from(BUSY, BUSY), from(BUSY, BUSY)],
    [from(NEVER, NEVER), from(NEVER, HARD), from(HARD, HARD), from(HARD, BUSY)],
    [from(NEVER, NEVER), from(NEVER, NEVER), from(NEVER, NEVER), from(NEVER, HARD)],
];

/// Whether a request is refused under this load.
#[must_use]
pub fn sheds(load: Load, kind: Kind, priority: Priority) -> bool {
    let Threshold { delay, room } = TABLE[priority as usize][kind as usize];
    delay.is_some_and(|from| load.delay >= from) || room.is_some_and(|from| load.room >= from)
}

#[cfg(test)]
mod tests;
