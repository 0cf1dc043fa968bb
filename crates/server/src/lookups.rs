//! Outcomes of lookups by collection, counted per worker and summed on reading.

use hotrow_cache::{Lookup, ReadMode};
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_telemetry::lookups::LookupKind;
use hotrow_types::key::{CollectionId, Key};

use crate::context::ReadRequest;
use crate::handle::Handler;
use crate::scan_detector::ScanSubject;

impl Handler {
    /// Returns what the lookups of the request are counted for. Call it once per request.
    pub(crate) fn scan_subject<'a>(&'a self, request: &ReadRequest<'a>) -> ScanSubject<'a> {
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
