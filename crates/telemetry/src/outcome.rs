//! What the cache did for an answer: the one word that headers, logs, traces and metrics share.

/// Role of the cache in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheOutcome {
    /// Answered from memory.
    Hit,
    /// This request read the database.
    Miss,
    /// It shared another request's read.
    Coalesced,
    /// Answered from memory past its staleness bound, and marked so.
    Stale,
    /// Read past the cache.
    Bypass,
    /// The cache was not involved (errors, refusals).
    None,
}

/// All outcomes with their names, by their number.
pub const OUTCOMES: [(CacheOutcome, &str); 6] = [
    (CacheOutcome::Hit, "hit"),
    (CacheOutcome::Miss, "miss"),
    (CacheOutcome::Coalesced, "coalesced"),
    (CacheOutcome::Stale, "stale"),
    (CacheOutcome::Bypass, "bypass"),
    (CacheOutcome::None, "none"),
];

impl CacheOutcome {
    /// Number of outcomes.
    pub const COUNT: usize = OUTCOMES.len();

    /// Returns the outcome's name in `Hotrow-Cache` and the metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        OUTCOMES[self as usize].1
    }

    /// Returns the order of outcomes for a batch, which reports its worst.
    #[must_use]
    pub fn badness(self) -> u8 {
        match self {
            Self::Hit => 0,
            Self::Coalesced => 1,
            Self::Miss => 2,
            Self::Bypass => 3,
            Self::Stale => 4,
            Self::None => 5,
        }
    }
}
