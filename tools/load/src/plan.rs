//! The schedule of requests. A plan knows no connections and reads no clock.
//!
//! A *slot* is one scheduled request. Closed loop: each free connection sends at once. Open loop:
//! one schedule of slots over all connections, independent of the target; a slot without a free
//! connection keeps its intended time and is late.
//!
//! With several threads, thread t of T owns the slots t, t + T, … of the common schedule. No
//! counter is shared while running, each thread sleeps until its own next slot, and a run repeats
//! exactly. The cost: a free connection of one thread cannot serve a slot of another. Connections
//! are distributed evenly too, so this shows only when a thread stalls, and then as lag.

use std::time::Duration;

use crate::random::Random;

/// Highest open-loop rate, in requests per second.
pub const RATE_MAX: f64 = 10_000_000.0;
/// Lowest rate, in requests per second: about one a day.
pub const RATE_MIN: f64 = 0.000_01;
/// Longest warm-up or duration: a week.
pub const DURATION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Random stream of the arrival times; every thread walks the same one.
const ARRIVAL_STREAM: u64 = u64::MAX;
/// Tolerance for floating-point error, in requests: a slot this close to the end of the warm-up is
/// at its end.
const ROUNDING_X: f64 = 1e-6;
/// Unsent slots are walked one by one up to this number; beyond, each step represents several.
const UNSENT_STEPS_MAX: f64 = 1_000_000.0;

/// The workload of all threads together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Closed or open loop.
    pub model: LoadModel,
    /// Time before the measurement in which requests are sent but not counted.
    pub warmup: Duration,
    /// End of the run.
    pub stop: StopCondition,
    /// Seed of the arrival times of a Poisson schedule.
    pub seed: u64,
}

/// The workload model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadModel {
    /// Closed loop: each connection sends its next request after the response to the last.
    Closed,
    /// Open loop: request times do not depend on the target.
    Open {
        /// Requests per second.
        rate: Rate,
        /// Spacing of requests.
        arrivals: Arrivals,
    },
}

/// A rate in requests per second, between [`RATE_MIN`] and [`RATE_MAX`], constant or a linear ramp
/// over the duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    from: f64,
    to: f64,
}

/// Spacing of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Even.
    Uniform,
    /// A Poisson process, as from many independent users.
    Poisson,
}

/// The end of a run: whichever condition holds first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopCondition {
    /// Length of the measurement, without the warm-up.
    pub duration: Option<Duration>,
    /// Number of requests, without those of the warm-up.
    pub requests: Option<u64>,
}

/// Errors in a plan.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The rate is outside the possible range.
    #[error(
        "a rate of {0} requests per second is not possible; it must lie between {RATE_MIN} and \
         {RATE_MAX}: leave --rate out for as fast as possible"
    )]
    Rate(f64),
    /// A ramp needs a duration.
    #[error("a ramp needs to know how long it takes; add --duration")]
    RampWithoutDuration,
    /// No condition ends the run.
    #[error(
        "nothing ends this run; give a duration, a number of requests, or both, greater than zero"
    )]
    Endless,
    /// Longer than [`DURATION_MAX`].
    #[error("{0:?} is too long; duration and warm-up may be a week at most")]
    TooLong(Duration),
}

impl Rate {
    /// Returns a rate that goes from `from` to `to`; equal values give a constant rate.
    ///
    /// # Errors
    /// Fails when either is outside [`RATE_MIN`]..=[`RATE_MAX`] or not a number.
    pub fn new(from: f64, to: f64) -> Result<Self, PlanError> {
        for rate in [from, to] {
            if !(RATE_MIN..=RATE_MAX).contains(&rate) {
                return Err(PlanError::Rate(rate));
            }
        }
        Ok(Self { from, to })
    }

    /// Returns the rate at the beginning (and throughout the warm-up), in requests per second.
    #[must_use]
    pub fn from(self) -> f64 {
        self.from
    }

    /// Returns the rate at the end, in requests per second.
    #[must_use]
    pub fn to(self) -> f64 {
        self.to
    }

    /// Returns the mean rate, in requests per second.
    #[must_use]
    pub fn mean(self) -> f64 {
        f64::midpoint(self.from, self.to)
    }
}

