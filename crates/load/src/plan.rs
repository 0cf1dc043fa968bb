//! Which request is intended when. A plan knows no connection and reads no clock.
//!
//! Closed loop: whoever is free sends now. Open loop: one schedule of slots over all connections, whatever the target
//! does; a slot that nobody could take in time stays intended for its time, and is late.
//!
//! With several threads the slots of the one schedule are dealt out in turn (thread t of T owns the slots t, t + T, …)
//! rather than taken from a shared counter: nothing is shared while running, each thread sleeps until its own next slot
//! instead of all waking for every slot, and a run repeats exactly. The price: a free connection of one thread cannot
//! take a slot of another. Connections are dealt out evenly too, so it shows only when a thread stands still, and then
//! as lag.

use std::time::Duration;

use crate::random::Random;

/// The fastest open-loop rate that is accepted, in requests per second.
pub const RATE_MAX: f64 = 10_000_000.0;
/// The slowest, in requests per second: about one a day.
pub const RATE_MIN: f64 = 0.000_01;
/// The longest warm-up or duration: a week.
pub const DURATION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Stream of the seed that makes arrival times; every thread walks the same one.
const ARRIVAL_STREAM: u64 = u64::MAX;
/// A slot this near to the end of the warm-up, in requests, is at its end: what floating-point numbers leave.
const ROUNDING_X: f64 = 1e-6;
/// Slots that are never sent are walked one by one up to this number; beyond, each one walked stands for several.
const UNSENT_WALKED_MAX: f64 = 1_000_000.0;

/// What is intended, for all threads together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// When requests are intended.
    pub pace: Pace,
    /// Time before the measurement in which requests are sent but not counted.
    pub warmup: Duration,
    /// When it ends.
    pub extent: Extent,
    /// Repeats the arrival times of a Poisson schedule.
    pub seed: u64,
}

/// When requests are intended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each connection sends its next request when the answer to the last is complete.
    Closed,
    /// Requests are intended at times that do not depend on the target.
    Open {
        /// Requests per second.
        rate: Rate,
        /// How they are spaced.
        arrivals: Arrivals,
    },
}

/// Requests per second, between [`RATE_MIN`] and [`RATE_MAX`], rising or falling evenly over the duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    from: f64,
    to: f64,
}

/// How requests are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly.
    Uniform,
    /// As a Poisson process: as many independent users would.
    Poisson,
}

/// When a run ends: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length of the measurement, without the warm-up.
    pub duration: Option<Duration>,
    /// Requests, without those of the warm-up.
    pub requests: Option<u64>,
}

/// What is wrong with a plan.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The rate is no number that can be kept.
    #[error(
        "a rate of {0} requests per second is not possible; it must lie between {RATE_MIN} and {RATE_MAX}: leave --rate out for as fast as possible"
    )]
    Rate(f64),
    /// A ramp without a length.
    #[error("a ramp needs to know how long it takes; add --duration")]
    RampWithoutDuration,
    /// Nothing ends it.
    #[error("nothing ends this run; give a duration, a number of requests, or both, greater than zero")]
    Endless,
    /// Longer than [`DURATION_MAX`].
    #[error("{0:?} is too long; duration and warm-up may be a week at most")]
    TooLong(Duration),
}

impl Rate {
    /// A rate that goes from `from` to `to`; the same value twice is a constant rate.
    ///
    /// # Errors
    /// When either is outside [`RATE_MIN`]..=[`RATE_MAX`] or not a number.
    pub fn new(from: f64, to: f64) -> Result<Self, PlanError> {
        for rate in [from, to] {
            if !(RATE_MIN..=RATE_MAX).contains(&rate) {
                return Err(PlanError::Rate(rate));
            }
        }
        Ok(Self { from, to })
    }

    /// Requests per second at the beginning (and all through the warm-up).
    #[must_use]
    pub fn from(self) -> f64 {
        self.from
    }

    /// Requests per second at the end.
    #[must_use]
    pub fn to(self) -> f64 {
        self.to
    }

    /// Requests per second on average.
    #[must_use]
    pub fn mean(self) -> f64 {
        f64::midpoint(self.from, self.to)
    }
}

