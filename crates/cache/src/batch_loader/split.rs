//! Isolation of keys whose data the database cannot read: the query is repeated for halves of its
//! keys. An error of data concerns one record, and a statement reports it for all of its keys.

use super::BatchLoader;

/// Most further queries for the keys of one query that failed. Keys that are not isolated by then
/// fail together.
pub const SPLIT_QUERIES_MAX: u8 = 64;

impl<E: Clone> BatchLoader<E> {
    /// Queues the query in flight again in two halves, which are the next queries of this loader.
    /// `false`: it has one key, or its further queries are spent; complete it with its error.
    pub fn split(&mut self) -> bool {
        let keys = self.row_of_flight.iter().max().map_or(0, |last| last + 1);
        if self.query.is_empty() || keys < 2 || self.split_queries_left < 2 {
            return false;
        }
        self.split_queries_left -= 2;
        let query = std::mem::take(&mut self.query);
        let (collection, stats) = self.cache.collection(self.collection);
        let mut fetches = collection.fetch_queue.lock();
        for flight in &query {
            flight.requeue();
            fetches.queue_again(flight, stats);
        }
        drop(fetches);
        let mut halves = [Vec::new(), Vec::new()];
        for (flight, row) in query.into_iter().zip(&self.row_of_flight) {
            halves[usize::from(*row < keys / 2)].push(flight);
        }
        // The last is the next.
        self.halves.extend(halves);
        self.query_ended();
        true
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
