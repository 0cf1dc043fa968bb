//! Joining a read in flight, or beginning one.

use super::*;

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
        if mode == ReadMode::Revalidate && self.safeguards.has(Safeguard::StandbyBypass) {
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
        if mode != ReadMode::Revalidate {
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
                let aliased = collection.has_aliases.load(std::sync::atomic::Ordering::Relaxed);
                mode != ReadMode::Revalidate
                    && self.may_join(collection, lease, now, aliased || fetches.fence.concerns(key))
            }
        };
        if joinable {
            if mode == ReadMode::Revalidate && self.safeguards.has(Safeguard::StandbyBypass) {
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
    /// this epoch. While the feed is behind, or while a change may exist that the read does not see
    /// and that will not end its lease (`undelivered`), the read must have begun within the
    /// contract's bound.
    pub(super) fn may_join(
        &self,
        collection: &Collection<E>,
        lease: Lease,
        now: Nanos,
        undelivered: bool,
    ) -> bool {
        let is_young = now.since(lease.started_at) <= self.config.max_staleness;
        lease.epoch == collection.epoch()
            && (is_young || !undelivered && self.is_collection_current(collection, now))
    }

    /// Frees the memory of a flushed entry that a request came across.
    pub(super) fn sweep(&self, key: &Key, epoch: Epoch) {
        if self.store.peek(key).is_some_and(|record| record.epoch().flush != epoch.flush) {
            self.store.remove(key, Removal::Flushed);
        }
    }
}
