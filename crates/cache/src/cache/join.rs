//! Joining a read in flight, or beginning one.

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::fence::Fence;

impl<E: Clone> Cache<E> {
    /// Joins reads in flight or queues new ones, for keys of one collection.
    pub(super) fn join(&self, keys: &[&Key], mode: ReadMode, ask: Ask) -> Vec<Lookup<E>> {
        let Some(first) = keys.first() else { return Vec::new() };
        let (collection, stats) = self.collection(first.collection());
        let mut fetches = collection.fetch_queue.lock();
        let mut answers: Vec<Option<Lookup<E>>> = Vec::with_capacity(keys.len());
        let mut unread: Vec<&Key> = Vec::new();
        for &key in keys {
            let known = self
                .config
                .enabled
                .then(|| self.join_known(key, mode, ask, collection, &mut fetches))
                .flatten();
            if known.is_none() {
                unread.push(key);
            }
            let waits = matches!(known, Some(Lookup::Coalesced(_)));
            stats.coalesced_total.add(u64::from(waits));
            if waits && mode != ReadMode::NoAdmit {
                self.scan_filter.unmark(self.hash(key));
            }
            answers.push(known);
        }
        self.note_readers(&unread, mode);
        let kind = if self.config.enabled { Kind::Shared } else { Kind::Alone };
        let (queued, refusal) = match fetches.queue(&unread, kind, Some(ask), &self.config, stats) {
            Ok(queued) => (queued, LookupError::QueueFull),
            Err(NotQueued::Full) => (Vec::new(), LookupError::QueueFull),
            Err(NotQueued::TooLate) => (Vec::new(), LookupError::TooLate),
        };
        if mode.needs_primary() && self.safeguards.has(Safeguard::StandbyBypass) {
            queued.iter().for_each(|flight| flight.require_primary());
        }
        // Joined under the lock: a queued read without waiters is never begun.
        let mut fills = queued.iter().map(|flight| match kind {
            Kind::Alone => Lookup::Bypass(flight.join_first(ask)),
            Kind::Shared | Kind::Background | Kind::WarmUp => Lookup::Miss(flight.join_first(ask)),
        });
        let mut new = || fills.next();
        let answer = |known: Option<Lookup<E>>| {
            known.or_else(&mut new).unwrap_or_else(|| Lookup::Refused(refusal.clone()))
        };
        answers.into_iter().map(answer).collect()
    }

    /// Looks for what the queue already holds for the key: a newer entry, a failure, or a flight to
    /// join.
    pub(super) fn join_known(
        &self,
        key: &Key,
        mode: ReadMode,
        ask: Ask,
        collection: &Collection<E>,
        fetches: &mut FetchQueue<E>,
    ) -> Option<Lookup<E>> {
        let now = ask.at;
        // A strict request has asked memory before.
        if matches!(mode, ReadMode::Normal | ReadMode::NoAdmit) {
            match self.served(key, mode, now, collection.effective_staleness(now)) {
                Served::Answer(record, freshness) => {
                    return Some(lookup::of_memory(record, freshness));
                }
                Served::Refuse => return Some(Lookup::Refused(LookupError::Behind)),
                Served::No => self.sweep(key, collection.epoch()),
            }
        }
        if let Some(failure) = fetches.recent_failure(key, now) {
            return Some(Lookup::Refused(failure));
        }
        let flight = fetches.in_flight.get(key)?;
        let joinable = match flight.lease() {
            None => flight.is_queued(),
            Some(lease) if let ReadMode::Strict(since) = mode => {
                !lease.is_of_standby
                    && lease.started_at >= since
                    && lease.epoch == collection.epoch()
            }
            // Changes that it does not show have ended its lease, if the feed has delivered them.
            Some(lease) if lease.is_of_standby => {
                mode != ReadMode::Revalidate
                    && lease.epoch == collection.epoch()
                    && self.is_collection_current(collection, now)
                    && !collection.has_gap()
            }
            // No change ends the lease of a read of such a collection.
            Some(_) if collection.has_gap() => false,
            Some(lease) => {
                mode != ReadMode::Revalidate
                    && self.may_join(collection, &fetches.fence, key, lease, now)
            }
        };
        if joinable {
            if mode.needs_primary() && self.safeguards.has(Safeguard::StandbyBypass) {
                flight.require_primary();
            }
            if !fetches.has_loader() {
                // The request that queued it may have left without leading. With no other waiter to
                // notify, this one leads.
                flight.want_leader();
            }
            return Some(Lookup::Coalesced(flight.join(ask)));
        }
        fetches.in_flight.remove(key);
        None
    }

