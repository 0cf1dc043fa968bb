//! The closed-loop search over numbers of connections.

use std::time::Duration;

use hotrow_load::outcome::{self, Second};
use hotrow_load::plan::{LoadModel, Plan, StopCondition};
use hotrow_load::run::{self, Config, RunError};
use hotrow_load::stats::LoadStats;
use hotrow_measure::clock::Nanos;
use hotrow_trial::capacity::closed::{
    Climb, End, Level, Limits, Measured as MeasuredLevel, Step, Verdict,
};
use hotrow_trial::observe::{self, Observer};

use super::open_search::SearchTask;
use super::progress_text;
use super::step_result::{self, StepResult};

pub(super) struct ClosedResult {
    pub(super) levels: Vec<Level>,
    pub(super) end: End,
    /// Reason why the target is unreachable, if it is.
    pub(super) gone: Option<String>,
}

/// Runs the search; each step is passed to `on_step` as soon as it is evaluated.
pub(super) fn search(
    task: &SearchTask<'_>,
    watch: &mut Observer,
    steps: &mut Vec<StepResult>,
    on_step: &mut dyn FnMut(&StepResult),
) -> Result<ClosedResult, RunError> {
    let args = task.args;
    let mut climb = Climb::new(Limits {
        connections_max: args.connections_max().get(),
        rounds: args.rounds(),
        step: args.step,
        time: args.time,
    });
    let mut last = None;
    let (end, gone) = loop {
        let (load_of, pause) = match climb.next(last) {
            Step::Done(end) => break (end, None),
            Step::Run { connections, warmup, length, pause } => {
                ((connections, warmup, length), pause)
            }
        };
        task.shown.step(
            || progress_text::level(load_of.0, climb.levels(), args.rounds()),
            || progress_text::best(climb.levels()),
        );
        let begun = Nanos::now();
        match load(task, watch, load_of, steps.len() as u64) {
            Ok((measured, verdict)) => {
                let rate_rps = measured.answered_rps;
                on_step(&measured);
                steps.push(measured);
                observe::sleep(pause, task.stop);
                last = Some(MeasuredLevel { rate_rps, verdict, took: Nanos::now().since(begun) });
            }
            Err(RunError::InterruptedBefore) => break (End::Interrupted, None),
            Err(RunError::NoConnection { why, .. }) if !steps.is_empty() => {
                break (End::Harmed, Some(why));
            }
            Err(error) => return Err(error),
        }
    };
    Ok(ClosedResult { levels: climb.levels().to_vec(), end, gone })
}

/// Applies one load; an interruption is an error because the step is then incomplete.
fn load(
    task: &SearchTask<'_>,
    watch: &mut Observer,
    (connections, warmup, length): (usize, Duration, Duration),
    number: u64,
) -> Result<(StepResult, Verdict), RunError> {
    let seed = task.config.seed.wrapping_add(number);
    let extent = StopCondition { duration: Some(length), requests: None };
    let plan = Plan { model: LoadModel::Closed, warmup, stop: extent, seed };
    let threads = task.config.threads.min(connections);
    let config = Config { plan, seed, connections, threads, ..task.config.clone() };
    task.shown.begins(&config);
    let mut on_second = |second: &Second, record: &LoadStats| task.shown.second(second, record);
    let (outcome, samples) = watch.during(warmup, Some(length), |begin| {
        run::run_with_start_hook(&config, task.stop, &mut |at| begin.at(at), &mut on_second)
    });
    let outcome = outcome?;
    if outcome.end == outcome::RunEnd::Interrupted {
        return Err(RunError::InterruptedBefore);
    }
    // A closed loop sends again only after a response: without one, all its requests may lie in the
    // warm-up.
    let no_response = outcome.total.counts.ok == 0;
    let verdict = if no_response || step_result::harmed(&outcome, task.args.abort_errors) {
        Verdict::Harmed
    } else if outcome.limit().is_generator() {
        Verdict::GeneratorLimited
    } else {
        Verdict::Fine
    };
    let mut step = StepResult::new(&outcome, samples.as_ref());
    step.connections = connections;
    step.purpose = "closed";
    step.verdict = words(verdict);
    step.diagnose(watch, &config, &outcome, samples);
    Ok((step, verdict))
}

fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fine => "fine",
        Verdict::GeneratorLimited => "generator",
        Verdict::Harmed => "harm",
    }
}
