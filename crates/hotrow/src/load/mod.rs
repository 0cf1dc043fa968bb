//! `hotrow load`: the load generator's command.
//!
//! Reading order: [`args`] (what can be asked for), `resolve` (checked and prepared), this file (the run), `json` and
//! `text` (the result), `verdict` (what limited it), `hdr`, `csv` (second by second) and `html`, to `files`; `calibration`; `compare` (results that
//! were `kept`).

pub mod args;
mod calibration;
mod compare;
mod csv;
pub(crate) mod files;
mod hdr;
pub(crate) mod html;
pub(crate) mod json;
mod kept;
pub(crate) mod resolve;
pub(crate) mod text;
pub(crate) mod verdict;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use hotrow_diagnose::samples::Samples;
use hotrow_lab::prove::{self, Limits, Told, Undo};
use hotrow_lab::watch::Watch;
use hotrow_load::calibrate::{self, CalibrateError};
use hotrow_load::objective::{self, Judged, Met};
use hotrow_load::outcome::{End, Outcome, Second};
use hotrow_load::record::Record;
use hotrow_load::run::{self, Config, RunError};
use hotrow_measure::clock::Nanos;

use self::args::{LoadArgs, Other};
use self::calibration::{Entry, Machine};
pub use self::compare::CompareError;
use self::csv::Csv;
pub use self::files::Unwritable;
use self::hdr::HdrLog;
pub use self::kept::NoResult;
pub use self::resolve::Refused;
use crate::cli::Exit;
use crate::diagnosis::diagnosed::{self, Diagnosed};
use crate::diagnosis::json::Diagnosis;
use crate::diagnosis::{trials, watched};
use crate::doctor;
use crate::screen::Shown;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The arguments are wrong.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Who shall be watched is not there.
    #[error("{0}")]
    Watch(String),
    /// The display that was asked for cannot be had.
    #[error("{0}")]
    Progress(String),
    /// Calibrating failed.
    #[error(transparent)]
    Calibrate(#[from] CalibrateError),
    /// A file, or standard output, could not be written to its end.
    #[error("{0}; it is not complete")]
    Output(Unwritable),
    /// Results cannot be compared.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// Signals cannot be heard.
    #[error("cannot listen for signals: {0}")]
    Signals(std::io::Error),
}

impl LoadError {
    /// How the process must end.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Refused(Refused::Target(
                hotrow_load::target::TargetError::Unreachable { .. }
                | hotrow_load::target::TargetError::UnknownHost { .. }
                | hotrow_load::target::TargetError::NoAddress(_),
            )) => Exit::Failed,
            Self::Refused(_)
            | Self::Watch(_)
            | Self::Progress(_)
            | Self::Run(RunError::Plan(_) | RunError::OutOfRange { .. } | RunError::PipelineWithoutKeepalive) => {
                Exit::Usage
            }
            Self::Run(RunError::InterruptedBefore) | Self::Calibrate(CalibrateError::Interrupted) => Exit::Interrupted,
            Self::Run(_) | Self::Calibrate(_) | Self::Output(_) | Self::Compare(_) | Self::Signals(_) => Exit::Failed,
        }
    }
}

