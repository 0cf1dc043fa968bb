//! Tests of the limit: the load at the limit is repeated with one change.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hotrow_load::plan::{Arrivals, LoadModel, Plan, Rate, StopCondition};
use hotrow_load::run::Config;
use hotrow_trial::capacity::closed::ClimbEnd;
use hotrow_trial::capacity::search::SearchEnd;
use hotrow_trial::confirm::{self, Suspects, TrialEvent, TrialLimits};
use hotrow_trial::observe::Observer;

use super::args::RATE_MAX_DEFAULT;
use super::open_search::SearchTask;
use super::progress_text;
use super::report::{Report, SearchResult};
use super::step_result::StepResult;
use crate::diagnosis::{DiagnosisResult, show_trial};
use crate::load::args::ArrivalsArg;

/// Maximum time of the tests, within `--time`.
const TIME_MAX: Duration = Duration::from_secs(20);
/// Minimum time left of `--time` to begin a test.
const TIME_MIN: Duration = Duration::from_secs(3);

/// Returns the findings at the limit, tested unless disabled, out of time, or after an unsuccessful
/// search.
pub(super) fn diagnosis(
    task: &SearchTask<'_>,
    watch: &mut Observer,
    report: &Report,
) -> DiagnosisResult {
    let Some(step) = report.at_limit.and_then(|at| report.steps.get(at)) else {
        return DiagnosisResult::default();
    };
    let mut diagnosis =
        DiagnosisResult { findings: step.findings.clone(), ..DiagnosisResult::default() };
    let left = task.args.time.saturating_sub(Duration::from_secs_f64(report.took_s)).min(TIME_MAX);
    let Some(mut context) = step
        .context
        .clone()
        .filter(|_| !task.args.no_confirm && left >= TIME_MIN && testable(report))
    else {
        return diagnosis;
    };
    let Some(config) = config(task, step) else { return diagnosis };
    // A step that keeps its rate and misses its objective is at its limit: the search reached it by
    // lowering the rate.
    context.target_max_rps = Some(task.args.rate_max);
    context.kept = false;
    let rate_max = Some(task.args.rate_max).filter(|most| *most < RATE_MAX_DEFAULT);
    let limits = TrialLimits {
        rate_max,
        changes: task.changes.clone(),
        ..TrialLimits::of(step.length, left)
    };
    let suspects = Suspects { findings: diagnosis.findings.clone(), context };
    task.shown.tests(left, || progress_text::known(&report.result));
    let mut on_event = |event: TrialEvent<'_>| show_trial(task.shown, &event);
    diagnosis.verdict =
        Some(confirm::confirm(&config, watch, suspects, limits, task.stop, &mut on_event));
    diagnosis.interrupted = task.stop.load(Ordering::Relaxed);
    diagnosis
}

/// Returns whether tests are acceptable: not after harm to the target, and not after an
/// interruption.
fn testable(report: &Report) -> bool {
    let ended_well = match &report.result {
        // A kept rate that may not be raised cannot be tested.
        SearchResult::Open(open) => !matches!(
            open.found.end,
            SearchEnd::Harmed | SearchEnd::Interrupted | SearchEnd::AboveRateMax
        ),
        SearchResult::Closed(closed) => {
            !matches!(closed.end, ClimbEnd::Harmed | ClimbEnd::Interrupted)
        }
    };
    ended_well && report.gone.is_none()
}

fn config(task: &SearchTask<'_>, step: &StepResult) -> Option<Config> {
    let arrivals = match task.args.arrivals {
        ArrivalsArg::Uniform => Arrivals::Uniform,
        ArrivalsArg::Poisson => Arrivals::Poisson,
    };
    let pace = match step.rate_rps {
        Some(rate) => LoadModel::Open { rate: Rate::new(rate, rate).ok()?, arrivals },
        None => LoadModel::Closed,
    };
    let extent = StopCondition { duration: Some(step.length), requests: None };
    let plan = Plan { model: pace, stop: extent, ..task.config.plan };
    let connections = step.connections;
    let threads = task.config.threads.min(connections);
    Some(match step.rate_rps {
        Some(_) => Config { plan, ..task.config.clone() },
        None => Config { plan, connections, threads, ..task.config.clone() },
    })
}
