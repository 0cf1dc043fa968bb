//! Circuit breaker for a database that fails.
//!
//! The pattern of Michael Nygard (*Release It!*, 2007) with the rules that Resilience4j and Envoy
//! publish: it opens after consecutive failures, or when too large a share of the calls in a
//! sliding window failed. While it is open nothing is called. Then a few calls pass as probes, and
//! their success closes it. One breaker guards one database.
//!
//! Call [`Breaker::ask`] before each call and [`Breaker::record`] after it. Each change of state is
//! returned as a [`Transition`], so that the caller logs it once.

mod window;

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use self::window::Window;

/// Settings of one breaker.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Consecutive failures that open it; at least 1.
    pub failures: u32,
    /// Sliding window for the share of failed calls.
    pub window: Duration,
    /// Share of failed calls that opens it, above 0 and up to 1.
    pub failure_rate: f64,
    /// Calls in the window below which the share is ignored; at least 1.
    pub calls_min: u32,
    /// Time for which it stays open the first time, before jitter.
    pub open_for: Duration,
    /// Bound of that time, which doubles with each failed probe.
    pub open_for_max: Duration,
    /// Calls that pass as probes, all of which must succeed; at least 1.
    pub probes: u32,
}

/// State of a breaker: which calls pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Every call.
    Closed,
    /// None.
    Open,
    /// A few, to test whether the database works again.
    HalfOpen,
}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// Returns the state as metrics and documents name it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The database answered.
    Success,
    /// It failed or timed out.
    Failure,
    /// The call says nothing about the database: it was cancelled, or could not have worked on any.
    Neutral,
}

/// A call that passed; its result is recorded exactly once.
#[derive(Debug)]
#[must_use = "a call without a recorded result holds its probe for ever"]
pub struct Ticket {
    generation: u64,
}

/// A call that must not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Time until the next probe is due; zero while probes are in flight.
    pub retry_after: Duration,
}

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transition {
    /// The state before.
    pub from: State,
    /// The state now.
    pub to: State,
    /// Cause of the change.
    pub cause: Cause,
}

/// Cause of a change of state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// Number of consecutive failures, and the time for which it stays open.
    FailuresInARow(u32, Duration),
    /// Too large a share of the calls in the window failed.
    FailureRate {
        /// Failed calls.
        failures: u32,
        /// All calls.
        calls: u32,
        /// Time for which it stays open.
        open_for: Duration,
    },
    /// A probe failed; with the time for which it stays open.
    ProbeFailed(Duration),
    /// It was open long enough.
    TimeOver,
    /// All probes succeeded, with their number.
    ProbesSucceeded(u32),
}

#[derive(Debug)]
enum Phase {
    Closed { failed_in_a_row: u32 },
    Open { until: Nanos },
    HalfOpen { in_flight: u32, succeeded: u32 },
}

/// A circuit breaker.
#[derive(Debug)]
pub struct Breaker {
    config: Config,
    phase: Phase,
    window: Window,
    /// Raised by every transition: the result of a call from before it is ignored.
    generation: u64,
    /// Times that it opened since it was last closed.
    openings: u32,
}

