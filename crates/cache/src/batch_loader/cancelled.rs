//! A loader that was cancelled during a query.

use super::BatchLoader;
use crate::lookup_error::LookupError;

impl<E: Clone> BatchLoader<E> {
    /// Abandons the query in flight: its flights are queued again or finished.
    pub(super) fn hand_over(&mut self) {
        let mut query = std::mem::take(&mut self.query);
        if query.is_empty() {
            return;
        }
        if let Some(taken) = self.taken.take() {
            // Flights already answered need nothing more.
            query.drain(..taken.answered);
            query.extend(taken.unread);
        }
        let (collection, stats) = self.cache.collection(self.collection);
        stats.queries_in_flight.sub(1);
        let mut fetches = collection.fetch_queue.lock();
        fetches.fence.query_ended(self.lease.query);
        let (unread, ended): (Vec<_>, Vec<_>) =
            query.into_iter().partition(|flight| flight.hand_over());
        ended.iter().for_each(|flight| fetches.retire(flight));
        fetches.put_back(unread.into_iter(), stats);
        drop(fetches);
        ended.iter().for_each(|flight| flight.finish(Err(LookupError::Abandoned)));
    }
}

impl<E: Clone> Drop for BatchLoader<E> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.hand_over();
        let held = std::mem::take(&mut self.halves).into_iter().flatten();
        let collection = self.cache.collection(self.collection).0;
        let queued = collection.fetch_queue.lock().abandon_loader(held);
        queued.iter().for_each(|flight| flight.call_leader());
    }
}
