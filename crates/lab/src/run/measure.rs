//! One measurement: what everyone has used and counted before, a load, and the same afterwards.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hotrow_load::outcome::{End, Outcome};
use hotrow_load::plan::{Arrivals, Extent, Pace, Plan};
use hotrow_load::run::{self as generator, Config, Expect, RunError};

use super::looking::{GENERATOR, Looking};
use super::metrics::Metrics;
use super::standing::{Ground, Standing, stopped};
use super::{answers, figures};
use crate::experiment::{Load, Planned, Service, Setup};
use crate::results::{Measurement, Part, Tier};
use crate::stage::{self, IoCounters, Stage, Usage};

/// Longest wait for a connection to open.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Longest run of the load beside another, should nothing end it.
const BESIDE_MAX: Duration = Duration::from_secs(24 * 3600);

/// What is measured.
pub(super) struct Subject<'a> {
    pub(super) ground: &'a Ground<'a>,
    pub(super) setup: &'a Setup,
    pub(super) service: &'a Service,
    pub(super) planned: &'a Planned,
    pub(super) load: &'a Load,
    pub(super) round: u32,
    pub(super) seed: u64,
    /// The generator's verdict in words.
    pub(super) verdict: fn(&Outcome) -> String,
}

/// Everyone's use and counts at one moment.
struct Sample {
    usages: Vec<Usage>,
    counts: Vec<Option<u64>>,
    metrics: Metrics,
    io: IoCounters,
}

/// Measures a row on a set-up that stands; none when the user broke it off.
pub(super) fn measure(
    subject: &Subject<'_>,
    standing: &Standing,
    stage: &mut Stage,
    stop: &Arc<AtomicBool>,
) -> Option<Measurement> {
    let mut measurement = empty(&subject.planned.row.id, subject.round);
    let measured = Beside::start(subject, standing).and_then(|beside| {
        let measured = load(subject, standing, stage, stop, &mut measurement);
        let besides = beside.end();
        measured.and(besides)
    });
    if stopped(stop) {
        return None;
    }
    measurement.failed = standing.fallen(stage).or(measured.err());
    Some(measurement)
}

/// A measurement of nothing yet.
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
        io: crate::results::Io::default(),
        figures: Vec::new(),
        findings: Vec::new(),
        looking_cpu_s: None,
    }
}

fn load(
    subject: &Subject<'_>,
    standing: &Standing,
    stage: &mut Stage,
    stop: &Arc<AtomicBool>,
    measurement: &mut Measurement,
) -> Result<(), String> {
    let load = subject.load;
    let connections = subject.planned.row.connections as usize;
    let mut config = config(load, connections, standing, subject.seed)?;
    if !load.warmup.is_zero() {
        config.plan.extent = Extent { duration: Some(load.warmup), requests: None };
        // What goes wrong in it goes wrong in the measurement too, and is told there.
        let _ = generator::run(&config, stop, &mut |_, _| {}).map_err(|e| words(&e))?;
        config.plan.extent = load.extent;
    }
    let mut looking = Looking::at(standing);
    let before = Sample::take(subject.service, standing, stage)?;
    let (outcome, seen) = looking
        .during(load.extent, |begin| generator::run_telling(&config, stop, &mut |at| begin.at(at), &mut |_, _| {}));
    let outcome = outcome.map_err(|e| words(&e))?;
    let after = Sample::take(subject.service, standing, stage)?;
    let io = after.io.since(&before.io);
    measurement.io = io;
    measurement.load = Some(figures::load(&outcome, (subject.verdict)(&outcome)));
    measurement.tiers = tiers(standing, &before, &after, &outcome);
    let served: Option<Vec<u64>> = before
        .counts
        .iter()
        .zip(&after.counts)
        .map(|(before, after)| Some((*after)?.saturating_sub((*before)?)))
        .collect();
    measurement.backends = figures::backends(&standing.backends, served.as_deref());
    if subject.setup.proxy.as_ref().is_some_and(|proxy| proxy.cache.is_some()) {
        measurement.cache = figures::cache(&outcome, served.as_deref());
    }
    measurement.findings = seen.map(|seen| looking.findings(seen, &outcome)).unwrap_or_default();
    measurement.looking_cpu_s = Some(looking.cpu().as_secs_f64());
    measurement.figures = figures::of_metrics(&subject.service.figures, &before.metrics, &after.metrics);
    verdict(load, &outcome)
}

/// Whether all answers were as they should be; if not, why the measurement does not count.
fn verdict(load: &Load, outcome: &Outcome) -> Result<(), String> {
    let counts = &outcome.total.counts;
    let errors = counts.errors;
    let failures = [
        (errors.unexpected_status, "answers with a wrong status"),
        (errors.malformed, "malformed answers"),
        (errors.closed + errors.reset, "requests lost with their connection"),
        (counts.timeouts, "time-outs"),
        (counts.connect_errors, "connections that could not be opened"),
    ];
    let mut why: Vec<String> = failures.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if outcome.end == End::TargetGone {
        why.push("the target was gone".to_owned());
    }
    if counts.ok == 0 {
        why.push("no request was answered as expected".to_owned());
    } else if counts.ok_in_window == 0 {
        why.push("no answer came before the measurement was over, measure for longer: 0 in time".to_owned());
    }
    let least = load.expect.body_bytes.map_or(0, |(least, _)| least as u64);
    if load.method != "HEAD" && counts.bytes_received < counts.ok.saturating_mul(least) {
        let (received, ok) = (counts.bytes_received, counts.ok);
        why.push(format!("{received} bytes received, too few for {ok} right answers of at least {least} bytes each"));
    }
    if why.is_empty() {
        return Ok(());
    }
    let troubles: Vec<String> = outcome.troubles.iter().map(|(words, n)| format!("{words} ({n} times)")).collect();
    let troubles = if troubles.is_empty() { String::new() } else { format!(": {}", troubles.join("; ")) };
    Err(format!("{} of {} requests{troubles}", why.join(", "), counts.scheduled))
}

