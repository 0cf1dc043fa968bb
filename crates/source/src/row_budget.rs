//! Memory of one query: bytes of rows that are read but not yet taken over by a request.
//!
//! An engine reserves each row before it keeps the row. Two limits apply. Past the limit of one
//! query, the next query reads the remaining keys. Past the limit of all queries together, the
//! remaining keys are not read at all. A query without waiters ends in the same way as at its own
//! limit.

use std::sync::Arc;

use hotrow_admission::byte_budget::{ByteBudget, Reservation};
use parking_lot::Mutex;

/// Predicate: a request still waits for a row of the query.
type IsWanted = Box<dyn Fn() -> bool + Send + Sync>;

/// Decision on keeping a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The row may be kept, and is counted.
    Taken,
    /// The query is at its own limit, or has no waiters left: the rest is [`Row::NotRead`].
    ///
    /// [`Row::NotRead`]: crate::Row::NotRead
    QueryFull,
    /// All queries together are at their limit: the rest is [`Row::NoRoom`].
    ///
    /// [`Row::NoRoom`]: crate::Row::NoRoom
    NoRoom,
}

/// Share of the row budget that one query holds, from its first row until the last one is taken
/// over.
pub struct RowBudget {
    held: Mutex<Held>,
    query_bytes_max: u64,
    is_wanted: Option<IsWanted>,
}

struct Held {
    /// `None` without a limit on all queries together.
    reservation: Option<Reservation>,
    bytes: u64,
    rows: u64,
}

impl std::fmt::Debug for RowBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowBudget").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl RowBudget {
    /// Creates the budget of a query that may hold `query_bytes_max` within `budget`, as long as
    /// `is_wanted` returns true.
    #[must_use]
    pub fn new(
        budget: &Arc<ByteBudget>,
        query_bytes_max: u64,
        is_wanted: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        let held = Held { reservation: Some(budget.empty()), bytes: 0, rows: 0 };
        Arc::new(Self {
            held: Mutex::new(held),
            query_bytes_max,
            is_wanted: Some(Box::new(is_wanted)),
        })
    }

    /// Creates a budget without limits.
    #[must_use]
    pub fn unlimited() -> Arc<Self> {
        let held = Held { reservation: None, bytes: 0, rows: 0 };
        Arc::new(Self { held: Mutex::new(held), query_bytes_max: u64::MAX, is_wanted: None })
    }

    /// Returns the bytes of rows that the query holds.
    pub fn bytes(&self) -> u64 {
        self.held.lock().bytes
    }

    /// Requests to keep a row of `bytes`. The first row of a query is kept regardless of its size,
    /// as long as all queries together have room, so that each query reads at least one row.
    pub fn take(&self, bytes: usize) -> Room {
        let bytes = bytes as u64;
        let mut held = self.held.lock();
        let is_over = held.bytes.saturating_add(bytes) > self.query_bytes_max;
        if held.rows > 0
            && (is_over || !self.is_wanted.as_ref().is_none_or(|is_wanted| is_wanted()))
        {
            return Room::QueryFull;
        }
        if held.reservation.as_mut().is_some_and(|reservation| reservation.grow(bytes).is_err()) {
            return Room::NoRoom;
        }
        held.bytes += bytes;
        held.rows += 1;
        Room::Taken
    }

    /// Releases the bytes of a failed attempt before it is repeated.
    pub fn restart(&self) {
        let mut held = self.held.lock();
        held.bytes = 0;
        held.rows = 0;
        if let Some(reservation) = &mut held.reservation {
            reservation.shrink_to(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_query_reads_one_row_at_least_and_ends_at_its_own_limit() {
        let budget = ByteBudget::new(1000);
        let query = RowBudget::new(&budget, 100, || true);
        assert_eq!(query.take(300), Room::Taken, "larger than the query's limit, but the first");
        assert_eq!(query.take(1), Room::QueryFull);
        assert_eq!((query.bytes(), budget.used_bytes()), (300, 300));
        drop(query);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn queries_share_their_limit() {
        let budget = ByteBudget::new(250);
        let [first, second] = [(); 2].map(|()| RowBudget::new(&budget, 200, || true));
        assert_eq!([first.take(100), first.take(100), second.take(40)], [Room::Taken; 3]);
        assert_eq!(second.take(20), Room::NoRoom);
        first.restart();
        assert_eq!((second.take(20), budget.used_bytes()), (Room::Taken, 60));
    }

    #[test]
    fn a_query_without_waiters_ends_after_its_first_row() {
        let is_wanted = Arc::new(AtomicBool::new(true));
        let is_wanted_by_test = Arc::clone(&is_wanted);
        let query = RowBudget::new(&ByteBudget::new(1000), 1000, move || {
            is_wanted_by_test.load(Ordering::Relaxed)
        });
        assert_eq!([query.take(1), query.take(1)], [Room::Taken; 2]);
        is_wanted.store(false, Ordering::Relaxed);
        assert_eq!(query.take(1), Room::QueryFull);
    }

    #[test]
    fn without_limits_everything_is_kept() {
        let query = RowBudget::unlimited();
        assert_eq!([query.take(usize::MAX), query.take(usize::MAX)], [Room::Taken; 2]);
    }
}
