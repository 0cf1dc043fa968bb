//! What is to be purged at one target: a cache in front of the service, or a receiver of webhooks.
//!
//! A purge does not reach an answer that the cache is still fetching, and that may show the record
//! as it was before the change. So each change is purged twice ([`PurgeQueue::complete`]): at once,
//! and `repeat_after` later, when such a fetch has ended.
//!
//! An entry stays until both purges were accepted, however often they fail. The queue is bounded:
//! if too much waits, the records of one collection are replaced by the collection, which takes
//! one entry. Nothing is dropped.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::Position;

#[cfg(any(test, feature = "failpoints"))]
use crate::plants::PurgePlant;

/// Memory of one entry besides the bytes of its key.
pub const ENTRY_OVERHEAD_BYTES: usize = 192;
/// Pause after the first failed attempt; it doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Longest pause, whatever the target asks for.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// What a cache in front is to forget.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Purge {
    /// Answers with one record.
    Record(Key),
    /// All answers of a collection.
    Collection(CollectionId),
}

impl Purge {
    /// Returns the collection.
    pub fn collection(&self) -> CollectionId {
        match self {
            Self::Record(key) => key.collection(),
            Self::Collection(collection) => *collection,
        }
    }

    fn bytes(&self) -> usize {
        ENTRY_OVERHEAD_BYTES
            + match self {
                Self::Record(key) => 2 * key.as_bytes().len(),
                Self::Collection(_) => 0,
            }
    }
}

/// Bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub struct PurgeLimits {
    /// From a change to its second purge: longer than a cache takes to fetch an answer.
    pub repeat_after: Duration,
    /// Most records.
    pub records: usize,
    /// Most bytes of them.
    pub bytes: usize,
}

/// Bounds of one batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Most entries.
    pub entries: usize,
    /// Most bytes of the encoded keys; a longer one is a batch alone.
    pub key_bytes: usize,
}

/// Entries that are sent with one request.
#[derive(Debug)]
pub struct Batch {
    /// What is purged, each with the position of its newest change that has one.
    pub purges: Vec<(Purge, Option<Position>)>,
    /// Time at which it was taken.
    begun: Duration,
    /// Number of the last change before it.
    through: u64,
    /// When the first of them was due.
    due: Duration,
}

/// Result of adding a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It waits.
    Queued,
    /// Too much waited: all of this collection is purged in place of its records.
    Collapsed(CollectionId),
}

#[derive(Debug)]
struct Entry {
    /// Number and time of the newest change.
    change: u64,
    changed_at: Duration,
    /// Newest change that has a position: purges that an operator asks for have none.
    position: Option<Positioned>,
    /// Place in the order; `None`: a batch has it.
    place: Option<Place>,
}

/// Number of a change, and its position.
type Positioned = (u64, Position);

/// Time at which an entry is due, and a number that makes it unique.
type Place = (Duration, u64);

/// See the module's documentation. Times are those of one clock.
#[derive(Debug)]
pub struct PurgeQueue {
    limits: PurgeLimits,
    entries: HashMap<Purge, Entry>,
    order: BTreeMap<Place, Purge>,
    /// Records among the entries, and their bytes.
    records: usize,
    bytes: usize,
    /// Number of the last change.
    change: u64,
    places: u64,
    /// When the first entry of the batch under way was due.
    in_flight: Option<Duration>,
    /// Failed attempts since the last that succeeded.
    failures: u32,
    retry_at: Duration,
    #[cfg(any(test, feature = "failpoints"))]
    plant: PurgePlant,
}

impl PurgeQueue {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(limits: PurgeLimits) -> Self {
        Self {
            limits,
            entries: HashMap::new(),
            order: BTreeMap::new(),
            records: 0,
            bytes: 0,
            change: 0,
            places: 0,
            in_flight: None,
            failures: 0,
            retry_at: Duration::ZERO,
            #[cfg(any(test, feature = "failpoints"))]
            plant: PurgePlant::None,
        }
    }

    /// Plants a mistake that the tests must find.
    #[cfg(any(test, feature = "failpoints"))]
    pub fn plant(&mut self, plant: PurgePlant) {
        self.plant = plant;
    }

