//! One measurement: usage and counts before, a load, usage and counts after.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hotrow_diagnose::samples::Samples;
use hotrow_load::outcome::{Outcome, RunEnd};
use hotrow_load::plan::{Arrivals, LoadModel, Plan, StopCondition};
use hotrow_load::run::{self as generator, Config, ExpectedStatus, RunError};
use hotrow_transport::tls::HttpVersion;

use super::cpu_sample::CpuSample;
use super::deployment::{Deployment, RunContext};
use super::events::{EventPlan, EventRun, LoadBegin};
use super::figures;
use super::observe::{GENERATOR, Observation};
use super::phases::Phases;
use super::ready::stopped;
use super::snapshot::{Snapshot, served};
use crate::experiment::{DeploymentSpec, Load, Planned, Service};
use crate::stage::{self, IoCounters, Stage, Usage};
use hotrow_results::{Measurement, Tier, TierKind};

/// Time limit of a connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Time limit of a background load, if nothing else ends it.
const BACKGROUND_DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// Subject of a measurement.
pub(super) struct Subject<'a> {
    pub(super) context: &'a RunContext<'a>,
    pub(super) spec: &'a DeploymentSpec,
    pub(super) service: &'a Service,
    pub(super) planned: &'a Planned,
    pub(super) load: &'a Load,
    pub(super) round: u32,
    pub(super) seed: u64,
    /// Formats the generator's verdict on itself.
    pub(super) verdict: fn(&Outcome) -> String,
}

/// Usage and counts at one moment.
struct UsageSample {
    snapshot: Snapshot,
    io: IoCounters,
    cpu: CpuSample,
}

/// Measures a row on a running deployment; `None` if interrupted.
pub(super) fn measure(
    subject: &Subject<'_>,
    deployment: &mut Deployment,
    stage: &mut Stage,
    stop: &Arc<AtomicBool>,
) -> Option<Measurement> {
    let mut measurement = empty(&subject.planned.row.id, subject.round);
    let measured = BackgroundLoad::start(subject, deployment).and_then(|background| {
        let measured = load(subject, deployment, stage, stop, &mut measurement);
        let background_result = background.end();
        measured.and(background_result)
    });
    if stopped(stop) {
        return None;
    }
    measurement.failed = deployment.first_exited(stage).or(measured.err());
    Some(measurement)
}

/// Returns an empty measurement.
pub(super) fn empty(row: &str, round: u32) -> Measurement {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Measurement {
        row: row.to_owned(),
        round,
        began_unix_s: now.as_secs(),
        failed: None,
        load: None,
        tiers: Vec::new(),
        backends: Vec::new(),
        cache: Vec::new(),
        io: hotrow_results::Io::default(),
        figures: Vec::new(),
        phases: Vec::new(),
        findings: Vec::new(),
        observer_cpu_s: None,
        machine: None,
    }
}

fn load(
    subject: &Subject<'_>,
    deployment: &mut Deployment,
    stage: &mut Stage,
    stop: &Arc<AtomicBool>,
    measurement: &mut Measurement,
) -> Result<(), String> {
    let load = subject.load;
    let connections = subject.planned.row.connections as usize;
    let mut config = config(load, connections, deployment, subject.seed)?;
    if !load.warmup.is_zero() {
        config.plan.stop = StopCondition { duration: Some(load.warmup), requests: None };
        // Failures in the warm-up recur in the measurement and are reported there.
        let _ = generator::run(&config, stop, &mut |_, _| {}).map_err(|e| words(&e))?;
        config.plan.stop = load.stop_condition;
    }
    let mut observation = Observation::at(deployment);
    // CPU time last before and first after the load: counts and metrics take CPU time too.
    let running = deployment.running();
    let mut before =
        UsageSample::take(subject.service, deployment, || CpuSample::take(deployment, stage))?;
    let Loaded { outcome, seen, events, result } =
        with_events(subject, deployment, stage, stop, |load_begin| {
            observation.during(load.stop_condition, |begin| {
                let mut on_begin = |at| {
                    begin.at(at);
                    load_begin.iter().for_each(|load_begin| load_begin.now());
                };
                generator::run_with_start_hook(&config, stop, &mut on_begin, &mut |_, _| {})
            })
        });
    // Also after a failure: what events started must be ended with the deployment.
    let replaced = events.apply_to(deployment);
    let outcome = outcome.map_err(|e| words(&e))?;
    result?;
    before.cpu.usages.resize(deployment.members.len(), Usage::default());
    let mut cpu = CpuSample::take(deployment, stage);
    for (member, ended) in replaced {
        let usage = &mut cpu.usages[member];
        usage.cpu += ended.cpu;
        usage.periods += ended.periods;
        usage.throttled_periods += ended.throttled_periods;
    }
    let after = UsageSample::take(subject.service, deployment, || cpu)?;
    let phases = Phases {
        load,
        service: subject.service,
        backends: &deployment.backends,
        running: &running,
        begin: &before.snapshot,
        run: &events,
        end: &after.snapshot,
        length: outcome.window,
    };
    let intervals = phases.intervals();
    let io = after.io.since(&before.io);
    measurement.io = io;
    measurement.load = Some(figures::load(&outcome, (subject.verdict)(&outcome)));
    measurement.tiers = tiers(deployment, &before.cpu, &after.cpu, &outcome);
    measurement.machine = Some(after.cpu.rest_since(&before.cpu));
    let served = served(&intervals);
    measurement.backends = figures::backends(&deployment.backends, served.as_deref());
    if subject.spec.proxy.as_ref().is_some_and(|proxy| proxy.cache.is_some()) {
        measurement.cache = figures::cache(&outcome, served.as_deref());
    }
    measurement.findings =
        seen.map(|seen| observation.findings(seen, &outcome)).unwrap_or_default();
    measurement.observer_cpu_s = Some(observation.cpu().as_secs_f64());
    if !load.events.is_empty() {
        measurement.phases = phases.all();
        measurement.figures = phases.figures(&outcome)?;
    }
    measurement.figures.extend(figures::of_metrics(&subject.service.figures, &intervals));
    verdict(load, &outcome)
}

