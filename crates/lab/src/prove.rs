//! Tests a suspicion: carries out the trials that [`hotrow_diagnose::verdict`] asks for.
//!
//! Each is a short load of its own, with a warm-up that is not counted, and looked at like any other. Nothing of the target is touched:
//! what changes is what is asked of it, the generator's own work, and CPU time that threads of this process take from all. Only its cgroup's
//! quota is, where that is allowed.

mod burner;
mod quota;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotrow_diagnose::probe::group::PERIODS_MIN;
use hotrow_diagnose::rules::finding::{Class, Finding};
use hotrow_diagnose::samples::{Role, Samples};
use hotrow_diagnose::verdict::{Change, Heard, Measured, Pace, Prover, Step};
pub use hotrow_diagnose::verdict::{Scene, Verdict};
use hotrow_load::limited::RATE_KEPT;
use hotrow_load::outcome::{End, Outcome, Second};
use hotrow_load::plan::{self, Arrivals, Extent, Plan, Rate};
use hotrow_load::record::{Known, Record};
use hotrow_load::run::{self, CONNECTIONS_MAX, Config, RunError};
use hotrow_measure::clock::Nanos;
use rustix::process::{Resource, getrlimit};

use self::burner::Burner;
use self::quota::Smaller;
pub use self::quota::Undo;
use crate::watch::Watch;

/// Longest load of a trial.
pub const TRIAL_MAX: Duration = Duration::from_secs(1);
/// Shortest: less holds too few looks at the machine.
const TRIAL_MIN: Duration = Duration::from_millis(200);
/// A trial takes at most this part of the load whose limit it tests.
const TRIAL_PART: u32 = 3;
/// This part of a trial goes before it, uncounted.
const WARMUP_PART: u32 = 5;
/// Fewer answers in an unchanged trial scatter too much to tell anything.
const ANSWERS_MIN: f64 = 20.0;
/// Whatever a trial waits for, an answer or a connection, it waits for twice its length and this at most: what takes longer says
/// no more, and the time for tests is short.
const PATIENCE_SPARE: Duration = Duration::from_secs(1);
/// Where typical answers came within this part of a trial, one is waited for half of the trial: what never comes is seen within it.
const QUICK_PART: u32 = 16;
/// Of a hundred answers that came, all but one may take so many times as long for that.
const TAIL: u32 = 4;
/// Less than this part of the CPU time that was to be taken away is too little to tell anything.
const TAKEN_LEAST: f64 = 0.7;
/// Open files of this process besides connections.
const FILES_SPARE: u64 = 64;
/// From this share of failed requests on a changed request is not served as the unchanged one.
const REFUSED: f64 = 0.5;

/// How much testing there is to be.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Length of one load.
    pub trial: Duration,
    /// All of them together; the last may take longer by its connecting and by its last answers, each of which is bounded.
    pub time: Duration,
    /// Never ask for more, in requests per second.
    pub rate_max: Option<f64>,
    /// Whether the quota of the target's cgroup may be changed, and who puts it back when this process is ended.
    pub changes: Option<Undo>,
}

impl Limits {
    /// For a load of such a length.
    #[must_use]
    pub fn of(length: Duration, time: Duration) -> Self {
        Self { trial: (length / TRIAL_PART).clamp(TRIAL_MIN, TRIAL_MAX), time, rate_max: None, changes: None }
    }
}

/// What is said of findings that cannot be tested.
#[must_use]
pub fn untested(findings: Vec<Finding>, scene: Scene, why: &str) -> Verdict {
    let mut prover = Prover::new(findings, scene);
    loop {
        // Whatever it asks for, there is none; that it ends then is its contract.
        if let Step::Done(verdict) = prover.next(Some(Heard::Over(why.to_owned()))) {
            return *verdict;
        }
    }
}

/// How tests go, for whoever looks on.
pub enum Told<'a> {
    /// A load comes next.
    Begins(&'a Trial),
    /// A second of it is over.
    Second(&'a Second, &'a Record),
    /// It is over.
    Ended(&'a Trial, &'a Outcome),
}

/// One load of a test.
pub struct Trial {
    /// From 1 on; those that could not be made count too.
    pub number: u64,
    /// The suspicion that it tests.
    pub suspicion: Class,
    /// What is changed, in words.
    pub words: String,
    /// What is loaded, and how.
    pub config: Config,
}

