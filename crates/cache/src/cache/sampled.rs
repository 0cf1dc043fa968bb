//! Events of sampled keys, for the prediction of the hit ratio at other capacities.

use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::source::SourceId;

use super::{Cache, ReadMode};
use crate::flight::Kind;
use crate::miniature::Settings;
use crate::miniature::sampling::{Event, Sample, SampleLog, SamplingRate, Weighed};
use crate::record::Record;

impl Weighed {
    fn of(record: &Record) -> Self {
        let weight_bytes = u32::try_from(record.weight_bytes()).unwrap_or(u32::MAX);
        Self { weight_bytes, presence: record.presence() }
    }
}

impl<E: Clone> Cache<E> {
    /// Returns the sampling rate, and the events beside lookups.
    pub fn samples(&self) -> &SampleLog {
        &self.samples
    }

    /// Returns the event of a lookup that is about to be made, if its key is sampled. `key_hash` is
    /// that of [`Cache::hash`]. Looks at the entry without counting a use.
    #[inline]
    pub fn sample_lookup(
        &self,
        key: &Key,
        key_hash: u64,
        mode: ReadMode,
        now: Nanos,
    ) -> Option<Sample> {
        if !self.samples.rate().takes(key_hash) {
            return None;
        }
        Some(self.sampled_lookup(key, key_hash, mode, now))
    }

    #[cold]
    #[inline(never)]
    fn sampled_lookup(&self, key: &Key, key_hash: u64, mode: ReadMode, now: Nanos) -> Sample {
        let held = self.peek(key, now).map(|(record, _)| Weighed::of(&record));
        let is_scan = self.granted(mode) == ReadMode::NoAdmit;
        let event = Event::Lookup { is_scan, held };
        Sample { at: now, key_hash, collection: key.collection(), event }
    }

    /// Notes that the entry of a key was removed: after [`Cache::invalidate`] with `is_change`,
    /// after [`Cache::purge`] without.
    pub fn note_removed(&self, key: &Key, is_change: bool, now: Nanos) {
        self.note(key, now, || Event::Removed { is_change });
    }

    /// Notes [`Cache::flush`].
    pub fn note_flushed(&self, collection: CollectionId, now: Nanos) {
        self.note_all(collection, Event::Flushed, now);
    }

    /// Notes [`Cache::mark_gap`]. One of several sources counts as a flush of its collections.
    pub fn note_gap(&self, source: SourceId, now: Nanos) {
        match self.source_count() {
            1 => self.note_all(CollectionId(0), Event::Gap, now),
            _ => self.collections_of(source).for_each(|(id, _)| self.note_flushed(id, now)),
        }
    }

    pub(crate) fn note_stored(&self, key: &Key, record: &Record, kind: Kind, now: Nanos) {
        self.note(key, now, || Event::Stored {
            entry: Weighed::of(record),
            is_warm_up: kind == Kind::WarmUp,
        });
    }

    fn note(&self, key: &Key, at: Nanos, event: impl FnOnce() -> Event) {
        let rate = self.samples.rate();
        if rate == SamplingRate::NONE {
            return;
        }
        let key_hash = self.hash(key);
        if rate.takes(key_hash) {
            let collection = key.collection();
            self.samples.push(Sample { at, key_hash, collection, event: event() });
        }
    }

    fn note_all(&self, collection: CollectionId, event: Event, at: Nanos) {
        if self.samples.rate() != SamplingRate::NONE {
            self.samples.push(Sample { at, key_hash: 0, collection, event });
        }
    }

    /// Returns the number of collections.
    pub fn collections_count(&self) -> usize {
        self.collections.len()
    }

    /// Returns the settings of a simulation of this cache.
    pub fn miniature_settings(&self, rate: SamplingRate) -> Settings {
        let config = &self.config;
        Settings {
            capacity_bytes: self.capacity_bytes(),
            negative_share: config.negative_share,
            ttl_jitter: config.ttl_jitter,
            stale_while_revalidate: config.stale_while_revalidate,
            prefetch_on_change: config.prefetch_on_change,
            collections: self.policies.to_vec(),
            rate,
            // Unlike the store's hash function.
            seed: config.seed.rotate_left(32) ^ 1,
        }
    }
}