    /// Adds a change that every new read sees. `position`: an answer at it shows the change.
    pub fn add(&mut self, purge: Purge, position: Option<Position>, now: Duration) -> Added {
        self.change += 1;
        let collection = purge.collection();
        let position = position.map(|position| (self.change, position));
        if let Purge::Record(_) = purge
            && self.is_waiting_now(&Purge::Collection(collection), now)
        {
            self.note(Purge::Collection(collection), position, now);
            return Added::Queued;
        }
        let of_records = match purge {
            Purge::Collection(_) => self.remove_records(collection),
            Purge::Record(_) => None,
        };
        self.note(purge, position.or(of_records), now);
        if self.records <= self.limits.records && self.bytes <= self.limits.bytes {
            return Added::Queued;
        }
        let largest = self.largest_collection().unwrap_or(collection);
        let position = self.remove_records(largest);
        #[cfg(any(test, feature = "failpoints"))]
        if self.plant == PurgePlant::DroppedAtOverflow {
            return Added::Collapsed(largest);
        }
        self.note(Purge::Collection(largest), position, now);
        Added::Collapsed(largest)
    }

    /// Returns whether an entry is due and in no batch: a change until it is sent is a part of it.
    fn is_waiting_now(&self, purge: &Purge, now: Duration) -> bool {
        let place = self.entries.get(purge).and_then(|entry| entry.place);
        place.is_some_and(|(due, _)| due <= now)
    }

    /// Makes an entry due now, as the newest change requires.
    fn note(&mut self, purge: Purge, position: Option<Positioned>, now: Duration) {
        self.places += 1;
        let place = (now, self.places);
        let Some(entry) = self.entries.get_mut(&purge) else {
            let (change, changed_at) = (self.change, now);
            let entry = Entry { change, changed_at, position, place: Some(place) };
            if let Purge::Record(_) = purge {
                self.records += 1;
                self.bytes += purge.bytes();
            }
            self.order.insert(place, purge.clone());
            self.entries.insert(purge, entry);
            return;
        };
        #[cfg(any(test, feature = "failpoints"))]
        let is_forgotten =
            self.plant == PurgePlant::ChangeInFlightForgotten && entry.place.is_none();
        #[cfg(not(any(test, feature = "failpoints")))]
        let is_forgotten = false;
        if !is_forgotten {
            (entry.change, entry.changed_at) = (self.change, now);
        }
        entry.position = newer(entry.position, position);
        // One that was due before keeps its place.
        if let Some(before) = entry.place.filter(|before| *before > place) {
            entry.place = Some(place);
            self.order.remove(&before);
            self.order.insert(place, purge);
        }
    }

    /// Removes the records of a collection. Returns the newest change among them.
    fn remove_records(&mut self, collection: CollectionId) -> Option<Positioned> {
        let order = &mut self.order;
        let mut newest = None;
        self.entries.retain(|purge, entry| {
            let is_kept = matches!(purge, Purge::Collection(_)) || purge.collection() != collection;
            if !is_kept {
                newest = newer(newest, entry.position);
                self.records -= 1;
                self.bytes -= purge.bytes();
                if let Some(place) = entry.place {
                    order.remove(&place);
                }
            }
            is_kept
        });
        newest
    }

    /// Returns the collection with the most records; among equals the first.
    fn largest_collection(&self) -> Option<CollectionId> {
        let mut counts: BTreeMap<CollectionId, usize> = BTreeMap::new();
        for purge in self.entries.keys() {
            if let Purge::Record(key) = purge {
                *counts.entry(key.collection()).or_default() += 1;
            }
        }
        let largest = counts.iter().rev().max_by_key(|(_, count)| **count);
        largest.map(|(collection, _)| *collection)
    }