/// Runs `hotrow load` and reports.
///
/// # Errors
/// What kept it from having a result.
pub fn load(args: &LoadArgs) -> Result<Exit, LoadError> {
    if let Some(Other::Compare(args)) = &args.other {
        return Ok(compare::run(args)?);
    }
    // Before anything can take long: an unknown host too can be broken off.
    let (stop, changes) = diagnosed::stop_flag(args.allow_changes).map_err(LoadError::Signals)?;
    if args.calibrate {
        return calibrate(args, &stop);
    }
    let (url, config) = resolve::resolve(args)?;
    if let Some(short) = resolve::wanted(&config).and_then(|wanted| doctor::of_generator(&wanted)) {
        tell(std::io::stderr(), &format!("hotrow load: {short}"));
    }
    args.progress.check().map_err(LoadError::Progress)?;
    let mut watch = watched::watch(&args.watch, &config.address).map_err(LoadError::Watch)?;
    let [hdr, csv, html] = resolve::output_files(args)?;
    let mut hdr = hdr.map(|file| HdrLog::new(file, (SystemTime::now(), Nanos::now())));
    let mut csv = csv.map(Csv::new);
    let shown = Shown::start(args.progress, format!("hotrow load {url}"), &watch).map_err(LoadError::Progress)?;
    shown.begins(&config);
    let mut told = |second: &Second, record: &Record| {
        shown.second(second, record);
        if shown.lines() {
            tell(std::io::stderr(), &text::progress(second));
        }
        hdr.iter_mut().for_each(|hdr| hdr.second(second, record));
        csv.iter_mut().for_each(|csv| csv.second(second));
    };
    let (warmup, length) = (config.plan.warmup, config.plan.extent.duration);
    let (outcome, samples) =
        watch.during(warmup, length, |begin| run::run_telling(&config, &stop, &mut |at| begin.at(at), &mut told));
    let outcome = outcome?;
    let diagnosed = find(args, &config, &outcome, (&mut watch, samples), (&stop, changes), &shown);
    drop(shown);
    let diagnosis = Diagnosis::of(&watch, &diagnosed);
    let objectives = args.slo.as_ref().map_or(&[][..], |slo| &slo.0);
    let judged = objective::judge(objectives, &outcome);
    let printed = report(args, &url, &config, &outcome, (&judged, diagnosis, &diagnosed));
    // After the report: a full disk must not hide what was measured.
    let html = html.map(|mut file| {
        let command = html::command(std::env::args_os().map(|word| word.to_string_lossy().into_owned()));
        file.write(&html::page(&url, &command, &config, &outcome, (&judged, &diagnosed)));
        file
    });
    let files = [hdr.map(|hdr| hdr.end(outcome.end)), csv.map(|csv| csv.end(outcome.end)), html];
    for file in files.into_iter().flatten() {
        file.finish().map_err(LoadError::Output)?;
    }
    printed.map_err(LoadError::Output)?;
    Ok(exit(&outcome, &judged, diagnosed.interrupted))
}

/// What limited the run, tested where that was asked for.
fn find(
    args: &LoadArgs,
    config: &Config,
    outcome: &Outcome,
    (watch, samples): (&mut Watch, Option<Samples>),
    (stop, changes): (&Arc<AtomicBool>, Option<Undo>),
    shown: &Shown,
) -> Diagnosed {
    let Some(samples) = samples else { return Diagnosed::default() };
    let scene = prove::scene(config, outcome, &samples, watch.local);
    let findings = watch.judge(samples, outcome);
    // Of what was broken off, or went nowhere, there is nothing to repeat.
    let testable = args.prove && outcome.end == End::Complete && outcome.total.counts.ok > 0;
    let untestable = args.prove && outcome.end != End::Interrupted && outcome.total.counts.ok == 0;
    let verdict = testable.then(|| {
        let limits = Limits { changes, ..Limits::of(outcome.window, args.prove_time) };
        shown.tests(args.prove_time, || format!("the run: {:.0} answered/s", outcome.throughput_rps()));
        let mut told = |told: Told<'_>| trials::show(shown, &told);
        prove::prove(config, watch, (findings.clone(), scene.clone()), limits, stop, &mut told)
    });
    let verdict = verdict.or_else(|| {
        let why = "no request was answered as expected, so there is nothing to compare with";
        untestable.then(|| prove::untested(findings.clone(), scene, why))
    });
    let interrupted = testable && stop.load(Ordering::Relaxed);
    Diagnosed { findings, verdict, interrupted }
}