/// A load after its end.
struct Loaded {
    outcome: Result<Outcome, RunError>,
    seen: Option<Samples>,
    events: EventRun,
    /// Why its events could not happen.
    result: Result<(), String>,
}

/// Runs a load, with its events beside it.
fn with_events(
    subject: &Subject<'_>,
    deployment: &Deployment,
    stage: &mut Stage,
    stop: &Arc<AtomicBool>,
    load: impl FnOnce(Option<LoadBegin>) -> (Result<Outcome, RunError>, Option<Samples>),
) -> Loaded {
    let planned = &subject.load.events;
    let length = subject.load.stop_condition.duration.filter(|_| !planned.is_empty());
    let Some(length) = length else {
        let (outcome, seen) = load(None);
        return Loaded { outcome, seen, events: EventRun::default(), result: Ok(()) };
    };
    let (plan, begin) = EventPlan::new(planned, length, subject.service, deployment);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| plan.run(stage, stop));
        let (outcome, seen) = load(Some(begin));
        let panicked = || (EventRun::default(), Err("they panicked".to_owned()));
        let (events, result) = running.join().unwrap_or_else(|_| panicked());
        let mut result = result.map_err(|why| format!("the events: {why}"));
        let missing = events.moments.len() < planned.len() && outcome.is_ok() && !stopped(stop);
        if missing && result.is_ok() {
            result = Err("the load ended before its last event".to_owned());
        }
        Loaded { outcome, seen, events, result }
    })
}

/// Checks that all responses were as expected; returns the reason if the measurement is invalid.
fn verdict(load: &Load, outcome: &Outcome) -> Result<(), String> {
    let counts = &outcome.total.counts;
    let errors = counts.errors;
    let failures = [
        (errors.unexpected_status, "responses with an unexpected status"),
        (errors.malformed, "malformed responses"),
        (errors.closed + errors.reset, "requests lost with their connection"),
        (counts.timeouts, "time-outs"),
        (counts.connect_errors, "connections that could not be opened"),
    ];
    // Events cause failures, which are counted as a figure.
    let failures = if load.events.is_empty() { &failures } else { &[][..] };
    let mut why: Vec<String> =
        failures.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if outcome.end == RunEnd::TargetUnreachable {
        why.push("the target was unreachable".to_owned());
    }
    if matches!(outcome.end, RunEnd::StoppedAnswering { .. }) {
        why.push("the target stopped answering".to_owned());
    }
    if counts.ok == 0 {
        why.push("no request had the expected response".to_owned());
    } else if counts.ok_in_window == 0 {
        why.push(
            "no response arrived before the end of the measurement; measure for longer: 0 in time"
                .to_owned(),
        );
    }
    let least = load.expect.body_bytes.map_or(0, |(least, _)| least as u64);
    if load.method != "HEAD" && counts.bytes_received < counts.ok.saturating_mul(least) {
        let (received, ok) = (counts.bytes_received, counts.ok);
        why.push(format!(
            "{received} bytes received, too few for {ok} expected responses of at least {least} \
             bytes each"
        ));
    }
    if why.is_empty() {
        return Ok(());
    }
    let failures: Vec<String> =
        outcome.failure_messages.iter().map(|(words, n)| format!("{words} ({n} times)")).collect();
    let failures =
        if failures.is_empty() { String::new() } else { format!(": {}", failures.join("; ")) };
    Err(format!("{} of {} requests{failures}", why.join(", "), counts.scheduled))
}

