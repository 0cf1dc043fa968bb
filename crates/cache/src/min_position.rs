//! Read your writes: when an entry, the feed or a read satisfies a minimal position.
//!
//! A request for a minimal position is answered in one of three ways: by an entry that proves it
//! ([`Cache::peek_at_least`]); by the ordinary way once the feed has passed the position
//! ([`Cache::has_passed`]); or by a read that begins after the request arrived
//! ([`Record::check_reached`]). An answer that lacks a delivered change ([`Record::is_behind`])
//! satisfies no position: the caller reads again.
//!
//! A strict request ([`ReadMode::Strict`]) needs no position. It waits until the feed has passed a
//! look at the log's end that was sent after it was received. An answer of the primary may lack a
//! delivered change: one that is in the log and not visible has not returned to its writer.

use std::sync::atomic::Ordering::Relaxed;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::Position;

use crate::{Cache, Freshness, ReadMode, Record};

/// Reason for which an answer does not satisfy a minimal position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReached {
    /// The position belongs to another database, or to one that was replaced.
    OtherLog,
    /// The database is served without a log.
    NoPositions,
    /// The database has not reached the position.
    Beyond,
}

impl<E: Clone> Cache<E> {
    /// Returns the entry if it satisfies `wanted` without the feed or the database: it proves the
    /// position itself, or the feed has passed the position and left the entry in place.
    pub fn peek_at_least(
        &self,
        key: &Key,
        wanted: &Position,
        now: Nanos,
    ) -> Option<(Record, Freshness)> {
        // Before the entry is looked up: a later position may be that of the change that removed
        // the entry.
        let applied = self.source_state(key.collection()).progress.applied();
        let has_passed = applied.is_some_and(|applied| applied.reaches(wanted));
        let (record, freshness) = self.peek(key, now)?;
        // A feed that has not noticed yet that its database was replaced proves nothing about an
        // entry of the new one.
        let is_of_log = record.position().is_none_or(|own| own.incarnation == wanted.incarnation);
        let is_reached = has_passed && is_of_log
            || record.reflects().is_some_and(|position| position.reaches(wanted));
        // A stale answer may be from before a loss, whatever the feed has passed since.
        (is_reached && freshness == Freshness::Fresh).then_some((record, freshness))
    }

    /// Returns whether the feed of the collection has passed the position.
    ///
    /// # Errors
    /// [`NotReached::OtherLog`] when the feed follows another log: a position of another source is
    /// none of this one.
    pub fn has_passed(
        &self,
        collection: CollectionId,
        wanted: &Position,
    ) -> Result<bool, NotReached> {
        match self.source_state(collection).progress.applied() {
            Some(applied) if applied.incarnation != wanted.incarnation => Err(NotReached::OtherLog),
            Some(applied) => Ok(applied.reaches(wanted)),
            None => Ok(false),
        }
    }

    /// Returns the mode of the read, by whether the feed has passed the position.
    pub fn mode_at_least(
        &self,
        collection: CollectionId,
        has_passed: bool,
        now: Nanos,
    ) -> ReadMode {
        // While the feed is behind, the ordinary way may end in an entry from before a loss, marked
        // as stale. Where several keys name one record, it may end in a read in flight from before
        // the change: the feed reports the change under one key and ends no lease of the others.
        let (collection, _) = self.collection(collection);
        let has_aliases = collection.has_aliases.load(Relaxed);
        let is_proof = has_passed && !has_aliases && self.is_collection_current(collection, now);
        if is_proof { ReadMode::Normal } else { ReadMode::Revalidate }
    }
}

impl<E: Clone> Cache<E> {
    /// Returns whether an entry is a strict answer, once the feed has passed the look of its
    /// request. One of a standby may show a commit that the primary shows later, so that a later
    /// strict answer of another instance would be older: it counts when nothing of its key is
    /// fenced any more.
    pub(crate) fn is_strict(&self, key: &Key, record: &Record, freshness: Freshness) -> bool {
        let is_shown = || {
            let (collection, _) = self.collection(key.collection());
            !collection.fetch_queue.lock().fence.concerns(key)
        };
        freshness == Freshness::Fresh && (!record.is_of_standby() || is_shown())
    }
}