impl Plan {
    /// Refuses what cannot be carried out.
    ///
    /// # Errors
    /// What is wrong, with what to do.
    pub fn check(&self) -> Result<(), PlanError> {
        let Extent { duration, requests } = self.extent;
        let lengths = [Some(self.warmup), duration];
        if let Some(long) = lengths.into_iter().flatten().find(|d| *d > DURATION_MAX) {
            return Err(PlanError::TooLong(long));
        }
        if duration.is_none_or(|d| d.is_zero()) && requests.is_none_or(|n| n == 0) {
            return Err(PlanError::Endless);
        }
        match self.pace {
            Pace::Open { rate, .. } if rate.from != rate.to && duration.is_none() => {
                Err(PlanError::RampWithoutDuration)
            }
            _ => Ok(()),
        }
    }

    /// The part of thread `index` of `threads`.
    #[must_use]
    pub fn share(&self, index: u32, threads: u32) -> Agenda {
        let threads = threads.max(1);
        let warmup_ns = nanos(self.warmup);
        let end_ns = self.extent.duration.map_or(u64::MAX, |d| warmup_ns.saturating_add(nanos(d)));
        let kind = match self.pace {
            Pace::Closed => {
                let (n, t) = (self.extent.requests.unwrap_or(u64::MAX), u64::from(threads));
                Kind::Closed { left: n / t + u64::from(u64::from(index) < n % t) }
            }
            Pace::Open { rate, arrivals } => Kind::Open(Schedule::new(self, rate, arrivals, index, threads)),
        };
        Agenda { kind, warmup_ns, end_ns }
    }
}

/// One thread's part of a plan. Times are nanoseconds since the schedule began (with the warm-up).
#[derive(Clone, Debug)]
pub struct Agenda {
    kind: Kind,
    warmup_ns: u64,
    end_ns: u64,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Requests that may still begin.
    Closed {
        left: u64,
    },
    Open(Schedule),
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A request is due; [`Agenda::take`] hands it out.
    Due,
    /// Nothing before this time.
    At(u64),
    /// Nothing any more: no further request is sent.
    Over,
}

/// One intended request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// When it was intended.
    pub intended_ns: u64,
    /// Whether it counts; requests of the warm-up do not.
    pub measured: bool,
}

/// Slots that the end of the run found unsent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// When they were intended.
    pub intended_ns: u64,
    /// How many: more than one when there are too many to be walked.
    pub slots: u64,
}

impl Agenda {
    /// What is next at `now_ns`.
    #[must_use]
    pub fn next(&self, now_ns: u64) -> Next {
        if now_ns >= self.end_ns {
            return Next::Over;
        }
        match &self.kind {
            Kind::Closed { left: 0 } => Next::Over,
            Kind::Closed { .. } => Next::Due,
            Kind::Open(schedule) => match schedule.next {
                None => Next::Over,
                Some(slot) if slot.intended_ns <= now_ns => Next::Due,
                Some(slot) => Next::At(slot.intended_ns),
            },
        }
    }

    /// Takes the slot that is due at `now_ns`, if one is.
    pub fn take(&mut self, now_ns: u64) -> Option<Slot> {
        if self.next(now_ns) != Next::Due {
            return None;
        }
        match &mut self.kind {
            Kind::Closed { left } => {
                let measured = now_ns >= self.warmup_ns;
                *left -= u64::from(measured);
                Some(Slot { intended_ns: now_ns, measured })
            }
            Kind::Open(schedule) => {
                let slot = schedule.next;
                schedule.advance();
                slot
            }
        }
    }

    /// Takes a slot of an open loop that is intended for before the end, though the end has come.
    pub fn take_overdue(&mut self) -> Option<Slot> {
        match self.kind {
            Kind::Closed { .. } => None,
            Kind::Open(_) => self.take(self.end_ns.saturating_sub(1)),
        }
    }

    /// When counting begins.
    #[must_use]
    pub fn warmup_ns(&self) -> u64 {
        self.warmup_ns
    }

    /// When the last request may be sent; `u64::MAX` when only their number ends the run.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Ends the plan: the measured slots of up to `now_ns` that were not taken. A closed loop has none.
    #[must_use]
    pub fn into_unsent(self, now_ns: u64) -> Vec<Unsent> {
        match self.kind {
            Kind::Closed { .. } => Vec::new(),
            Kind::Open(schedule) => schedule.into_unsent(now_ns.min(self.end_ns)),
        }
    }
}

/// One thread's slots of an open-loop schedule.
///
/// The rate is integrated to a number of requests x(t); uniform arrivals happen where x is whole, Poisson arrivals where a
/// Poisson process of rate 1 in x has its points (time-rescaling, Çinlar 1975).
#[derive(Clone, Debug)]
struct Schedule {
    curve: Curve,
    poisson: Option<Random>,
    /// x of the slot walked last.
    x: f64,
    /// Measured slots of all threads up to and with that one.
    measured: u64,
    requests: u64,
    threads: u32,
    end_ns: u64,
    /// This thread's next slot.
    next: Option<Slot>,
}

