//! Concurrency limiter of the source: each query takes a permit, and `hotrow_admission` sets their
//! number.
//!
//! Batch loaders of all collections wait here in order, without leases and without keys; keys
//! requested in the meantime join them. So a query is put together when it may be sent, and the
//! database sees no more than the limit at once.

use std::time::Duration;

use hotrow_admission::concurrency::limit::{Config, Kind, Limiter, Outcome, Sample};
use hotrow_measure::clock::Nanos;
use hotrow_measure::histogram::Histogram;
use hotrow_types::key::CollectionId;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Concurrency limiter of one source. On cache lines of its own: each query writes it, and its
/// neighbours are read by every hit.
#[derive(Debug)]
#[repr(align(128))]
pub struct ConcurrencyLimiter {
    permits: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limiter: Limiter,
    /// Number of permits that exist.
    width: usize,
    /// Permits in use that are destroyed on return, because the limit fell.
    owed: usize,
    in_flight: usize,
    sent: u64,
    waited_ns: Histogram,
}

/// State of the limiter at one moment.
#[derive(Debug)]
pub struct View {
    /// Method of finding the limit.
    pub kind: Kind,
    /// Most queries in flight.
    pub limit: usize,
    /// Queries in flight.
    pub in_flight: usize,
    /// Times that latency was measured one query at a time.
    pub probes_total: u64,
    /// Longest wait among the keys of each query, in nanoseconds.
    pub waited_ns: Histogram,
}

impl ConcurrencyLimiter {
    /// Creates a limiter at `config.max`.
    pub fn new(config: Config, collections: usize) -> Self {
        let limiter = Limiter::new(config, collections);
        let width = limiter.limit();
        let state = State {
            limiter,
            width,
            owed: 0,
            in_flight: 0,
            sent: 0,
            waited_ns: Histogram::default(),
        };
        Self { permits: Semaphore::new(width), state: Mutex::new(state) }
    }

    /// Waits until a query may be sent.
    pub async fn enter(&self) -> Permit<'_> {
        // The semaphore is never closed; a `Permit` without one returns none.
        let permit = self.permits.acquire().await.ok();
        Permit { limiter: self, permit }
    }

    /// Returns the state that operators see.
    pub fn view(&self) -> View {
        let state = self.state.lock();
        View {
            kind: state.limiter.kind(),
            limit: state.limiter.limit(),
            in_flight: state.in_flight,
            probes_total: state.limiter.probes_total(),
            waited_ns: state.waited_ns.clone(),
        }
    }

    /// Adjusts the number of permits to the limit.
    fn fit(&self, state: &mut State) {
        let limit = state.limiter.limit();
        if limit > state.width {
            let more = limit - state.width;
            let kept = more.min(state.owed);
            state.owed -= kept;
            self.permits.add_permits(more - kept);
        } else {
            let fewer = state.width - limit;
            state.owed += fewer - self.permits.forget_permits(fewer);
        }
        state.width = limit;
    }
}

/// The right to send one query; returned when dropped.
pub struct Permit<'a> {
    limiter: &'a ConcurrencyLimiter,
    permit: Option<SemaphorePermit<'a>>,
}

impl<'a> Permit<'a> {
    /// Marks the query as sent. `waited`: the longest wait of its keys.
    pub fn send(
        self,
        CollectionId(id): CollectionId,
        keys: usize,
        waited: Duration,
        now: Nanos,
    ) -> Query<'a> {
        let mut state = self.limiter.state.lock();
        state.waited_ns.record(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
        state.in_flight += 1;
        state.sent += 1;
        let in_flight = state.in_flight;
        let number = state.sent;
        drop(state);
        Query { pass: self, collection: usize::from(id), keys, sent_at: now, in_flight, number }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        let mut state = self.limiter.state.lock();
        if state.owed > 0 {
            state.owed -= 1;
            permit.forget();
        } else {
            // Wakes the next waiter, which must not happen under a lock.
            drop(state);
            drop(permit);
        }
    }
}

/// A query in flight. One that is dropped was cancelled and teaches nothing.
pub struct Query<'a> {
    pass: Permit<'a>,
    collection: usize,
    keys: usize,
    sent_at: Nanos,
    in_flight: usize,
    /// Queries sent up to this one.
    number: u64,
}

impl Query<'_> {
    /// Records the end of the query.
    pub(crate) fn ended(self, outcome: Outcome, now: Nanos) {
        let limiter = self.pass.limiter;
        let mut state = limiter.state.lock();
        let sample = Sample {
            collection: self.collection,
            keys: self.keys,
            latency: now.since(self.sent_at),
            outcome,
            in_flight: self.in_flight,
            alone: self.in_flight == 1 && state.sent == self.number,
        };
        state.limiter.record(&sample, now);
        limiter.fit(&mut state);
        drop(state);
        drop(self);
    }
}

impl Drop for Query<'_> {
    fn drop(&mut self) {
        self.pass.limiter.state.lock().in_flight -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn limiter(kind: Kind, max: usize) -> ConcurrencyLimiter {
        ConcurrencyLimiter::new(
            Config { kind, max, tolerance: 2.0, probe_interval: Duration::from_secs(3600) },
            1,
        )
    }

    fn try_enter(limiter: &ConcurrencyLimiter) -> Option<Permit<'_>> {
        match pin!(limiter.enter()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(pass) => Some(pass),
            Poll::Pending => None,
        }
    }

    fn fill(limiter: &ConcurrencyLimiter) -> Vec<Permit<'_>> {
        std::iter::from_fn(|| try_enter(limiter)).collect()
    }

    fn send(pass: Permit<'_>, at_ms: u64) -> Query<'_> {
        pass.send(CollectionId(0), 1, Duration::ZERO, Nanos(at_ms * 1_000_000))
    }

    #[test]
    fn permits_match_the_limit_and_are_returned() {
        let limiter = limiter(Kind::Fixed, 3);
        let mut passes = fill(&limiter);
        assert_eq!(passes.len(), 3);
        drop(passes.pop());
        let given_up = send(try_enter(&limiter).unwrap(), 0);
        assert!(try_enter(&limiter).is_none());
        assert_eq!(limiter.view().in_flight, 1);
        drop(given_up);
        let query = send(try_enter(&limiter).unwrap(), 0);
        query.ended(Outcome::Answered, Nanos(1));
        drop(passes);
        assert_eq!((fill(&limiter).len(), limiter.view().in_flight), (3, 0));
    }

    #[test]
    fn lower_limits_withdraw_returned_permits_and_higher_ones_restore_them() {
        let limiter = limiter(Kind::Aimd, 16);
        let mut at_ms = 0;
        // All time out until the limit is 1.
        while limiter.view().limit > 1 {
            let queries: Vec<_> =
                fill(&limiter).into_iter().map(|pass| send(pass, at_ms)).collect();
            assert_eq!(queries.len(), limiter.view().limit);
            at_ms += 1_000;
            queries
                .into_iter()
                .for_each(|query| query.ended(Outcome::TimedOut, Nanos(at_ms * 1_000_000)));
            assert!(at_ms < 1_000_000);
        }
        assert_eq!(fill(&limiter).len(), 1);
        while limiter.view().limit < 16 {
            let queries: Vec<_> =
                fill(&limiter).into_iter().map(|pass| send(pass, at_ms)).collect();
            at_ms += 1_000;
            queries
                .into_iter()
                .for_each(|query| query.ended(Outcome::Answered, Nanos(at_ms * 1_000_000)));
            assert!(at_ms < 10_000_000);
        }
        assert_eq!(fill(&limiter).len(), 16);
        assert_eq!(limiter.view().in_flight, 0);
    }
}