impl Plan {
    /// Checks that the plan can be carried out.
    ///
    /// # Errors
    /// Returns the problem and its remedy.
    pub fn check(&self) -> Result<(), PlanError> {
        let StopCondition { duration, requests } = self.stop;
        let lengths = [Some(self.warmup), duration];
        if let Some(long) = lengths.into_iter().flatten().find(|d| *d > DURATION_MAX) {
            return Err(PlanError::TooLong(long));
        }
        if duration.is_none_or(|d| d.is_zero()) && requests.is_none_or(|n| n == 0) {
            return Err(PlanError::Endless);
        }
        match self.model {
            LoadModel::Open { rate, .. } if rate.from != rate.to && duration.is_none() => {
                Err(PlanError::RampWithoutDuration)
            }
            _ => Ok(()),
        }
    }

    /// Returns the schedule of thread `index` of `threads`.
    pub fn share(&self, index: u32, threads: u32) -> Schedule {
        let threads = threads.max(1);
        let warmup_ns = nanos(self.warmup);
        let end_ns = self.stop.duration.map_or(u64::MAX, |d| warmup_ns.saturating_add(nanos(d)));
        let kind = match self.model {
            LoadModel::Closed => {
                let (n, t) = (self.stop.requests.unwrap_or(u64::MAX), u64::from(threads));
                ScheduleKind::Closed { left: n / t + u64::from(u64::from(index) < n % t) }
            }
            LoadModel::Open { rate, arrivals } => {
                ScheduleKind::Open(OpenSchedule::new(self, rate, arrivals, index, threads))
            }
        };
        Schedule { kind, warmup_ns, end_ns }
    }
}

/// One thread's part of a plan. Times are nanoseconds since the start of the schedule, warm-up
/// included.
#[derive(Clone, Debug)]
pub struct Schedule {
    kind: ScheduleKind,
    warmup_ns: u64,
    end_ns: u64,
}

#[derive(Clone, Debug)]
enum ScheduleKind {
    /// Requests that may still begin.
    Closed {
        left: u64,
    },
    Open(OpenSchedule),
}

/// The state of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextSlot {
    /// A request is due; [`Schedule::take`] returns it.
    Due,
    /// Nothing is due before this time.
    At(u64),
    /// No further request will be sent.
    Over,
}

/// One scheduled request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Intended time.
    pub intended_ns: u64,
    /// True if it counts; warm-up requests do not.
    pub measured: bool,
}

/// Slots that were unsent at the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// Intended time.
    pub intended_ns: u64,
    /// Number of slots: more than one when there are too many to walk.
    pub slots: u64,
}

impl Schedule {
    /// Returns the state at `now_ns`.
    #[must_use]
    pub fn next(&self, now_ns: u64) -> NextSlot {
        if now_ns >= self.end_ns {
            return NextSlot::Over;
        }
        match &self.kind {
            ScheduleKind::Closed { left: 0 } => NextSlot::Over,
            ScheduleKind::Closed { .. } => NextSlot::Due,
            ScheduleKind::Open(schedule) => match schedule.next {
                None => NextSlot::Over,
                Some(slot) if slot.intended_ns <= now_ns => NextSlot::Due,
                Some(slot) => NextSlot::At(slot.intended_ns),
            },
        }
    }

    /// Takes the slot that is due at `now_ns`, if any.
    pub fn take(&mut self, now_ns: u64) -> Option<Slot> {
        if self.next(now_ns) != NextSlot::Due {
            return None;
        }
        match &mut self.kind {
            ScheduleKind::Closed { left } => {
                let measured = now_ns >= self.warmup_ns;
                *left -= u64::from(measured);
                Some(Slot { intended_ns: now_ns, measured })
            }
            ScheduleKind::Open(schedule) => {
                let slot = schedule.next;
                schedule.advance();
                slot
            }
        }
    }

    /// Takes an open-loop slot intended before the end, after the end has passed.
    pub fn take_overdue(&mut self) -> Option<Slot> {
        match self.kind {
            ScheduleKind::Closed { .. } => None,
            ScheduleKind::Open(_) => self.take(self.end_ns.saturating_sub(1)),
        }
    }

