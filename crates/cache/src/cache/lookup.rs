//! Lookups: memory first, then the fetch queue, unless the read is not admitted.

use std::convert::Infallible;

use hotrow_measure::clock::Nanos;

use super::{Cache, Lookup, LookupError, ReadMode, Served};
use crate::flight::Ask;
use hotrow_types::key::{CollectionId, Key};

impl<E: Clone> Cache<E> {
    /// Looks up `key`. `now` is a clock reading taken for this request.
    #[must_use]
    pub fn lookup(&self, key: &Key, mode: ReadMode, now: Nanos) -> Lookup<E> {
        self.lookup_until(key, mode, now, Nanos::MAX)
    }

    /// Like [`Cache::lookup`], for a request whose answer is useless after `deadline`.
    #[must_use]
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
            match self.served(key, mode, now) {
                Served::Answer(lookup) => return Ok(lookup),
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
    #[must_use]
    pub fn lookup_batch(&self, keys: &[Key], mode: ReadMode, now: Nanos) -> Vec<Lookup<E>> {
        self.lookup_batch_until(keys, mode, now, Nanos::MAX)
    }

    /// Like [`Cache::lookup_batch`], for a request whose answer is useless after `deadline`.
    #[must_use]
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
        let mode = self.granted(mode);
        let mut answers: Vec<Option<Lookup<E>>> = Vec::with_capacity(keys.len());
        let mut cold: Vec<&Key> = Vec::new();
        for key in keys {
            let hit = if self.config.enabled && mode != ReadMode::Revalidate {
                self.served(key, mode, now)
            } else {
                Served::No
            };
            answers.push(match hit {
                Served::Answer(lookup) => Some(lookup),
                Served::Refuse => Some(Lookup::Refused(LookupError::Behind)),
                Served::No => {
                    cold.push(key);
                    None
                }
            });
        }
        let mut joined = Vec::new();
        if !cold.is_empty() {
            let deadline = admit(cold.len())?;
            joined = self.join(&cold, mode, Ask { at: now, deadline });
        }
        let mut joined = joined.into_iter();
        let refused = || Lookup::Refused(LookupError::QueueFull);
        Ok(answers
            .into_iter()
            .map(|answer| answer.or_else(|| joined.next()).unwrap_or_else(refused))
            .collect())
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
