//! `hotrow load`: the command of the load generator.
//!
//! Reading order: [`args`] (the command line), `resolve` (checks and preparation), this file (the
//! run), `json` and `text` (the result), `bottleneck_text` (what limited it), `hdr`, `csv` (second
//! by second) and `html`, to `files`; `calibration`; `repeated` (runs with the same ids); `compare`
//! (results in `saved_result`).

pub mod args;
mod calibration;
mod compare;
mod csv;
mod hdr;
pub(crate) mod html;
pub(crate) mod json;
mod load_result;
mod repeated;
pub(crate) mod resolve;
mod saved_result;
pub(crate) mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use hotrow_diagnose::samples::Samples;
use hotrow_load::calibrate::{self, CalibrateError};
use hotrow_load::objective::{self, ObjectiveResult, ObjectiveStatus};
use hotrow_load::outcome::{Outcome, RunEnd, Second};
use hotrow_load::run::{self, Config, RunError};
use hotrow_load::stats::LoadStats;
use hotrow_measure::clock::Nanos;
use hotrow_report::numbers::number;
use hotrow_trial::confirm::{self, QuotaRestore, Suspects, TrialEvent, TrialLimits};
use hotrow_trial::observe::Observer;

use self::args::{LoadArgs, LoadCommand};
use self::calibration::{Entry, Machine};
pub use self::compare::CompareError;
use self::csv::Csv;
use self::hdr::HdrLog;
use self::load_result::{LoadResult, met};
pub use self::resolve::ArgumentError;
pub use self::saved_result::SavedResultError;
use crate::diagnosis::{self, DiagnosisResult, StopFlag, show_trial, stop_flag, watch_args};
use crate::doctor;
use crate::machine::MeasuredOn;
use crate::tui::ProgressDisplay;
use hotrow_cli::Exit;
use hotrow_cli::output::{self, OutputError, print_line};

/// Reasons for a missing result.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The arguments are invalid.
    #[error(transparent)]
    Arguments(#[from] ArgumentError),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A process to be watched is missing.
    #[error("{0}")]
    Observer(String),
    /// The requested display is not possible.
    #[error("{0}")]
    Progress(String),
    /// Calibrating failed.
    #[error(transparent)]
    Calibrate(#[from] CalibrateError),
    /// A file, or standard output, could not be written completely.
    #[error("{0}; it is not complete")]
    Output(OutputError),
    /// Results cannot be compared.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// Signal handlers cannot be installed.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
}

impl LoadError {
    /// Returns the exit status.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Arguments(ArgumentError::Target(
                hotrow_transport::target::TargetError::Unreachable { .. }
                | hotrow_transport::target::TargetError::UnknownHost { .. }
                | hotrow_transport::target::TargetError::NoAddress(_),
            )) => Exit::Failed,
            Self::Arguments(_)
            | Self::Observer(_)
            | Self::Progress(_)
            | Self::Run(
                RunError::Plan(_)
                | RunError::OutOfRange { .. }
                | RunError::PipelineWithoutKeepalive,
            ) => Exit::Usage,
            Self::Run(RunError::InterruptedBefore)
            | Self::Calibrate(CalibrateError::Interrupted) => Exit::Interrupted,
            Self::Run(_)
            | Self::Calibrate(_)
            | Self::Output(_)
            | Self::Compare(_)
            | Self::Signals(_) => Exit::Failed,
        }
    }
}

