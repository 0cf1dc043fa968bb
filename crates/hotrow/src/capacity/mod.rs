//! `hotrow capacity`: how much does it carry, and what limits it?
//!
//! Reading order: [`args`] (what can be asked for), this file, `open` and `climb` (the loads; what to try next is
//! decided in `hotrow_lab::capacity`), `measured` (one step), `counted` (its seconds), `live` (how it goes, for the display),
//! `next` (what to do about it), `proof` (is that the limit?), `report` (what it means), `page` with `plots`, and `json`.

pub mod args;
mod climb;
mod counted;
mod json;
mod live;
mod measured;
mod next;
mod open;
mod page;
mod plots;
mod proof;
mod report;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hotrow_lab::capacity::{closed, search, usl};
use hotrow_lab::prove::Undo;
use hotrow_lab::watch::Watch;
use hotrow_load::objective::Objective;
use hotrow_load::plan::{Extent, Pace, Plan};
use hotrow_load::run::Config;
use hotrow_measure::clock::Nanos;

use self::args::CapacityArgs;
use self::measured::Measured;
use self::next::Facts;
use self::open::Task;
use self::report::{Closed, Open, Report, Sought};
use crate::cli::{Exit, tell};
use crate::diagnosis::diagnosed::{self, Diagnosed};
use crate::diagnosis::watched;
use crate::doctor;
use crate::load::args::ArrivalsArg;
use crate::load::files::{self, OutputFile};
use crate::load::{LoadError, html, resolve};
use crate::screen::Shown;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum CapacityError {
    /// Loading failed, or its arguments are wrong.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The arguments of the search are wrong.
    #[error("{0}")]
    Wrong(String),
}

impl CapacityError {
    /// How the process must end.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Load(error) => error.exit(),
            Self::Wrong(_) => Exit::Usage,
        }
    }
}

/// Runs `hotrow capacity` and reports.
///
/// # Errors
/// What kept it from having a result.
pub fn capacity(args: &CapacityArgs) -> Result<Exit, CapacityError> {
    if args.start_rate > args.rate_max {
        let (start, most) = (args.start_rate, args.rate_max);
        return Err(CapacityError::Wrong(format!("--start-rate ({start}) must not be above --rate-max ({most})")));
    }
    if let Some(name) = args.without_closed() {
        return Err(CapacityError::Wrong(format!("{name} is for --closed")));
    }
    let (stop, changes) = diagnosed::stop_flag(args.allow_changes).map_err(LoadError::Signals)?;
    let (url, config) = resolved(args)?;
    if let Some(short) = resolve::wanted(&config).and_then(|wanted| doctor::of_generator(&wanted)) {
        tell(std::io::stderr(), &format!("hotrow capacity: {short}"));
    }
    args.progress.check().map_err(LoadError::Progress)?;
    let mut watch = watched::watch(&args.watch, &config.address).map_err(CapacityError::Wrong)?;
    // Last of all: what is refused must not empty a file. Before the search: a file that cannot be written must not cost minutes.
    let html = args.html.as_deref().map(OutputFile::create).transpose();
    let html = html.map_err(|e| LoadError::Refused(e.into()))?;
    let report = search(args, url, &config, &mut watch, (&stop, changes))?;
    let shown = if args.json { json::line(&report) } else { page::text(&report) };
    let printed = files::print(std::io::stdout(), shown.trim_end());
    if let Some(mut file) = html {
        let command = html::command(std::env::args_os().map(|word| word.to_string_lossy().into_owned()));
        file.write(&page::html(&report, &command));
        file.finish().map_err(LoadError::Output)?;
    }
    printed.map_err(LoadError::Output)?;
    Ok(exit(&report))
}

/// Where requests go. A climb is checked for the most connections that it may come to.
fn resolved(args: &CapacityArgs) -> Result<(String, Config), LoadError> {
    let mut target = args.target.clone();
    if args.closed {
        target.connections = args.connections_max();
    }
    let extent = Extent { duration: Some(args.step), requests: None };
    let plan = Plan { pace: Pace::Closed, warmup: Duration::ZERO, extent, seed: target.seed };
    Ok(resolve::target(&args.urls, &target, plan)?)
}

