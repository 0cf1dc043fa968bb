//! Circuit breaker of the source: asked before each read, informed after it, and consulted by each
//! miss.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hotrow_admission::breaker::{Breaker, Cause, Config, Outcome, State, Ticket, Transition};
use hotrow_answer::collections::Collections;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::retry_after::whole_seconds;
use hotrow_cache::Cache;
use hotrow_measure::clock::Nanos;
use hotrow_source::{ReadFailure, SourceError};
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::source::SourceId;
use parking_lot::Mutex;

/// Breaker with its counters. On cache lines of its own, like the concurrency limiter.
#[repr(align(128))]
pub struct SourceBreaker {
    /// Its queued keys are answered when the breaker opens.
    cache: Arc<Cache<ReadFailure>>,
    collections: Arc<Collections>,
    /// The source, with its name for the log.
    source: (SourceId, String),
    /// `None` when disabled. Locked once before and once after a query, never by a hit.
    breaker: Mutex<Option<Breaker>>,
    /// Last result of [`Breaker::refuses_until`], so that a refused miss takes no lock.
    refuses_until_ns: AtomicU64,
    refused_keys: AtomicU64,
    /// By entered state.
    transitions: [AtomicU64; State::ALL.len()],
    random: RandomState,
    calls: AtomicU64,
    /// First key of the query that failed last, to be read again by a probe.
    failed_key: Mutex<Option<Key>>,
}

/// The right to send one query. Dropped without a result (a cancelled task), it says nothing about
/// the database.
pub struct Permit<'a> {
    breaker: &'a SourceBreaker,
    ticket: Option<Ticket>,
}

impl Permit<'_> {
    /// Records the result of the query.
    pub fn record<T>(mut self, result: &Result<T, SourceError>, now: Nanos) {
        self.ended(outcome(result), now);
    }

    fn ended(&mut self, outcome: Outcome, now: Nanos) {
        if let Some(ticket) = self.ticket.take() {
            self.breaker.ended(ticket, outcome, now);
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.ended(Outcome::Neutral, Nanos::now());
    }
}

impl SourceBreaker {
    /// Creates the closed breaker of a source.
    pub fn new(
        config: Option<Config>,
        cache: Arc<Cache<ReadFailure>>,
        collections: Arc<Collections>,
        source: (SourceId, String),
    ) -> Self {
        Self {
            cache,
            collections,
            source,
            breaker: Mutex::new(config.map(Breaker::new)),
            refuses_until_ns: AtomicU64::new(0),
            refused_keys: AtomicU64::new(0),
            transitions: Default::default(),
            random: RandomState::new(),
            calls: AtomicU64::new(0),
            failed_key: Mutex::default(),
        }
    }

