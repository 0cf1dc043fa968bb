//! Open-loop search: the highest rate that meets an objective, as an interval. Rates are doubled
//! until one fails, the gap is bisected (on a logarithmic scale) until its ends lie [`WIDTH`]
//! apart, and then each end is confirmed on a plateau, moved outwards ([`MARGIN_BELOW`],
//! [`MARGIN_ABOVE`]): the objective must be met at the lower end and missed at the upper one. Pure:
//! [`Search::next`] takes the last result and returns the next step.

mod evidence;
mod trial;

use std::time::Duration;

pub use self::evidence::Noise;
use self::evidence::{Evidence, SearchEvidence};
use self::trial::SAME;
pub use self::trial::{Bound, MARGIN_BELOW, Purpose, RateVerdict, Trial};

/// Ratio of upper to lower rate to which short steps narrow the interval.
pub const WIDTH: f64 = 1.01;
/// Distance of the upper plateau above the lowest rate that short steps missed. The interval is
/// therefore 6 % wide.
pub const MARGIN_ABOVE: f64 = 1.01;
/// Factor by which an end that is not certain on its plateaus is moved outwards; then its square,
/// its cube and so on.
pub const WIDER: f64 = 1.02;
/// A gap between plateaus that is wider than this is bisected.
const GAP: f64 = 1.06;
/// Most steps of one search.
pub const STEPS_MAX: usize = 100;
/// Largest fall below the first rate when that fails, as a factor.
pub const FALL_MAX: f64 = 1024.0;
/// Pause after a step, in which queues drain.
pub const PAUSE: Duration = Duration::from_millis(200);

/// Limits of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The first rate, in requests per second.
    pub start_rps: f64,
    /// No rate above this, in requests per second; at least `start_rps`.
    pub rate_max_rps: f64,
    /// Requests that the objective's percentile needs.
    pub requests: u64,
    /// Shortest step.
    pub step: Duration,
    /// Shortest plateau.
    pub plateau: Duration,
    /// Total time of the search.
    pub time: Duration,
}

/// Search for one server's limit.
#[derive(Clone, Debug)]
pub struct Search {
    limits: Limits,
    known: SearchEvidence,
    under_way: Option<Trial>,
    used: Duration,
    steps: usize,
    /// Rate that the last doubling step missed.
    missed_rps: Option<f64>,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Load.
    Run(Trial),
    /// The search has ended, with this result.
    Done(SearchOutcome),
}

/// Result of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// RateVerdict on the load.
    pub verdict: RateVerdict,
    /// Standard errors by which the objective was met (below 0) or missed (above 0); `None` if the
    /// noise is unknown.
    pub z: Option<f64>,
    /// Total time that the load took.
    pub took: Duration,
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchOutcome {
    /// Highest rate that met the objective.
    pub kept: Option<Bound>,
    /// Lowest rate above `kept` that missed it.
    pub refuted: Option<Bound>,
    /// Reason the search ended.
    pub end: SearchEnd,
    /// Agreement of its plateaus.
    pub noise: Noise,
}

/// Reason a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEnd {
    /// The limit lies between the two ends.
    Found,
    /// The highest allowed rate was not missed: it met the objective and the limit lies above, or
    /// plateaus did not decide it.
    AboveRateMax,
    /// The generator reached its own limit; the server's limit lies above the rate that was met.
    GeneratorLimited,
    /// Not even the lowest rate met the objective.
    NothingKept,
    /// The time or the number of steps was used up.
    TimeUp,
    /// A load caused harm.
    Harmed,
    /// The user interrupted it.
    Interrupted,
}