fn config(load: &Load, connections: usize, standing: &Standing, seed: u64) -> Result<Config, String> {
    let entrance = &standing.entrance;
    Ok(Config {
        address: entrance.address.clone(),
        tls: entrance.tls.clone(),
        requests: load.requests(&entrance.host).map_err(|e| e.to_string())?,
        plan: Plan {
            pace: load.rate.map_or(Pace::Closed, |rate| Pace::Open { rate, arrivals: Arrivals::Uniform }),
            warmup: Duration::ZERO,
            extent: load.extent,
            seed,
        },
        connections,
        threads: threads(load, connections),
        keepalive: load.keepalive,
        pipeline: 1,
        timeout: load.timeout,
        connect_timeout: load.timeout.min(CONNECT_WITHIN),
        expect: load.expect.status.map_or(Expect::Success, |status| Expect::Status(vec![status])),
        seed,
        runqueue_wait: Some(Arc::new(|tid| {
            hotrow_diagnose::schedstat::of_thread(Path::new("/proc"), tid).ok().map(|stat| stat.waiting)
        })),
        burn_per_request: Duration::ZERO,
    })
}

/// As `hotrow load` has it: half of the CPUs, for the rest of the set-up needs some too.
fn threads(load: &Load, connections: usize) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    load.threads.unwrap_or(cpus / 2).clamp(1, connections.max(1))
}

impl Sample {
    fn take(service: &Service, standing: &Standing, stage: &Stage) -> Result<Self, String> {
        let counts =
            standing.backends.iter().map(|backend| answers::count(service, backend)).collect::<Result<_, _>>()?;
        let mut metrics = Metrics::default();
        for backend in &standing.backends {
            metrics.merge(answers::metrics(service, backend)?);
        }
        let usages = standing.members.iter().map(|member| stage.usage(&member.process)).collect();
        Ok(Self { usages, counts, metrics, io: stage::io() })
    }
}

fn tiers(standing: &Standing, before: &Sample, after: &Sample, outcome: &Outcome) -> Vec<Tier> {
    let mut tiers: Vec<Tier> = Vec::with_capacity(standing.members.len() + 1);
    for ((member, before), after) in standing.members.iter().zip(&before.usages).zip(&after.usages) {
        let periods = after.periods.saturating_sub(before.periods);
        let throttled = after.throttled_periods.saturating_sub(before.throttled_periods);
        let limit_cores = member.process.limit_cores;
        tiers.push(Tier {
            part: member.part,
            name: member.process.name.clone(),
            cpu_s: after.cpu.saturating_sub(before.cpu).as_secs_f64(),
            limit_cores,
            throttled: (limit_cores.is_some() && periods > 0).then(|| throttled as f64 / periods as f64),
            rss_bytes: after.rss_bytes,
        });
    }
    tiers.push(Tier {
        part: Part::Generator,
        name: GENERATOR.to_owned(),
        cpu_s: outcome.cpu().as_secs_f64(),
        limit_cores: None,
        throttled: None,
        rss_bytes: figures::own_rss_bytes(),
    });
    tiers
}

/// A load that runs beside the measured one, unmeasured.
struct Beside {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Result<Outcome, RunError>>>,
}

impl Beside {
    fn start(subject: &Subject<'_>, standing: &Standing) -> Result<Self, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let name = subject.load.beside.as_deref();
        let Some(load) = name.and_then(|name| subject.ground.experiment.load(name)) else {
            return Ok(Self { stop, thread: None });
        };
        let connections = load.connections.first().map_or(1, |n| *n as usize);
        let mut config = config(load, connections, standing, subject.seed)?;
        config.plan.extent = Extent { duration: Some(BESIDE_MAX), requests: None };
        let told = stop.clone();
        let thread = std::thread::Builder::new()
            .name("beside".to_owned())
            .spawn(move || generator::run(&config, &told, &mut |_, _| {}))
            .map_err(|e| format!("the load beside it cannot be started: {e}"))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends it; an error when it did not go well.
    fn end(mut self) -> Result<(), String> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        match thread.join() {
            Ok(Ok(outcome)) if outcome.total.counts.errors.total() + outcome.total.counts.timeouts == 0 => Ok(()),
            Ok(Ok(outcome)) => {
                let counts = &outcome.total.counts;
                Err(format!("{} requests of the load beside it failed", counts.errors.total() + counts.timeouts))
            }
            Ok(Err(error)) => Err(format!("the load beside it failed: {error}")),
            Err(_) => Err("the load beside it panicked; this is a bug in Hotrow".to_owned()),
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn words(error: &RunError) -> String {
    format!("the load could not run: {error}")
}
