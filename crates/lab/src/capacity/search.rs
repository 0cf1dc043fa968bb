//! Open loop: the highest rate that keeps an objective, as an interval. Rates are doubled until one fails, the gap is
//! halved (on a logarithmic scale) until its ends lie [`WIDTH`] apart, and then each end has to hold on a plateau, moved
//! outwards ([`MARGIN_BELOW`], [`MARGIN_ABOVE`]): the lower one must be kept there, the upper one missed. Pure: [`Search::next`] says what to
//! try, and hears how it went.

mod evidence;

use std::time::Duration;

pub use self::evidence::Noise;
use self::evidence::{Evidence, Known};
use super::sizes;

/// What short steps say is narrowed down to this, upper rate over lower.
pub const WIDTH: f64 = 1.01;
/// The lower plateau lies this far below what short steps kept, for they err upwards: a burst that a server has room for,
/// or a random queue that has not met its worst crowd yet, hides the limit from them. Found by simulation.
pub const MARGIN_BELOW: f64 = 1.025;
/// The upper plateau lies this far above what they missed. So the interval is 6 % wide.
pub const MARGIN_ABOVE: f64 = 1.01;
/// An end that is not sure on its plateaus is moved outwards by this factor, then by its square, its cube …
pub const WIDER: f64 = 1.02;
/// A gap of plateaus that is wider than this is halved.
const GAP: f64 = 1.06;
/// Most steps of one search.
pub const STEPS_MAX: usize = 100;
/// How far a search goes below its first rate when that fails, as a part of it.
pub const FALL_MAX: f64 = 1024.0;
/// Pause after a step, for queues to become empty.
pub const PAUSE: Duration = Duration::from_millis(200);
/// Rates that differ by less than this part are the same.
const SAME: f64 = 1e-6;

/// What a search may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The first rate, in requests per second.
    pub start_rps: f64,
    /// No rate above this, in requests per second; at least `start_rps`.
    pub rate_max_rps: f64,
    /// Requests that the objective's percentile wants.
    pub requests: u64,
    /// Shortest step.
    pub step: Duration,
    /// Shortest plateau.
    pub plateau: Duration,
    /// All of it together.
    pub time: Duration,
}

/// The search for one server's limit.
#[derive(Clone, Debug)]
pub struct Search {
    limits: Limits,
    known: Known,
    under_way: Option<Trial>,
    used: Duration,
    steps: usize,
    /// The rate that the last load climbed to in vain.
    missed_rps: Option<f64>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Load.
    Run(Trial),
    /// No more; what was found.
    Done(Found),
}

/// One load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Requests per second.
    pub rate_rps: f64,
    /// Time that is not counted, before `length`.
    pub warmup: Duration,
    /// Time that is.
    pub length: Duration,
    /// Time without load after it.
    pub pause: Duration,
    /// What for.
    pub purpose: Purpose,
}

/// What a load is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Twice the rate that was kept last.
    Climb,
    /// Half the rate that failed last: nothing was kept yet.
    Fall,
    /// Between a rate that was kept and one that was not.
    Bisect,
    /// A plateau just below the highest rate that was kept, or lower after one that failed.
    Confirm,
    /// A plateau just above the lowest rate that failed.
    SecondLook,
}

/// How a load went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// What it says.
    pub verdict: Verdict,
    /// How sure it is of having kept (below 0) or missed the objective, in standard errors; none when its noise is not known.
    pub z: Option<f64>,
    /// How long it took, with all that belongs to it.
    pub took: Duration,
}

/// What a load says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The objective was kept.
    Kept,
    /// It was missed.
    Missed,
    /// The generator was the limit: nothing is known of the target.
    GeneratorLimited,
    /// It did harm: the search must end.
    Harmed,
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The highest rate that was kept.
    pub kept: Option<Bound>,
    /// The lowest rate that was not, above `kept`.
    pub refuted: Option<Bound>,
    /// Why it ended.
    pub end: End,
    /// How far its plateaus agree.
    pub noise: Noise,
}

/// One end of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Requests per second.
    pub rate_rps: f64,
    /// Whether a plateau says so; a short step otherwise.
    pub firm: bool,
    /// Whether the generator was the limit there.
    pub generator: bool,
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The limit lies between the two ends.
    Found,
    /// The highest rate that was allowed is not missed: it is kept, and the limit lies above, or plateaus do not decide it.
    AboveRateMax,
    /// The generator cannot do more: the limit lies above what was kept.
    GeneratorLimited,
    /// Not even the lowest rate was kept.
    NothingKept,
    /// The time, or the number of steps, was used up.
    TimeUp,
    /// A load did harm.
    Harmed,
    /// The user broke it off.
    Interrupted,
}