impl Schedule {
    fn new(plan: &Plan, rate: Rate, arrivals: Arrivals, index: u32, threads: u32) -> Self {
        let curve = Curve::new(rate, plan.warmup, plan.extent.duration);
        let poisson = (arrivals == Arrivals::Poisson).then(|| Random::new(plan.seed, ARRIVAL_STREAM));
        let end_ns = plan.extent.duration.map_or(u64::MAX, |d| nanos(plan.warmup).saturating_add(nanos(d)));
        let requests = plan.extent.requests.unwrap_or(u64::MAX);
        let mut schedule = Self { curve, poisson, x: 0.0, measured: 0, requests, threads, end_ns, next: None };
        // Uniform slots begin at x = 0, so the first step must not leave it.
        if schedule.poisson.is_none() {
            schedule.x = -1.0;
        }
        schedule.walk(index + 1);
        schedule
    }

    fn advance(&mut self) {
        self.walk(self.threads);
    }

    /// Walks `steps` slots of the common schedule; the last one is this thread's.
    fn walk(&mut self, steps: u32) {
        let mut measured = false;
        for _ in 0..steps {
            self.x += self.poisson.as_mut().map_or(1.0, Random::exponential);
            measured = self.x >= self.curve.warmup_x - ROUNDING_X;
            self.measured += u64::from(measured);
        }
        let intended_ns = self.curve.time_ns(self.x);
        let goes_on = intended_ns < self.end_ns && self.measured <= self.requests;
        self.next = goes_on.then_some(Slot { intended_ns, measured });
    }

    fn into_unsent(mut self, until_ns: u64) -> Vec<Unsent> {
        let mut unsent = Vec::new();
        let Some(first) = self.next else { return unsent };
        let ahead = (self.curve.x_at(until_ns) - self.curve.x_at(first.intended_ns)) / f64::from(self.threads);
        let slots = (ahead / UNSENT_WALKED_MAX).ceil().max(1.0) as u64;
        while let Some(slot) = self.next.filter(|slot| slot.intended_ns < until_ns) {
            if slot.measured {
                unsent.push(Unsent { intended_ns: slot.intended_ns, slots });
            }
            if slots > 1 {
                // Too many to be walked: leap over those that this one stands for, at their mean distance.
                self.x += ((slots - 1) * u64::from(self.threads)) as f64;
            }
            self.advance();
        }
        unsent
    }
}

/// The rate as a curve: constant through the warm-up, then linear.
#[derive(Clone, Copy, Debug)]
struct Curve {
    /// Per nanosecond.
    from: f64,
    /// Rise of the rate per nanosecond, per nanosecond.
    slope: f64,
    warmup_ns: f64,
    /// Requests of the warm-up.
    warmup_x: f64,
}

impl Curve {
    fn new(rate: Rate, warmup: Duration, duration: Option<Duration>) -> Self {
        let (from, to) = (rate.from / 1e9, rate.to / 1e9);
        let slope = duration.map_or(0.0, |d| (to - from) / (d.as_nanos() as f64).max(1.0));
        let warmup_ns = nanos(warmup) as f64;
        Self { from, slope, warmup_ns, warmup_x: from * warmup_ns }
    }

    /// When the `x`-th request is intended: the root of from·t + slope·t²/2 = x, in the form that loses no digits when
    /// the slope is small. Never comes back once the rate would have fallen to nothing.
    fn time_ns(&self, x: f64) -> u64 {
        if x <= self.warmup_x {
            return (x / self.from).round() as u64;
        }
        let x = x - self.warmup_x;
        let root = self.from * self.from + 2.0 * self.slope * x;
        if root < 0.0 {
            return u64::MAX;
        }
        (self.warmup_ns + 2.0 * x / (self.from + root.sqrt())).round() as u64
    }

    /// How many requests are intended before `ns`.
    fn x_at(&self, ns: u64) -> f64 {
        let t = ns as f64;
        if t <= self.warmup_ns {
            return t * self.from;
        }
        let t = t - self.warmup_ns;
        self.warmup_x + self.from * t + self.slope * t * t / 2.0
    }
}

/// Saturates: [`DURATION_MAX`] is far below what fits.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
