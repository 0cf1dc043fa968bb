//! Parent side of the models: runs each in a process of its own, observes it, counts its system
//! calls, and kills it after a time limit.
//!
//! Reading order: [`Plan`], [`run`], `Harness::measure` (one model), `watch` (its process).

use std::hint::black_box;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hotrow_diagnose::probe::status;
use hotrow_measure::clock::thread_cpu;

use super::child::{ChildMessage, ChildResult, ModelRun, ThreadRefusal};
use super::counted::Counter;
use super::floor::FloorInputs;
use super::limits::{Evidence, maps_per_thread};
use super::raise::Raised;
use super::results::{Calls, Measured, Outcome, Results, SCHEMA};
use super::undo::Undo;
use super::work::{Expected, Response, Scale, text};
use super::{Model, THREAD_PER_REQUEST, catalogue};

/// Polling interval of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Largest output of a model's process, in bytes: 500 lines of progress and one result.
const OUTPUT_BYTES_MAX: u64 = 8 << 20;
/// Time limit per request over all models and builds, in addition to the sleeps.
const REQUEST_TIME_MAX: Duration = Duration::from_micros(500);
/// Time for a process to start and to end.
const SPARE_TIME: Duration = Duration::from_secs(30);
/// Requests per round, and rounds, for the CPU time of one request; the best round counts. Short
/// rounds, so that one is undisturbed even on a busy machine.
const CALIBRATION: (u64, usize) = (400, 30);
/// Malloc arenas of a model's process; the predictions of [`super::limits`] assume this number.
const HEAPS_MAX: &str = "2";
/// Scale of the counted runs: the length of a sleep hardly changes the counts.
const COUNTED_SCALE: f64 = 0.1;

/// Models to measure, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// This program, and the arguments that precede a run request.
    pub program: (PathBuf, Vec<String>),
    /// Names of models from the list.
    pub models: Vec<String>,
    /// Requests per model.
    pub requests: u64,
    /// Scale of the sleeps.
    pub scale: Scale,
    /// CPUs for which the models are configured.
    pub cores: usize,
    /// True if a model that cannot finish is skipped.
    pub safe: bool,
    /// True if kernel limits are raised for the run.
    pub raise_limits: bool,
    /// `vm.max_map_count` for the run of the thread-per-request model; `None`: as it is.
    pub max_map_count: Option<u64>,
    /// True if system calls are counted, in a second run.
    pub count_calls: bool,
    /// The command line, for the report.
    pub command: String,
    /// Start of the run, in seconds since 1970.
    pub began_unix_s: u64,
}

