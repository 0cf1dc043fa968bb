//! Observation of the machine under load, and the findings from machine and generator together.

mod database;
mod wait;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, Thread};
use std::time::Duration;

use hotrow_diagnose::process;
use hotrow_diagnose::root::{ProbeError, ProbeErrorKind, Root};
use hotrow_diagnose::rules::evaluate_some;
use hotrow_diagnose::rules::finding::{Finding, LimitClass};
use hotrow_diagnose::sampler::{Sample, Sampler, WATCHED_MAX};
use hotrow_diagnose::samples::{FailureKind, Failures, GeneratorLoad, Role, Samples};
use hotrow_load::outcome::Outcome;
use hotrow_load::stats::{CensoredNs, OTHER_STATUS};
use hotrow_measure::clock::{Nanos, thread_cpu};

pub use self::database::DatabaseProbe;
use self::database::{DatabaseThread, Extent};
use self::wait::{sleep_until, start_of};

/// Share of a load of known length at which the last sample is taken, while the load still runs.
const LAST_SAMPLE_SHARE: f64 = 0.8;
/// Time of the first sample for other loads; then twice that time, four times and so on.
const FIRST_SAMPLE_AFTER: Duration = Duration::from_millis(200);
/// Interval of the samples for a live display.
const LIVE_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const PROC: &str = "/proc";

/// The latest second, for a live display.
pub type LatestSecond = Arc<Mutex<Option<Samples>>>;

/// Observer of processes.
pub struct Observer {
    sampler: Sampler,
    /// Role of each observed process.
    roles: HashMap<u32, Role>,
    /// Reports that there are more processes than are observed.
    unobserved: Option<ProbeError>,
    /// True if the target runs on this machine.
    pub local: bool,
    /// Description of the observed processes.
    pub words: String,
    /// Samples of the latest second of a load.
    pub latest: LatestSecond,
    /// True if samples are also taken every second, which only `latest` needs.
    pub live_samples: bool,
    /// Asks the database behind the service during loads.
    pub database: Option<Box<dyn DatabaseProbe>>,
    /// CPU time of the whole observing threads.
    pub cpu: Duration,
    /// Duration of the observed loads.
    loaded: Duration,
}

impl Observer {
    /// Creates an observer of processes, their descendants, and this process as the generator.
    /// `local`: whether the target runs on this machine, even if none of its processes is visible.
    #[must_use]
    pub fn new(processes: &[(u32, Role)], local: bool, words: String) -> Self {
        let own = std::process::id();
        // The generator comes first: processes beyond the limit are omitted.
        let (mut pids, mut roles) = (vec![own], HashMap::from([(own, Role::Generator)]));
        for (pid, role) in with_descendants(processes) {
            if roles.insert(pid, role).is_none() {
                pids.push(pid);
            }
        }
        let more = pids.len().saturating_sub(1 + processes.len());
        let words = if more > 0 { format!("{words}, and {more} descendants") } else { words };
        let unobserved = unobserved(pids.len());
        let words = unobserved
            .as_ref()
            .map_or_else(|| words.clone(), |unobserved| format!("{words} ({})", unobserved.why));
        for pid in pids.split_off(pids.len().min(WATCHED_MAX)) {
            roles.remove(&pid);
        }
        let sampler = Sampler::new(Root::machine(), &pids);
        Self {
            sampler,
            local: local || !processes.is_empty(),
            roles,
            unobserved,
            words,
            latest: LatestSecond::default(),
            live_samples: true,
            database: None,
            cpu: Duration::ZERO,
            loaded: Duration::ZERO,
        }
    }

    /// Returns whether a process of the service is observed.
    pub fn observes_service(&self) -> bool {
        self.roles.values().any(|role| *role == Role::Service)
    }

    /// Returns the share of one CPU that observation took during loads; `None` before the first.
    pub fn cpu_share(&self) -> Option<f64> {
        (!self.loaded.is_zero()).then(|| self.cpu.as_secs_f64() / self.loaded.as_secs_f64())
    }

    /// Returns the observed processes with a role.
    pub fn with_role(&self, role: Role) -> Vec<u32> {
        let mut pids: Vec<u32> =
            self.roles.iter().filter(|(_, its)| **its == role).map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        pids
    }