    /// Takes what is due, the oldest first; `None`: nothing is, a batch is under way, or the pause
    /// after a failure is not over.
    pub fn take(&mut self, limits: BatchLimits, now: Duration) -> Option<Batch> {
        if self.in_flight.is_some() || now < self.retry_at {
            return None;
        }
        let mut batch = Batch { purges: Vec::new(), begun: now, through: self.change, due: now };
        let mut key_bytes = 0;
        while let Some(first) = self.order.first_entry()
            && first.key().0 <= now
            && batch.purges.len() < limits.entries
        {
            if let Purge::Record(key) = first.get() {
                key_bytes += key.as_bytes().len();
                if key_bytes > limits.key_bytes && !batch.purges.is_empty() {
                    break;
                }
            }
            let ((due, _), purge) = first.remove_entry();
            batch.due = batch.due.min(due);
            let Some(entry) = self.entries.get_mut(&purge) else { continue };
            entry.place = None;
            batch.purges.push((purge, entry.position.map(|(_, position)| position)));
        }
        if batch.purges.is_empty() {
            return None;
        }
        self.in_flight = Some(batch.due);
        Some(batch)
    }

    /// Ends a batch that was accepted. What changed since it was taken is due again. The rest is
    /// purged once more when fetches from before its change have ended, unless they had when the
    /// batch was taken.
    pub fn complete(&mut self, batch: Batch) {
        self.in_flight = None;
        self.failures = 0;
        self.retry_at = Duration::ZERO;
        for (purge, _) in batch.purges {
            let Some(entry) = self.entries.get_mut(&purge) else { continue };
            // Collapsed and added again since.
            if entry.place.is_some() {
                continue;
            }
            let repeat_at = entry.changed_at.saturating_add(self.limits.repeat_after);
            let due = if entry.change > batch.through {
                entry.changed_at
            } else if batch.begun < repeat_at {
                repeat_at
            } else {
                if let Purge::Record(_) = purge {
                    self.records -= 1;
                    self.bytes -= purge.bytes();
                }
                self.entries.remove(&purge);
                continue;
            };
            self.places += 1;
            entry.place = Some((due, self.places));
            self.order.insert((due, self.places), purge);
        }
    }

    /// Ends a batch that was not accepted, or of which that is not known: it is sent again.
    /// `asked`: pause that the target asks for. `random`: 0 to 1, so that instances do not return
    /// together.
    pub fn fail(&mut self, batch: Batch, asked: Option<Duration>, random: f64, now: Duration) {
        self.in_flight = None;
        let doubled = PAUSE_FIRST.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
        let own = doubled.mul_f64(0.5 + 0.5 * random.clamp(0.0, 1.0));
        let pause = asked.map_or(own, |asked| asked.max(own)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        self.retry_at = now.saturating_add(pause);
        for (purge, _) in batch.purges {
            let Some(entry) = self.entries.get_mut(&purge) else { continue };
            if entry.place.is_some() {
                continue;
            }
            self.places += 1;
            entry.place = Some((batch.due, self.places));
            self.order.insert((batch.due, self.places), purge);
        }
    }

    /// Forgets that a batch is under way, because its sender has ended without a result.
    pub fn abandon(&mut self) {
        self.in_flight = None;
        for (purge, entry) in &mut self.entries {
            if entry.place.is_none() {
                self.places += 1;
                let place = (entry.changed_at, self.places);
                entry.place = Some(place);
                self.order.insert(place, purge.clone());
            }
        }
    }

    /// Returns the time at which [`Self::take`] has something, if nothing is added before.
    pub fn next_at(&self) -> Option<Duration> {
        let (due, _) = self.order.first_key_value().map(|(place, _)| *place)?;
        self.in_flight.is_none().then(|| due.max(self.retry_at))
    }

    /// Returns how long the oldest entry has been due.
    pub fn overdue_by(&self, now: Duration) -> Duration {
        let waiting = self.order.first_key_value().map(|((due, _), _)| *due);
        let oldest = waiting.into_iter().chain(self.in_flight).min();
        oldest.map_or(Duration::ZERO, |due| now.saturating_sub(due))
    }

    /// Returns the number of entries, those that wait for their second purge included.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Returns the bytes of its records.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the failed attempts since the last that succeeded.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// Returns the newer of two changes.
fn newer(one: Option<Positioned>, other: Option<Positioned>) -> Option<Positioned> {
    one.into_iter().chain(other).max_by_key(|(change, _)| *change)
}

#[cfg(test)]
mod tests;
