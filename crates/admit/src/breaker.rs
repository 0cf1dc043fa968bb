//! When a database that fails is left alone for a while.
//!
//! A circuit breaker (Michael Nygard, *Release It!*, 2007) with the rules that Resilience4j and Envoy publish for theirs: it opens
//! after failures in a row, or when too large a share of the calls in a sliding window failed; while it is open nothing is
//! called; then a few calls are let through as probes, and their success closes it. One breaker guards one database.
//!
//! [`Breaker::ask`] before each call, [`Breaker::tell`] after it. Whatever changes its state is returned as a
//! [`Transition`], so that the caller can log it once.

mod window;

use std::time::Duration;

use hotrow_measure::clock::Nanos;

use self::window::Window;

/// Settings of one breaker.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Failures in a row that open it; at least 1.
    pub failures: u32,
    /// The sliding window over which the share of failed calls is taken.
    pub window: Duration,
    /// Share of failed calls that opens it, above 0 and up to 1.
    pub failure_rate: f64,
    /// Calls in the window below which the share says nothing; at least 1.
    pub calls_min: u32,
    /// How long it stays open the first time, before jitter.
    pub open_for: Duration,
    /// Bound of that time, which doubles each time that a probe fails.
    pub open_for_max: Duration,
    /// Calls let through as probes, and how many of them must succeed: all; at least 1.
    pub probes: u32,
}

/// What the breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Every call.
    Closed,
    /// None.
    Open,
    /// A few, to see whether the database works again.
    HalfOpen,
}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// The state as metrics and documents name it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The database answered.
    Success,
    /// It did not, or not in time.
    Failure,
    /// The call says nothing about the database: it was cancelled, or could not have worked with any.
    Neutral,
}

/// A call that was let through; told of exactly once.
#[derive(Debug)]
#[must_use = "a call that is not told of keeps its place among the probes for ever"]
pub struct Ticket {
    generation: u64,
}

/// A call that must not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Time until the next probe is due; zero while probes are under way.
    pub retry_after: Duration,
}

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transition {
    /// The state before.
    pub from: State,
    /// The state now.
    pub to: State,
    /// What brought it about.
    pub cause: Cause,
}

/// Why the state changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// So many calls failed in a row; it stays open for that long.
    FailuresInARow(u32, Duration),
    /// So many of so many calls in the window failed; it stays open for that long.
    FailureRate {
        /// Failed calls.
        failures: u32,
        /// All calls.
        calls: u32,
        /// How long it stays open.
        open_for: Duration,
    },
    /// A probe failed; it stays open for that long.
    ProbeFailed(Duration),
    /// It was open long enough.
    TimeOver,
    /// So many probes succeeded.
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
    /// Grows with every transition: what is told of a call of before says nothing about now.
    generation: u64,
    /// Times that it opened since it was last closed.
    openings: u32,
}

impl Breaker {
    /// Closed, with no calls remembered.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let window = Window::new(config.window);
        Self { config, phase: Phase::Closed { failed_in_a_row: 0 }, window, generation: 0, openings: 0 }
    }

    /// Whether a call may be made at `now`. An open breaker whose time is over becomes half-open by this.
    ///
    /// # Errors
    /// [`Refused`] when the call must not be made.
    pub fn ask(&mut self, now: Nanos) -> (Result<Ticket, Refused>, Option<Transition>) {
        let mut transition = None;
        if let Phase::Open { until } = self.phase {
            if now < until {
                return (Err(Refused { retry_after: until.since(now) }), None);
            }
            transition = Some(self.enter(Phase::HalfOpen { in_flight: 0, succeeded: 0 }, Cause::TimeOver));
        }
        if let Phase::HalfOpen { in_flight, succeeded } = &mut self.phase {
            if *in_flight + *succeeded >= self.config.probes {
                return (Err(Refused { retry_after: Duration::ZERO }), transition);
            }
            *in_flight += 1;
        }
        (Ok(Ticket { generation: self.generation }), transition)
    }

    /// Takes in how a call ended; its ticket goes with it, so that nobody tells twice. `random`, evenly distributed, sets the
    /// jitter of the time for which the breaker opens.
    pub fn tell(
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
            // No tickets are given while it is open.
            Phase::Open { .. } => None,
            Phase::Closed { failed_in_a_row } => {
                match outcome {
                    Outcome::Neutral => return None,
                    Outcome::Success => *failed_in_a_row = 0,
                    Outcome::Failure => *failed_in_a_row = failed_in_a_row.saturating_add(1),
                }
                let failed_in_a_row = *failed_in_a_row;
                self.window.note(outcome == Outcome::Failure, now);
                (outcome == Outcome::Failure).then(|| self.judge(failed_in_a_row, now, random)).flatten()
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

    /// The state at `now`: an open breaker whose time is over counts as half-open, for it lets the next call through.
    #[must_use]
    pub fn state(&self, now: Nanos) -> State {
        match self.phase {
            Phase::Closed { .. } => State::Closed,
            Phase::Open { until } if now < until => State::Open,
            Phase::Open { .. } | Phase::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// Every call before this point in time would be refused, as things stand: [`Nanos::ZERO`] when the next one is let through,
    /// [`Nanos::MAX`] while all probes are under way.
    #[must_use]
    pub fn refuses_until(&self) -> Nanos {
        match self.phase {
            Phase::Closed { .. } => Nanos::ZERO,
            Phase::Open { until } => until,
            Phase::HalfOpen { in_flight, succeeded } if in_flight + succeeded >= self.config.probes => Nanos::MAX,
            Phase::HalfOpen { .. } => Nanos::ZERO,
        }
    }

    /// Opens it when its rules say so after a failure.
    fn judge(&mut self, failed_in_a_row: u32, now: Nanos, random: u64) -> Option<Transition> {
        if failed_in_a_row >= self.config.failures {
            return Some(self.open(now, random, |open_for| Cause::FailuresInARow(failed_in_a_row, open_for)));
        }
        let (failures, calls) = self.window.sum(now);
        let enough = calls >= self.config.calls_min;
        let too_many = f64::from(failures) >= self.config.failure_rate * f64::from(calls);
        (enough && too_many)
            .then(|| self.open(now, random, |open_for| Cause::FailureRate { failures, calls, open_for }))
    }

    fn open(&mut self, now: Nanos, random: u64, cause: impl FnOnce(Duration) -> Cause) -> Transition {
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

    /// How long it opens: twice as long each time, up to the bound, and between half and all of that, so that the instances of a
    /// service do not probe together ("equal jitter", Marc Brooker, *Exponential Backoff and Jitter*, AWS 2015).
    fn pause(&self, random: u64) -> Duration {
        let doubled = self.config.open_for.saturating_mul(1_u32.checked_shl(self.openings).unwrap_or(u32::MAX));
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
