//! Admission of one instance: circuit breaker, concurrency limit and rate limit, as the server asks
//! them. Their promises are checked where they are asked.

use hotrow_admission::breaker::{Breaker, Outcome, State, Ticket};
use hotrow_admission::concurrency::limit::{self, Limiter, Sample};
use hotrow_admission::rate::gcra::Gcra;
use hotrow_admission::rate::meter::Meter;
use hotrow_admission::rate::{Cell, Decision};
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;

use crate::settings::Settings;
use crate::slab::SlabId;

/// Error of reads while the circuit breaker is open.
pub(crate) const CIRCUIT_OPEN: ReadFailure = ReadFailure::CircuitOpen { retry_after_s: 1 };

/// Admission of one instance.
pub(crate) struct Admission {
    breaker: Option<Breaker>,
    limiter: Limiter,
    in_flight: usize,
    sent: u64,
    /// Loaders that wait until a query may be sent.
    pub(crate) waiting: Vec<SlabId>,
    rate: Option<(Gcra, Cell)>,
    /// Units admitted by the rate limit, and the time of the first.
    admitted: (u64, Option<Nanos>),
}

/// The right to send one query.
#[derive(Debug)]
pub(crate) struct Permit {
    ticket: Option<Ticket>,
    sent_at: Nanos,
    in_flight: usize,
    /// Number of the query; no later one was sent while it was alone.
    number: u64,
}

/// Reason for which no query may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotNow {
    /// As many queries as allowed are in flight.
    Busy,
    /// The circuit is open.
    CircuitOpen,
}

impl Admission {
    pub(crate) fn new(settings: &Settings, collections: usize, now: Nanos) -> Self {
        let rate = settings.rate.map(|(rate, burst)| {
            (Gcra(Meter::new(rate, burst, std::time::Duration::ZERO, now)), Cell::default())
        });
        Self {
            breaker: settings.breaker.clone().map(Breaker::new),
            limiter: Limiter::new(settings.limiter, collections),
            in_flight: 0,
            sent: 0,
            waiting: Vec::new(),
            rate,
            admitted: (0, None),
        }
    }

    /// Asks for the right to send a query.
    ///
    /// # Errors
    /// The reason for which none may be sent.
    pub(crate) fn ask(&mut self, now: Nanos) -> Result<Permit, NotNow> {
        if self.in_flight >= self.limiter.limit() {
            return Err(NotNow::Busy);
        }
        let ticket = match &mut self.breaker {
            Some(breaker) => Some(breaker.ask(now).0.map_err(|_| NotNow::CircuitOpen)?),
            None => None,
        };
        self.in_flight += 1;
        self.sent += 1;
        Ok(Permit { ticket, sent_at: now, in_flight: self.in_flight, number: self.sent })
    }

    /// Returns the permit of a query that was not sent, or that was cancelled.
    pub(crate) fn give_back(&mut self, permit: Permit, now: Nanos, random: u64) {
        self.in_flight -= 1;
        if let (Some(ticket), Some(breaker)) = (permit.ticket, &mut self.breaker) {
            breaker.record(ticket, Outcome::Neutral, now, random);
        }
    }

    /// Records how a query ended. Returns whether the breaker opened.
    pub(crate) fn record(
        &mut self,
        permit: Permit,
        query: (usize, usize),
        failure: Option<ReadFailure>,
        now: Nanos,
        random: u64,
    ) -> bool {
        self.in_flight -= 1;
        let (collection, keys) = query;
        let sample = Sample {
            collection,
            keys,
            latency: now.since(permit.sent_at),
            outcome: match failure {
                None => limit::Outcome::Answered,
                Some(ReadFailure::Timeout) => limit::Outcome::TimedOut,
                Some(_) => limit::Outcome::Failed,
            },
            in_flight: permit.in_flight,
            alone: permit.in_flight == 1 && permit.number == self.sent,
        };
        self.limiter.record(&sample, now);
        let outcome = if failure.is_some() { Outcome::Failure } else { Outcome::Success };
        let (Some(ticket), Some(breaker)) = (permit.ticket, &mut self.breaker) else {
            return false;
        };
        let transition = breaker.record(ticket, outcome, now, random);
        transition.is_some_and(|transition| transition.to == State::Open)
    }

    /// Returns whether reads would be refused at `now`, without asking for one.
    pub(crate) fn refuses(&self, now: Nanos) -> bool {
        self.breaker.as_ref().is_some_and(|breaker| now < breaker.refuses_until())
    }

    /// Returns whether a client's request is within its rate.
    ///
    /// # Errors
    /// When more was admitted than rate and burst allow.
    pub(crate) fn is_within_rate(
        &mut self,
        settings: &Settings,
        now: Nanos,
    ) -> Result<bool, String> {
        let (Some((policy, cell)), Some((rate, burst))) = (&self.rate, settings.rate) else {
            return Ok(true);
        };
        if !matches!(cell.decide(policy, 1, now), Decision::Admitted { .. }) {
            return Ok(false);
        }
        let since = *self.admitted.1.get_or_insert(now);
        self.admitted.0 += 1;
        let units = now.since(since).as_secs_f64() * 1e9 * f64::from(rate.units())
            / rate.period().nanos() as f64;
        // One unit is admitted at the very start, and one may be due at this moment.
        if self.admitted.0 as f64 > units + f64::from(burst) + 1.0 {
            return Err(format!("{} requests admitted, {units} due", self.admitted.0));
        }
        Ok(true)
    }

    /// Returns the queries in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }
}