    /// Asks for the right to send a query.
    ///
    /// # Errors
    /// [`ReadFailure::CircuitOpen`] when none may be sent.
    pub fn ask(&self, now: Nanos) -> Result<Permit<'_>, ReadFailure> {
        let (asked, transition) = {
            let mut breaker = self.breaker.lock();
            let Some(breaker) = &mut *breaker else {
                return Ok(Permit { breaker: self, ticket: None });
            };
            let asked = breaker.ask(now);
            self.note(breaker);
            asked
        };
        transition.iter().for_each(|transition| self.on_transition(transition));
        match asked {
            Ok(ticket) => Ok(Permit { breaker: self, ticket: Some(ticket) }),
            Err(refused) => {
                Err(ReadFailure::CircuitOpen { retry_after_s: retry_after_s(refused.retry_after) })
            }
        }
    }

    fn ended(&self, ticket: Ticket, outcome: Outcome, now: Nanos) {
        let random = self.random.hash_one(self.calls.fetch_add(1, Ordering::Relaxed));
        let transition = {
            let mut breaker = self.breaker.lock();
            let Some(breaker) = &mut *breaker else { return };
            let transition = breaker.record(ticket, outcome, now, random);
            self.note(breaker);
            transition
        };
        transition.iter().for_each(|transition| self.on_transition(transition));
    }

    /// Returns whether reads would be refused at `now`.
    pub fn refuses(&self, now: Nanos) -> bool {
        now.0 < self.refuses_until_ns.load(Ordering::Relaxed)
    }

    /// Checks whether reads of `keys` keys may be queued.
    ///
    /// # Errors
    /// [`HttpError::CircuitOpen`] when they would be refused.
    pub fn admit(&self, keys: usize, now: Nanos) -> Result<(), HttpError> {
        let until = Nanos(self.refuses_until_ns.load(Ordering::Relaxed));
        if now >= until {
            return Ok(());
        }
        self.refused_keys.fetch_add(keys as u64, Ordering::Relaxed);
        // While probes are in flight the time is unknown, but short.
        let left = if until == Nanos::MAX { Duration::ZERO } else { until.since(now) };
        Err(HttpError::CircuitOpen { retry_after_s: retry_after_s(left) })
    }

    /// Returns the state; closed when the breaker is disabled.
    pub fn state(&self, now: Nanos) -> State {
        self.breaker.lock().as_ref().map_or(State::Closed, |breaker| breaker.state(now))
    }

    /// Remembers `key` if the query that read it failed.
    pub fn note_failed_key<T>(&self, key: Option<Key>, result: &Result<T, SourceError>) {
        if let Some(key) = key.filter(|_| outcome(result) == Outcome::Failure) {
            *self.failed_key.lock() = Some(key);
        }
    }

    /// Returns a key of the query that failed last.
    pub(crate) fn failed_key(&self) -> Option<Key> {
        self.failed_key.lock().clone()
    }

    /// Starts anew, closed, with other settings; `None` disables it. The result of a query in
    /// flight may count.
    pub fn restart(&self, config: Option<Config>) {
        let mut breaker = self.breaker.lock();
        *breaker = config.map(Breaker::new);
        self.refuses_until_ns.store(0, Ordering::Relaxed);
    }

    /// Returns the number of keys refused by it.
    pub fn refused_total(&self) -> u64 {
        self.refused_keys.load(Ordering::Relaxed)
    }

    /// Returns how often each state was entered, in the order of [`State::ALL`].
    pub fn transitions_total(&self) -> [u64; State::ALL.len()] {
        self.transitions.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Answers all waiters of the collection whose query is not sent yet.
    pub(crate) fn give_up(&self, collection: CollectionId, failure: ReadFailure) {
        let keys = self.cache.give_up(collection, &failure);
        self.refused_keys.fetch_add(keys as u64, Ordering::Relaxed);
    }

    /// Called under the breaker's lock, so that no older value is stored last.
    fn note(&self, breaker: &Breaker) {
        self.refuses_until_ns.store(breaker.refuses_until().0, Ordering::Relaxed);
    }

    /// Counts and logs a transition, and answers all waiters whose query will not be sent.
    fn on_transition(&self, &Transition { to, cause, .. }: &Transition) {
        self.transitions[to as usize].fetch_add(1, Ordering::Relaxed);
        let (id, source) = (self.source.0, &*self.source.1);
        match cause {
            Cause::TimeOver => {
                tracing::info!(
                    source,
                    "circuit breaker half open: the next reads are probes of the database"
                )
            }
            Cause::ProbesSucceeded(probes) => {
                tracing::info!(
                    source,
                    probes,
                    "circuit breaker closed: the database answers again"
                );
            }
            Cause::FailuresInARow(failures, open_for) => {
                tracing::warn!(
                    source,
                    failures,
                    ?open_for,
                    "circuit breaker open: consecutive reads failed; reads are paused"
                );
            }
            Cause::FailureRate { failures, calls, open_for } => {
                tracing::warn!(
                    source,
                    failures,
                    calls,
                    ?open_for,
                    "circuit breaker open: too many reads failed; reads are paused"
                );
            }
            Cause::ProbeFailed(open_for) => {
                tracing::warn!(
                    source,
                    ?open_for,
                    "circuit breaker open: a probe failed; reads are paused again"
                );
            }
        }
        let (Cause::FailuresInARow(_, open_for)
        | Cause::FailureRate { open_for, .. }
        | Cause::ProbeFailed(open_for)) = cause
        else {
            return;
        };
        let failure = ReadFailure::CircuitOpen { retry_after_s: retry_after_s(open_for) };
        self.collections.of_source(id).for_each(|id| self.give_up(id, failure));
    }
}

/// A missing table or an unreadable row does not count: pausing reads would not repair it.
fn outcome<T>(result: &Result<T, SourceError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Success,
        Err(SourceError::Unavailable { .. } | SourceError::Timeout { .. }) => Outcome::Failure,
        Err(SourceError::Broken { .. } | SourceError::Data { .. }) => Outcome::Neutral,
    }
}

/// Order of the states of a breaker: the one that refuses most is the greatest.
pub fn badness(state: State) -> u8 {
    match state {
        State::Closed => 0,
        State::HalfOpen => 1,
        State::Open => 2,
    }
}

/// At least 1 second: a client that obeys finds the probe due.
fn retry_after_s(time: Duration) -> u32 {
    u32::try_from(whole_seconds(time).max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_round_up_and_are_never_none() {
        for (ms, s) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (30_000, 30)] {
            assert_eq!(retry_after_s(Duration::from_millis(ms)), s, "{ms} ms");
        }
        assert_eq!(retry_after_s(Duration::MAX), u32::MAX);
    }

    #[test]
    fn only_errors_that_a_pause_can_cure_count_as_failures() {
        let detail = String::new;
        let of = |error| outcome::<()>(&Err(error));
        assert_eq!(of(SourceError::Timeout { detail: detail() }), Outcome::Failure);
        assert_eq!(of(SourceError::Unavailable { detail: detail() }), Outcome::Failure);
        assert_eq!(of(SourceError::Broken { detail: detail() }), Outcome::Neutral);
        assert_eq!(of(SourceError::Data { detail: detail() }), Outcome::Neutral);
        assert_eq!(outcome(&Ok(())), Outcome::Success, "rows that cannot be read are within");
    }
}