impl Record {
    /// Checks that a read that began after the request for `wanted` arrived has reached it.
    ///
    /// # Errors
    /// The reason for which it has not.
    pub fn check_reached(&self, wanted: &Position) -> Result<(), NotReached> {
        match self.position() {
            None => Err(NotReached::NoPositions),
            Some(position) if position.incarnation != wanted.incarnation => {
                Err(NotReached::OtherLog)
            }
            Some(position) if position.reaches(wanted) => Ok(()),
            Some(_) => Err(NotReached::Beyond),
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;
    use crate::testkit::*;
    use crate::{Answers, Fetched, Lookup};
    use hotrow_types::version::ChangeId;

    fn at(at: u64) -> Position {
        Position { incarnation: 1, at }
    }

    fn read(cache: &TestCache, key: &Key, seen: u64) {
        let _waiter = waiter(cache.lookup(key, ReadMode::Normal, START));
        let mut loader = cache.batch_loader(FIRST).unwrap();
        assert!(loader.next_batch(START).is_some());
        loader.complete(answers(seen, 1), START);
        assert!(loader.next_batch(START).is_none());
    }

    #[test]
    fn an_entry_answers_by_its_own_position_or_by_that_of_the_feed() {
        let cache = cache(config());
        read(&cache, &key(1), 5);
        assert!(cache.peek_at_least(&key(1), &at(5), START).is_some());
        assert!(cache.peek_at_least(&key(1), &at(6), START).is_none());
        assert_eq!(cache.has_passed(FIRST, &at(6)), Ok(false));
        cache.advance(ONLY, START, Some(at(6)));
        assert_eq!(cache.has_passed(FIRST, &at(6)), Ok(true));
        assert!(cache.peek_at_least(&key(1), &at(6), START).is_some());
        let other = Position { incarnation: 2, at: 1 };
        assert_eq!(cache.has_passed(FIRST, &other), Err(NotReached::OtherLog));
        cache.mark_gap(ONLY, None);
        assert!(cache.peek_at_least(&key(1), &at(5), START).is_none(), "from before a loss");
        assert_eq!(cache.mode_at_least(FIRST, true, START), ReadMode::Revalidate);
    }

    /// Found by the simulator: mongodb, seed 47.
    #[test]
    fn a_replaced_database_does_not_vouch_for_an_entry_of_the_new_one() {
        let cache = cache(config());
        cache.advance(ONLY, START, Some(at(9)));
        let _waiter = waiter(cache.lookup(&key(1), ReadMode::Normal, START));
        let mut loader = cache.batch_loader(FIRST).unwrap();
        assert!(loader.next_batch(START).is_some());
        let new = Position { incarnation: 2, at: 3 };
        let rows = vec![Fetched::Missing];
        let version = hotrow_types::version::Version::Log(new);
        loader.complete(Ok(Answers { version, position: Some(new), rows }), START);
        assert!(cache.peek(&key(1), START).is_some());
        assert!(cache.peek_at_least(&key(1), &at(9), START).is_none());
        assert!(cache.peek_at_least(&key(1), &new, START).is_some());
    }

    #[test]
    fn a_read_reaches_what_it_saw() {
        let cache = cache(config());
        read(&cache, &key(1), 5);
        let (record, _) = cache.peek(&key(1), START).unwrap();
        assert_eq!(record.check_reached(&at(5)), Ok(()));
        assert_eq!(record.check_reached(&at(6)), Err(NotReached::Beyond));
        let other = Position { incarnation: 2, at: 1 };
        assert_eq!(record.check_reached(&other), Err(NotReached::OtherLog));
    }

    /// Found by the simulator: mongodb, seed 83.
    #[test]
    fn a_position_that_the_feed_passed_joins_no_older_read_of_a_second_spelling() {
        let cache = cache(config());
        cache.expect_aliases(FIRST);
        let (stored, spelling) = (key(1), key(2));
        let _first = waiter(cache.lookup(&spelling, ReadMode::Normal, START));
        let mut loader = cache.batch_loader(FIRST).unwrap();
        assert!(loader.next_batch(START).is_some());
        // The read has its snapshot. Now the record changes under the key that the feed knows.
        cache.invalidate(&stored, ChangeId::Log(at(6)));
        cache.advance(ONLY, START, Some(at(6)));
        assert_eq!(cache.has_passed(FIRST, &at(6)), Ok(true));
        let mode = cache.mode_at_least(FIRST, true, START);
        let second = cache.lookup(&spelling, mode, START);
        assert!(matches!(second, Lookup::Miss(_)), "the read in flight is older: {second:?}");
        let rows = vec![Fetched::Uncacheable(Some(b"old".to_vec()))];
        loader.complete(Ok(Answers { version: log(5), position: Some(at(5)), rows }), START);
        assert!(poll(&mut waiter(second)).is_none());
    }
}
