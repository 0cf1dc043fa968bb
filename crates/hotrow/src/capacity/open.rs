//! The search for a rate, carried out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotrow_lab::capacity::search::{End, Found, Judged, Limits, Purpose, Search, Step, Trial, Verdict};
use hotrow_lab::watch::Watch;
use hotrow_load::objective::{self, Objective};
use hotrow_load::outcome::{self, Second};
use hotrow_load::plan::{Arrivals, Extent, Pace, Plan, Rate};
use hotrow_load::record::{Known, Record};
use hotrow_load::run::{self, Config, RunError};
use hotrow_measure::clock::Nanos;

use super::args::CapacityArgs;
use super::counted::Counted;
use super::live;
use super::measured::{self, Measured};
use crate::load::args::ArrivalsArg;
use crate::screen::Shown;

/// What is looked for, and how far it may go.
pub(super) struct Task<'a> {
    pub(super) config: &'a Config,
    pub(super) objectives: &'a [Objective],
    pub(super) args: &'a CapacityArgs,
    pub(super) stop: &'a Arc<AtomicBool>,
    pub(super) shown: &'a Shown,
}

/// How one load ended.
enum Loaded {
    Measured(Box<Measured>, Verdict),
    Interrupted,
    /// The target takes no connection any more, and why.
    Gone(String),
}

/// Searches; every step is handed to `tell` as soon as it is judged. The words say why the target is gone, if it is.
pub(super) fn search(
    task: &Task<'_>,
    watch: &mut Watch,
    steps: &mut Vec<Measured>,
    tell: &mut dyn FnMut(&Measured),
) -> Result<(Found, Option<String>), RunError> {
    let mut search = Search::new(limits(task));
    let mut last = None;
    loop {
        let trial = match search.next(last) {
            Step::Done(found) => return Ok((found, None)),
            Step::Run(trial) => trial,
        };
        // After the search has heard of the last step.
        if task.stop.load(Ordering::Relaxed) {
            return Ok((search.found(End::Interrupted), None));
        }
        task.shown.step(|| live::trial(&trial), || live::interval(&search.found(End::TimeUp)));
        let begun = Nanos::now();
        match load(task, watch, &trial, steps.len() as u64) {
            Ok(Loaded::Measured(step, verdict)) => {
                let z = step.noise.map(|noise| noise.z);
                tell(&step);
                steps.push(*step);
                hotrow_lab::watch::sleep(trial.pause, task.stop);
                last = Some(Judged { verdict, z, took: Nanos::now().since(begun) });
            }
            Ok(Loaded::Interrupted) => return Ok((search.found(End::Interrupted), None)),
            Ok(Loaded::Gone(why)) if !steps.is_empty() => return Ok((search.found(End::Harmed), Some(why))),
            // At the very first nothing was there: no result, but an error.
            Ok(Loaded::Gone(why)) => {
                return Err(RunError::NoConnection { address: task.config.address.to_string(), why });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Requests that the objectives want of a step.
pub(super) fn requests_wanted(objectives: &[Objective]) -> u64 {
    objectives.iter().map(Objective::requests_wanted).max().unwrap_or(1)
}

fn limits(task: &Task<'_>) -> Limits {
    let CapacityArgs { start_rate, rate_max, step, plateau, time, .. } = task.args;
    Limits {
        start_rps: *start_rate,
        rate_max_rps: *rate_max,
        requests: requests_wanted(task.objectives),
        step: *step,
        plateau: *plateau,
        time: *time,
    }
}

fn load(task: &Task<'_>, watch: &mut Watch, trial: &Trial, number: u64) -> Result<Loaded, RunError> {
    let arrivals = match task.args.arrivals {
        ArrivalsArg::Uniform => Arrivals::Uniform,
        ArrivalsArg::Poisson => Arrivals::Poisson,
    };
    // Other ids and other arrival times in each step.
    let seed = task.config.seed.wrapping_add(number);
    let plan = Plan {
        pace: Pace::Open { rate: Rate::new(trial.rate_rps, trial.rate_rps)?, arrivals },
        warmup: trial.warmup,
        extent: Extent { duration: Some(trial.length), requests: None },
        seed,
    };
    let config = Config { plan, seed, ..task.config.clone() };
    task.shown.begins(&config);
    let mut counted = Counted::new(task.objectives);
    let mut told = |second: &Second, record: &Record| {
        task.shown.second(second, record);
        counted.add(second, record);
    };
    let (outcome, samples) = watch.during(trial.warmup, Some(trial.length), |begin| {
        run::run_telling(&config, task.stop, &mut |at| begin.at(at), &mut told)
    });
    let outcome = match outcome {
        Ok(outcome) if outcome.end == outcome::End::Interrupted => return Ok(Loaded::Interrupted),
        Ok(outcome) => outcome,
        Err(RunError::InterruptedBefore) => return Ok(Loaded::Interrupted),
        Err(RunError::NoConnection { why, .. }) => return Ok(Loaded::Gone(why)),
        Err(error) => return Err(error),
    };
    let judged = objective::judge(task.objectives, &outcome);
    let verdict = measured::verdict(&outcome, &judged, task.args.abort_errors);
    let mut step = Measured::new(&outcome, samples.as_ref());
    step.rate_rps = Some(trial.rate_rps);
    step.purpose = purpose(trial.purpose);
    step.verdict = words(verdict);
    let latency = Duration::from_nanos(outcome.total.latency.mean().map_or(0, Known::ns));
    step.noise = counted.noise(trial, &judged, latency);
    step.judged = judged;
    step.diagnose(watch, &config, &outcome, samples);
    Ok(Loaded::Measured(Box::new(step), verdict))
}

fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Climb => "climb",
        Purpose::Fall => "fall",
        Purpose::Bisect => "bisect",
        Purpose::Confirm => "plateau",
        Purpose::SecondLook => "second look",
    }
}

fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Kept => "kept",
        Verdict::Missed => "missed",
        Verdict::GeneratorLimited => "generator",
        Verdict::Harmed => "harm",
    }
}