impl Search {
    /// Creates a search that has not started.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            known: SearchEvidence::default(),
            under_way: None,
            used: Duration::ZERO,
            steps: 0,
            missed_rps: None,
        }
    }

    /// Returns the next step, given the result of the load that the last step asked for; `None`
    /// before the first.
    pub fn next(&mut self, last: Option<Judged>) -> Step {
        if let (Some(judged), Some(trial)) = (last, self.under_way.take()) {
            self.used = self.used.saturating_add(judged.took);
            if judged.verdict == RateVerdict::Harmed {
                return Step::Done(self.found(SearchEnd::Harmed));
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

    /// Returns whether a doubling step is repeated: an accidental miss there would cost a plateau
    /// later.
    fn is_tried_again(&mut self, trial: &Trial, verdict: RateVerdict) -> bool {
        let climbed = trial.purpose == Purpose::Climb && verdict != RateVerdict::Kept;
        let again = climbed && self.missed_rps != Some(trial.rate_rps);
        self.missed_rps = climbed.then_some(trial.rate_rps);
        again
    }

    /// Returns the result so far, when the caller ends the search for a reason of its own.
    pub fn found(&self, end: SearchEnd) -> SearchOutcome {
        let known = &self.known;
        // A plateau's verdict outranks a short step's.
        let kept = known.floor().or_else(|| known.kept());
        SearchOutcome {
            kept,
            refuted: known.firm_top().or_else(|| known.top()),
            end,
            noise: known.noise(),
        }
    }

    /// Returns the next rate, or the reason there is none.
    fn wanted(&self) -> Result<(f64, Purpose), SearchEnd> {
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
            (None, Some(top)) if top.rate_rps > floor => {
                Ok(((top.rate_rps / 2.0).max(floor), Purpose::Fall))
            }
            (None, Some(top)) => Err(if top.generator {
                SearchEnd::GeneratorLimited
            } else {
                SearchEnd::NothingKept
            }),
            (Some(kept), top)
                if !tried
                    && top
                        .is_some_and(|top| top.rate_rps > kept.rate_rps * WIDTH * (1.0 + SAME)) =>
            {
                Ok(((kept.rate_rps * top.map_or(most, |top| top.rate_rps)).sqrt(), Purpose::Bisect))
            }
            (Some(kept), _) if !tried && !self.known.is_confirmed(&kept) => {
                Ok((self.known.lower_end_rps(&kept), Purpose::Confirm))
            }
            (Some(_), None) => Err(SearchEnd::AboveRateMax),
            (Some(_), Some(top)) => self.upper_end(&top),
        }
    }

    /// Returns twice the rate that was met if nothing was missed yet, passing over rates that
    /// plateaus did not decide.
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

    /// Returns the rate for another try of an uncertain lower end: the same, below, or between it
    /// and a certain one; `None` if not needed.
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

    /// Returns the rate for the upper end, or the reason there is none.
    fn upper_end(&self, top: &Bound) -> Result<(f64, Purpose), SearchEnd> {
        if let Some(sure) = self.sure_top(top) {
            return self.narrower(&sure);
        }
        let most = self.limits.rate_max_rps;
        match self.known.open_above() {
            Some(open) if open.wants_another() => Ok((open.rate_rps, Purpose::SecondLook)),
            Some(open) if open.rate_rps >= most => Err(SearchEnd::AboveRateMax),
            open => Ok((above(open, top).min(most), Purpose::SecondLook)),
        }
    }

    /// Returns the upper end if plateaus are certain of it and it is not far above uncertain
    /// results.
    fn sure_top(&self, top: &Bound) -> Option<Bound> {
        let open = self.known.open_above();
        if open.is_some_and(Evidence::wants_another) {
            return None;
        }
        self.known.firm_top().filter(|sure| sure.rate_rps <= above(open, top) * (1.0 + SAME))
    }

    /// Narrows the gap when both ends are certain: the lower one may have been moved down too far.
    fn narrower(&self, top: &Bound) -> Result<(f64, Purpose), SearchEnd> {
        let floor = self.known.floor_rps();
        let between = floor * WIDER;
        let failed = self.known.failed_below().map_or(f64::INFINITY, |failed| failed.rate_rps);
        if floor > 0.0 && top.rate_rps > floor * GAP && failed > between * WIDER {
            return Ok((between, Purpose::Confirm));
        }
        Err(found_at(top))
    }

    /// Returns the end reason for an exhausted time; beyond two certain ends only the width is
    /// missing.
    fn out_of_time(&self) -> SearchEnd {
        let sure = self
            .known
            .top()
            .and_then(|top| self.sure_top(&top))
            .filter(|_| self.known.floor_rps() > 0.0);
        sure.map_or(SearchEnd::TimeUp, |top| found_at(&top))
    }

    fn trial(&self, rate_rps: f64, purpose: Purpose) -> Trial {
        let Limits { requests, step, plateau, .. } = self.limits;
        let length = match purpose {
            Purpose::Climb | Purpose::Fall => {
                super::step_length(rate_rps, requests / super::CLIMB_PART, step)
            }
            Purpose::Bisect => {
                super::step_length(rate_rps, requests.saturating_mul(super::BISECT_X), step)
            }
            Purpose::Confirm | Purpose::SecondLook => {
                super::step_length(rate_rps, requests.saturating_mul(super::PLATEAU_X), plateau)
            }
        };
        Trial { rate_rps, warmup: step / super::WARMUP_PART, length, pause: PAUSE, purpose }
    }

    /// Returns the load that fits in the remaining time, reserving time for the confirmation of the
    /// rate that was met.
    fn within_time(&self, trial: Trial) -> Option<Trial> {
        let left = self.limits.time.saturating_sub(self.used);
        if self.steps >= STEPS_MAX {
            return None;
        }
        let unsure = self
            .known
            .kept()
            .filter(|kept| self.known.floor_rps() == 0.0 && !self.known.is_confirmed(kept));
        let confirmation =
            unsure.map(|kept| self.trial(self.known.lower_end_rps(&kept), Purpose::Confirm));
        let mut chosen = trial;
        if let Some(confirmation) = confirmation.filter(|_| trial.purpose != Purpose::Confirm)
            && trial.cost() + confirmation.cost() > left
        {
            chosen = confirmation;
        }
        if chosen.cost() <= left {
            return Some(chosen);
        }
        // A shorter plateau is better than none, but not shorter than a step.
        let length = left.saturating_sub(chosen.warmup + chosen.pause);
        let shortened = chosen.purpose == Purpose::Confirm && length >= self.limits.step;
        shortened.then_some(Trial { length, ..chosen })
    }
}

/// Returns the rate above `top`, or above the highest rate that plateaus did not decide.
fn above(open: Option<&Evidence>, top: &Bound) -> f64 {
    open.map_or(top.rate_rps * MARGIN_ABOVE, |open| open.rate_rps * WIDER)
}

fn found_at(top: &Bound) -> SearchEnd {
    if top.generator { SearchEnd::GeneratorLimited } else { SearchEnd::Found }
}

impl Trial {
    /// Returns whether it is long enough for statistics.
    pub fn is_plateau(&self) -> bool {
        matches!(self.purpose, Purpose::Confirm | Purpose::SecondLook)
    }

    /// Returns whether it tests a lower end.
    fn is_below(&self) -> bool {
        self.purpose == Purpose::Confirm
    }

    /// Returns its duration if nothing is late.
    pub fn cost(&self) -> Duration {
        self.warmup + self.length + self.pause
    }

    /// Returns the number of requests that it counts.
    pub fn requests(&self) -> f64 {
        self.rate_rps * self.length.as_secs_f64()
    }
}

#[cfg(test)]
mod tests;
