//! Outcomes of lookups by collection, counted per worker and summed on reading.

use hotrow_cache::{Freshness, Lookup, Presence, ReadMode, Record};
use hotrow_measure::clock::Nanos;
use hotrow_measure::counter::Counter;
use hotrow_source::ReadFailure;
use hotrow_types::key::{CollectionId, Key};

use crate::context::RequestContext;
use crate::handle::Handler;
use crate::scan_detector::ScanSubject;

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
pub(crate) struct LookupCounts([u32; LABELS.len()]);

impl LookupCounts {
    #[inline]
    pub(crate) fn add(&mut self, kind: LookupKind) {
        self.0[kind as usize] += 1;
    }

    /// Calls `each` for the outcomes that there were.
    pub(crate) fn each(&self, mut each: impl FnMut(LookupKind, u32)) {
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
    pub fn count(&self, collection: u16, kind: LookupKind) {
        self.add(collection, kind, 1);
    }

    fn add(&self, collection: u16, kind: LookupKind, times: u32) {
        self.0[usize::from(collection)][kind as usize].add(times.into());
    }

    /// Returns one collection's counts, in the order of [`LABELS`].
    #[must_use]
    pub fn get(&self, collection: usize) -> [u64; LABELS.len()] {
        std::array::from_fn(|kind| self.0[collection][kind].get())
    }
}

impl Handler {
    /// Returns what the lookups of the request are counted for. Call it once per request.
    pub(crate) fn scan_subject<'a>(&'a self, request: &RequestContext<'a>) -> ScanSubject<'a> {
        let clients = self.shared.admission.rate.clients();
        request.connection.scan_subject(request.headers, clients, &self.client_detectors)
    }

    /// Adds the ids to the sketch of the day, and some of them to the samples of hot keys and of
    /// the miss-ratio curve. `mode`: that of the lookups that are about to be made; `None`: memory
    /// is not asked.
    pub(crate) fn requested(
        &self,
        keys: &[Key],
        hashes: &[u64],
        mode: Option<ReadMode>,
        now: Nanos,
    ) {
        let day = self.shared.calendar.day(now);
        let cache = &self.shared.cache;
        if let Some(sampler) = &self.key_sampler {
            sampler.note(keys, |key| cache.hash(key));
        }
        for (key, hash) in keys.iter().zip(hashes) {
            self.metrics.ids.note(day, *hash);
            if let Some(mode) = mode {
                self.sample(key, *hash, mode, now);
            }
        }
    }

    /// The same for one id.
    pub(crate) fn requested_one(&self, key: &Key, mode: Option<ReadMode>, now: Nanos) {
        let hash = self.shared.cache.hash(key);
        self.requested(std::slice::from_ref(key), &[hash], mode, now);
    }

    /// Adds some values of aliases to the samples of the miss-ratio curve. They are no ids: the
    /// other counts and samples take the keys that they name.
    pub(crate) fn requested_by_alias(&self, aliases: &[Key], mode: ReadMode, now: Nanos) {
        for alias in aliases {
            self.sample(alias, self.shared.cache.hash(alias), mode, now);
        }
    }

    #[inline]
    fn sample(&self, key: &Key, hash: u64, mode: ReadMode, now: Nanos) {
        let cache = &self.shared.cache;
        if cache.samples().rate().takes(hash)
            && self.samples.admits()
            && let Some(sample) = cache.sample_lookup(key, hash, mode, now)
        {
            self.samples.push(&sample);
        }
    }

    /// Counts the outcome of a lookup.
    pub(crate) fn looked_up(
        &self,
        subject: ScanSubject<'_>,
        id: CollectionId,
        mode: ReadMode,
        lookup: &Lookup<ReadFailure>,
    ) {
        let kind = match lookup {
            Lookup::Hit(record, freshness) | Lookup::Negative(record, freshness) => {
                LookupKind::of_memory(record, *freshness)
            }
            Lookup::Coalesced(_) | Lookup::Miss(_) if mode == ReadMode::Revalidate => {
                LookupKind::Bypass
            }
            Lookup::Coalesced(_) => LookupKind::Coalesced,
            Lookup::Miss(_) => LookupKind::Miss,
            Lookup::Bypass(_) => LookupKind::Bypass,
            Lookup::Refused(_) => LookupKind::Refused,
        };
        self.count_lookup(subject, id, kind);
    }

    /// Counts a lookup of this kind.
    pub(crate) fn count_lookup(
        &self,
        subject: ScanSubject<'_>,
        id: CollectionId,
        kind: LookupKind,
    ) {
        self.count_lookups(subject, id, kind, 1);
    }

    /// Counts some lookups of this kind.
    pub(crate) fn count_lookups(
        &self,
        subject: ScanSubject<'_>,
        CollectionId(id): CollectionId,
        kind: LookupKind,
        times: u32,
    ) {
        subject.note(kind, times, &self.shared.baseline_hit_ratio);
        self.lookups.add(id, kind, times);
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
    #[must_use]
    pub fn wall_lead_ns(&self) -> u64 {
        self.offset_ns
    }

    /// Returns the number of the day at `now`.
    #[must_use]
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
