//! Outcomes of lookups by collection, counted per worker and summed on reading; and the days by
//! which ids are counted.

use hotrow_cache::{Freshness, Presence, Record};
use hotrow_measure::clock::Nanos;
use hotrow_measure::counter::Counter;

/// Outcome of one key's lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupKind {
    /// A record from memory.
    Hit,
    /// The knowledge that there is no record, from memory.
    Negative,
    /// This request queued the read.
    Miss,
    /// It joined another request's read.
    Coalesced,
    /// Served past a bound, by configuration.
    Stale,
    /// Read in the mode that the request asked for, or with the cache off.
    Bypass,
    /// Not answered.
    Refused,
}

impl LookupKind {
    /// Returns the kind of a lookup that memory answered.
    #[inline]
    #[must_use]
    pub fn of_memory(record: &Record, freshness: Freshness) -> Self {
        match (freshness, record.presence()) {
            (Freshness::Fresh, Presence::Found) => Self::Hit,
            (Freshness::Fresh, Presence::Missing) => Self::Negative,
            (Freshness::Expired | Freshness::Stale, _) => Self::Stale,
        }
    }
}

/// Outcomes of the lookups of one request.
#[derive(Debug, Default)]
pub struct LookupCounts([u32; LABELS.len()]);

impl LookupCounts {
    /// Counts one.
    #[inline]
    pub fn add(&mut self, kind: LookupKind) {
        self.0[kind as usize] += 1;
    }

    /// Calls `each` for the outcomes that there were.
    pub fn each(&self, mut each: impl FnMut(LookupKind, u32)) {
        for (kind, times) in KINDS.into_iter().zip(self.0).filter(|(_, times)| *times > 0) {
            each(kind, times);
        }
    }
}

/// By their number.
const KINDS: [LookupKind; LABELS.len()] = [
    LookupKind::Hit,
    LookupKind::Negative,
    LookupKind::Miss,
    LookupKind::Coalesced,
    LookupKind::Stale,
    LookupKind::Bypass,
    LookupKind::Refused,
];

/// Labels, in the order of [`LookupKind`].
pub const LABELS: [&str; 7] =
    ["hit", "negative", "miss", "coalesced", "stale", "bypass", "refused"];

/// Counters of one worker; only its thread writes.
#[derive(Debug)]
pub struct WorkerLookups(Box<[[Counter; LABELS.len()]]>);

impl WorkerLookups {
    /// Creates zeros for each of `collections`.
    #[must_use]
    pub fn new(collections: usize) -> Self {
        Self((0..collections).map(|_| Default::default()).collect())
    }

    /// Counts one lookup.
    #[inline]
    pub fn count(&self, collection: u16, kind: LookupKind) {
        self.add(collection, kind, 1);
    }

    /// Counts some lookups of a collection.
    #[inline]
    pub fn add(&self, collection: u16, kind: LookupKind, times: u32) {
        self.0[usize::from(collection)][kind as usize].add(times.into());
    }

    /// Returns one collection's counts, in the order of [`LABELS`].
    pub fn get(&self, collection: usize) -> [u64; LABELS.len()] {
        std::array::from_fn(|kind| self.0[collection][kind].get())
    }
}

/// Number of days since 1970 (UTC), from the process's clock and the wall clock at the start: a
/// later step of the wall clock does not move it.
#[derive(Clone, Copy, Debug)]
pub struct Calendar {
    offset_ns: u64,
}

impl Calendar {
    /// Starts at `now`; `wall_ns`: nanoseconds since 1970 at that moment.
    #[must_use]
    pub fn new(now: Nanos, wall_ns: u64) -> Self {
        Self { offset_ns: wall_ns.saturating_sub(now.0) }
    }

    /// Returns the lead of the wall clock over the process's clock at the start, in nanoseconds.
    pub fn wall_lead_ns(&self) -> u64 {
        self.offset_ns
    }

    /// Returns the number of the day at `now`.
    #[inline]
    pub fn day(&self, now: Nanos) -> u32 {
        const DAY_NS: u64 = 86_400_000_000_000;
        // 2^64 ns are 213,503 days.
        ((self.offset_ns.saturating_add(now.0)) / DAY_NS) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_change_at_midnight() {
        let start = Nanos(5_000);
        let calendar = Calendar::new(start, 86_400_000_000_000 * 20_000 - 1);
        assert_eq!(calendar.day(start), 19_999);
        assert_eq!(calendar.day(Nanos(5_001)), 20_000);
    }
}
