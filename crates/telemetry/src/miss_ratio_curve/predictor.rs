//! The predictor: chooses the sampling rate, feeds the simulation and publishes the curve.

use std::sync::Arc;
use std::time::Duration;

use hotrow_cache::Cache;
use hotrow_cache::miniature::sampling::{LOG_SAMPLES_MAX, SamplingRate};
use hotrow_cache::miniature::{LookupTotals, MEMORY_BYTES_MAX, Simulation, Unplanned, plan};
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_types::key::CollectionId;

use super::merge::Collected;
use super::{MissRatioCurve, Report, Unknown};
use crate::lookups::{LookupKind, WorkerLookups};

/// Entries that show the mean weight.
pub(super) const ENTRIES_MIN: u64 = 128;
/// Time between two curves.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);
/// Events between two looks at the memory of the copies: they add at most 200 kB.
const EVENTS_PER_LOOK: usize = 256;
/// Memory at which the copies are given up for smaller ones.
const MEMORY_TRIGGER_BYTES: u64 = MEMORY_BYTES_MAX - (512 << 10);
/// Factor by which the wanted rate must exceed the one in force before the copies are given up for
/// larger ones: they begin empty.
const RATE_STEP: f64 = 2.5;

/// Returns the cache under the settings in force: a reload changes them.
pub(super) type NewestCache = Box<dyn Fn() -> Arc<Cache<ReadFailure>> + Send>;

/// The state of the predictor. A new one begins with empty copies.
pub(super) struct Predictor {
    curve: Arc<MissRatioCurve>,
    /// Returns the cache under the settings in force.
    newest: NewestCache,
    cache: Arc<Cache<ReadFailure>>,
    lookups: Vec<Arc<WorkerLookups>>,
    simulation: Option<Simulation>,
    /// Rate at which the copies needed too much memory, halved, and the capacity then.
    rate_max: Option<(SamplingRate, u64)>,
    published_at: Nanos,
    /// Kept for its memory.
    collected: Collected,
    dropped_seen: u64,
}

impl Predictor {
    pub(super) fn new(
        curve: Arc<MissRatioCurve>,
        newest: NewestCache,
        lookups: Vec<Arc<WorkerLookups>>,
    ) -> Self {
        let cache = newest();
        cache.samples().set_rate(SamplingRate::NONE);
        let mut predictor = Self {
            curve,
            newest,
            cache,
            lookups,
            simulation: None,
            rate_max: None,
            published_at: Nanos::ZERO,
            collected: Collected::default(),
            dropped_seen: 0,
        };
        predictor.dropped_seen = predictor.dropped_total();
        predictor
    }

    /// Replays what arrived, and publishes once a second. Returns whether anything arrived.
    pub(super) fn step(&mut self, now: Nanos) -> bool {
        self.take();
        let dropped_total = self.dropped_total();
        let dropped = dropped_total.saturating_sub(self.dropped_seen);
        self.dropped_seen = dropped_total;
        let totals = self.totals();
        let mut is_over = false;
        let mut replayed = 0;
        if let Some(simulation) = &mut self.simulation {
            simulation.lose(dropped);
            let mut samples = self.collected.in_order();
            loop {
                let mut left = EVENTS_PER_LOOK;
                samples.by_ref().take(EVENTS_PER_LOOK).for_each(|sample| {
                    simulation.apply(sample);
                    left -= 1;
                });
                replayed += (EVENTS_PER_LOOK - left) as u64;
                is_over = simulation.memory_bytes() > MEMORY_TRIGGER_BYTES;
                if is_over || left > 0 {
                    break;
                }
            }
            simulation.advance(&totals, now);
        }
        if is_over {
            self.use_smaller_copies();
        }
        let mut published = self.curve.published.lock();
        published.replayed_total += replayed;
        published.dropped_total += dropped;
        drop(published);
        let is_busy = !self.collected.samples.is_empty();
        if is_over || now.since(self.published_at) >= PUBLISH_EVERY {
            self.published_at = now;
            self.publish(&totals, now);
        }
        is_busy
    }

    /// Takes all events.
    fn take(&mut self) {
        self.collected.clear();
        // The log last: what was stored because of a lookup comes after it.
        self.curve.rings.lock().list.retain(|ring| {
            let has_worker = Arc::strong_count(ring) > 1;
            self.collected.add(|samples| ring.take(samples));
            has_worker
        });
        self.collected.add(|samples| self.cache.samples().take(samples));
    }

    /// Returns the bytes of all rings, of the log at its bound, and of the events while they are
    /// replayed, with what sorting those of the log may take. The copies are not counted.
    #[cfg(test)]
    fn queues_bytes(&self) -> usize {
        let rings: usize =
            self.curve.rings.lock().list.iter().map(|ring| ring.memory_bytes()).sum();
        let samples = self.collected.samples.capacity() + 2 * LOG_SAMPLES_MAX;
        rings + samples * size_of::<hotrow_cache::miniature::sampling::Sample>()
    }

