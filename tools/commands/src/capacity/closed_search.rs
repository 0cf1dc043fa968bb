//! The closed-loop search over numbers of connections.

use std::time::Duration;

use hotrow_load::outcome::{self, Second};
use hotrow_load::plan::{LoadModel, Plan, StopCondition};
use hotrow_load::run::{self, Config, RunError};
use hotrow_load::stats::LoadStats;
use hotrow_measure::clock::Nanos;
use hotrow_trial::capacity::closed::{
    Climb, ClimbEnd, Level, LevelVerdict, Limits, Measured as MeasuredLevel, Step,
};
use hotrow_trial::observe::{self, Observer};

use super::open_search::SearchTask;
use super::progress_text;
use super::step_result::{self, StepResult};

pub(super) struct ClimbResult {
    pub(super) levels: Vec<Level>,
    pub(super) end: ClimbEnd,
    /// Reason why the target is unreachable, if it is.
    pub(super) gone: Option<String>,
}

/// Runs the search; each step is passed to `on_step` as soon as it is evaluated.
pub(super) fn search(
    task: &SearchTask<'_>,
    watch: &mut Observer,
    steps: &mut Vec<StepResult>,
    on_step: &mut dyn FnMut(&StepResult),
) -> Result<ClimbResult, RunError> {
    let args = task.args;
    let mut climb = Climb::new(Limits {
        connections_max: args.connections_max().get(),
        rounds: args.rounds(),
        step: args.step,
        time: args.time,
    });
    let mut last = None;
    let (end, gone) = loop {
        let (level, pause) = match climb.next(last) {
            Step::Done(end) => break (end, None),
            Step::Run { connections, warmup, length, pause } => {
                (LevelLoad { connections, warmup, length }, pause)
            }
        };
        task.shown.step(
            || progress_text::level(level.connections, climb.levels(), args.rounds()),
            || progress_text::best(climb.levels()),
        );
        let begun = Nanos::now();
        match load(task, watch, level, steps.len() as u64) {
            Ok((measured, verdict)) => {
                let rate_rps = measured.answered_rps;
                on_step(&measured);
                steps.push(measured);
                observe::sleep(pause, task.stop);
                last = Some(MeasuredLevel { rate_rps, verdict, took: Nanos::now().since(begun) });
            }
            Err(RunError::InterruptedBefore) => break (ClimbEnd::Interrupted, None),
            Err(RunError::NoConnection { why, .. }) if !steps.is_empty() => {
                break (ClimbEnd::Harmed, Some(why));
            }
            Err(error) => return Err(error),
        }
    };
    Ok(ClimbResult { levels: climb.levels().to_vec(), end, gone })
}

/// The load of one level.
#[derive(Clone, Copy)]
struct LevelLoad {
    connections: usize,
    warmup: Duration,
    length: Duration,
}

/// Applies one load; an interruption is an error because the step is then incomplete.
fn load(
    task: &SearchTask<'_>,
    watch: &mut Observer,
    LevelLoad { connections, warmup, length }: LevelLoad,
    number: u64,
) -> Result<(StepResult, LevelVerdict), RunError> {
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
        LevelVerdict::Harmed
    } else if outcome.limit().is_generator() {
        LevelVerdict::GeneratorLimited
    } else {
        LevelVerdict::Fine
    };
    let mut step = StepResult::new(&outcome, samples.as_ref());
    step.connections = connections;
    step.purpose = "closed";
    step.verdict = words(verdict);
    step.diagnose(watch, &config, &outcome, samples);
    Ok((step, verdict))
}

fn words(verdict: LevelVerdict) -> &'static str {
    match verdict {
        LevelVerdict::Fine => "fine",
        LevelVerdict::GeneratorLimited => "generator",
        LevelVerdict::Harmed => "harm",
    }
}
