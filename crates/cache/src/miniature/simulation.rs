//! The eight copies, what is replayed in them, and the counts that fade.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::FixedState;
use hotrow_measure::clock::Nanos;
use hotrow_types::key::CollectionId;

use super::copy::{Copy, Phantom, Place};
use super::estimate::{ByGroup, GROUPS};
use super::sampling::{Event, Sample, SamplingRate, Weighed, selector};
use super::{COPIES, FACTORS};
use crate::config::CollectionPolicy;
use crate::record::Presence;

/// Time in which the weight of a count falls to 1/e: after an hour what was counted before has
/// little influence.
const FADE: Duration = Duration::from_hours(1);
/// Most keys whose read is awaited.
const PENDING_MAX: usize = 1 << 13;
/// Time after which a read is no longer awaited: it failed, or its result was not stored.
const PENDING_TICKS_MAX: u32 = 60 * TICKS_PER_S as u32;
/// Resolution of expiry.
const TICKS_PER_S: u64 = 16;

/// What the copies have in common with the store.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Capacity of the store in bytes.
    pub capacity_bytes: u64,
    /// As [`crate::config::Config::negative_share`].
    pub negative_share: f64,
    /// As [`crate::config::Config::ttl_jitter`].
    pub ttl_jitter: f64,
    /// As [`crate::config::Config::stale_while_revalidate`].
    pub stale_while_revalidate: Duration,
    /// As [`crate::config::Config::prefetch_on_change`].
    pub prefetch_on_change: bool,
    /// By [`CollectionId`].
    pub collections: Vec<CollectionPolicy>,
    /// Share of the keys that are sampled.
    pub rate: SamplingRate,
    /// Seed of the copies' hash function.
    pub seed: u64,
}

/// Counts of all lookups of a collection, sampled or not, since the start. Those that read past
/// memory on request are in none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LookupTotals {
    /// Answered from memory.
    pub answered: u64,
    /// All: answered, read, joined to a read, or refused.
    pub lookups: u64,
    /// Reads of the database that these lookups began.
    pub reads: u64,
}

/// The same, fading.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FadingTotals {
    pub(super) answered: f64,
    pub(super) lookups: f64,
    pub(super) reads: f64,
}

/// Counts of one collection.
#[derive(Clone, Debug, Default)]
pub(super) struct CollectionCounts {
    pub(super) all: FadingTotals,
    /// Misses of sampled lookups in each copy.
    pub(super) misses: [f64; COPIES],
    last: LookupTotals,
    epoch: u16,
}

/// Copies that store the result of a read, when it arrives.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// A bit for each copy.
    copies: u8,
    since: u32,
}

/// Sums over weights.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    fn note(&mut self, weight_bytes: u32) {
        let weight = f64::from(weight_bytes);
        self.count += 1.0;
        self.sum += weight;
        self.squares += weight * weight;
    }

    fn fade(&mut self, keep: f64) {
        self.count *= keep;
        self.sum *= keep;
        self.squares *= keep;
    }

    /// Returns the mean square over the square of the mean; 1 if all are equal.
    fn spread(&self) -> f64 {
        if self.sum > 0.0 { self.count * self.squares / (self.sum * self.sum) } else { 1.0 }
    }
}

/// The simulation. Time is an argument; events are applied in the order of their time.
#[derive(Debug)]
pub struct Simulation {
    pub(super) settings: Settings,
    pub(super) hasher: FixedState,
    copies: [Copy; COPIES],
    pending: HashMap<u64, Pending, FixedState>,
    pub(super) collections: Vec<CollectionCounts>,
    /// Misses in each copy by group of keys.
    pub(super) misses: [ByGroup; COPIES],
    /// Sampled lookups and lost events, fading.
    pub(super) sampled: f64,
    pub(super) dropped: f64,
    /// The same since the beginning.
    pub(super) sampled_total: u64,
    pub(super) dropped_total: u64,
    /// Weights of the entries that were stored, fading.
    weights: Moments,
    /// Time that the counts describe, in seconds.
    pub(super) window_s: f64,
    began_at: Nanos,
    as_of: Nanos,
}

impl Simulation {
    /// Creates empty copies. `totals` are those at `now`.
    #[must_use]
    pub fn new(settings: Settings, totals: &[LookupTotals], now: Nanos) -> Self {
        let hasher = FixedState::with_seed(settings.seed);
        let scaled = settings.capacity_bytes as f64 * settings.rate.share();
        let copy = |factor| Copy::new((scaled * factor) as u64, settings.negative_share, &hasher);
        let counts = |last: &LookupTotals| CollectionCounts { last: *last, ..Default::default() };
        Self {
            copies: FACTORS.map(copy),
            pending: HashMap::with_hasher(hasher.clone()),
            collections: totals.iter().map(counts).collect(),
            misses: [[0.0; GROUPS]; COPIES],
            sampled: 0.0,
            dropped: 0.0,
            sampled_total: 0,
            dropped_total: 0,
            weights: Moments::default(),
            window_s: 0.0,
            began_at: now,
            as_of: now,
            settings,
            hasher,
        }
    }