/// Runs `hotrow load` and reports.
/// # Errors
/// Returns the reason for a missing result.
pub fn load(args: &LoadArgs) -> Result<Exit, LoadError> {
    if let Some(LoadCommand::Compare(args)) = &args.command {
        return Ok(compare::run(args)?);
    }
    // Installed before anything slow, so that resolving an unknown host can be interrupted too.
    let StopFlag { stop, changes } = stop_flag(args.allow_changes).map_err(LoadError::Signals)?;
    if args.calibrate {
        return calibrate(args, &stop);
    }
    let (url, config) = resolve::resolve(args)?;
    if let Some(short) =
        resolve::wanted(&config).and_then(|wanted| doctor::generator_warning(&wanted))
    {
        print_line(std::io::stderr(), &format!("hotrow load: {short}"));
    }
    args.progress.check().map_err(LoadError::Progress)?;
    let mut watch = watch_args::watch(&args.watch, &config.address).map_err(LoadError::Observer)?;
    let [hdr, csv, html] = resolve::output_files(args)?;
    let mut hdr = hdr.map(|file| HdrLog::new(file, (SystemTime::now(), Nanos::now())));
    let mut csv = csv.map(Csv::new);
    let shown = ProgressDisplay::start(args.progress, format!("hotrow load {url}"), &watch)
        .map_err(LoadError::Progress)?;
    shown.begins(&config);
    let mut on_second = |second: &Second, record: &LoadStats| {
        shown.second(second, record);
        if shown.lines() {
            print_line(std::io::stderr(), &text::progress(second));
        }
        hdr.iter_mut().for_each(|hdr| hdr.second(second, record));
        csv.iter_mut().for_each(|csv| csv.second(second));
    };
    let measured_on = MeasuredOn::now();
    let kept = calibration::file(|name| std::env::var_os(name));
    let repeated = repeated::note(args, &url, kept.as_deref(), measured_on.began_unix_s);
    let warmup = config.plan.warmup;
    let length = config.plan.stop.duration;
    let (outcome, samples) = watch.during(warmup, length, |begin| {
        run::run_with_start_hook(&config, &stop, &mut |at| begin.at(at), &mut on_second)
    });
    let outcome = outcome?;
    let mut diagnosed = match samples {
        Some(samples) => {
            let task = Diagnose { args, config: &config, outcome: &outcome, stop: &stop, changes };
            task.run(&mut watch, samples, &shown)
        }
        None => DiagnosisResult::default(),
    };
    drop(shown);
    let objectives = args.slo.as_ref().map_or(&[][..], |slo| &slo.0);
    let judged = objective::evaluate(objectives, &outcome);
    diagnosed.missed_objective = judged.iter().any(|one| one.met == ObjectiveStatus::Missed);
    let diagnosis = diagnosis::json::diagnosis(&watch, &diagnosed);
    let entry = kept.and_then(|file| calibration::find(&file, &Machine::here()));
    let headroom = entry.and_then(|entry| entry.headroom(&config, &outcome));
    let result = LoadResult {
        url: &url,
        config: &config,
        measured_on: &measured_on,
        outcome: &outcome,
        judged: &judged,
        diagnosed: &diagnosed,
        headroom: headroom.as_ref(),
        repeated: repeated.as_deref(),
    };
    let printed = report(args, &result, &diagnosis);
    // After the report: a full disk must not hide the measurement.
    let html = html.map(|mut file| {
        let command =
            html::command(std::env::args_os().map(|word| word.to_string_lossy().into_owned()));
        file.write(&html::page(&result, &command));
        file
    });
    let files = [hdr.map(|hdr| hdr.end(outcome.end)), csv.map(|csv| csv.end(outcome.end)), html];
    for file in files.into_iter().flatten() {
        file.finish().map_err(LoadError::Output)?;
    }
    printed.map_err(LoadError::Output)?;
    Ok(exit(&outcome, &judged, diagnosed.interrupted))
}

/// The diagnosis of a run.
struct Diagnose<'a> {
    args: &'a LoadArgs,
    config: &'a Config,
    outcome: &'a Outcome,
    stop: &'a Arc<AtomicBool>,
    changes: Option<QuotaRestore>,
}

impl Diagnose<'_> {
    /// Returns the findings, tested if requested.
    fn run(
        self,
        watch: &mut Observer,
        samples: Samples,
        shown: &ProgressDisplay,
    ) -> DiagnosisResult {
        let Self { args, config, outcome, stop, changes } = self;
        let context = confirm::context(config, outcome, &samples, watch.local);
        let findings = watch.findings(samples, outcome);
        // An interrupted or failed run leaves nothing to repeat.
        let testable =
            args.confirm && outcome.end == RunEnd::Complete && outcome.total.counts.ok > 0;
        let untestable =
            args.confirm && outcome.end != RunEnd::Interrupted && outcome.total.counts.ok == 0;
        let verdict = testable.then(|| {
            let limits =
                TrialLimits { changes, ..TrialLimits::of(outcome.window, args.confirm_time) };
            shown.tests(args.confirm_time, || {
                format!("the run: {} answered/s", number(outcome.throughput_rps()))
            });
            let mut on_second = |on_second: TrialEvent<'_>| show_trial(shown, &on_second);
            confirm::confirm(
                config,
                watch,
                Suspects { findings: findings.clone(), context: context.clone() },
                limits,
                stop,
                &mut on_second,
            )
        });
        let verdict = verdict.or_else(|| {
            let why = "no request was answered as expected, so there is nothing to compare with";
            untestable.then(|| confirm::untested(findings.clone(), context, why))
        });
        let interrupted = testable && stop.load(Ordering::Relaxed);
        DiagnosisResult { findings, verdict, missed_objective: false, interrupted }
    }
}

