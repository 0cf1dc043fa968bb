//! Open loop: the highest rate that keeps an objective, as an interval. Rates are doubled until one fails, the gap is
//! halved (on a logarithmic scale) until its ends lie [`WIDTH`] apart, and then each end has to hold on a plateau, moved
//! outwards ([`MARGIN_BELOW`], [`MARGIN_ABOVE`]): the lower one must be kept there, the upper one missed. Pure: [`Search::next`] says what to
//! try, and hears how it went.

use std::time::Duration;

use super::sizes;

/// What short steps say is narrowed down to this, upper rate over lower.
pub const WIDTH: f64 = 1.01;
/// The lower plateau lies this far below what short steps kept, for they err upwards: a burst that a server has room for,
/// or a random queue that has not met its worst crowd yet, hides the limit from them. Found by simulation.
pub const MARGIN_BELOW: f64 = 1.04;
/// The upper plateau lies this far above what they missed. So the interval is 6 % wide.
pub const MARGIN_ABOVE: f64 = 1.01;
/// A plateau that failed once has to be kept so often to count as kept: two of three.
const AGAIN: u32 = 2;
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
    evidence: Vec<Evidence>,
    under_way: Option<Trial>,
    used: Duration,
    steps: usize,
    /// Plateaus that failed in a row at what short steps had kept.
    failed: i32,
    /// A plateau that contradicts short steps for the first time is tried again: it may have been an accident. Its rate, and
    /// how many more plateaus have to keep it.
    again: Option<(f64, u32)>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What it says.
    pub verdict: Verdict,
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
    /// The highest rate that was allowed is kept: the limit lies above.
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

#[derive(Clone, Copy, Debug)]
struct Evidence {
    rate_rps: f64,
    verdict: Verdict,
    firm: bool,
}