    /// Returns the time at which counting begins.
    pub fn warmup_ns(&self) -> u64 {
        self.warmup_ns
    }

    /// Returns the latest send time; `u64::MAX` when only a number of requests ends the run.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Ends the schedule; returns the measured slots up to `now_ns` that were not taken. A closed
    /// loop has none.
    #[must_use]
    pub fn into_unsent(self, now_ns: u64) -> Vec<Unsent> {
        match self.kind {
            ScheduleKind::Closed { .. } => Vec::new(),
            ScheduleKind::Open(schedule) => schedule.into_unsent(now_ns.min(self.end_ns)),
        }
    }
}

/// One thread's slots of an open-loop schedule.
///
/// The integral of the rate is a number of requests x(t). Uniform arrivals happen where x is whole;
/// Poisson arrivals where a Poisson process of rate 1 in x has its points (time-rescaling, Çinlar
/// 1975).
#[derive(Clone, Debug)]
struct OpenSchedule {
    curve: RateCurve,
    poisson: Option<Random>,
    /// x of the last walked slot.
    x: f64,
    /// Measured slots of all threads up to and including that one.
    measured: u64,
    requests: u64,
    threads: u32,
    end_ns: u64,
    /// This thread's next slot.
    next: Option<Slot>,
}

impl OpenSchedule {
    fn new(plan: &Plan, rate: Rate, arrivals: Arrivals, index: u32, threads: u32) -> Self {
        let curve = RateCurve::new(rate, plan.warmup, plan.stop.duration);
        let poisson =
            (arrivals == Arrivals::Poisson).then(|| Random::new(plan.seed, ARRIVAL_STREAM));
        let end_ns =
            plan.stop.duration.map_or(u64::MAX, |d| nanos(plan.warmup).saturating_add(nanos(d)));
        let requests = plan.stop.requests.unwrap_or(u64::MAX);
        let mut schedule =
            Self { curve, poisson, x: 0.0, measured: 0, requests, threads, end_ns, next: None };
        // Uniform slots begin at x = 0, so the first step must stay there.
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
        let ahead = (self.curve.x_at(until_ns) - self.curve.x_at(first.intended_ns))
            / f64::from(self.threads);
        let slots = (ahead / UNSENT_STEPS_MAX).ceil().max(1.0) as u64;
        while let Some(slot) = self.next.filter(|slot| slot.intended_ns < until_ns) {
            if slot.measured {
                unsent.push(Unsent { intended_ns: slot.intended_ns, slots });
            }
            if slots > 1 {
                // Too many to walk: skip those that this one represents, at their mean distance.
                self.x += ((slots - 1) * u64::from(self.threads)) as f64;
            }
            self.advance();
        }
        unsent
    }
}

/// The rate over time: constant through the warm-up, then linear.
#[derive(Clone, Copy, Debug)]
struct RateCurve {
    /// Requests per nanosecond at the beginning.
    from: f64,
    /// Change of the rate per nanosecond, per nanosecond.
    slope: f64,
    warmup_ns: f64,
    /// Requests of the warm-up.
    warmup_x: f64,
}

impl RateCurve {
    fn new(rate: Rate, warmup: Duration, duration: Option<Duration>) -> Self {
        let (from, to) = (rate.from / 1e9, rate.to / 1e9);
        let slope = duration.map_or(0.0, |d| (to - from) / (d.as_nanos() as f64).max(1.0));
        let warmup_ns = nanos(warmup) as f64;
        Self { from, slope, warmup_ns, warmup_x: from * warmup_ns }
    }

    /// Returns the time of the `x`-th request: the root of from·t + slope·t²/2 = x, in the form
    /// that loses no digits for small slopes. `u64::MAX` once the rate would have fallen to zero.
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

    /// Returns the number of requests intended before `ns`.
    fn x_at(&self, ns: u64) -> f64 {
        let t = ns as f64;
        if t <= self.warmup_ns {
            return t * self.from;
        }
        let t = t - self.warmup_ns;
        self.warmup_x + self.from * t + self.slope * t * t / 2.0
    }
}

/// Saturates: [`DURATION_MAX`] is far below the limit.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