    /// Runs a load under observation: from `warmup` after the beginning that `load` reports. There
    /// are no samples of a load that ended before its measurement began, or that reported no
    /// beginning.
    pub fn during<T>(
        &mut self,
        warmup: Duration,
        length: Option<Duration>,
        load: impl FnOnce(&LoadStart<'_>) -> T,
    ) -> (T, Option<Samples>) {
        let (over, start, started) = (AtomicBool::new(false), OnceLock::new(), Nanos::now());
        let live_interval = if self.live_samples { LIVE_SAMPLE_INTERVAL } else { Duration::MAX };
        let (roles, latest, unobserved) = (&self.roles, &self.latest, self.unobserved.as_ref());
        let (over, at) = (&over, &start);
        let database = self.database.as_mut();
        let mut observation = LoadObservation {
            sampler: &mut self.sampler,
            roles,
            unobserved,
            latest,
            live_interval,
            at,
            over,
        };
        std::thread::scope(|scope| {
            let observe = move || (observation.observe(warmup, length), thread_cpu());
            // Without a thread there is no observation.
            let observer_thread =
                Builder::new().name("observer".to_owned()).spawn_scoped(scope, observe).ok();
            let database_thread = database.map(|probe| {
                DatabaseThread::start(scope, probe.as_mut(), Extent { warmup, length }, at, over)
            });
            let observer = observer_thread.as_ref().map(|observer| observer.thread().clone());
            let database = database_thread.as_ref().and_then(DatabaseThread::thread);
            let threads = observer.into_iter().chain(database).collect();
            let ending = EndSignal { over, threads };
            let done = load(&LoadStart { at, threads: &ending.threads });
            drop(ending);
            let (mut seen, cpu) = observer_thread
                .and_then(|observer_thread| observer_thread.join().ok())
                .unwrap_or_default();
            let asked_cpu = database_thread.map(|thread| thread.end(seen.as_mut()));
            self.cpu += cpu + asked_cpu.unwrap_or_default();
            self.loaded += Nanos::now().since(started);
            (done, seen)
        })
    }

    /// Returns the findings from machine and generator, the most certain first.
    pub fn findings(&self, mut samples: Samples, outcome: &Outcome) -> Vec<Finding> {
        samples.load = Some(load_of(outcome));
        findings(&samples, self.local)
    }
}

/// Returns the findings from samples about a target on this machine (`local`) or elsewhere, the
/// most certain first.
pub fn findings(samples: &Samples, local: bool) -> Vec<Finding> {
    // For a target elsewhere, the other findings would describe the generator's machine.
    // What its database's sessions wait for does not depend on where they are asked.
    let asked = |class| class == LimitClass::External && samples.database.is_some();
    evaluate_some(samples, |class| local || applies_to_remote_target(class) || asked(class))
}

/// Returns the generator's figures of a run.
pub fn load_of(outcome: &Outcome) -> GeneratorLoad {
    let counts = &outcome.total.counts;
    // Kept connections are opened once at the beginning; they are not part of the rate.
    let opened = counts.connections_opened.saturating_sub(outcome.max_in_flight as u64);
    let per_s = |count: u64| count as f64 / outcome.window.as_secs_f64();
    let connects = per_s(opened.saturating_add(counts.connect_errors));
    let failed = per_s(counts.connect_errors);
    GeneratorLoad {
        connections: outcome.max_in_flight as u64,
        rate: outcome.throughput_rps(),
        target_rate: outcome.target_rate,
        service_time: Duration::from_nanos(outcome.total.service.mean().map_or(0, CensoredNs::ns)),
        connects_per_s: Some(connects).filter(|connects| connects.is_finite()),
        failed_connects_per_s: if failed.is_finite() { failed } else { 0.0 },
        failures: failures(outcome),
        was_the_limit: outcome.limit().is_generator(),
    }
}

/// Returns the most frequent way in which the target refused requests or broke them off.
fn failures(outcome: &Outcome) -> Option<Failures> {
    let (refused, counts) = (&outcome.total.refused, &outcome.total.counts);
    let statuses = refused
        .iter()
        .filter(|(status, _)| **status != OTHER_STATUS)
        .map(|(status, latency)| (FailureKind::Status(*status), latency.count()));
    let broken =
        [(FailureKind::Closed, counts.errors.closed), (FailureKind::Reset, counts.errors.reset)];
    let (kind, n) = statuses.chain(broken).max_by_key(|(_, n)| *n).filter(|(_, n)| *n > 0)?;
    Some(Failures { share: n as f64 / counts.scheduled.max(1) as f64, kind })
}

/// Returns whether a class applies to a remote target: TCP, its timing, and the generator's own
/// machine.
fn applies_to_remote_target(class: LimitClass) -> bool {
    matches!(
        class,
        LimitClass::Generator
            | LimitClass::AllCpus
            | LimitClass::Competitor
            | LimitClass::Steal
            | LimitClass::Bandwidth
            | LimitClass::PacketLoss
            | LimitClass::Ports
            | LimitClass::KernelTable
            | LimitClass::NoneFound
    )
}

/// Signals the beginning of a load; before it, connections are opened, which may take long.
pub struct LoadStart<'a> {
    at: &'a OnceLock<Nanos>,
    threads: &'a [Thread],
}