/// What is known of a load that was just made, and can be changed about it.
#[must_use]
pub fn scene(config: &Config, outcome: &Outcome, samples: &Samples, local: bool) -> Scene {
    let service = samples.with_role(Role::Service);
    let throttled = samples.with_role(Role::Generator).any(|own| own.group.is_some_and(|g| g.throttled_periods > 0));
    let asked_rps = match config.plan.pace {
        plan::Pace::Closed => None,
        plan::Pace::Open { .. } => outcome.target_rate,
    };
    Scene {
        connections: config.connections,
        connections_max: connections_max(),
        threads: config.threads,
        threads_max: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        asked_rps,
        asked_most_rps: None,
        kept: outcome.rate_ratio().is_some_and(|ratio| ratio >= RATE_KEPT),
        keepalive: config.keepalive,
        get: config.requests.as_head().is_some(),
        local,
        cpus: samples.cores.len().max(1),
        idle_cores: samples.idle_cores(),
        generator_busy: outcome.cpu_share(),
        generator_us_per_request: outcome.cpu_us_per_request().unwrap_or(0.0),
        generator_throttled: throttled,
        unread_share: service.filter_map(|process| process.unread_share).reduce(f64::max),
        answer_typical: answer_typical(outcome),
        most_throttled: most_throttled(samples),
        quota: false,
    }
}

/// The group that held a process of the service up in the largest share of its periods; none where none did.
fn most_throttled(samples: &Samples) -> Option<Arc<Path>> {
    let shares = samples.with_role(Role::Service).filter_map(|process| {
        let group = process.group.filter(|group| group.throttled_periods > 0 && group.periods >= PERIODS_MIN)?;
        Some((process.held_in.clone()?, group.throttled_periods as f64 / group.periods.max(1) as f64))
    });
    shares.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(group, _)| group)
}

/// The median, or a part of what all but one of a hundred answers took where that is more.
fn answer_typical(outcome: &Outcome) -> Duration {
    let latency = &outcome.total.latency;
    let median = latency.quantile(0.5).map_or(u64::MAX, Known::ns);
    let tail = latency.answered.value_at_quantile(0.99).unwrap_or_default() / u64::from(TAIL);
    Duration::from_nanos(median.max(tail))
}

/// Open files allow so many.
fn connections_max() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(FILES_SPARE);
    usize::try_from(files).unwrap_or(usize::MAX).min(CONNECTIONS_MAX)
}

/// Tests findings, the most certain first, until one is confirmed, none is left, or the time is up. `config` is the load in which they
/// were found. `tell` hears of each load.
pub fn prove(
    config: &Config,
    watch: &mut Watch,
    (findings, mut scene): (Vec<Finding>, Scene),
    limits: Limits,
    stop: &Arc<AtomicBool>,
    tell: &mut dyn FnMut(Told<'_>),
) -> Verdict {
    let cpu_per_request = Duration::from_nanos((scene.generator_us_per_request * 1e3) as u64);
    let typical = scene.answer_typical;
    let quota = limits.changes.as_ref().and(scene.most_throttled.as_deref()).and_then(quota::file);
    scene.quota = quota.is_some();
    let begun = Nanos::now();
    let mut trials = Trials { config, watch, limits, stop, cpu_per_request, typical, quota, number: 0, begun };
    let mut prover = Prover::new(findings, scene);
    let mut heard = None;
    loop {
        match prover.next(heard.take()) {
            Step::Done(verdict) => return *verdict,
            Step::Load { change, pace } => {
                let suspicion = prover.suspicion().unwrap_or(Class::NoneFound);
                heard = Some(trials.load((change, pace), (suspicion, prover.words(change)), tell));
            }
        }
    }
}

/// Trials that are being carried out.
struct Trials<'a> {
    config: &'a Config,
    watch: &'a mut Watch,
    limits: Limits,
    stop: &'a Arc<AtomicBool>,
    /// CPU time of the generator for a request.
    cpu_per_request: Duration,
    /// Half of the answers came within this time.
    typical: Duration,
    /// The file with the target's quota, if it may be changed.
    quota: Option<PathBuf>,
    number: u64,
    begun: Nanos,
}