fn config(
    load: &Load,
    connections: usize,
    deployment: &Deployment,
    seed: u64,
) -> Result<Config, String> {
    let entry_point = &deployment.entry_point;
    Ok(Config {
        address: entry_point.reach.address.clone(),
        tls: entry_point.reach.tls.clone(),
        requests: load
            .requests(&entry_point.host, &entry_point.reach.headers)
            .map_err(|e| e.to_string())?,
        plan: Plan {
            model: load.rate.map_or(LoadModel::Closed, |rate| LoadModel::Open {
                rate,
                arrivals: Arrivals::Uniform,
            }),
            warmup: Duration::ZERO,
            stop: load.stop_condition,
            seed,
        },
        connections,
        threads: threads(load, connections),
        keepalive: load.keepalive,
        version: HttpVersion::Http1,
        depth: 1,
        timeout: load.timeout,
        connect_timeout: load.timeout.min(CONNECT_WITHIN),
        expect: load
            .expect
            .status
            .map_or(ExpectedStatus::Success, |status| ExpectedStatus::Status(vec![status])),
        seed,
        runqueue_wait: Some(Arc::new(|tid| {
            hotrow_diagnose::schedstat::of_thread(Path::new("/proc"), tid)
                .ok()
                .map(|stat| stat.waiting)
        })),
        burn_per_request: Duration::ZERO,
    })
}

/// Returns the threads, as `hotrow load` does: half of the CPUs, because the deployment needs some
/// too.
fn threads(load: &Load, connections: usize) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    load.threads.unwrap_or(cpus / 2).clamp(1, connections.max(1))
}

impl UsageSample {
    fn take(
        service: &Service,
        deployment: &Deployment,
        cpu: impl FnOnce() -> CpuSample,
    ) -> Result<Self, String> {
        let snapshot = Snapshot::take(service, &deployment.backends, &deployment.running())?;
        Ok(Self { snapshot, io: stage::io(), cpu: cpu() })
    }
}

fn tiers(
    deployment: &Deployment,
    before: &CpuSample,
    after: &CpuSample,
    outcome: &Outcome,
) -> Vec<Tier> {
    let mut tiers: Vec<Tier> = Vec::with_capacity(deployment.members.len() + 1);
    for ((member, before), after) in
        deployment.members.iter().zip(&before.usages).zip(&after.usages)
    {
        let periods = after.periods.saturating_sub(before.periods);
        let throttled = after.throttled_periods.saturating_sub(before.throttled_periods);
        let limit_cores = member.process.limit_cores;
        tiers.push(Tier {
            kind: member.kind,
            name: member.process.name.clone(),
            cpu_s: after.cpu.saturating_sub(before.cpu).as_secs_f64(),
            limit_cores,
            throttled: (limit_cores.is_some() && periods > 0)
                .then(|| throttled as f64 / periods as f64),
            rss_bytes: after.rss_bytes,
        });
    }
    tiers.push(Tier {
        kind: TierKind::Generator,
        name: GENERATOR.to_owned(),
        cpu_s: outcome.cpu().as_secs_f64(),
        limit_cores: None,
        throttled: None,
        rss_bytes: figures::own_rss_bytes(),
    });
    tiers
}

/// A background load, not measured.
struct BackgroundLoad {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Result<Outcome, RunError>>>,
}

impl BackgroundLoad {
    fn start(subject: &Subject<'_>, deployment: &Deployment) -> Result<Self, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let name = subject.load.background_load.as_deref();
        let Some(load) = name.and_then(|name| subject.context.experiment.load(name)) else {
            return Ok(Self { stop, thread: None });
        };
        let connections = load.connections.first().map_or(1, |n| *n as usize);
        let mut config = config(load, connections, deployment, subject.seed)?;
        config.plan.stop =
            StopCondition { duration: Some(BACKGROUND_DURATION_MAX), requests: None };
        let stop_flag = stop.clone();
        let thread = std::thread::Builder::new()
            .name("background".to_owned())
            .spawn(move || generator::run(&config, &stop_flag, &mut |_, _| {}))
            .map_err(|e| format!("the background load cannot be started: {e}"))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends it; an error if it failed.
    fn end(mut self) -> Result<(), String> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        match thread.join() {
            Ok(Ok(outcome))
                if outcome.total.counts.errors.total() + outcome.total.counts.timeouts == 0 =>
            {
                Ok(())
            }
            Ok(Ok(outcome)) => {
                let counts = &outcome.total.counts;
                Err(format!(
                    "{} requests of the background load failed",
                    counts.errors.total() + counts.timeouts
                ))
            }
            Ok(Err(error)) => Err(format!("the background load failed: {error}")),
            Err(_) => Err("the background load panicked; this is a bug in Hotrow".to_owned()),
        }
    }
}

impl Drop for BackgroundLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn words(error: &RunError) -> String {
    format!("the load could not run: {error}")
}