    fn dropped_total(&self) -> u64 {
        let rings = self.curve.rings.lock();
        let of_rings: u64 = rings.list.iter().map(|ring| ring.dropped()).sum();
        of_rings + self.cache.samples().dropped_total()
    }

    /// Returns the counts of all lookups by collection.
    fn totals(&self) -> Vec<LookupTotals> {
        let collections = self.cache.collections_count();
        let of = |collection| {
            let mut totals = LookupTotals::default();
            for worker in &self.lookups {
                let counts = worker.get(collection);
                let count = |kind: LookupKind| counts[kind as usize];
                let answered =
                    count(LookupKind::Hit) + count(LookupKind::Negative) + count(LookupKind::Stale);
                let reads = count(LookupKind::Miss);
                let others = count(LookupKind::Coalesced) + count(LookupKind::Refused);
                totals.answered += answered;
                totals.reads += reads;
                totals.lookups += answered + reads + others;
            }
            totals
        };
        (0..collections).map(of).collect()
    }

    fn use_smaller_copies(&mut self) {
        let Some(simulation) = self.simulation.take() else { return };
        let rate = simulation.settings().rate;
        let half = SamplingRate::from_share(rate.share() / 2.0);
        self.rate_max = Some((half, simulation.settings().capacity_bytes));
        tracing::info!(
            rate = rate.share(),
            lowered_to = half.share(),
            "the copies that predict hit ratios needed too much memory: they begin anew"
        );
    }

    /// Checks that the rate still fits the capacity and the entries, and publishes.
    fn publish(&mut self, totals: &[LookupTotals], now: Nanos) {
        let newest = (self.newest)();
        if !Arc::ptr_eq(&newest, &self.cache) {
            self.cache = newest;
            if let Some(simulation) = &mut self.simulation {
                let rate = simulation.settings().rate;
                simulation.follow(self.cache.miniature_settings(rate));
            }
        }
        let report = match self.planned() {
            Ok(rate) => {
                let simulation = self.simulation_at(rate, totals, now);
                match simulation.curve() {
                    Some(curve) => Report::Known(Box::new(curve)),
                    None => Report::Unknown(Unknown::FewLookups {
                        sampled: simulation.sampled_lookups(),
                    }),
                }
            }
            Err(unknown) => {
                self.simulation = None;
                self.cache.samples().set_rate(SamplingRate::NONE);
                Report::Unknown(unknown)
            }
        };
        let mut published = self.curve.published.lock();
        published.report = report;
        published.memory_bytes = self.simulation.as_ref().map_or(0, Simulation::memory_bytes);
        published.rate = self.cache.samples().rate();
    }

    /// Returns the rate for the capacity in force and the mean weight of the entries.
    fn planned(&self) -> Result<SamplingRate, Unknown> {
        let capacity_bytes = self.cache.capacity_bytes();
        let (entries, bytes) = (0..self.cache.collections_count())
            .map(|collection| self.cache.stats(CollectionId(collection as u16)))
            .fold((0, 0), |(entries, bytes), own| (entries + own.entries, bytes + own.bytes));
        if entries < ENTRIES_MIN {
            return Err(Unknown::FewEntries { entries, entries_min: ENTRIES_MIN });
        }
        let rate_max = self.rate_max.filter(|(_, capacity)| *capacity == capacity_bytes);
        let planned = plan(capacity_bytes, bytes / entries, rate_max.map(|(rate, _)| rate));
        planned.or_else(|unplanned| match (unplanned, &self.simulation) {
            // A little below the bound the copies stay: new ones would begin empty.
            (Unplanned::TooSmall { entries, entries_min }, Some(simulation))
                if entries >= entries_min / 4 * 3 =>
            {
                Ok(simulation.settings().rate)
            }
            (Unplanned::TooSmall { entries, entries_min }, _) => {
                Err(Unknown::TooSmall { entries, entries_min })
            }
            (Unplanned::Memory, _) => Err(Unknown::Memory),
        })
    }

    /// Returns the simulation: a new one if the capacity has changed, or if its rate is much too
    /// low.
    fn simulation_at(
        &mut self,
        rate: SamplingRate,
        totals: &[LookupTotals],
        now: Nanos,
    ) -> &Simulation {
        let capacity_bytes = self.cache.capacity_bytes();
        let fits = |simulation: &Simulation| {
            let settings = simulation.settings();
            settings.capacity_bytes == capacity_bytes
                && rate.share() < settings.rate.share() * RATE_STEP
        };
        let kept = self.simulation.take().filter(fits);
        let simulation = kept.unwrap_or_else(|| {
            self.collected.reserve(self.curve.allocate() + LOG_SAMPLES_MAX);
            self.cache.samples().set_rate(rate);
            Simulation::new(self.cache.miniature_settings(rate), totals, now)
        });
        self.simulation.insert(simulation)
    }
}

#[cfg(test)]
mod tests;
