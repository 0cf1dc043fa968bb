//! `hotrow capacity`: searches for the maximum load of a target, and diagnoses its limit.
//!
//! Reading order: [`args`] (the command line), this file, `open_search` and `closed_search` (the
//! loads; `hotrow_trial::capacity` decides the next step), `step_result` (one step),
//! `second_counts` (its seconds), `progress_text` (texts of the display), `advice`
//! (recommendations), `confirm` (tests of the limit), `report` (the result and its meaning), `page`
//! with `plots`, and `json`.

mod advice;
pub mod args;
mod closed_search;
mod confirm;
mod json;
mod open_search;
mod page;
mod plots;
mod progress_text;
mod report;
mod second_counts;
mod step_result;

use std::time::Duration;

use hotrow_load::objective::Objective;
use hotrow_load::plan::{LoadModel, Plan, StopCondition};
use hotrow_load::run::Config;
use hotrow_measure::clock::Nanos;
use hotrow_trial::capacity::closed::ClimbEnd;
use hotrow_trial::capacity::search::{SearchEnd, SearchOutcome};
use hotrow_trial::capacity::{closed, usl};
use hotrow_trial::observe::Observer;

use self::advice::AdviceInput;
use self::args::CapacityArgs;
use self::open_search::SearchTask;
use self::report::{ClosedResult, OpenResult, Report, SearchResult};
use self::step_result::StepResult;
use crate::diagnosis::watch_args;
use crate::diagnosis::{DiagnosisResult, StopFlag, stop_flag};
use crate::doctor;
use crate::load::args::ArrivalsArg;
use crate::load::{LoadError, html, resolve};
use crate::machine::MeasuredOn;
use crate::tui::ProgressDisplay;
use hotrow_cli::Exit;
use hotrow_cli::output::{self, OutputFile, print_line};