    /// Returns whether a read in flight may answer a request made now. Its lease must belong to
    /// this epoch, and the read must see every change that a client can have been informed of:
    /// those that became known to be visible before its query was sent. While the feed is behind,
    /// or while a change may exist that the read does not see and that will not end its lease, the
    /// read must have begun within the contract's bound.
    fn may_join(
        &self,
        collection: &Collection<E>,
        fence: &Fence,
        key: &Key,
        lease: Lease,
        now: Nanos,
    ) -> bool {
        // Where several keys name one record, the feed reports a change under one of them.
        let key = (!collection.has_aliases.load(Relaxed)).then_some(key);
        let is_outdated =
            self.safeguards.has(Safeguard::Join) && fence.shown_since(lease.query, key);
        let is_fenced = key.is_none_or(|key| fence.concerns(key));
        let is_young = now.since(lease.started_at) <= self.config.max_staleness;
        lease.epoch == collection.epoch()
            && !is_outdated
            && (is_young || !is_fenced && self.is_collection_current(collection, now))
    }

    /// Frees the memory of a flushed entry that a request came across.
    pub(super) fn sweep(&self, key: &Key, epoch: Epoch) {
        if self.store.peek(key).is_some_and(|record| record.epoch().flush != epoch.flush) {
            self.store.remove(key, Removal::Flushed);
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;
    use crate::BatchLoader;
    use crate::testkit::*;
    use hotrow_types::version::Position;

    /// A transaction that the feed may deliver before a read sees it.
    const HIDDEN: ChangeId = ChangeId::Commit(Position { incarnation: 1, at: 6 });

    fn get(cache: &TestCache, id: i64) -> Lookup<TestError> {
        cache.lookup(&key(id), ReadMode::Normal, START)
    }

    /// Returns a loader that has sent the query for the key that is queued.
    fn send_queued(cache: &TestCache, id: i64) -> BatchLoader<TestError> {
        let mut loader = cache.batch_loader(FIRST).unwrap();
        assert_eq!(loader.next_batch(START).unwrap(), [key(id)]);
        loader
    }

    /// Requests the key, and returns the loader that has sent its query.
    fn send(cache: &TestCache, id: i64) -> BatchLoader<TestError> {
        let lookup = get(cache, id);
        assert!(matches!(lookup, Lookup::Miss(_)), "{id}: {lookup:?}");
        send_queued(cache, id)
    }

    fn joins(cache: &TestCache, id: i64) -> bool {
        matches!(get(cache, id), Lookup::Coalesced(_))
    }

    /// A change is delivered, its key is read before the change is visible, and then every client
    /// that is informed of changes gets it.
    #[test]
    fn a_read_from_before_a_change_was_visible_is_not_joined_once_clients_know_of_it() {
        let cache = cache(Config { reads_in_flight: 4, ..config() });
        assert!(!cache.invalidate(&key(1), HIDDEN));
        let mut early = waiter(get(&cache, 1));
        let mut before = send_queued(&cache, 1);
        let _other = send(&cache, 2);
        assert!(joins(&cache, 1), "not known to be visible: within the bound");
        cache.advance_visibility(ONLY, &log(5));
        assert!(joins(&cache, 1), "the change is none of these");
        cache.advance_visibility(ONLY, &log(6));
        assert!(joins(&cache, 2), "another key");
        let late = get(&cache, 1);
        assert!(matches!(late, Lookup::Miss(_)), "{late:?}");
        let mut after = send_queued(&cache, 1);
        assert!(joins(&cache, 1), "sent when the change was visible");
        before.complete(answers(5, 1), START);
        assert_eq!(body(poll(&mut early)), Some(5));
        after.complete(answers(6, 1), START);
        assert_eq!(body(poll(&mut waiter(late))), Some(6));
        assert!(matches!(get(&cache, 1), Lookup::Hit(record, _) if record.body() == b"6"));
    }

    #[test]
    fn an_answer_to_another_key_makes_a_change_known() {
        let cache = cache(Config { reads_in_flight: 4, ..config() });
        assert!(!cache.invalidate(&key(1), HIDDEN));
        let _before = send(&cache, 1);
        send(&cache, 2).complete(answers(6, 1), START);
        assert!(!joins(&cache, 1), "its position is a client's now");
    }

    #[test]
    fn after_a_flush_no_key_joins_a_read_from_before_it_was_visible() {
        let cache = cache(config());
        cache.flush(FIRST, Some(HIDDEN));
        let _before = send(&cache, 1);
        assert!(joins(&cache, 1));
        cache.advance_visibility(ONLY, &log(6));
        assert!(!joins(&cache, 1));
    }

    #[test]
    fn every_change_of_a_collection_concerns_a_key_of_another_spelling() {
        let (stored, spelling) = (key(1), 2);
        let log_order = ChangeId::Log(Position { incarnation: 1, at: 6 });
        for how in ["visible", "in the log's order", "purged"] {
            let cache = cache(config());
            cache.expect_aliases(FIRST);
            let _before = send(&cache, spelling);
            match how {
                "visible" => {
                    assert!(!cache.invalidate(&stored, HIDDEN));
                    assert!(joins(&cache, spelling), "not known to be visible");
                    cache.advance_visibility(ONLY, &log(6));
                }
                "purged" => drop(cache.purge(&stored)),
                _ => assert!(!cache.invalidate(&stored, log_order)),
            }
            let late = get(&cache, spelling);
            assert!(matches!(late, Lookup::Miss(_)), "{how}: {late:?}");
            let _after = send_queued(&cache, spelling);
            assert!(joins(&cache, spelling), "{how}");
        }
    }
}