fn search(
    args: &CapacityArgs,
    url: String,
    config: &Config,
    watch: &mut Watch,
    (stop, changes): (&Arc<AtomicBool>, Option<Undo>),
) -> Result<Report, LoadError> {
    let shown = Shown::start(args.progress, format!("hotrow capacity {url}"), watch).map_err(LoadError::Progress)?;
    shown.search(args.time);
    let mut told = |step: &Measured| {
        shown.step_done(|| live::row(step));
        if shown.lines() {
            tell(std::io::stderr(), &page::progress(step));
        }
    };
    let objectives: &[Objective] = args.slo.as_ref().map_or(&[], |slo| &slo.0);
    let task = Task { config, objectives, args, stop, shown: &shown };
    let (begun, mut steps) = (Nanos::now(), Vec::new());
    let (result, gone) = if args.closed {
        let climbed = climb::climb(&task, watch, &mut steps, &mut told)?;
        let (knee, points) = (closed::knee(&climbed.levels), closed::points(&climbed.levels));
        let fit = usl::fit(&points, args.target.seed);
        (
            Sought::Closed(Closed { end: climbed.end, levels: climbed.levels, knee, fit, seed: args.target.seed }),
            climbed.gone,
        )
    } else {
        let (found, gone) = open::search(&task, watch, &mut steps, &mut told)?;
        (Sought::Open(self::found(&task, found, &steps)), gone)
    };
    let mut report = Report {
        url,
        connections: config.connections,
        threads: config.threads,
        keepalive: config.keepalive,
        watched: watch.words.clone(),
        local: watch.local,
        took_s: Nanos::now().since(begun).as_secs_f64(),
        at_limit: at_limit(&result, &steps),
        result,
        gone,
        steps,
        next: Vec::new(),
        at_least: args.at_least,
        diagnosed: Diagnosed::default(),
    };
    report.diagnosed = proof::diagnosed((&task, changes), watch, &report);
    report.took_s = Nanos::now().since(begun).as_secs_f64();
    report.next = advice(&report, watch.sees_service());
    Ok(report)
}

fn found(task: &Task<'_>, found: search::Found, steps: &[Measured]) -> Open {
    let slo: Vec<String> = task.objectives.iter().map(ToString::to_string).collect();
    let kept = found.kept.filter(|kept| kept.firm);
    let confirmed = kept.and_then(|kept| steps.iter().rev().find(|step| step.rate_rps == Some(kept.rate_rps)));
    Open {
        slo: slo.join(","),
        objectives: task.objectives.to_vec(),
        arrivals: match task.args.arrivals {
            ArrivalsArg::Uniform => "uniform",
            ArrivalsArg::Poisson => "poisson",
        },
        found,
        rate_max_rps: task.args.rate_max,
        requests_wanted: open::requests_wanted(task.objectives),
        requests_confirmed: confirmed.map(|step| step.requests),
    }
}

/// The step that shows the limit: the last at the lowest rate that failed, or the last of all where none did; with
/// connections, the last at which they were most.
fn at_limit(result: &Sought, steps: &[Measured]) -> Option<usize> {
    let last = steps.len().checked_sub(1);
    match result {
        Sought::Open(open) => {
            let top = open.found.refuted.map(|top| top.rate_rps);
            steps.iter().rposition(|step| step.rate_rps == top && top.is_some()).or(last)
        }
        Sought::Closed(_) => {
            let most = steps.iter().map(|step| step.connections).max();
            steps.iter().rposition(|step| Some(step.connections) == most).or(last)
        }
    }
}

fn advice(report: &Report, service_seen: bool) -> Vec<next::Advice> {
    let Some(step) = report.at_limit.and_then(|at| report.steps.get(at)) else { return Vec::new() };
    let flat = matches!(&report.result, Sought::Closed(closed) if closed.end == closed::End::Knee);
    let facts = Facts {
        keepalive: report.keepalive,
        connections: step.connections,
        connections_wanted: step.connections_wanted,
        more_connections_tried: flat,
        cpu_busy: step.cpu_busy.filter(|_| report.local),
        service_seen,
        more_connections_brought: report.diagnosed.more_connections_brought(),
        findings: &report.diagnosed.standing(),
        confirmed: report.diagnosed.finding().map(|finding| finding.class).filter(|_| report.diagnosed.is_confirmed()),
        refuted: &|class| report.diagnosed.refuted(class),
    };
    next::next(&facts).to_vec()
}

fn exit(report: &Report) -> Exit {
    let (interrupted, failed, nothing_kept) = match &report.result {
        Sought::Open(open) => (
            open.found.end == search::End::Interrupted,
            open.found.end == search::End::Harmed,
            open.found.end == search::End::NothingKept,
        ),
        Sought::Closed(closed) => (closed.end == closed::End::Interrupted, closed.end == closed::End::Harmed, false),
    };
    let confirmed = report.confirmed_rps();
    if interrupted || report.diagnosed.interrupted {
        Exit::Interrupted
    } else if failed || report.gone.is_some() {
        Exit::Failed
    } else if nothing_kept {
        Exit::Missed
    } else {
        match (confirmed, report.at_least) {
            (None, Some(_)) => Exit::Missed,
            // Nothing that could be relied on.
            (None, None) => Exit::Failed,
            (Some(confirmed), Some(demanded)) if confirmed < demanded => Exit::Missed,
            (Some(_), _) => Exit::Fine,
        }
    }
}

#[cfg(test)]
mod tests;
