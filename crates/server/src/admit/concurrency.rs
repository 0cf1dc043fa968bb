//! The gate before the source: each query passes it, and it is as wide as `hotrow_admit`'s limit says.
//!
//! Turns of all collections wait here in order, without leases and without keys: what is asked for meanwhile goes with
//! them. So a query is put together when it may be sent, and the database sees no more than the limit at once.

use std::time::Duration;

use hotrow_admit::concurrency::limit::{Config, Kind, Limiter, Outcome, Sample};
use hotrow_cache::key::CollectionId;
use hotrow_measure::clock::Nanos;
use hotrow_measure::histogram::Histogram;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The gate of one source. On cache lines of its own: it stands beside what every hit reads, and each query writes it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Gate {
    permits: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limiter: Limiter,
    /// The limit that the permits stand for.
    width: usize,
    /// Permits that are in use and go when they come back, because the limit fell meanwhile.
    owed: usize,
    in_flight: usize,
    sent: u64,
    waited_ns: Histogram,
}

/// The gate at one moment.
#[derive(Debug)]
pub(crate) struct View {
    /// How the limit is found.
    pub(crate) kind: Kind,
    /// Queries that may be under way.
    pub(crate) limit: usize,
    /// Queries that are.
    pub(crate) in_flight: usize,
    /// Times that latency was measured one query at a time.
    pub(crate) probes_total: u64,
    /// Of each query the longest wait of its keys, in nanoseconds.
    pub(crate) waited_ns: Histogram,
}

impl Gate {
    /// As wide as `config.max` at first.
    pub(crate) fn new(config: Config, collections: usize) -> Self {
        let limiter = Limiter::new(config, collections);
        let width = limiter.limit();
        let state = State { limiter, width, owed: 0, in_flight: 0, sent: 0, waited_ns: Histogram::default() };
        Self { permits: Semaphore::new(width), state: Mutex::new(state) }
    }

    /// Waits until a query may be sent.
    pub(crate) async fn enter(&self) -> Pass<'_> {
        // The semaphore is never closed; without a permit the pass gives none back.
        let permit = self.permits.acquire().await.ok();
        Pass { gate: self, permit }
    }

    pub(crate) fn view(&self) -> View {
        let state = self.state.lock();
        View {
            kind: state.limiter.kind(),
            limit: state.limiter.limit(),
            in_flight: state.in_flight,
            probes_total: state.limiter.probes_total(),
            waited_ns: state.waited_ns.clone(),
        }
    }

    /// Fits the permits to the limit.
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

/// The right to send one query; given back when dropped.
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    permit: Option<SemaphorePermit<'a>>,
}

impl<'a> Pass<'a> {
    /// The query is sent now. `waited`: the longest wait of its keys.
    pub(crate) fn send(self, CollectionId(id): CollectionId, keys: usize, waited: Duration, now: Nanos) -> Query<'a> {
        let mut state = self.gate.state.lock();
        state.waited_ns.record(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
        state.in_flight += 1;
        state.sent += 1;
        let (in_flight, number) = (state.in_flight, state.sent);
        drop(state);
        Query { pass: self, collection: usize::from(id), keys, sent_at: now, in_flight, number }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        let mut state = self.gate.state.lock();
        if state.owed > 0 {
            state.owed -= 1;
            permit.forget();
        } else {
            // Wakes whoever is next, which is not ours to do under a lock.
            drop(state);
            drop(permit);
        }
    }
}

/// A query under way. One that is dropped was given up: nothing is learnt from it.
pub(crate) struct Query<'a> {
    pass: Pass<'a>,
    collection: usize,
    keys: usize,
    sent_at: Nanos,
    in_flight: usize,
    /// Queries sent up to this one.
    number: u64,
}

impl Query<'_> {
    /// It has come back.
    pub(crate) fn ended(self, outcome: Outcome, now: Nanos) {
        let gate = self.pass.gate;
        let mut state = gate.state.lock();
        let sample = Sample {
            collection: self.collection,
            keys: self.keys,
            latency: now.since(self.sent_at),
            outcome,
            in_flight: self.in_flight,
            alone: self.in_flight == 1 && state.sent == self.number,
        };
        state.limiter.record(&sample, now);
        gate.fit(&mut state);
        drop(state);
        drop(self);
    }
}

impl Drop for Query<'_> {
    fn drop(&mut self) {
        self.pass.gate.state.lock().in_flight -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn gate(kind: Kind, max: usize) -> Gate {
        Gate::new(Config { kind, max, tolerance: 2.0, probe_interval: Duration::from_secs(3600) }, 1)
    }

    fn try_enter(gate: &Gate) -> Option<Pass<'_>> {
        match pin!(gate.enter()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(pass) => Some(pass),
            Poll::Pending => None,
        }
    }

    fn fill(gate: &Gate) -> Vec<Pass<'_>> {
        std::iter::from_fn(|| try_enter(gate)).collect()
    }

    fn send(pass: Pass<'_>, at_ms: u64) -> Query<'_> {
        pass.send(CollectionId(0), 1, Duration::ZERO, Nanos(at_ms * 1_000_000))
    }

    #[test]
    fn as_many_pass_as_the_limit_says_and_each_gives_its_place_back() {
        let gate = gate(Kind::Fixed, 3);
        let mut passes = fill(&gate);
        assert_eq!(passes.len(), 3);
        drop(passes.pop());
        let given_up = send(try_enter(&gate).unwrap(), 0);
        assert!(try_enter(&gate).is_none());
        assert_eq!(gate.view().in_flight, 1);
        drop(given_up);
        let query = send(try_enter(&gate).unwrap(), 0);
        query.ended(Outcome::Answered, Nanos(1));
        drop(passes);
        assert_eq!((fill(&gate).len(), gate.view().in_flight), (3, 0));
    }

    #[test]
    fn a_limit_that_falls_takes_permits_when_they_come_back_and_one_that_rises_gives_them_again() {
        let gate = gate(Kind::Aimd, 16);
        let mut at_ms = 0;
        // All time out until the limit is 1.
        while gate.view().limit > 1 {
            let queries: Vec<_> = fill(&gate).into_iter().map(|pass| send(pass, at_ms)).collect();
            assert_eq!(queries.len(), gate.view().limit);
            at_ms += 1_000;
            queries.into_iter().for_each(|query| query.ended(Outcome::TimedOut, Nanos(at_ms * 1_000_000)));
            assert!(at_ms < 1_000_000);
        }
        assert_eq!(fill(&gate).len(), 1);
        while gate.view().limit < 16 {
            let queries: Vec<_> = fill(&gate).into_iter().map(|pass| send(pass, at_ms)).collect();
            at_ms += 1_000;
            queries.into_iter().for_each(|query| query.ended(Outcome::Answered, Nanos(at_ms * 1_000_000)));
            assert!(at_ms < 10_000_000);
        }
        assert_eq!(fill(&gate).len(), 16);
        assert_eq!(gate.view().in_flight, 0);
    }
}
