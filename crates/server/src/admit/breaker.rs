//! The circuit breaker of the source: asked before each read, told after it, and looked at by each miss.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hotrow_admit::breaker::{Breaker, Cause, Config, Outcome, State, Ticket, Transition};
use hotrow_cache::key::CollectionId;
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadError;
use parking_lot::Mutex;

use crate::problem::{Problem, whole_seconds};
use crate::shared::Shared;
use crate::trouble::Trouble;

/// The breaker with what is counted about it. On cache lines of its own, as the gate is.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct SourceBreaker {
    /// `None` when it is not wanted. Locked once before and once after a query, never by a hit.
    breaker: Option<Mutex<Breaker>>,
    /// What [`Breaker::refuses_until`] said last, so that a miss takes no lock to be refused.
    refuses_until_ns: AtomicU64,
    refused_keys: AtomicU64,
    /// By the state that was entered.
    transitions: [AtomicU64; State::ALL.len()],
    random: RandomState,
    calls: AtomicU64,
}

/// The right to send one query. Dropped untold (a cancelled task), it says nothing about the database.
pub(crate) struct Permit<'a> {
    shared: &'a Shared,
    ticket: Option<Ticket>,
}

/// Asks for the right to send a query.
///
/// # Errors
/// [`Trouble::LeftAlone`] when none may be sent.
pub(crate) fn ask(shared: &Shared, now: Nanos) -> Result<Permit<'_>, Trouble> {
    let own = &shared.breaker;
    let Some(breaker) = &own.breaker else { return Ok(Permit { shared, ticket: None }) };
    let (asked, transition) = {
        let mut breaker = breaker.lock();
        let asked = breaker.ask(now);
        own.note(&breaker);
        asked
    };
    transition.iter().for_each(|transition| took_place(shared, transition));
    asked
        .map(|ticket| Permit { shared, ticket: Some(ticket) })
        .map_err(|refused| Trouble::LeftAlone { retry_after_s: retry_after_s(refused.retry_after) })
}

impl Permit<'_> {
    /// Tells how the query ended.
    pub(crate) fn tell<T>(mut self, result: &Result<T, ReadError>, now: Nanos) {
        self.ended(outcome(result), now);
    }

    fn ended(&mut self, outcome: Outcome, now: Nanos) {
        let own = &self.shared.breaker;
        let (Some(ticket), Some(breaker)) = (self.ticket.take(), &own.breaker) else { return };
        let random = own.random.hash_one(own.calls.fetch_add(1, Ordering::Relaxed));
        let transition = {
            let mut breaker = breaker.lock();
            let transition = breaker.tell(ticket, outcome, now, random);
            own.note(&breaker);
            transition
        };
        transition.iter().for_each(|transition| took_place(self.shared, transition));
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.ended(Outcome::Neutral, Nanos::now());
    }
}

impl SourceBreaker {
    pub(crate) fn new(config: Option<Config>) -> Self {
        Self {
            breaker: config.map(|config| Mutex::new(Breaker::new(config))),
            refuses_until_ns: AtomicU64::new(0),
            refused_keys: AtomicU64::new(0),
            transitions: Default::default(),
            random: RandomState::new(),
            calls: AtomicU64::new(0),
        }
    }

    /// Whether reads would be refused at `now`.
    pub(crate) fn refuses(&self, now: Nanos) -> bool {
        now.0 < self.refuses_until_ns.load(Ordering::Relaxed)
    }

    /// Whether reads of so many keys may be queued.
    ///
    /// # Errors
    /// [`Problem::LeftAlone`] when they would be refused.
    pub(crate) fn admit(&self, keys: usize, now: Nanos) -> Result<(), Problem> {
        let until = Nanos(self.refuses_until_ns.load(Ordering::Relaxed));
        if now >= until {
            return Ok(());
        }
        self.refused_keys.fetch_add(keys as u64, Ordering::Relaxed);
        // While probes are under way nobody knows when; soon.
        let left = if until == Nanos::MAX { Duration::ZERO } else { until.since(now) };
        Err(Problem::LeftAlone { retry_after_s: retry_after_s(left) })
    }

    /// Closed where no breaker is wanted.
    pub(crate) fn state(&self, now: Nanos) -> State {
        self.breaker.as_ref().map_or(State::Closed, |breaker| breaker.lock().state(now))
    }

    /// Keys that were not read because of it.
    pub(crate) fn refused_total(&self) -> u64 {
        self.refused_keys.load(Ordering::Relaxed)
    }

    /// Times that each state was entered, in the order of [`State::ALL`].
    pub(crate) fn transitions_total(&self) -> [u64; State::ALL.len()] {
        self.transitions.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Counts keys that were queued and are answered without a read.
    pub(crate) fn gave_up(&self, keys: usize) {
        self.refused_keys.fetch_add(keys as u64, Ordering::Relaxed);
    }

    /// Under the breaker's lock, so that no older reading comes last.
    fn note(&self, breaker: &Breaker) {
        self.refuses_until_ns.store(breaker.refuses_until().0, Ordering::Relaxed);
    }
}

/// Counts a transition, tells the log (this once), and answers all who wait for a query that will not be sent.
fn took_place(shared: &Shared, &Transition { to, cause, .. }: &Transition) {
    shared.breaker.transitions[to as usize].fetch_add(1, Ordering::Relaxed);
    match cause {
        Cause::TimeOver => tracing::info!("circuit breaker half open: the next reads are probes of the database"),
        Cause::ProbesSucceeded(probes) => {
            tracing::info!(probes, "circuit breaker closed: the database answers again");
        }
        Cause::FailuresInARow(failures, open_for) => {
            tracing::warn!(
                failures,
                ?open_for,
                "circuit breaker open: reads failed in a row; the database is left alone"
            );
        }
        Cause::FailureRate { failures, calls, open_for } => {
            tracing::warn!(
                failures,
                calls,
                ?open_for,
                "circuit breaker open: too many reads failed; the database is left alone"
            );
        }
        Cause::ProbeFailed(open_for) => {
            tracing::warn!(?open_for, "circuit breaker open: a probe failed; the database is left alone again");
        }
    }
    let (Cause::FailuresInARow(_, open_for) | Cause::FailureRate { open_for, .. } | Cause::ProbeFailed(open_for)) =
        cause
    else {
        return;
    };
    let trouble = Trouble::LeftAlone { retry_after_s: retry_after_s(open_for) };
    // At most 1,000 collections: see the configuration.
    (0..shared.collections.len()).for_each(|i| give_up(shared, CollectionId(i as u16), trouble));
}

/// Answers all who wait for a query of the collection that is not sent yet.
pub(crate) fn give_up(shared: &Shared, collection: CollectionId, trouble: Trouble) {
    shared.breaker.gave_up(shared.cache.give_up(collection, &trouble));
}

/// A missing table, like a row that cannot be read, is nothing that leaving the database alone would mend.
fn outcome<T>(result: &Result<T, ReadError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Success,
        Err(ReadError::Unavailable { .. } | ReadError::Timeout { .. }) => Outcome::Failure,
        Err(ReadError::Broken { .. }) => Outcome::Neutral,
    }
}

/// At least 1 second: a client that comes back as told finds the probe due.
fn retry_after_s(time: Duration) -> u32 {
    u32::try_from(whole_seconds(time).max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