impl Breaker {
    /// Creates a closed breaker that remembers no calls.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let window = Window::new(config.window);
        Self {
            config,
            phase: Phase::Closed { failed_in_a_row: 0 },
            window,
            generation: 0,
            openings: 0,
        }
    }

    /// Returns whether a call may be made at `now`. An open breaker whose time is over becomes
    /// half-open.
    ///
    /// # Errors
    /// [`Refused`] when the call must not be made.
    pub fn ask(&mut self, now: Nanos) -> (Result<Ticket, Refused>, Option<Transition>) {
        let mut transition = None;
        if let Phase::Open { until } = self.phase {
            if now < until {
                return (Err(Refused { retry_after: until.since(now) }), None);
            }
            transition =
                Some(self.enter(Phase::HalfOpen { in_flight: 0, succeeded: 0 }, Cause::TimeOver));
        }
        if let Phase::HalfOpen { in_flight, succeeded } = &mut self.phase {
            if *in_flight + *succeeded >= self.config.probes {
                return (Err(Refused { retry_after: Duration::ZERO }), transition);
            }
            *in_flight += 1;
        }
        (Ok(Ticket { generation: self.generation }), transition)
    }

    /// Records the result of a call. Consumes its ticket, so that no result is recorded twice.
    /// `random`, evenly distributed, sets the jitter of the time for which the breaker opens.
    pub fn record(
        &mut self,
        Ticket { generation }: Ticket,
        outcome: Outcome,
        now: Nanos,
        random: u64,
    ) -> Option<Transition> {
        if generation != self.generation {
            return None;
        }
        match &mut self.phase {
            // No tickets are issued while it is open.
            Phase::Open { .. } => None,
            Phase::Closed { failed_in_a_row } => {
                match outcome {
                    Outcome::Neutral => return None,
                    Outcome::Success => *failed_in_a_row = 0,
                    Outcome::Failure => *failed_in_a_row = failed_in_a_row.saturating_add(1),
                }
                let failed_in_a_row = *failed_in_a_row;
                self.window.note(outcome == Outcome::Failure, now);
                (outcome == Outcome::Failure)
                    .then(|| self.judge(failed_in_a_row, now, random))
                    .flatten()
            }
            Phase::HalfOpen { in_flight, succeeded } => {
                *in_flight -= 1;
                match outcome {
                    Outcome::Neutral => None,
                    Outcome::Failure => Some(self.open(now, random, Cause::ProbeFailed)),
                    Outcome::Success => {
                        *succeeded += 1;
                        (*succeeded >= self.config.probes).then(|| self.close())
                    }
                }
            }
        }
    }

    /// Returns the state at `now`. An open breaker whose time is over counts as half-open, because
    /// it lets the next call pass.
    pub fn state(&self, now: Nanos) -> State {
        match self.phase {
            Phase::Closed { .. } => State::Closed,
            Phase::Open { until } if now < until => State::Open,
            Phase::Open { .. } | Phase::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// Returns the time before which every call would be refused: [`Nanos::ZERO`] when the next one
    /// passes, [`Nanos::MAX`] while all probes are in flight.
    pub fn refuses_until(&self) -> Nanos {
        match self.phase {
            Phase::Closed { .. } => Nanos::ZERO,
            Phase::Open { until } => until,
            Phase::HalfOpen { in_flight, succeeded }
                if in_flight + succeeded >= self.config.probes =>
            {
                Nanos::MAX
            }
            Phase::HalfOpen { .. } => Nanos::ZERO,
        }
    }

    /// Opens the breaker when its rules say so after a failure.
    fn judge(&mut self, failed_in_a_row: u32, now: Nanos, random: u64) -> Option<Transition> {
        if failed_in_a_row >= self.config.failures {
            return Some(
                self.open(now, random, |open_for| Cause::FailuresInARow(failed_in_a_row, open_for)),
            );
        }
        let (failures, calls) = self.window.sum(now);
        let enough = calls >= self.config.calls_min;
        let too_many = f64::from(failures) >= self.config.failure_rate * f64::from(calls);
        (enough && too_many).then(|| {
            self.open(now, random, |open_for| Cause::FailureRate { failures, calls, open_for })
        })
    }

    fn open(
        &mut self,
        now: Nanos,
        random: u64,
        cause: impl FnOnce(Duration) -> Cause,
    ) -> Transition {
        let open_for = self.pause(random);
        self.openings = self.openings.saturating_add(1);
        self.enter(Phase::Open { until: now.after(open_for) }, cause(open_for))
    }

    fn close(&mut self) -> Transition {
        self.openings = 0;
        self.window.clear();
        self.enter(Phase::Closed { failed_in_a_row: 0 }, Cause::ProbesSucceeded(self.config.probes))
    }

    fn enter(&mut self, phase: Phase, cause: Cause) -> Transition {
        let from = self.phase.state();
        self.phase = phase;
        self.generation += 1;
        Transition { from, to: self.phase.state(), cause }
    }

    /// Returns the time for which it opens: twice as long each time up to the bound, then a random
    /// part between half and all of that, so that the instances of a service do not probe together
    /// ("equal jitter", Marc Brooker, *Exponential Backoff and Jitter*, AWS 2015).
    fn pause(&self, random: u64) -> Duration {
        let doubled = self
            .config
            .open_for
            .saturating_mul(1_u32.checked_shl(self.openings).unwrap_or(u32::MAX));
        let pause = doubled.min(self.config.open_for_max);
        // The upper 53 bits as a fraction of 0 to 1.
        let unit = (random >> 11) as f64 / (1_u64 << 53) as f64;
        pause.mul_f64(1.0 - unit / 2.0)
    }
}

impl Phase {
    fn state(&self) -> State {
        match self {
            Self::Closed { .. } => State::Closed,
            Self::Open { .. } => State::Open,
            Self::HalfOpen { .. } => State::HalfOpen,
        }
    }
}

#[cfg(test)]
mod tests;
