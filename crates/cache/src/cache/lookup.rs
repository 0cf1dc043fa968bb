//! Lookups: memory first, then the fetch queue, unless the read is not admitted.

use std::convert::Infallible;

use hotrow_measure::clock::Nanos;

use super::{Cache, Lookup, LookupError, ReadMode, Served};
use crate::flight::Ask;
use crate::freshness::Freshness;
use crate::record::{Presence, Record};
use crate::store::BATCH_MAX;
use hotrow_types::key::{CollectionId, Key};

impl<E: Clone> Cache<E> {
    /// Looks up `key`. `now` is a clock reading taken for this request.
    pub fn lookup(&self, key: &Key, mode: ReadMode, now: Nanos) -> Lookup<E> {
        self.lookup_until(key, mode, now, Nanos::MAX)
    }

    /// Like [`Cache::lookup`], for a request whose answer is useless after `deadline`.
    pub fn lookup_until(
        &self,
        key: &Key,
        mode: ReadMode,
        now: Nanos,
        deadline: Nanos,
    ) -> Lookup<E> {
        let Ok(lookup) = self.lookup_if(key, mode, now, || Ok::<Nanos, Infallible>(deadline));
        lookup
    }

    /// Like [`Cache::lookup`], but calls `admit` before a read is joined or queued. `admit` returns
    /// the deadline of the request, which a hit does not need.
    ///
    /// # Errors
    /// The error of `admit`; nothing is queued in that case.
    pub fn lookup_if<R>(
        &self,
        key: &Key,
        mode: ReadMode,
        now: Nanos,
        admit: impl FnOnce() -> Result<Nanos, R>,
    ) -> Result<Lookup<E>, R> {
        let mode = self.granted(mode);
        if self.config.enabled && mode != ReadMode::Revalidate {
            match self.served(key, mode, now, self.effective_staleness(key.collection(), now)) {
                Served::Answer(record, freshness) => return Ok(of_memory(record, freshness)),
                Served::Refuse => return Ok(Lookup::Refused(LookupError::Behind)),
                Served::No => {}
            }
        }
        let deadline = admit()?;
        let mut one = self.join(std::slice::from_ref(&key), mode, Ask { at: now, deadline });
        // `join` returns one lookup per key.
        Ok(one.pop().unwrap_or(Lookup::Refused(LookupError::QueueFull)))
    }

    /// Looks up the ids of one batch, all of one collection. Cold keys are queued together and read
    /// in one query. Answers are in the order of `keys`, which must be distinct.
    pub fn lookup_batch(&self, keys: &[Key], mode: ReadMode, now: Nanos) -> Vec<Lookup<E>> {
        self.lookup_batch_until(keys, mode, now, Nanos::MAX)
    }

    /// Like [`Cache::lookup_batch`], for a request whose answer is useless after `deadline`.
    pub fn lookup_batch_until(
        &self,
        keys: &[Key],
        mode: ReadMode,
        now: Nanos,
        deadline: Nanos,
    ) -> Vec<Lookup<E>> {
        let Ok(lookups) =
            self.lookup_batch_if(keys, mode, now, |_| Ok::<Nanos, Infallible>(deadline));
        lookups
    }

    /// Like [`Cache::lookup_batch`], but calls `admit` with the number of cold keys, if there are
    /// any, before they are queued. `admit` returns the deadline of the request.
    ///
    /// # Errors
    /// The error of `admit`; nothing is queued in that case.
    pub fn lookup_batch_if<R>(
        &self,
        keys: &[Key],
        mode: ReadMode,
        now: Nanos,
        admit: impl FnOnce(usize) -> Result<Nanos, R>,
    ) -> Result<Vec<Lookup<E>>, R> {
        let mut answers: Vec<Option<Lookup<E>>> = Vec::new();
        answers.resize_with(keys.len(), || None);
        let found = |place: usize, record: Record, freshness| {
            answers[place] = Some(of_memory(record, freshness));
        };
        let hashes: Vec<u64> = keys.iter().map(|key| self.hash(key)).collect();
        let others = self.lookup_batch_with(keys, &hashes, mode, now, found, admit)?;
        others.into_iter().for_each(|(place, lookup)| answers[place] = Some(lookup));
        let refused = || Lookup::Refused(LookupError::QueueFull);
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(refused)).collect())
    }

    /// Like [`Cache::lookup_batch_if`] with the keys' hashes ([`Cache::hash`]), but passes what
    /// memory answers to `found`, with its place in `keys`, and returns the places and lookups of
    /// the others.
    ///
    /// # Errors
    /// The error of `admit`; nothing is queued in that case.
    pub fn lookup_batch_with<R>(
        &self,
        keys: &[Key],
        hashes: &[u64],
        mode: ReadMode,
        now: Nanos,
        mut found: impl FnMut(usize, Record, Freshness),
        admit: impl FnOnce(usize) -> Result<Nanos, R>,
    ) -> Result<Vec<(usize, Lookup<E>)>, R> {
        let mode = self.granted(mode);
        let from_memory = self.config.enabled && mode != ReadMode::Revalidate;
        let mut others = Vec::new();
        let mut cold: Vec<(usize, &Key)> = Vec::new();
        // One reading for all: it is older than every look at an entry.
        let staleness = match keys.first() {
            Some(key) => self.effective_staleness(key.collection(), now),
            None => return Ok(Vec::new()),
        };
        let mut records = [const { None }; BATCH_MAX];
        let batches = keys.chunks(BATCH_MAX).zip(hashes.chunks(BATCH_MAX));
        for (batch, (keys, hashes)) in batches.enumerate() {
            if from_memory {
                self.store.get_some(keys, hashes, mode == ReadMode::NoAdmit, &mut records);
            }
            for (i, (key, record)) in keys.iter().zip(&mut records).enumerate() {
                let place = batch * BATCH_MAX + i;
                let served = if from_memory {
                    self.judged(key, record.take(), mode, now, staleness)
                } else {
                    Served::No
                };
                match served {
                    Served::Answer(record, freshness) => found(place, record, freshness),
                    Served::Refuse => others.push((place, Lookup::Refused(LookupError::Behind))),
                    Served::No => cold.push((place, key)),
                }
            }
        }
        if !cold.is_empty() {
            let deadline = admit(cold.len())?;
            let cold_keys: Vec<&Key> = cold.iter().map(|(_, key)| *key).collect();
            let joined = self.join(&cold_keys, mode, Ask { at: now, deadline });
            // `join` returns one lookup per key.
            others.extend(cold.into_iter().map(|(place, _)| place).zip(joined));
        }
        Ok(others)
    }

    /// Answers every queued read of the collection that is not yet sent with `error`, and returns
    /// their number. The failure is not remembered, because the database was not asked.
    pub fn give_up(&self, collection: CollectionId, error: &E) -> usize {
        let (collection, stats) = self.collection(collection);
        let queued = collection.fetch_queue.lock().give_up(stats);
        queued.iter().for_each(|flight| flight.finish(Err(LookupError::Source(error.clone()))));
        queued.len()
    }
}

/// Returns the lookup that a record in memory answers.
pub(super) fn of_memory<E>(record: Record, freshness: Freshness) -> Lookup<E> {
    match record.presence() {
        Presence::Found => Lookup::Hit(record, freshness),
        Presence::Missing => Lookup::Negative(record, freshness),
    }
}
