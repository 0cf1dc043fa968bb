//! Tests what limited it: the load at the limit is made again, with one thing changed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hotrow_lab::capacity::{closed, search};
use hotrow_lab::prove::{self, Limits, Told, Undo};
use hotrow_lab::watch::Watch;
use hotrow_load::plan::{Arrivals, Extent, Pace, Plan, Rate};
use hotrow_load::run::Config;

use super::args::RATE_MAX_DEFAULT;
use super::live;
use super::measured::Measured;
use super::open::Task;
use super::report::{Report, Sought};
use crate::diagnosis::diagnosed::Diagnosed;
use crate::diagnosis::trials;
use crate::load::args::ArrivalsArg;

/// Longest time for tests, within `--time`.
const TIME_MAX: Duration = Duration::from_secs(20);
/// With less than this left of `--time` no test is begun: nothing could be told by its end.
const TIME_MIN: Duration = Duration::from_secs(3);

/// What was found at the limit, tested unless that is not wanted, does not fit into the time, or the search did not end well.
pub(super) fn diagnosed((task, changes): (&Task<'_>, Option<Undo>), watch: &mut Watch, report: &Report) -> Diagnosed {
    let Some(step) = report.at_limit.and_then(|at| report.steps.get(at)) else { return Diagnosed::default() };
    let mut diagnosed = Diagnosed { findings: step.findings.clone(), verdict: None, interrupted: false };
    let left = task.args.time.saturating_sub(Duration::from_secs_f64(report.took_s)).min(TIME_MAX);
    let Some(mut scene) = step.scene.clone().filter(|_| !task.args.no_prove && left >= TIME_MIN && testable(report))
    else {
        return diagnosed;
    };
    let Some(config) = config(task, step) else { return diagnosed };
    // What keeps its rate and misses its objective there is loaded as far as it goes: the search did so on its way down.
    (scene.asked_most_rps, scene.kept) = (Some(task.args.rate_max), false);
    let rate_max = Some(task.args.rate_max).filter(|most| *most < RATE_MAX_DEFAULT);
    let limits = Limits { rate_max, changes, ..Limits::of(step.length, left) };
    let guesses = (diagnosed.findings.clone(), scene);
    task.shown.tests(left, || live::known(&report.result));
    let mut told = |told: Told<'_>| trials::show(task.shown, &told);
    diagnosed.verdict = Some(prove::prove(&config, watch, guesses, limits, task.stop, &mut told));
    diagnosed.interrupted = task.stop.load(Ordering::Relaxed);
    diagnosed
}

/// A target that was harmed is left alone, and who interrupts wants no more.
fn testable(report: &Report) -> bool {
    let ended_well = match &report.result {
        // Of a rate that was kept and may not be raised there is nothing to test.
        Sought::Open(open) => {
            !matches!(open.found.end, search::End::Harmed | search::End::Interrupted | search::End::AboveRateMax)
        }
        Sought::Closed(closed) => !matches!(closed.end, closed::End::Harmed | closed::End::Interrupted),
    };
    ended_well && report.gone.is_none()
}

/// The load of a step.
fn config(task: &Task<'_>, step: &Measured) -> Option<Config> {
    let arrivals = match task.args.arrivals {
        ArrivalsArg::Uniform => Arrivals::Uniform,
        ArrivalsArg::Poisson => Arrivals::Poisson,
    };
    let pace = match step.rate_rps {
        Some(rate) => Pace::Open { rate: Rate::new(rate, rate).ok()?, arrivals },
        None => Pace::Closed,
    };
    let extent = Extent { duration: Some(step.length), requests: None };
    let plan = Plan { pace, extent, ..task.config.plan };
    let (connections, threads) = (step.connections, task.config.threads.min(step.connections));
    Some(match step.rate_rps {
        Some(_) => Config { plan, ..task.config.clone() },
        None => Config { plan, connections, threads, ..task.config.clone() },
    })
}
