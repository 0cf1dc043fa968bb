//! Lookups from outside: memory first, then the desk, unless the read is not admitted.

use std::convert::Infallible;

use hotrow_measure::clock::Nanos;

use super::{Cache, Lookup, Refusal, Served, Wish};
use crate::flight::{Ask, Failure};
use crate::key::{CollectionId, Key};

impl<E: Clone> Cache<E> {
    /// What is known of `key` at `now`, a clock reading taken for this request.
    #[must_use]
    pub fn lookup(&self, key: &Key, wish: Wish, now: Nanos) -> Lookup<E> {
        self.lookup_until(key, wish, now, Nanos::MAX)
    }

    /// [`Cache::lookup`] for a request that is of no use after `deadline`.
    #[must_use]
    pub fn lookup_until(&self, key: &Key, wish: Wish, now: Nanos, deadline: Nanos) -> Lookup<E> {
        let Ok(lookup) = self.lookup_if(key, wish, now, || Ok::<Nanos, Infallible>(deadline));
        lookup
    }

    /// [`Cache::lookup`], but where memory does not answer, `admit` is asked before the read is joined or queued. It says from
    /// when on an answer is of no use, which a hit need not know.
    ///
    /// # Errors
    /// What `admit` says; nothing is queued then.
    pub fn lookup_if<R>(
        &self,
        key: &Key,
        wish: Wish,
        now: Nanos,
        admit: impl FnOnce() -> Result<Nanos, R>,
    ) -> Result<Lookup<E>, R> {
        let wish = self.granted(wish);
        if self.config.enabled && wish != Wish::New {
            match self.served(key, wish, now) {
                Served::Answer(lookup) => return Ok(lookup),
                Served::Refuse => return Ok(Lookup::Refused(Refusal::Behind)),
                Served::No => {}
            }
        }
        let deadline = admit()?;
        let mut one = self.join(std::slice::from_ref(&key), wish, Ask { at: now, deadline });
        // `join` answers one lookup per key.
        Ok(one.pop().unwrap_or(Lookup::Refused(Refusal::QueueFull)))
    }

    /// [`Cache::lookup`] for the ids of one batch, all of one collection: cold ones are queued together and so read in
    /// one query. Answers in the order of `keys`, which must not repeat a key.
    #[must_use]
    pub fn lookup_batch(&self, keys: &[Key], wish: Wish, now: Nanos) -> Vec<Lookup<E>> {
        self.lookup_batch_until(keys, wish, now, Nanos::MAX)
    }

    /// [`Cache::lookup_batch`] for a request that is of no use after `deadline`.
    #[must_use]
    pub fn lookup_batch_until(&self, keys: &[Key], wish: Wish, now: Nanos, deadline: Nanos) -> Vec<Lookup<E>> {
        let Ok(lookups) = self.lookup_batch_if(keys, wish, now, |_| Ok::<Nanos, Infallible>(deadline));
        lookups
    }

    /// [`Cache::lookup_batch`], but `admit` is asked with the number of cold keys, if there are any, before they are queued, and
    /// says from when on an answer is of no use.
    ///
    /// # Errors
    /// What `admit` says; nothing is queued then.
    pub fn lookup_batch_if<R>(
        &self,
        keys: &[Key],
        wish: Wish,
        now: Nanos,
        admit: impl FnOnce(usize) -> Result<Nanos, R>,
    ) -> Result<Vec<Lookup<E>>, R> {
        let wish = self.granted(wish);
        let mut answers: Vec<Option<Lookup<E>>> = Vec::with_capacity(keys.len());
        let mut cold: Vec<&Key> = Vec::new();
        for key in keys {
            let hit = if self.config.enabled && wish != Wish::New { self.served(key, wish, now) } else { Served::No };
            answers.push(match hit {
                Served::Answer(lookup) => Some(lookup),
                Served::Refuse => Some(Lookup::Refused(Refusal::Behind)),
                Served::No => {
                    cold.push(key);
                    None
                }
            });
        }
        let mut joined = Vec::new();
        if !cold.is_empty() {
            let deadline = admit(cold.len())?;
            joined = self.join(&cold, wish, Ask { at: now, deadline });
        }
        let mut joined = joined.into_iter();
        let refused = || Lookup::Refused(Refusal::QueueFull);
        Ok(answers.into_iter().map(|answer| answer.or_else(|| joined.next()).unwrap_or_else(refused)).collect())
    }

    /// Answers every read of the collection that is queued and not yet sent with this error, which is not remembered: the database was
    /// not asked. How many keys that were.
    pub fn give_up(&self, collection: CollectionId, error: &E) -> usize {
        let (collection, stats) = self.collection(collection);
        let queued = collection.desk.lock().give_up(stats);
        queued.iter().for_each(|flight| flight.finish(Err(Failure::Source(error.clone()))));
        queued.len()
    }
}