    /// Takes over changed settings, except for capacity and rate. Entries keep their lifetime.
    pub fn follow(&mut self, settings: Settings) {
        let Settings { capacity_bytes, rate, seed, negative_share, .. } = self.settings;
        self.settings = Settings { capacity_bytes, rate, seed, negative_share, ..settings };
    }

    /// Returns what the copies have in common with the store.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the number of sampled lookups since the beginning.
    pub fn sampled_lookups(&self) -> u64 {
        self.sampled_total
    }

    /// Returns the relative standard deviation of the capacity that a copy represents: the sample
    /// has by chance more or fewer keys than its share, and heavier or lighter ones.
    pub(super) fn capacity_deviation(&self, at: usize) -> f64 {
        let entries = f64::from(self.copies[at].entries().max(1));
        ((1.0 - self.settings.rate.share()) * self.weights.spread() / entries).sqrt()
    }

    /// Returns the memory of the copies in use, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let copies: usize = self.copies.iter().map(Copy::memory_bytes).sum();
        let pending = self.pending.capacity() * size_of::<(u64, Pending)>();
        (copies + pending) as u64
    }

    /// Replays one event.
    pub fn apply(&mut self, sample: &Sample) {
        let CollectionId(id) = sample.collection;
        let collection = usize::from(id);
        match sample.event {
            Event::Flushed => {
                if let Some(counts) = self.collections.get_mut(collection) {
                    counts.epoch = counts.epoch.wrapping_add(1);
                }
            }
            Event::Gap => self
                .collections
                .iter_mut()
                .for_each(|counts| counts.epoch = counts.epoch.wrapping_add(1)),
            // The rate was lowered, and the key is not sampled any more.
            _ if !self.settings.rate.takes(sample.key_hash) => {}
            _ if collection >= self.collections.len() => {}
            Event::Lookup { is_scan, held } => self.lookup(sample, is_scan, held),
            Event::Stored { entry, is_warm_up } => self.stored(sample, entry, is_warm_up),
            Event::Removed { is_change } => self.removed(sample, is_change),
        }
    }

    fn lookup(&mut self, sample: &Sample, is_scan: bool, held: Option<Weighed>) {
        let place = Place::new(sample.key_hash, &self.hasher);
        let group = selector(sample.key_hash) as usize % GROUPS;
        let now = self.tick(sample.at);
        let epoch = self.collections[usize::from(sample.collection.0)].epoch;
        let stale_ticks = ticks(self.settings.stale_while_revalidate);
        self.sampled += 1.0;
        self.sampled_total += 1;
        let mut pending = 0_u8;
        for at in 0..COPIES {
            let found = self.copies[at].get(&place, is_scan).cloned();
            if let Some(entry) = found.filter(|entry| {
                entry.epoch == epoch && now < entry.expires_at.saturating_add(stale_ticks)
            }) {
                self.update(at, sample, &place, &entry, held);
                continue;
            }
            self.misses[at][group] += 1.0;
            self.collections[usize::from(sample.collection.0)].misses[at] += 1.0;
            match held {
                // What a scanning client reads alone is not kept by a full store.
                Some(_) if is_scan && self.copies[at].is_full() => {}
                Some(held) => self.insert(at, sample, &place, held),
                None => pending |= 1 << at,
            }
        }
        if pending != 0 {
            self.await_read(sample.key_hash, pending, now);
        }
    }

    /// Takes over the weight that the entry has now, and the refresh of an expired entry.
    fn update(
        &mut self,
        at: usize,
        sample: &Sample,
        place: &Place,
        entry: &Phantom,
        held: Option<Weighed>,
    ) {
        let is_expired = self.tick(sample.at) >= entry.expires_at;
        let now =
            held.unwrap_or(Weighed { weight_bytes: entry.weight_bytes, presence: entry.presence });
        if now.weight_bytes != entry.weight_bytes || is_expired {
            let expires_at =
                if is_expired { self.expiry(sample, now.presence) } else { entry.expires_at };
            let new = now.entry(place, expires_at, entry.epoch);
            self.copies[at].exchange(place, entry, new);
        }
    }

    fn insert(&mut self, at: usize, sample: &Sample, place: &Place, entry: Weighed) {
        self.weights.note(entry.weight_bytes);
        let expires_at = self.expiry(sample, entry.presence);
        let epoch = self.collections[usize::from(sample.collection.0)].epoch;
        self.copies[at].insert(place, entry.entry(place, expires_at, epoch));
    }

    /// The result of a read: stored by the copies that await it. Others that have the key would
    /// not have read it, and take over its weight.
    fn stored(&mut self, sample: &Sample, entry: Weighed, is_warm_up: bool) {
        let place = Place::new(sample.key_hash, &self.hasher);
        let awaited = self.pending.remove(&sample.key_hash).map_or(0, |pending| pending.copies);
        let awaited = if is_warm_up { u8::MAX } else { awaited };
        for at in 0..COPIES {
            if awaited & (1 << at) != 0 {
                self.insert(at, sample, &place, entry);
            } else if let Some(old) = self.copies[at].get(&place, true).cloned() {
                let new = entry.entry(&place, old.expires_at, old.epoch);
                self.copies[at].exchange(&place, &old, new);
            }
        }
    }

    fn removed(&mut self, sample: &Sample, is_change: bool) {
        let place = Place::new(sample.key_hash, &self.hasher);
        let mut pending = 0_u8;
        for (at, copy) in self.copies.iter_mut().enumerate() {
            pending |= u8::from(copy.remove(&place)) << at;
        }
        if is_change && self.settings.prefetch_on_change && pending != 0 {
            self.await_read(sample.key_hash, pending, self.tick(sample.at));
        }
    }

    fn await_read(&mut self, key_hash: u64, copies: u8, now: u32) {
        if self.pending.len() >= PENDING_MAX && !self.pending.contains_key(&key_hash) {
            self.pending.retain(|_, pending| now.saturating_sub(pending.since) < PENDING_TICKS_MAX);
            if self.pending.len() >= PENDING_MAX {
                // The copies will lack the entry.
                self.lose(1);
                return;
            }
        }
        let pending = self.pending.entry(key_hash).or_insert(Pending { copies: 0, since: now });
        pending.copies |= copies;
        pending.since = now;
    }

    /// Counts events that were lost on their way.
    pub fn lose(&mut self, events: u64) {
        self.dropped += events as f64;
        self.dropped_total += events;
    }

    /// Fades the counts, and adds what was counted of all lookups since the last call. `totals` are
    /// in the order of the collections.
    pub fn advance(&mut self, totals: &[LookupTotals], now: Nanos) {
        let passed = now.since(self.as_of).as_secs_f64();
        let keep = (-passed / FADE.as_secs_f64()).exp();
        self.as_of = self.as_of.max(now);
        // The integral of the weights.
        self.window_s = self.window_s * keep + FADE.as_secs_f64() * (1.0 - keep);
        self.weights.fade(keep);
        self.sampled *= keep;
        self.dropped *= keep;
        self.misses.as_flattened_mut().iter_mut().for_each(|count| *count *= keep);
        for (counts, total) in self.collections.iter_mut().zip(totals) {
            counts.misses.iter_mut().for_each(|count| *count *= keep);
            let since = |now: u64, last: u64| now.saturating_sub(last) as f64;
            let all = &mut counts.all;
            all.answered = all.answered * keep + since(total.answered, counts.last.answered);
            all.lookups = all.lookups * keep + since(total.lookups, counts.last.lookups);
            all.reads = all.reads * keep + since(total.reads, counts.last.reads);
            counts.last = *total;
        }
    }

    /// Returns the end of the life of an entry that is stored now, shortened by chance like the
    /// store's.
    fn expiry(&self, sample: &Sample, presence: Presence) -> u32 {
        let policy = self.settings.collections.get(usize::from(sample.collection.0));
        let ttl = policy.map_or(Duration::MAX, |policy| match presence {
            Presence::Found => policy.ttl,
            Presence::Missing => policy.negative_ttl,
        });
        let random = selector(sample.key_hash ^ sample.at.0) >> 11;
        let unit = random as f64 / (1_u64 << 53) as f64;
        let jitter = self.settings.ttl_jitter.clamp(0.0, 1.0);
        let life = (f64::from(ticks(ttl)) * (1.0 - jitter * unit)) as u32;
        self.tick(sample.at).saturating_add(life)
    }

    fn tick(&self, at: Nanos) -> u32 {
        ticks(at.since(self.began_at))
    }
}

/// Converts to ticks; what exceeds eight years is cut off.
fn ticks(time: Duration) -> u32 {
    let ticks = time.as_millis().saturating_mul(TICKS_PER_S.into()) / 1000;
    u32::try_from(ticks).unwrap_or(u32::MAX)
}