impl Search {
    /// A search that has not begun.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, evidence: Vec::new(), under_way: None, used: Duration::ZERO, steps: 0, failed: 0, again: None }
    }

    /// What to do next, after the load that was asked for last went as `last` says; nothing is known before the first.
    pub fn next(&mut self, last: Option<Judged>) -> Step {
        if let (Some(judged), Some(trial)) = (last, self.under_way.take()) {
            self.used = self.used.saturating_add(judged.took);
            self.note(&trial, judged.verdict);
            if judged.verdict == Verdict::Harmed {
                return Step::Done(self.found(End::Harmed));
            }
        }
        let step = match self.wanted() {
            Ok((rate_rps, purpose)) => self.within_time(self.trial(rate_rps, purpose)),
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

    /// What was found until now, when it ends for a reason of the caller's.
    #[must_use]
    pub fn found(&self, end: End) -> Found {
        // What a plateau says counts more than what a step says.
        let plateau = self.evidence.iter().find(|e| e.firm && e.rate_rps == self.firm_floor_rps());
        let kept = plateau.map(Evidence::bound).or_else(|| self.kept());
        Found { kept, refuted: self.firm_top().or_else(|| self.top()), end }
    }

    fn note(&mut self, trial: &Trial, verdict: Verdict) {
        let firm = matches!(trial.purpose, Purpose::Confirm | Purpose::SecondLook);
        let failed = trial.purpose == Purpose::Confirm && verdict == Verdict::Missed;
        match (failed, self.again.take()) {
            (true, None) if self.failed == 0 => self.again = Some((trial.rate_rps, AGAIN)),
            (true, _) => self.failed += 1,
            (false, again) => {
                self.failed = 0;
                self.again = again.filter(|(_, more)| *more > 1).map(|(rate, more)| (rate, more - 1));
            }
        }
        // Undecided is not kept.
        let verdict = if self.again.is_some() { Verdict::Missed } else { verdict };
        let evidence = Evidence { rate_rps: trial.rate_rps, verdict, firm };
        let same = |other: &&mut Evidence| (other.rate_rps / trial.rate_rps - 1.0).abs() < SAME;
        match self.evidence.iter_mut().find(same) {
            Some(earlier) if earlier.firm && !firm => {}
            Some(earlier) => *earlier = evidence,
            None => self.evidence.push(evidence),
        }
    }

    /// The highest rate that a plateau kept, below the lowest that one missed.
    fn firm_floor_rps(&self) -> f64 {
        let firm = |verdict| self.evidence.iter().filter(move |e| e.firm && e.verdict == verdict).map(|e| e.rate_rps);
        let missed = firm(Verdict::Missed).fold(f64::INFINITY, f64::min);
        firm(Verdict::Kept).filter(|rate| *rate < missed).fold(0.0, f64::max)
    }

    /// The lowest rate that was not kept, and that no plateau contradicts.
    fn top(&self) -> Option<Bound> {
        let floor = self.firm_floor_rps();
        let above = self.evidence.iter().filter(|e| e.rate_rps > floor && e.verdict != Verdict::Kept);
        above.min_by(|one, other| one.rate_rps.total_cmp(&other.rate_rps)).map(Evidence::bound)
    }

    /// The highest rate that was kept below that.
    fn kept(&self) -> Option<Bound> {
        let top = self.top().map_or(f64::INFINITY, |top| top.rate_rps);
        let below = self.evidence.iter().filter(|e| e.rate_rps < top && e.verdict == Verdict::Kept);
        below.max_by(|one, other| one.rate_rps.total_cmp(&other.rate_rps)).map(Evidence::bound)
    }

    /// The lowest rate that was not kept on a plateau, if that is what `top` says.
    fn firm_top(&self) -> Option<Bound> {
        let top = self.top()?.rate_rps;
        let near = top..=top * MARGIN_ABOVE * (1.0 + SAME);
        let firm = self.evidence.iter().filter(|e| e.firm && e.verdict != Verdict::Kept && near.contains(&e.rate_rps));
        firm.min_by(|one, other| one.rate_rps.total_cmp(&other.rate_rps)).map(Evidence::bound)
    }

    /// Whether a plateau says of `kept` what a short step does.
    fn is_confirmed(&self, kept: &Bound) -> bool {
        self.firm_floor_rps() >= kept.rate_rps / MARGIN_BELOW * (1.0 - SAME)
    }

    /// The next rate, or why there is none.
    fn wanted(&self) -> Result<(f64, Purpose), End> {
        if let Some((rate, _)) = self.again {
            return Ok((rate, Purpose::Confirm));
        }
        let (start, most) = (self.limits.start_rps, self.limits.rate_max_rps);
        let floor = start / FALL_MAX;
        let (kept, top) = (self.kept(), self.top());
        if let Some(top) = top.filter(|_| self.failed > 0) {
            // What short steps kept is not kept for longer: down by larger and larger steps.
            let rate = (top.rate_rps / MARGIN_BELOW.powi(self.failed)).max(floor);
            if self.firm_floor_rps() < rate * (1.0 - SAME) && rate < top.rate_rps {
                return Ok((rate, Purpose::Confirm));
            }
        }
        match (kept, top) {
            (None, None) => Ok((start, Purpose::Climb)),
            (None, Some(top)) if top.rate_rps > floor => Ok(((top.rate_rps / 2.0).max(floor), Purpose::Fall)),
            (None, Some(top)) => Err(if top.generator { End::GeneratorLimited } else { End::NothingKept }),
            (Some(kept), None) if kept.rate_rps < most => Ok(((kept.rate_rps * 2.0).min(most), Purpose::Climb)),
            (Some(kept), None) if self.is_confirmed(&kept) => Err(End::AboveRateMax),
            (Some(kept), None) => Ok((kept.rate_rps / MARGIN_BELOW, Purpose::Confirm)),
            (Some(kept), Some(top)) if top.rate_rps > kept.rate_rps * WIDTH * (1.0 + SAME) => {
                Ok(((kept.rate_rps * top.rate_rps).sqrt(), Purpose::Bisect))
            }
            (Some(kept), Some(_)) if !self.is_confirmed(&kept) => Ok((kept.rate_rps / MARGIN_BELOW, Purpose::Confirm)),
            (Some(_), Some(top)) => match self.firm_top() {
                None => Ok(((top.rate_rps * MARGIN_ABOVE).min(most), Purpose::SecondLook)),
                Some(firm) => Err(if firm.generator { End::GeneratorLimited } else { End::Found }),
            },
        }
    }

    fn trial(&self, rate_rps: f64, purpose: Purpose) -> Trial {
        let Limits { requests, step, plateau, .. } = self.limits;
        let length = match purpose {
            Purpose::Climb | Purpose::Fall => sizes::length(rate_rps, requests, step),
            Purpose::Bisect => sizes::length(rate_rps, requests.saturating_mul(sizes::BISECT_X), step),
            Purpose::Confirm | Purpose::SecondLook => {
                sizes::length(rate_rps, requests.saturating_mul(sizes::PLATEAU_X), plateau)
            }
        };
        Trial { rate_rps, warmup: step / sizes::WARMUP_PART, length, pause: PAUSE, purpose }
    }

    /// The load that there is time for: what was kept has to be confirmed before the time is over.
    fn within_time(&self, trial: Trial) -> Result<Trial, End> {
        let left = self.limits.time.saturating_sub(self.used);
        if self.steps >= STEPS_MAX {
            return Err(End::TimeUp);
        }
        let unsure = self.kept().filter(|kept| !self.is_confirmed(kept));
        let confirmation = unsure.map(|kept| self.trial(kept.rate_rps / MARGIN_BELOW, Purpose::Confirm));
        let mut chosen = trial;
        if let Some(confirmation) = confirmation.filter(|_| trial.purpose != Purpose::Confirm)
            && trial.cost() + confirmation.cost() > left
        {
            chosen = confirmation;
        }
        if chosen.cost() <= left {
            return Ok(chosen);
        }
        // A shorter plateau is better than none, but nothing shorter than a step is.
        let length = left.saturating_sub(chosen.warmup + chosen.pause);
        let shortened = chosen.purpose == Purpose::Confirm && length >= self.limits.step;
        if shortened { Ok(Trial { length, ..chosen }) } else { Err(End::TimeUp) }
    }
}

impl Trial {
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

impl Evidence {
    fn bound(&self) -> Bound {
        let generator = self.verdict == Verdict::GeneratorLimited;
        Bound { rate_rps: self.rate_rps, firm: self.firm, generator }
    }
}

#[cfg(test)]
mod tests;