impl LoadStart<'_> {
    /// Reports the beginning of the load. Only the first call counts.
    pub fn at(&self, moment: Nanos) {
        let _ = self.at.set(moment);
        self.threads.iter().for_each(Thread::unpark);
    }
}

/// Signals the end of the load when dropped, also on a panic; the scope waits for the observing
/// threads.
struct EndSignal<'a> {
    over: &'a AtomicBool,
    threads: Vec<Thread>,
}

impl Drop for EndSignal<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.iter().for_each(Thread::unpark);
    }
}

/// Observation of one load.
struct LoadObservation<'a> {
    sampler: &'a mut Sampler,
    roles: &'a HashMap<u32, Role>,
    unobserved: Option<&'a ProbeError>,
    latest: &'a LatestSecond,
    live_interval: Duration,
    at: &'a OnceLock<Nanos>,
    over: &'a AtomicBool,
}

impl LoadObservation<'_> {
    fn observe(&mut self, warmup: Duration, length: Option<Duration>) -> Option<Samples> {
        let start = start_of(self.at, self.over)?;
        if !sleep_until(start.after(warmup), self.over) {
            return None;
        }
        let first = self.sampler.sample_endpoint(Nanos::now());
        let (mut last, mut found) = (first.clone(), None);
        let mut whole_at =
            length.map_or(FIRST_SAMPLE_AFTER, |length| length.mul_f64(LAST_SAMPLE_SHARE));
        loop {
            let passed = Nanos::now().since(first.at);
            let continues =
                sleep(whole_at.saturating_sub(passed).min(self.live_interval), self.over);
            if !continues && found.is_some() {
                return found;
            }
            let at = Nanos::now();
            let ends = at.since(first.at) >= whole_at || !continues;
            let now = if ends { self.sampler.sample_endpoint(at) } else { self.sampler.sample(at) };
            self.show(&last, &now);
            if ends {
                let mut samples = self.between(&first, &now);
                self.sampler.survey(&mut samples);
                found = Some(samples);
                // After a known length only the last responses arrive; that is not the load.
                whole_at = length.map_or(whole_at.saturating_mul(2), |_| Duration::MAX);
            }
            if !continues {
                return found;
            }
            last = now;
        }
    }

    fn between(&self, earlier: &Sample, later: &Sample) -> Samples {
        let mut samples = Samples::between(earlier, later, |pid| {
            self.roles.get(&pid).copied().unwrap_or_default()
        });
        samples.probe_errors.extend(self.unobserved.cloned());
        samples
    }

    fn show(&self, earlier: &Sample, later: &Sample) {
        let samples = self.between(earlier, later);
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(samples);
    }
}

/// Reports processes that are not observed.
fn unobserved(all: usize) -> Option<ProbeError> {
    let why = ProbeErrorKind::TooMany { seen: WATCHED_MAX, all };
    (all > WATCHED_MAX).then(|| ProbeError { file: "proc/*/task".to_owned(), why })
}

/// Sleeps; returns whether the whole time passed before the end.
pub fn sleep(time: Duration, over: &AtomicBool) -> bool {
    sleep_until(Nanos::now().after(time), over)
}

/// Adds descendants: workers of a forking server.
fn with_descendants(processes: &[(u32, Role)]) -> Vec<(u32, Role)> {
    let all = process::all(Path::new(PROC)).unwrap_or_default();
    let mut found = processes.to_vec();
    for (pid, role) in processes {
        for stat in process::descendants(&all, *pid) {
            if stat.pid != std::process::id() && !found.iter().any(|(pid, _)| *pid == stat.pid) {
                found.push((stat.pid, *role));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