fn report(
    args: &LoadArgs,
    url: &str,
    config: &Config,
    outcome: &Outcome,
    (judged, diagnosis, diagnosed): (&[Judged], Diagnosis<'_>, &Diagnosed),
) -> Result<(), Unwritable> {
    let kept = calibration::file(|name| std::env::var_os(name));
    let entry = kept.and_then(|file| calibration::find(&file, &Machine::here()));
    let headroom = entry.and_then(|entry| entry.headroom(config, outcome));
    if args.json {
        let report = json::Report::new(url, config, outcome, (judged, headroom, diagnosis));
        files::print(std::io::stdout(), &json::line(&report))?;
        for missed in judged.iter().filter(|judged| judged.met != Met::Yes) {
            let (objective, words) = (&missed.objective, missed.words());
            tell(std::io::stderr(), &format!("hotrow load: {} {objective}: {words}", text::met(missed.met)));
        }
    } else {
        let text = text::report(url, config, outcome, judged, (headroom.as_ref(), diagnosed));
        files::print(std::io::stdout(), text.trim_end())?;
    }
    if args.percentiles {
        files::print(std::io::stdout(), &format!("\n{}", hdr::percentiles(&outcome.total.latency).trim_end()))?;
    }
    Ok(())
}

/// `interrupted`: the tests of what limited it were, after it.
fn exit(outcome: &Outcome, judged: &[Judged], interrupted: bool) -> Exit {
    match outcome.end {
        End::Interrupted => Exit::Interrupted,
        End::Complete if interrupted => Exit::Interrupted,
        // Nothing that was expected came: whatever the figures are, they are no result.
        End::TargetGone => Exit::Failed,
        End::Complete if outcome.total.counts.ok == 0 => Exit::Failed,
        End::Complete if judged.iter().any(|judged| judged.met != Met::Yes) => Exit::Missed,
        End::Complete => Exit::Fine,
    }
}

/// `--calibrate`: measures, keeps, prints.
fn calibrate(args: &LoadArgs, stop: &Arc<AtomicBool>) -> Result<Exit, LoadError> {
    let (connections, threads) = (args.target.connections.get(), resolve::threads(&args.target)?);
    // Both ends of each connection are open files of this process.
    resolve::fit_open_files(connections * 2, threads * 2)?;
    let found = calibrate::calibrate(connections, threads, resolve::runqueue_wait(), stop, &mut |round| {
        if args.progress.in_lines() {
            tell(std::io::stderr(), &format!("round {round} of {}", calibrate::ROUNDS));
        }
    })?;
    let entry = Entry::new(&found, Machine::here(), SystemTime::now());
    let printed = files::print(std::io::stdout(), &if args.json { entry.json() } else { entry.text() });
    let kept = match calibration::file(|name| std::env::var_os(name)) {
        Some(file) => {
            calibration::keep(&file, &entry).map_err(|e| format!("{} cannot be written: {e}", file.display()))
        }
        None => Err("neither XDG_CACHE_HOME nor HOME names a folder".to_owned()),
    };
    if let Err(why) = kept {
        tell(std::io::stderr(), &format!("hotrow load: the calibration is not kept for later runs: {why}"));
    }
    printed.map_err(LoadError::Output)?;
    Ok(Exit::Fine)
}

/// Writes a line. Nobody may be listening: a closed pipe is no reason to fail.
fn tell(mut out: impl Write, line: &str) {
    let _ = writeln!(out, "{line}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn tests_that_are_broken_off_are_an_interruption() {
        let mut total = Record::default();
        (total.counts.scheduled, total.counts.sent, total.counts.ok) = (1, 1, 1);
        let outcome = Outcome {
            end: End::Complete,
            window: Duration::from_secs(1),
            total,
            in_flight_at_end: 0,
            target_rate: None,
            places: 1,
            seconds: Vec::new(),
            threads: Vec::new(),
            troubles: Vec::new(),
        };
        assert_eq!(exit(&outcome, &[], false) as i32, 0);
        assert_eq!(exit(&outcome, &[], true) as i32, 130);
        assert_eq!(exit(&Outcome { end: End::Interrupted, ..outcome }, &[], false) as i32, 130);
    }
}
