//! Queries that a standby may answer, and answers that come too late for one (see
//! [`crate::standby`]).

use std::sync::Arc;

use hotrow_measure::clock::Nanos;

use super::BatchLoader;
use super::fills::Fill;
use crate::cache::Collection;
use crate::fetch_queue::FetchQueue;
use crate::flight::Flight;
use crate::lookup_error::LookupError;
use crate::sync::MutexGuard;
use hotrow_types::version::Position;

impl<E: Clone> BatchLoader<E> {
    /// Returns the point of the log that a standby must have replayed before it reads the rows of
    /// the query in flight; `None` if only the primary may be read. Its answer has the version
    /// [`hotrow_types::version::Version::Replayed`]. Without one call
    /// [`BatchLoader::read_primary`].
    pub fn standby_floor(&self) -> Option<Position> {
        self.standby_floor
    }

    /// Queues the keys of the query in flight again, to be read from the primary, because no
    /// standby answered.
    pub fn read_primary(&mut self) {
        self.standby_floor = None;
        let query = std::mem::take(&mut self.query);
        if query.is_empty() {
            return;
        }
        let (collection, stats) = self.cache.collection(self.collection);
        // Under the lock, so that no request joins a flight that is about to be abandoned.
        let mut fetches = collection.fetch_queue.lock();
        query.iter().for_each(|flight| {
            flight.requeue();
            flight.require_primary();
        });
        let (wanted, ended): (Vec<_>, Vec<_>) =
            query.into_iter().partition(|flight| flight.is_wanted());
        ended.iter().for_each(|flight| fetches.retire(flight));
        fetches.put_back(wanted.into_iter(), stats);
        drop(fetches);
        ended.iter().for_each(|flight| flight.finish(Err(LookupError::Abandoned)));
        self.query_ended();
    }

    /// Decides whether a standby may answer all keys of the query.
    pub(super) fn choose_standby(
        &mut self,
        collection: &Collection<E>,
        fetches: &mut FetchQueue<E>,
        query: &[Arc<Flight<E>>],
        now: Nanos,
    ) {
        self.standby_floor = self.floor_of(collection, fetches, query, now);
        if self.standby_floor.is_some() {
            self.lease.is_of_standby = true;
            query.iter().for_each(|flight| flight.read_standby());
        }
    }

    fn floor_of(
        &self,
        collection: &Collection<E>,
        fetches: &mut FetchQueue<E>,
        query: &[Arc<Flight<E>>],
        now: Nanos,
    ) -> Option<Position> {
        if query.is_empty() || !self.cache.may_use_standbys(collection, fetches, now) {
            return None;
        }
        let applied = collection.source.progress.applied()?;
        let mut at = 0;
        for flight in query {
            if !flight.permits_standby() {
                return None;
            }
            let hash = self.cache.hash(&flight.key);
            at = at.max(fetches.standby_floor(&flight.key, hash, &self.cache)?);
        }
        Some(Position { at, ..applied })
    }

    /// Handles an answer that may be older than an earlier one: the key is read again, from the
    /// primary.
    pub(super) fn too_old(
        &self,
        flight: &Arc<Flight<E>>,
        mut fetches: MutexGuard<'_, FetchQueue<E>>,
    ) -> Fill {
        if flight.has_waiters() {
            flight.requeue();
            flight.require_primary();
            return Fill::Hidden;
        }
        // No client needs it: the next request reads.
        fetches.retire(flight);
        drop(fetches);
        flight.finish(Err(LookupError::Abandoned));
        Fill::Discarded
    }
}