impl Search {
    /// A search that has not begun.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, known: Known::default(), under_way: None, used: Duration::ZERO, steps: 0, missed_rps: None }
    }

    /// What to do next, after the load that was asked for last went as `last` says; nothing is known before the first.
    pub fn next(&mut self, last: Option<Judged>) -> Step {
        if let (Some(judged), Some(trial)) = (last, self.under_way.take()) {
            self.used = self.used.saturating_add(judged.took);
            if judged.verdict == Verdict::Harmed {
                return Step::Done(self.found(End::Harmed));
            }
            if !self.is_tried_again(&trial, judged.verdict) {
                self.known.note(&trial, judged.verdict, judged.z);
            }
        }
        let step = match self.wanted() {
            Ok((rate_rps, purpose)) => {
                self.within_time(self.trial(rate_rps, purpose)).ok_or_else(|| self.out_of_time())
            }
            Err(end) => Err(end),
        };
        match step {
            Ok(trial) => {
                self.steps += 1;
                self.under_way = Some(trial);
                Step::Run(trial)
            }
            Err(end) => Step::Done(self.found(end)),
        }
    }

    /// Whether a rate is climbed to once more, for what was missed by accident there would cost a plateau later.
    fn is_tried_again(&mut self, trial: &Trial, verdict: Verdict) -> bool {
        let climbed = trial.purpose == Purpose::Climb && verdict != Verdict::Kept;
        let again = climbed && self.missed_rps != Some(trial.rate_rps);
        self.missed_rps = climbed.then_some(trial.rate_rps);
        again
    }

    /// What was found until now, when it ends for a reason of the caller's.
    #[must_use]
    pub fn found(&self, end: End) -> Found {
        let known = &self.known;
        // What a plateau says counts more than what a step says.
        let kept = known.floor().or_else(|| known.kept());
        Found { kept, refuted: known.firm_top().or_else(|| known.top()), end, noise: known.noise() }
    }

    /// The next rate, or why there is none.
    fn wanted(&self) -> Result<(f64, Purpose), End> {
        if let Some(rate) = self.lower_end_tried_again() {
            return Ok((rate, Purpose::Confirm));
        }
        if let Some(rate) = self.climbed_to() {
            return Ok((rate, Purpose::Climb));
        }
        let (start, most) = (self.limits.start_rps, self.limits.rate_max_rps);
        let floor = start / FALL_MAX;
        let tried = self.known.failed_below().is_some();
        match (self.known.kept(), self.known.top()) {
            (None, None) => Ok((start, Purpose::Climb)),
            (None, Some(top)) if top.rate_rps > floor => Ok(((top.rate_rps / 2.0).max(floor), Purpose::Fall)),
            (None, Some(top)) => Err(if top.generator { End::GeneratorLimited } else { End::NothingKept }),
            (Some(kept), top)
                if !tried && top.is_some_and(|top| top.rate_rps > kept.rate_rps * WIDTH * (1.0 + SAME)) =>
            {
                Ok(((kept.rate_rps * top.map_or(most, |top| top.rate_rps)).sqrt(), Purpose::Bisect))
            }
            (Some(kept), _) if !tried && !self.known.is_confirmed(&kept) => {
                Ok((self.known.lower_end_rps(&kept), Purpose::Confirm))
            }
            (Some(_), None) => Err(End::AboveRateMax),
            (Some(_), Some(top)) => self.upper_end(&top),
        }
    }

    /// Twice what was kept, where nothing was missed yet. Rates that plateaus did not decide are passed over.
    fn climbed_to(&self) -> Option<f64> {
        let mut rate = self.known.kept().filter(|_| self.known.top().is_none())?.rate_rps;
        let most = self.limits.rate_max_rps;
        while rate < most {
            rate = (rate * 2.0).min(most);
            if !self.known.is_undecided(rate) {
                return Some(rate);
            }
        }
        None
    }

    /// Where a lower end that is not sure is tried again: there, below, or between it and what is sure; none when it is not wanted.
    fn lower_end_tried_again(&self) -> Option<f64> {
        let failed = self.known.failed_below()?;
        if failed.wants_another() {
            return Some(failed.rate_rps);
        }
        let floor = self.known.floor_rps();
        let lowest = self.limits.start_rps / FALL_MAX;
        let below = failed.rate_rps / WIDER.powi(self.known.failures_below());
        if floor * GAP >= failed.rate_rps || failed.rate_rps <= lowest {
            return None;
        }
        Some(below.max((floor * failed.rate_rps).sqrt()).max(lowest))
    }

    /// Where an upper end is tried, or why it is not.
    fn upper_end(&self, top: &Bound) -> Result<(f64, Purpose), End> {
        if let Some(sure) = self.sure_top(top) {
            return self.narrower(&sure);
        }
        let most = self.limits.rate_max_rps;
        match self.known.open_above() {
            Some(open) if open.wants_another() => Ok((open.rate_rps, Purpose::SecondLook)),
            Some(open) if open.rate_rps >= most => Err(End::AboveRateMax),
            open => Ok((above(open, top).min(most), Purpose::SecondLook)),
        }
    }

    /// The upper end, if plateaus are sure of it and it is not far above what they or short steps are not sure of.
    fn sure_top(&self, top: &Bound) -> Option<Bound> {
        let open = self.known.open_above();
        if open.is_some_and(Evidence::wants_another) {
            return None;
        }
        self.known.firm_top().filter(|sure| sure.rate_rps <= above(open, top) * (1.0 + SAME))
    }

    /// Both ends are sure. Where they lie far apart the lower one may have been taken down too far.
    fn narrower(&self, top: &Bound) -> Result<(f64, Purpose), End> {
        let floor = self.known.floor_rps();
        let between = floor * WIDER;
        let failed = self.known.failed_below().map_or(f64::INFINITY, |failed| failed.rate_rps);
        if floor > 0.0 && top.rate_rps > floor * GAP && failed > between * WIDER {
            return Ok((between, Purpose::Confirm));
        }
        Err(found_at(top))
    }

    /// Why it ends when the time is used up: what is wanted beyond two sure ends is a narrower interval.
    fn out_of_time(&self) -> End {
        let sure = self.known.top().and_then(|top| self.sure_top(&top)).filter(|_| self.known.floor_rps() > 0.0);
        sure.map_or(End::TimeUp, |top| found_at(&top))
    }

    fn trial(&self, rate_rps: f64, purpose: Purpose) -> Trial {
        let Limits { requests, step, plateau, .. } = self.limits;
        let length = match purpose {
            Purpose::Climb | Purpose::Fall => sizes::length(rate_rps, requests / sizes::CLIMB_PART, step),
            Purpose::Bisect => sizes::length(rate_rps, requests.saturating_mul(sizes::BISECT_X), step),
            Purpose::Confirm | Purpose::SecondLook => {
                sizes::length(rate_rps, requests.saturating_mul(sizes::PLATEAU_X), plateau)
            }
        };
        Trial { rate_rps, warmup: step / sizes::WARMUP_PART, length, pause: PAUSE, purpose }
    }

    /// The load that there is time for: what was kept has to be confirmed before the time is over.
    fn within_time(&self, trial: Trial) -> Option<Trial> {
        let left = self.limits.time.saturating_sub(self.used);
        if self.steps >= STEPS_MAX {
            return None;
        }
        let unsure = self.known.kept().filter(|kept| self.known.floor_rps() == 0.0 && !self.known.is_confirmed(kept));
        let confirmation = unsure.map(|kept| self.trial(self.known.lower_end_rps(&kept), Purpose::Confirm));
        let mut chosen = trial;
        if let Some(confirmation) = confirmation.filter(|_| trial.purpose != Purpose::Confirm)
            && trial.cost() + confirmation.cost() > left
        {
            chosen = confirmation;
        }
        if chosen.cost() <= left {
            return Some(chosen);
        }
        // A shorter plateau is better than none, but nothing shorter than a step is.
        let length = left.saturating_sub(chosen.warmup + chosen.pause);
        let shortened = chosen.purpose == Purpose::Confirm && length >= self.limits.step;
        shortened.then_some(Trial { length, ..chosen })
    }
}

/// The rate above `top`, or above the highest that plateaus were not sure of.
fn above(open: Option<&Evidence>, top: &Bound) -> f64 {
    open.map_or(top.rate_rps * MARGIN_ABOVE, |open| open.rate_rps * WIDER)
}

fn found_at(top: &Bound) -> End {
    if top.generator { End::GeneratorLimited } else { End::Found }
}

impl Trial {
    /// Whether it is long enough for its statistics.
    #[must_use]
    pub fn is_plateau(&self) -> bool {
        matches!(self.purpose, Purpose::Confirm | Purpose::SecondLook)
    }

    /// Whether it is to be kept, as a lower end.
    fn is_below(&self) -> bool {
        self.purpose == Purpose::Confirm
    }

    /// How long it takes if nothing is late.
    #[must_use]
    pub fn cost(&self) -> Duration {
        self.warmup + self.length + self.pause
    }

    /// Requests that it counts.
    #[must_use]
    pub fn requests(&self) -> f64 {
        self.rate_rps * self.length.as_secs_f64()
    }
}

#[cfg(test)]
mod tests;