impl Trials<'_> {
    fn load(
        &mut self,
        (change, pace): (Option<Change>, Pace),
        (suspicion, words): (Class, String),
        tell: &mut dyn FnMut(Told<'_>),
    ) -> Heard {
        let warmup = self.limits.trial / WARMUP_PART;
        if self.stop.load(Ordering::Relaxed) {
            return Heard::Over("interrupted".to_owned());
        }
        let used = Nanos::now().since(self.begun);
        if used + warmup + self.limits.trial > self.limits.time {
            return Heard::Over(format!("the time for tests ({} s) was used up", self.limits.time.as_secs_f64()));
        }
        let config = match self.changed(change, pace, warmup) {
            Ok(config) => config,
            Err(why) => return Heard::Impossible(why),
        };
        // Both end with this function.
        let (burner, _smaller) = match self.disturbed(change) {
            Ok(both) => both,
            Err(why) => return Heard::Impossible(why),
        };
        let (stop, length) = (self.stop, self.limits.trial);
        let trial = Trial { number: self.number, suspicion, words, config };
        tell(Told::Begins(&trial));
        let (outcome, samples) = self.watch.during(warmup, Some(length), |begin| {
            let told = &mut |second: &Second, record: &Record| tell(Told::Second(second, record));
            run::run_telling(&trial.config, stop, &mut |at| begin.at(at), told)
        });
        let taken = burner.map(|burner| burner.taken_cores());
        if let Ok(outcome) = &outcome {
            tell(Told::Ended(&trial, outcome));
        }
        match outcome {
            Ok(outcome) if outcome.end == End::Interrupted => Heard::Over("interrupted".to_owned()),
            Err(RunError::InterruptedBefore) => Heard::Over("interrupted".to_owned()),
            Err(error) if change.is_none() => Heard::Over(error.to_string()),
            Err(error) => Heard::Impossible(error.to_string()),
            Ok(outcome) => too_little(change, taken).unwrap_or_else(|| self.heard(change, &outcome, samples.as_ref())),
        }
    }

    /// What is done beside the load.
    fn disturbed(&self, change: Option<Change>) -> Result<(Option<Burner>, Option<Smaller>), String> {
        match (change, &self.quota, &self.limits.changes) {
            (Some(Change::BurnCpus(cores)), ..) => {
                let burner = Burner::start(cores).map_err(|error| format!("no thread could be started: {error}"))?;
                Ok((Some(burner), None))
            }
            (Some(Change::Quota(part)), Some(file), Some(undo)) => {
                let smaller = Smaller::make(file, part, undo).map_err(|e| format!("{}: {e}", file.display()))?;
                Ok((None, Some(smaller)))
            }
            (Some(Change::Quota(_)), ..) => Err("the cgroup may not be changed".to_owned()),
            _ => Ok((None, None)),
        }
    }

    fn heard(&self, change: Option<Change>, outcome: &Outcome, samples: Option<&Samples>) -> Heard {
        let measured = measured(outcome, samples);
        let answers = measured.rate_rps * self.limits.trial.as_secs_f64();
        if change.is_none() && answers < ANSWERS_MIN && measured.failed_share == 0.0 {
            return Heard::Over(format!(
                "{answers:.0} answers in a trial are too few to compare; make the load longer"
            ));
        }
        if change == Some(Change::Head) && measured.failed_share > REFUSED {
            return Heard::Impossible("the target does not answer HEAD as it answers GET".to_owned());
        }
        Heard::Measured(measured)
    }

    fn changed(&mut self, change: Option<Change>, pace: Pace, warmup: Duration) -> Result<Config, String> {
        self.number += 1;
        // Other ids and other arrival times in each.
        let seed = self.config.seed.wrapping_add(self.number);
        let pace = match (pace, change) {
            (Pace::Closed, _) => match self.limits.rate_max {
                // More than connections can carry is as good as a closed loop.
                Some(most) => {
                    let rate = Rate::new(most, most).map_err(|error| error.to_string())?;
                    plan::Pace::Open { rate, arrivals: Arrivals::Uniform }
                }
                None => plan::Pace::Closed,
            },
            (Pace::AsLoaded, Some(Change::Rate(times))) => faster(self.config.plan.pace, times)?,
            (Pace::AsLoaded, _) => self.config.plan.pace,
        };
        let extent = Extent { duration: Some(self.limits.trial), requests: None };
        let trial = self.limits.trial;
        let mut config = Config {
            plan: Plan { pace, warmup, extent, seed },
            seed,
            timeout: patience(self.config.timeout, trial, self.typical),
            // The kernel asks again after a second: who waits for that has not failed.
            connect_timeout: patience(self.config.connect_timeout, trial, trial),
            ..self.config.clone()
        };
        match change {
            Some(Change::Connections(n)) => config.connections = n,
            Some(Change::GeneratorThreads(n)) => config.threads = n,
            Some(Change::BurnGenerator(share)) => config.burn_per_request = self.cpu_per_request.mul_f64(share),
            Some(Change::Head) => {
                config.requests = config.requests.as_head().ok_or("not every request is a GET")?;
            }
            Some(Change::Keepalive) => (config.requests, config.keepalive) = (config.requests.as_kept(), true),
            Some(Change::BurnCpus(_) | Change::Quota(_) | Change::Rate(_)) | None => {}
        }
        config.threads = config.threads.min(config.connections);
        Ok(config)
    }
}