/// Reasons for a missing result.
#[derive(Debug, thiserror::Error)]
pub enum CapacityError {
    /// A load failed, or its arguments are invalid.
    #[error(transparent)]
    GeneratorLoad(#[from] LoadError),
    /// The arguments of the search are invalid.
    #[error("{0}")]
    Wrong(String),
}

impl CapacityError {
    /// Returns the exit status.
    pub fn exit(&self) -> Exit {
        match self {
            Self::GeneratorLoad(error) => error.exit(),
            Self::Wrong(_) => Exit::Usage,
        }
    }
}

/// Runs `hotrow capacity` and reports.
///
/// # Errors
/// Returns the reason for a missing result.
pub fn capacity(args: &CapacityArgs) -> Result<Exit, CapacityError> {
    if args.start_rate > args.rate_max {
        let start = args.start_rate;
        let most = args.rate_max;
        return Err(CapacityError::Wrong(format!(
            "--start-rate ({start}) must not be above --rate-max ({most})"
        )));
    }
    if let Some(name) = args.without_closed() {
        return Err(CapacityError::Wrong(format!("{name} is for --closed")));
    }
    let stop = stop_flag(args.allow_changes).map_err(LoadError::Signals)?;
    let (url, config) = resolved(args)?;
    if let Some(short) =
        resolve::wanted(&config).and_then(|wanted| doctor::generator_warning(&wanted))
    {
        print_line(std::io::stderr(), &format!("hotrow capacity: {short}"));
    }
    args.progress.check().map_err(LoadError::Progress)?;
    let mut watch =
        watch_args::watch(&args.watch, &config.address).map_err(CapacityError::Wrong)?;
    // Output files are created last, so that a rejected search empties none, and before the search,
    // so that an unwritable file costs no time.
    let html = args.html.as_deref().map(OutputFile::create).transpose();
    let html = html.map_err(|e| LoadError::Arguments(e.into()))?;
    let report = search(args, url, &config, &mut watch, stop)?;
    let shown = if args.json { json::line(&report) } else { page::text(&report) };
    let printed = output::print(std::io::stdout(), shown.trim_end());
    if let Some(mut file) = html {
        let command =
            html::command(std::env::args_os().map(|word| word.to_string_lossy().into_owned()));
        file.write(&page::html(&report, &command));
        file.finish().map_err(LoadError::Output)?;
    }
    printed.map_err(LoadError::Output)?;
    Ok(exit(&report))
}

/// Resolves the target. A closed-loop search is checked for its maximum number of connections.
fn resolved(args: &CapacityArgs) -> Result<(String, Config), LoadError> {
    let mut target = args.target.clone();
    if args.closed {
        target.connections = args.connections_max();
    }
    let extent = StopCondition { duration: Some(args.step), requests: None };
    let plan =
        Plan { model: LoadModel::Closed, warmup: Duration::ZERO, stop: extent, seed: target.seed };
    Ok(resolve::target(&args.urls, &target, plan)?)
}

fn search(
    args: &CapacityArgs,
    url: String,
    config: &Config,
    watch: &mut Observer,
    StopFlag { stop, changes }: StopFlag,
) -> Result<Report, LoadError> {
    let shown = ProgressDisplay::start(args.progress, format!("hotrow capacity {url}"), watch)
        .map_err(LoadError::Progress)?;
    shown.search(args.time);
    let mut on_step = |step: &StepResult| {
        shown.step_done(|| progress_text::row(step));
        if shown.lines() {
            print_line(std::io::stderr(), &page::progress(step));
        }
    };
    let mut objectives = args.slo.as_ref().map_or(Vec::new(), |slo| slo.0.clone());
    let errors_assumed = !args.closed && !objectives.iter().any(Objective::bounds_errors);
    if errors_assumed {
        objectives.push(Objective::FEW_ERRORS);
    }
    let task = SearchTask {
        config,
        objectives: &objectives,
        errors_assumed,
        args,
        stop: &stop,
        changes,
        shown: &shown,
    };
    let begun = Nanos::now();
    let measured_on = MeasuredOn::now();
    let mut steps = Vec::new();
    let (result, gone) = if args.closed {
        let climbed = closed_search::search(&task, watch, &mut steps, &mut on_step)?;
        let knee = closed::knee(&climbed.levels);
        let points = closed::points(&climbed.levels);
        let fit = usl::fit(&points, args.target.seed);
        (
            SearchResult::Closed(ClosedResult {
                end: climbed.end,
                levels: climbed.levels,
                knee,
                fit,
                seed: args.target.seed,
            }),
            climbed.gone,
        )
    } else {
        let (found, gone) = open_search::search(&task, watch, &mut steps, &mut on_step)?;
        (SearchResult::Open(self::found(&task, found, &steps)), gone)
    };
    let mut report = Report {
        url,
        connections: config.connections,
        threads: config.threads,
        keepalive: config.keepalive,
        watched: watch.words.clone(),
        local: watch.local,
        took_s: Nanos::now().since(begun).as_secs_f64(),
        measured_on,
        at_limit: at_limit(&result, &steps),
        result,
        gone,
        steps,
        next: Vec::new(),
        at_least: args.at_least,
        diagnosis: DiagnosisResult::default(),
    };
    report.diagnosis = confirm::diagnosis(&task, watch, &report);
    report.took_s = Nanos::now().since(begun).as_secs_f64();
    report.next = advice(&report, watch.observes_service());
    Ok(report)
}

fn found(task: &SearchTask<'_>, found: SearchOutcome, steps: &[StepResult]) -> OpenResult {
    let slo: Vec<String> = task.objectives.iter().map(ToString::to_string).collect();
    let kept = found.kept.filter(|kept| kept.firm);
    let confirmed =
        kept.and_then(|kept| steps.iter().rev().find(|step| step.rate_rps == Some(kept.rate_rps)));
    OpenResult {
        slo: slo.join(","),
        objectives: task.objectives.to_vec(),
        errors_assumed: task.errors_assumed,
        arrivals: match task.args.arrivals {
            ArrivalsArg::Uniform => "uniform",
            ArrivalsArg::Poisson => "poisson",
        },
        found,
        rate_max_rps: task.args.rate_max,
        requests_wanted: open_search::requests_wanted(task.objectives),
        requests_confirmed: confirmed.map(|step| step.requests),
    }
}

/// Returns the step that shows the limit: the last one at the lowest failed rate, or the last of
/// all where none failed; in a closed loop, the last with the most connections.
fn at_limit(result: &SearchResult, steps: &[StepResult]) -> Option<usize> {
    let last = steps.len().checked_sub(1);
    match result {
        SearchResult::Open(open) => {
            let top = open.found.refuted.map(|top| top.rate_rps);
            steps.iter().rposition(|step| step.rate_rps == top && top.is_some()).or(last)
        }
        SearchResult::Closed(_) => {
            let most = steps.iter().map(|step| step.connections).max();
            steps.iter().rposition(|step| Some(step.connections) == most).or(last)
        }
    }
}

fn advice(report: &Report, service_seen: bool) -> Vec<advice::Advice> {
    let Some(step) = report.at_limit.and_then(|at| report.steps.get(at)) else { return Vec::new() };
    let flat = match &report.result {
        SearchResult::Open(_) => false,
        SearchResult::Closed(closed) => closed.end == ClimbEnd::Knee,
    };
    let facts = AdviceInput {
        keepalive: report.keepalive,
        connections: step.connections,
        connections_wanted: step.connections_wanted,
        more_connections_tried: flat,
        cpu_busy: step.cpu_busy.filter(|_| report.local),
        service_seen,
        more_connections_brought: report.diagnosis.more_connections_brought(),
        findings: &report.diagnosis.standing(),
        confirmed: report
            .diagnosis
            .finding()
            .map(|finding| finding.class)
            .filter(|_| report.diagnosis.is_confirmed()),
        refuted: &|class| report.diagnosis.refuted(class),
    };
    advice::advise(&facts).to_vec()
}

fn exit(report: &Report) -> Exit {
    let (interrupted, failed, nothing_kept) = match &report.result {
        SearchResult::Open(open) => (
            open.found.end == SearchEnd::Interrupted,
            open.found.end == SearchEnd::Harmed,
            open.found.end == SearchEnd::NothingKept,
        ),
        SearchResult::Closed(closed) => {
            (closed.end == ClimbEnd::Interrupted, closed.end == ClimbEnd::Harmed, false)
        }
    };
    let confirmed = report.confirmed_rps();
    if interrupted || report.diagnosis.interrupted {
        Exit::Interrupted
    } else if failed || report.gone.is_some() {
        Exit::Failed
    } else if nothing_kept {
        Exit::Missed
    } else {
        match (confirmed, report.at_least) {
            (None, Some(_)) => Exit::Missed,
            // No reliable result.
            (None, None) => Exit::Failed,
            (Some(confirmed), Some(demanded)) if confirmed < demanded => Exit::Missed,
            (Some(_), _) => Exit::Fine,
        }
    }
}

#[cfg(test)]
mod tests;