/// Measures one model after the other; `begins` receives each name, `ended` each result. When
/// `stop` is set it ends early, and a warning names the models that were not measured. A caller
/// that exits without waiting for the return must run `undo`.
pub fn run(
    plan: &Plan,
    stop: &AtomicBool,
    undo: &Undo,
    begins: impl Fn(&str),
    ended: impl Fn(&Measured),
) -> Results {
    let counter =
        if plan.count_calls { Counter::find() } else { Err("--no-count is set".to_owned()) };
    let request_cpu = request_cpu();
    let harness = Harness { plan, counter, request_cpu, stop, undo };
    let (mut models, mut warnings) = (Vec::new(), Vec::new());
    let mut missing = Vec::new();
    for model in
        catalogue(plan.cores).into_iter().filter(|model| plan.models.contains(&model.name()))
    {
        if !stop.load(Ordering::Relaxed) {
            begins(&model.name());
            let raised = harness.raised(model.as_ref(), &mut warnings);
            warnings.extend(harness.predicted(model.as_ref()));
            let measured = harness.measure(model.as_ref());
            drop(raised);
            // Results before the interruption are valid.
            if !stop.load(Ordering::Relaxed) || measured.outcome == Outcome::Finished {
                ended(&measured);
                models.push(measured);
                continue;
            }
        }
        missing.push(model.name());
    }
    if !missing.is_empty() {
        warnings.push(format!("The run was interrupted; not measured: {}.", missing.join(", ")));
    }
    let mut host = hotrow_results::host::host();
    host.programs = vec![("hotrow".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    Results {
        schema: SCHEMA.to_owned(),
        command: plan.command.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        began_unix_s: plan.began_unix_s,
        host,
        cores: plan.cores,
        requests: plan.requests,
        scale: plan.scale.get(),
        request_cpu_us: request_cpu.as_secs_f64() * 1e6,
        models,
        warnings,
    }
}

/// Measures the CPU time of one request without its pause.
fn request_cpu() -> Duration {
    let (text, mut response) = (text(), Response::default());
    let (requests, rounds) = CALIBRATION;
    let mut round = || {
        let began = thread_cpu();
        for id in 0..requests {
            black_box(response.begin(id));
            black_box(response.end(&text));
        }
        thread_cpu().saturating_sub(began)
    };
    (0..rounds).map(|_| round()).min().unwrap_or_default()
        / u32::try_from(requests).unwrap_or(u32::MAX)
}

struct Harness<'a> {
    plan: &'a Plan,
    counter: Result<Counter, String>,
    request_cpu: Duration,
    stop: &'a AtomicBool,
    undo: &'a Undo,
}

impl Harness<'_> {
    /// Raises limits for this model, until the returned value is dropped.
    fn raised(&self, model: &dyn Model, warnings: &mut Vec<String>) -> Option<Raised> {
        let Plan { raise_limits, max_map_count, requests, .. } = *self.plan;
        let limited = raise_limits || max_map_count.is_some();
        if !limited || model.name() != THREAD_PER_REQUEST {
            return None;
        }
        let sys = Path::new("/proc/sys");
        let raised = match max_map_count {
            Some(maps_max) => Raised::maps(sys, maps_max, self.undo),
            None => Raised::new(sys, &Evidence::now(""), requests, self.undo),
        };
        match raised {
            Ok(raised) => {
                warnings.extend(raised.words());
                Some(raised)
            }
            Err(why) => {
                warnings.push(format!("{why}."));
                None
            }
        }
    }

    fn measure(&self, model: &dyn Model) -> Measured {
        let Plan { requests, scale, cores, .. } = *self.plan;
        let inputs =
            FloorInputs { requests, scale, request_cpu: self.request_cpu, cores: cores as u64 };
        let mut measured = Measured {
            name: model.name(),
            workload: model.workload().to_owned(),
            threads: model.threads(requests),
            outcome: Outcome::Wrong,
            done: 0,
            floor: model.floor_rule(requests).floor(&inputs),
            distance: None,
            throughput_tps: None,
            threads_peak: None,
            figures: None,
            calls: Calls::NotCounted { why: "it did not finish".to_owned() },
        };
        if let Some(refused) = self.refused(model) {
            measured.outcome = refused;
            return measured;
        }
        let observed = watch(self.command(model, scale.get()), self.time_max(), self.stop);
        self.judge(&mut measured, observed);
        // A run that dies has made its calls.
        if matches!(measured.outcome, Outcome::Finished | Outcome::Died { .. }) {
            measured.calls = self.calls(model);
        }
        measured
    }

    /// Predicts the end of a thread-per-request model that is run until it dies, as a sentence that
    /// the report shows with the result.
    fn predicted(&self, model: &dyn Model) -> Option<String> {
        if self.plan.safe || model.name() != THREAD_PER_REQUEST {
            return None;
        }
        let (_, why) = Evidence::now("").predict(self.plan.requests, maps_per_thread()).err()?;
        Some(format!("Predicted before the run of {THREAD_PER_REQUEST}: {why}."))
    }

    /// Predicts a refusal of the thread-per-request model; the others start few threads.
    fn refused(&self, model: &dyn Model) -> Option<Outcome> {
        if !self.plan.safe || model.name() != THREAD_PER_REQUEST {
            return None;
        }
        let now = Evidence::now("");
        let (limit, why) = now.predict(self.plan.requests, maps_per_thread()).err()?;
        Some(Outcome::Refused { limit, why, remedy: now.remedy(limit, self.plan.requests) })
    }

    fn command(&self, model: &dyn Model, scale: f64) -> Command {
        let Plan { requests, cores, .. } = *self.plan;
        let model_run = ModelRun { model: model.name(), requests, scale, cores };
        let (program, arguments) = &self.plan.program;
        let mut command = Command::new(program);
        // Plain data: serialisation cannot fail, and an empty order is refused.
        command.args(arguments).arg(serde_json::to_string(&model_run).unwrap_or_default());
        // glibc reserves 64 MiB of addresses per arena, up to 8 arenas per CPU, which would hide
        // what threads take.
        command.env("MALLOC_ARENA_MAX", HEAPS_MAX);
        command
    }

    fn time_max(&self) -> Duration {
        let Plan { requests, scale, .. } = *self.plan;
        let work = REQUEST_TIME_MAX.saturating_mul(u32::try_from(requests).unwrap_or(u32::MAX));
        Expected::of(requests, scale).slept.saturating_mul(2) + work + SPARE_TIME
    }

    fn judge(&self, measured: &mut Measured, observed: ObservedRun) {
        let ObservedRun { done, ended, how, threads_peak } = observed;
        measured.done = done;
        measured.threads_peak = (threads_peak > 0).then_some(threads_peak);
        let Some(ChildResult { done, figures, died }) = ended else {
            measured.outcome = Outcome::Lost { why: how };
            return;
        };
        measured.done = done;
        measured.outcome = match died {
            Some(ThreadRefusal { started, limit, evidence }) => Outcome::Died {
                started,
                limit,
                why: evidence.sentence(limit),
                remedy: evidence.remedy(limit, self.plan.requests),
                evidence: Box::new(evidence),
            },
            None if figures.checks.iter().all(|check| check.right) => Outcome::Finished,
            None => Outcome::Wrong,
        };
        // A run that died or lost work has no throughput.
        if measured.outcome == Outcome::Finished && figures.wall_s > 0.0 {
            measured.throughput_tps = Some(self.plan.requests as f64 / figures.wall_s);
            measured.distance = Some(figures.wall_s / measured.floor.seconds);
        }
        measured.figures = Some(figures);
    }

    fn calls(&self, model: &dyn Model) -> Calls {
        match &self.counter {
            Ok(counter) => {
                let scale = self.plan.scale.get().min(COUNTED_SCALE);
                // Counting slows the run down, tracing much more.
                let limit = self.time_max().saturating_mul(2);
                counter.count(&self.command(model, scale), scale, limit, self.stop, self.undo)
            }
            Err(why) => Calls::NotCounted { why: why.clone() },
        }
    }
}