/// Why a trial says nothing, when too little of the CPUs could be taken away.
fn too_little(change: Option<Change>, taken_cores: Option<f64>) -> Option<Heard> {
    let (Some(Change::BurnCpus(wanted)), Some(taken)) = (change, taken_cores) else { return None };
    (taken < TAKEN_LEAST * wanted)
        .then(|| Heard::Impossible(format!("only {taken:.2} of {wanted:.2} CPUs could be taken away from the others")))
}

/// How long a trial of such a length waits for what it would be given so long otherwise, and what typically takes so long. The same in each
/// trial, so that they compare.
fn patience(given: Duration, trial: Duration, typical: Duration) -> Duration {
    let quick = typical <= trial / QUICK_PART;
    given.min(if quick { trial / 2 } else { trial * 2 + PATIENCE_SPARE })
}

fn faster(pace: plan::Pace, times: f64) -> Result<plan::Pace, String> {
    match pace {
        plan::Pace::Closed => Ok(pace),
        plan::Pace::Open { rate, arrivals } => {
            let rate = Rate::new(rate.from() * times, rate.to() * times).map_err(|error| error.to_string())?;
            Ok(plan::Pace::Open { rate, arrivals })
        }
    }
}

fn measured(outcome: &Outcome, samples: Option<&Samples>) -> Measured {
    let counts = &outcome.total.counts;
    // Not what was never sent: an open loop that asks for too much leaves many, and nothing has failed.
    let failed = counts.errors.total() + counts.timeouts + counts.connect_errors;
    let due = counts.scheduled + counts.connect_errors;
    let overflows = samples.and_then(|samples| {
        let per_s = samples.trouble?.listen_overflows as f64 / samples.span.as_secs_f64();
        per_s.is_finite().then_some(per_s)
    });
    let services = samples.into_iter().flat_map(|samples| samples.with_role(Role::Service));
    Measured {
        rate_rps: outcome.throughput_rps(),
        failed_share: if due > 0 { (failed as f64 / due as f64).min(1.0) } else { 0.0 },
        overflows_per_s: overflows.unwrap_or(0.0),
        unread_share: services.filter_map(|process| process.unread_share).reduce(f64::max),
        generator_limited: outcome.limit().is_generator(),
    }
}

#[cfg(test)]
mod tests {
    use hotrow_diagnose::probe::group::Counters;
    use hotrow_diagnose::samples::Watched;

    use super::*;

    #[test]
    fn the_group_that_holds_up_most_is_chosen() {
        let process = |pid, role, throttled_periods| {
            let group = Some(Counters { periods: 100, throttled_periods, ..Counters::default() });
            let held_in = (throttled_periods > 0).then(|| PathBuf::from(format!("/{pid}")).into());
            Watched { pid, role, group, held_in, ..Watched::default() }
        };
        let of = |processes| most_throttled(&Samples { processes, ..Samples::default() });
        let service = |pid, throttled| process(pid, Role::Service, throttled);
        assert_eq!(
            of(vec![service(1, 5), service(2, 90), process(3, Role::Generator, 99)]),
            Some(Path::new("/2").into())
        );
        assert_eq!(of(vec![service(1, 0), process(3, Role::Generator, 99)]), None);
    }

    #[test]
    fn a_trial_does_not_wait_beyond_its_time() {
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(100));
        assert_eq!(patience(long, TRIAL_MAX, TRIAL_MAX / 2), Duration::from_secs(3));
        assert_eq!(patience(long, TRIAL_MIN, TRIAL_MIN), Duration::from_millis(1_400));
        assert_eq!(patience(long, TRIAL_MAX, Duration::from_millis(20)), Duration::from_millis(500));
        assert_eq!(patience(short, TRIAL_MIN, TRIAL_MIN), short, "what was asked for is never made longer");
    }

    #[test]
    fn cpus_that_could_not_be_taken_away_say_nothing() {
        let burn = Some(Change::BurnCpus(0.4));
        assert!(matches!(too_little(burn, Some(0.12)), Some(Heard::Impossible(why)) if why.contains("0.12 of 0.40")));
        assert_eq!(too_little(burn, Some(0.35)), None);
        assert_eq!(too_little(Some(Change::Head), None), None);
    }
}
