//! The open-loop search for a rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotrow_load::objective::{self, Objective};
use hotrow_load::outcome::{self, Second};
use hotrow_load::plan::{Arrivals, LoadModel, Plan, Rate, StopCondition};
use hotrow_load::run::{self, Config, RunError};
use hotrow_load::stats::{CensoredNs, LoadStats};
use hotrow_measure::clock::Nanos;
use hotrow_trial::capacity::search::{
    Judged, Limits, Purpose, RateVerdict, Search, SearchEnd, SearchOutcome, Step, Trial,
};
use hotrow_trial::confirm::QuotaRestore;
use hotrow_trial::observe::Observer;

use super::args::CapacityArgs;
use super::progress_text;
use super::second_counts::SecondCounts;
use super::step_result::{self, StepResult};
use crate::load::args::ArrivalsArg;
use crate::tui::ProgressDisplay;

pub(super) struct SearchTask<'a> {
    pub(super) config: &'a Config,
    pub(super) objectives: &'a [Objective],
    /// The last objective was not demanded: [`Objective::FEW_ERRORS`].
    pub(super) errors_assumed: bool,
    pub(super) args: &'a CapacityArgs,
    pub(super) stop: &'a Arc<AtomicBool>,
    pub(super) changes: Option<QuotaRestore>,
    pub(super) shown: &'a ProgressDisplay,
}

enum LoadOutcome {
    StepResult(Box<StepResult>, RateVerdict),
    Interrupted,
    /// The target no longer accepts connections, with the reason.
    Gone(String),
}

/// Runs the search; each step is passed to `on_step` as soon as it is evaluated. Also returns the
/// reason if the target became unreachable.
pub(super) fn search(
    task: &SearchTask<'_>,
    watch: &mut Observer,
    steps: &mut Vec<StepResult>,
    on_step: &mut dyn FnMut(&StepResult),
) -> Result<(SearchOutcome, Option<String>), RunError> {
    let mut search = Search::new(limits(task));
    let mut last = None;
    loop {
        let trial = match search.next(last) {
            Step::Done(found) => return Ok((found, None)),
            Step::Run(trial) => trial,
        };
        // The search has recorded the last step by now.
        if task.stop.load(Ordering::Relaxed) {
            return Ok((search.found(SearchEnd::Interrupted), None));
        }
        task.shown.step(
            || progress_text::trial(&trial),
            || progress_text::interval(&search.found(SearchEnd::TimeUp)),
        );
        let begun = Nanos::now();
        match load(task, watch, &trial, steps.len() as u64) {
            Ok(LoadOutcome::StepResult(step, verdict)) => {
                let z = step.noise.map(|noise| noise.z);
                on_step(&step);
                steps.push(*step);
                hotrow_trial::observe::sleep(trial.pause, task.stop);
                last = Some(Judged { verdict, z, took: Nanos::now().since(begun) });
            }
            Ok(LoadOutcome::Interrupted) => {
                return Ok((search.found(SearchEnd::Interrupted), None));
            }
            Ok(LoadOutcome::Gone(why)) if !steps.is_empty() => {
                return Ok((search.found(SearchEnd::Harmed), Some(why)));
            }
            // Unreachable at the first step: an error, not a result.
            Ok(LoadOutcome::Gone(why)) => {
                return Err(RunError::NoConnection {
                    address: task.config.address.to_string(),
                    why,
                });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns the number of requests that the objectives need per step.
pub(super) fn requests_wanted(objectives: &[Objective]) -> u64 {
    objectives.iter().map(Objective::requests_wanted).max().unwrap_or(1)
}

fn limits(task: &SearchTask<'_>) -> Limits {
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

fn load(
    task: &SearchTask<'_>,
    watch: &mut Observer,
    trial: &Trial,
    number: u64,
) -> Result<LoadOutcome, RunError> {
    let arrivals = match task.args.arrivals {
        ArrivalsArg::Uniform => Arrivals::Uniform,
        ArrivalsArg::Poisson => Arrivals::Poisson,
    };
    // Different ids and arrival times in each step.
    let seed = task.config.seed.wrapping_add(number);
    let plan = Plan {
        model: LoadModel::Open { rate: Rate::new(trial.rate_rps, trial.rate_rps)?, arrivals },
        warmup: trial.warmup,
        stop: StopCondition { duration: Some(trial.length), requests: None },
        seed,
    };
    let config = Config { plan, seed, ..task.config.clone() };
    task.shown.begins(&config);
    let mut counted = SecondCounts::new(task.objectives);
    let mut on_second = |second: &Second, record: &LoadStats| {
        task.shown.second(second, record);
        counted.add(second, record);
    };
    let (outcome, samples) = watch.during(trial.warmup, Some(trial.length), |begin| {
        run::run_with_start_hook(&config, task.stop, &mut |at| begin.at(at), &mut on_second)
    });
    let outcome = match outcome {
        Ok(outcome) if outcome.end == outcome::RunEnd::Interrupted => {
            return Ok(LoadOutcome::Interrupted);
        }
        Ok(outcome) => outcome,
        Err(RunError::InterruptedBefore) => return Ok(LoadOutcome::Interrupted),
        Err(RunError::NoConnection { why, .. }) => return Ok(LoadOutcome::Gone(why)),
        Err(error) => return Err(error),
    };
    let judged = objective::evaluate(task.objectives, &outcome);
    let verdict = step_result::verdict(&outcome, &judged, task.args.abort_errors);
    let mut step = StepResult::new(&outcome, samples.as_ref());
    step.rate_rps = Some(trial.rate_rps);
    step.purpose = purpose(trial.purpose);
    step.verdict = words(verdict);
    let latency = Duration::from_nanos(outcome.total.latency.mean().map_or(0, CensoredNs::ns));
    step.noise = counted.noise(trial, &judged, latency);
    step.judged = judged;
    step.diagnose(watch, &config, &outcome, samples);
    Ok(LoadOutcome::StepResult(Box::new(step), verdict))
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

fn words(verdict: RateVerdict) -> &'static str {
    match verdict {
        RateVerdict::Kept => "kept",
        RateVerdict::Missed => "missed",
        RateVerdict::GeneratorLimited => "generator",
        RateVerdict::Harmed => "harm",
    }
}