fn report(
    args: &LoadArgs,
    result: &LoadResult<'_>,
    diagnosis: &serde_json::Value,
) -> Result<(), OutputError> {
    let LoadResult { outcome, judged, .. } = *result;
    if args.json {
        output::print(std::io::stdout(), &json::line(result, diagnosis))?;
        for missed in judged.iter().filter(|judged| judged.met != ObjectiveStatus::Met) {
            let objective = &missed.objective;
            let words = missed.words();
            print_line(
                std::io::stderr(),
                &format!("hotrow load: {} {objective}: {words}", met(missed.met)),
            );
        }
    } else {
        output::print(std::io::stdout(), &text::report(result))?;
    }
    if args.percentiles {
        output::print(
            std::io::stdout(),
            &format!("\n{}", hdr::percentiles(&outcome.total.latency).trim_end()),
        )?;
    }
    Ok(())
}

/// Returns the exit status. `interrupted`: the tests after the run were interrupted.
fn exit(outcome: &Outcome, judged: &[ObjectiveResult], interrupted: bool) -> Exit {
    match outcome.end {
        RunEnd::Interrupted => Exit::Interrupted,
        RunEnd::Complete if interrupted => Exit::Interrupted,
        // Unanswered to the end: there is no result.
        RunEnd::TargetUnreachable | RunEnd::StoppedAnswering { .. } => Exit::Failed,
        RunEnd::Complete if outcome.total.counts.ok == 0 => Exit::Failed,
        RunEnd::Complete if judged.iter().any(|judged| judged.met != ObjectiveStatus::Met) => {
            Exit::Missed
        }
        RunEnd::Complete => Exit::Fine,
    }
}

/// Calibrates for `--calibrate`, saves the result and prints it.
fn calibrate(args: &LoadArgs, stop: &Arc<AtomicBool>) -> Result<Exit, LoadError> {
    let connections = args.target.connections.get();
    let threads = resolve::threads(&args.target)?;
    // Both ends of each connection are open files of this process.
    resolve::fit_open_files(connections * 2, threads * 2)?;
    let found =
        calibrate::calibrate(connections, threads, resolve::runqueue_wait(), stop, &mut |round| {
            if args.progress.in_lines() {
                print_line(std::io::stderr(), &format!("round {round} of {}", calibrate::ROUNDS));
            }
        })?;
    let entry = Entry::new(&found, Machine::here(), SystemTime::now());
    let printed =
        output::print(std::io::stdout(), &if args.json { entry.json() } else { entry.text() });
    let kept = match calibration::file(|name| std::env::var_os(name)) {
        Some(file) => calibration::save(&file, &entry)
            .map_err(|e| format!("{} cannot be written: {e}", file.display())),
        None => Err("neither XDG_CACHE_HOME nor HOME names a folder".to_owned()),
    };
    if let Err(why) = kept {
        print_line(
            std::io::stderr(),
            &format!("hotrow load: the calibration is not saved for later runs: {why}"),
        );
    }
    printed.map_err(LoadError::Output)?;
    Ok(Exit::Fine)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hotrow_load::latency_map::LatencyMap;

    use super::*;

    #[test]
    fn interrupted_tests_are_an_interruption() {
        let mut total = LoadStats::default();
        (total.counts.scheduled, total.counts.sent, total.counts.ok) = (1, 1, 1);
        let outcome = Outcome {
            end: RunEnd::Complete,
            window: Duration::from_secs(1),
            total,
            in_flight_at_end: 0,
            target_rate: None,
            max_in_flight: 1,
            seconds: Vec::new(),
            threads: Vec::new(),
            failure_messages: Vec::new(),
            latency_map: LatencyMap::default(),
        };
        assert_eq!(exit(&outcome, &[], false) as i32, 0);
        assert_eq!(exit(&outcome, &[], true) as i32, 130);
        assert_eq!(exit(&Outcome { end: RunEnd::Interrupted, ..outcome }, &[], false) as i32, 130);
    }
}
