//! What became of the rows of one query, and how long a stored one lives.

use std::time::Duration;

/// What became of one row that a query read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// It is in the cache.
    Kept,
    /// It was answered and not kept: a change intervened or was not visible, or the source does not
    /// permit to keep it.
    Discarded,
    /// It was answered and not kept, because only scanning clients requested it.
    NotAdmitted,
    /// It was not answered: a newer answer had been sent, so the key is read again.
    Repeated,
    /// It was not answered: an answer of a standby may have been newer, so the key is read again.
    Hidden,
}

/// Counts of what became of the rows of one query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fills {
    /// Rows, or their absence, that were stored.
    pub kept: usize,
    /// Rows that were answered and not stored, because a change intervened or was not visible, or
    /// the source does not permit it.
    pub discarded: usize,
    /// Rows that were answered and not stored, because only scanning clients requested them.
    pub not_admitted: usize,
    /// Rows that were not answered: a newer answer had been sent, so their keys are read again.
    pub repeated: usize,
    /// Those of them that are older than an answer of a standby may have been: read again after a
    /// pause.
    pub hidden: usize,
}

impl Fills {
    pub(super) fn count(&mut self, fill: Fill) {
        match fill {
            Fill::Kept => self.kept += 1,
            Fill::Discarded => self.discarded += 1,
            Fill::NotAdmitted => self.not_admitted += 1,
            Fill::Repeated => self.repeated += 1,
            Fill::Hidden => {
                self.repeated += 1;
                self.hidden += 1;
            }
        }
    }
}

/// Shortens a lifetime by up to `jitter` of itself; `random` is a number without pattern.
pub(super) fn jittered(ttl: Duration, jitter: f64, random: u64) -> Duration {
    // The upper bits of a multiplicative hash, as a fraction of 0 to 1.
    let unit = (random.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64;
    let jitter = if jitter > 0.0 { jitter.min(1.0) } else { 0.0 };
    // `as` saturates at 584 years.
    Duration::from_nanos((ttl.as_nanos() as f64 * (1.0 - jitter * unit)) as u64)
}