/// Observed result of a process.
struct ObservedRun {
    done: u64,
    ended: Option<ChildResult>,
    /// The end of the process, in words.
    how: String,
    threads_peak: u64,
}

/// Runs a model's process to its end or its time limit.
fn watch(mut command: Command, time_max: Duration, stop: &AtomicBool) -> ObservedRun {
    let lost = |how: String| ObservedRun { done: 0, ended: None, how, threads_peak: 0 };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return lost(format!("its process could not be started: {error}")),
    };
    let (Some(out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
        return lost("its output cannot be read".to_owned());
    };
    thread::scope(|scope| {
        let reading = scope.spawn(move || read(out));
        let complaints = scope.spawn(move || {
            let mut text = Vec::new();
            // Output before a read error is used.
            let _ = (&mut err).take(4_096).read_to_end(&mut text);
            // Excess output is discarded, so that the process does not block.
            let _ = std::io::copy(&mut err, &mut std::io::sink());
            String::from_utf8_lossy(&text).trim().to_owned()
        });
        let (how, threads_peak) = wait(&mut child, time_max, stop);
        let (done, ended) = reading.join().unwrap_or_default();
        let said = complaints.join().unwrap_or_default();
        let how = if said.is_empty() { how } else { format!("{how}: {said}") };
        ObservedRun { done, ended, how, threads_peak }
    })
}

/// Reads the lines of a process until it ends.
fn read(out: ChildStdout) -> (u64, Option<ChildResult>) {
    let (mut done, mut ended) = (0, None);
    for line in BufReader::new(out.take(OUTPUT_BYTES_MAX)).lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            // Two threads may report in another order than they counted.
            Ok(ChildMessage::Done(count)) => done = count.max(done),
            Ok(ChildMessage::Ended(result)) => ended = Some(*result),
            // A partial line of a killed process.
            Err(_) => {}
        }
    }
    (done, ended)
}

/// Waits for the end; returns its description and the most threads observed.
fn wait(child: &mut Child, time_max: Duration, stop: &AtomicBool) -> (String, u64) {
    let until = Instant::now() + time_max;
    let file = format!("/proc/{}/status", child.id());
    let mut threads_peak = 0;
    let how = loop {
        match child.try_wait() {
            Ok(Some(status)) => break format!("its process ended with {status}"),
            Ok(None) if Instant::now() >= until => {
                break format!("it was ended after {} s", time_max.as_secs());
            }
            Ok(None) if stop.load(Ordering::Relaxed) => break "it was interrupted".to_owned(),
            Ok(None) => {}
            Err(error) => break format!("its process is lost: {error}"),
        }
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        threads_peak = threads_peak.max(status::parse(&text).map_or(0, |status| status.threads));
        thread::sleep(POLL_INTERVAL);
    };
    // It has ended already or must end now.
    let _ = child.kill();
    let _ = child.wait();
    (how, threads_peak)
}
