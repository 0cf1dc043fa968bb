//! Outcomes of lookups by collection, counted per worker and summed on reading.

use std::rc::Rc;
use std::sync::Arc;

use hotrow_answer::context::ReadRequest;
use hotrow_answer::metrics::WorkerMetrics;
use hotrow_answer::scan_detector::{BaselineHitRatio, ClientDetectors, ScanSubject};
use hotrow_cache::{Cache, Lookup, ReadMode};
use hotrow_gate::admission::Admission;
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_telemetry::history::hot_keys::KeySampler;
use hotrow_telemetry::lookups::{Calendar, LookupKind, WorkerLookups};
use hotrow_telemetry::miss_ratio_curve::WorkerSamples;
use hotrow_types::key::{CollectionId, Key};

use crate::shared::Shared;

/// Counts and samples of the lookups of one worker.
pub(crate) struct LookupRecorder {
    cache: Arc<Cache<ReadFailure>>,
    admission: Arc<Admission>,
    calendar: Calendar,
    baseline_hit_ratio: Arc<BaselineHitRatio>,
    metrics: Arc<WorkerMetrics>,
    counts: LookupCounters,
}

/// What a worker keeps when its settings change.
#[derive(Clone)]
pub(crate) struct LookupCounters {
    /// By collection.
    lookups: Arc<WorkerLookups>,
    samples: Rc<WorkerSamples>,
    /// Sampler of hot keys, if they are on.
    key_sampler: Option<Rc<KeySampler>>,
    /// Lookups of the clients behind trusted proxies.
    client_detectors: Rc<ClientDetectors>,
}

impl LookupCounters {
    pub(crate) fn new(
        lookups: Arc<WorkerLookups>,
        key_sampler: Option<KeySampler>,
        shared: &Shared,
    ) -> Self {
        let samples = Rc::new(shared.miss_ratio_curve.worker());
        let key_sampler = key_sampler.map(Rc::new);
        Self { lookups, samples, key_sampler, client_detectors: Rc::default() }
    }
}

impl LookupRecorder {
    pub(crate) fn new(
        shared: &Shared,
        metrics: &Arc<WorkerMetrics>,
        counts: LookupCounters,
    ) -> Self {
        Self {
            cache: Arc::clone(&shared.cache),
            admission: Arc::clone(&shared.admission),
            calendar: shared.calendar,
            baseline_hit_ratio: Arc::clone(&shared.baseline_hit_ratio),
            metrics: Arc::clone(metrics),
            counts,
        }
    }

    /// Returns what it counts with.
    pub(crate) fn counters(&self) -> &LookupCounters {
        &self.counts
    }

    /// Returns what the lookups of the request are counted for. Call it once per request.
    pub(crate) fn scan_subject<'a>(&'a self, request: &ReadRequest<'a>) -> ScanSubject<'a> {
        let clients = self.admission.rate.clients();
        request.connection.scan_subject(request.headers, clients, &self.counts.client_detectors)
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
        let day = self.calendar.day(now);
        let cache = &self.cache;
        if let Some(sampler) = &self.counts.key_sampler {
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
        let hash = self.cache.hash(key);
        self.requested(std::slice::from_ref(key), &[hash], mode, now);
    }

    /// Adds some values of aliases to the samples of the miss-ratio curve. They are no ids: the
    /// other counts and samples take the keys that they name.
    pub(crate) fn requested_by_alias(&self, aliases: &[Key], mode: ReadMode, now: Nanos) {
        for alias in aliases {
            self.sample(alias, self.cache.hash(alias), mode, now);
        }
    }

    #[inline]
    fn sample(&self, key: &Key, hash: u64, mode: ReadMode, now: Nanos) {
        let cache = &self.cache;
        if cache.samples().rate().takes(hash)
            && self.counts.samples.admits()
            && let Some(sample) = cache.sample_lookup(key, hash, mode, now)
        {
            self.counts.samples.push(&sample);
        }
    }

    /// Counts a lookup that was refused before memory was asked.
    pub(crate) fn refused(&self, CollectionId(id): CollectionId) {
        self.counts.lookups.count(id, LookupKind::Refused);
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
        self.count(subject, id, kind, 1);
    }

    /// Counts some lookups of this kind.
    pub(crate) fn count(
        &self,
        subject: ScanSubject<'_>,
        CollectionId(id): CollectionId,
        kind: LookupKind,
        times: u32,
    ) {
        subject.note(kind, times, &self.baseline_hit_ratio);
        self.counts.lookups.add(id, kind, times);
    }
}
