//! Trials that confirm or refute a suspected bottleneck, as planned by
//! [`hotrow_diagnose::verdict`].
//!
//! Each trial is a short load with an uncounted warm-up, observed like any other. Nothing of the
//! target is changed, except its cgroup's CPU quota where that is permitted. Trials vary the
//! requests, the generator's own work, and the CPU time that threads of this process consume.

mod burner;
mod context;
mod quota;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hotrow_diagnose::hypothesis::{
    Change, HypothesisTester, TestStep, TrialLoad, TrialMeasurement, TrialOutcome,
};
pub use hotrow_diagnose::hypothesis::{Context, HypothesisVerdict};
use hotrow_diagnose::rules::finding::{Finding, LimitClass};
use hotrow_diagnose::samples::{Role, Samples};
use hotrow_load::format;
use hotrow_load::outcome::{Outcome, RunEnd, Second};
use hotrow_load::plan::{self, Arrivals, Plan, Rate, StopCondition};
use hotrow_load::run::{self, Config, RunError};
use hotrow_load::stats::LoadStats;
use hotrow_measure::clock::Nanos;

use self::burner::Burner;
pub use self::context::context;
pub use self::quota::QuotaRestore;
use self::quota::ReducedQuota;
use crate::observe::Observer;

/// Longest load of a trial.
pub const TRIAL_MAX: Duration = Duration::from_secs(1);
/// Shortest load of a trial; shorter ones hold too few samples of the machine.
const TRIAL_MIN: Duration = Duration::from_millis(200);
/// Divisor of the tested load's length for the length of a trial.
const TRIAL_PART: u32 = 3;
/// Divisor of a trial's length for its warm-up.
const WARMUP_PART: u32 = 5;
/// Fewest responses in an unchanged trial; fewer vary too much for a comparison.
const RESPONSES_MIN: f64 = 20.0;
/// Addition to the time limit of requests and connects in a trial, which is twice its length:
/// slower ones add no information, and time for trials is short.
const TIMEOUT_SPARE: Duration = Duration::from_secs(1);
/// If typical responses take at most this fraction (as a divisor) of a trial, the time limit is
/// half of the trial, so that missing responses are detected within it.
const QUICK_PART: u32 = 16;
/// Smallest part of the CPU time to be taken away that gives a result.
const TAKEN_SHARE_MIN: f64 = 0.7;
/// Share of failed requests from which a changed request is not served like the unchanged one.
const FAILED_SHARE_MAX: f64 = 0.5;

/// Limits of the trials.
#[derive(Clone, Debug)]
pub struct TrialLimits {
    /// Length of one load.
    pub trial: Duration,
    /// Total time; the last trial may exceed it by its connects and its last responses, both
    /// bounded.
    pub time: Duration,
    /// Highest rate, in requests per second.
    pub rate_max: Option<f64>,
    /// Permission to change the target's CPU quota, with the means to restore it when this process
    /// ends.
    pub changes: Option<QuotaRestore>,
}

impl TrialLimits {
    /// Returns the limits for a load of the given length.
    #[must_use]
    pub fn of(length: Duration, time: Duration) -> Self {
        Self {
            trial: (length / TRIAL_PART).clamp(TRIAL_MIN, TRIAL_MAX),
            time,
            rate_max: None,
            changes: None,
        }
    }
}

/// Returns the verdict on findings that cannot be tested.
pub fn untested(findings: Vec<Finding>, context: Context, why: &str) -> HypothesisVerdict {
    let mut tester = HypothesisTester::new(findings, context);
    loop {
        // No trial is possible; the tester ends after each attempt by contract.
        if let TestStep::Done(verdict) = tester.next(Some(TrialOutcome::Over(why.to_owned()))) {
            return *verdict;
        }
    }
}

/// Progress of the trials.
pub enum TrialEvent<'a> {
    /// A trial starts.
    Started(&'a TrialRun),
    /// A second of it has passed.
    Second(&'a Second, &'a LoadStats),
    /// It has ended.
    Ended(&'a TrialRun, &'a Outcome),
}

/// The hypothesis under test.
pub struct TestedHypothesis {
    /// The suspected limit.
    pub class: LimitClass,
    /// The change, in words.
    pub words: String,
}

/// Findings with the load that they are of.
pub struct Suspects {
    /// The most certain first.
    pub findings: Vec<Finding>,
    /// The load.
    pub context: Context,
}

/// One load of a test.
pub struct TrialRun {
    /// Number, from 1; trials that could not run count too.
    pub number: u64,
    /// What it tests.
    pub hypothesis: TestedHypothesis,
    /// Configuration of the load.
    pub config: Config,
}

/// Tests findings, the most certain first, until one is confirmed, none is left, or the time is
/// used up. `config` is the load of the findings. `on_event` receives the progress.
pub fn confirm(
    config: &Config,
    observer: &mut Observer,
    suspects: Suspects,
    limits: TrialLimits,
    stop: &Arc<AtomicBool>,
    on_event: &mut dyn FnMut(TrialEvent<'_>),
) -> HypothesisVerdict {
    let Suspects { findings, mut context } = suspects;
    let cpu_per_request = Duration::from_nanos((context.generator_us_per_request * 1e3) as u64);
    let typical = context.answer_typical;
    let quota =
        limits.changes.as_ref().and(context.most_throttled.as_deref()).and_then(quota::file);
    context.quota = quota.is_some();
    let started = Nanos::now();
    let mut trials = TrialRunner {
        config,
        observer,
        limits,
        stop,
        cpu_per_request,
        typical,
        quota,
        number: 0,
        started,
    };
    let mut tester = HypothesisTester::new(findings, context);
    let mut last = None;
    loop {
        match tester.next(last.take()) {
            TestStep::Done(verdict) => return *verdict,
            TestStep::Load { change, pace } => {
                let hypothesis = TestedHypothesis {
                    class: tester.suspicion().unwrap_or(LimitClass::NoneFound),
                    words: tester.words(change),
                };
                last = Some(trials.load(change, pace, hypothesis, on_event));
            }
        }
    }
}

/// State of running trials.
struct TrialRunner<'a> {
    config: &'a Config,
    observer: &'a mut Observer,
    limits: TrialLimits,
    stop: &'a Arc<AtomicBool>,
    /// CPU time of the generator per request.
    cpu_per_request: Duration,
    /// Typical response time.
    typical: Duration,
    /// File with the target's CPU quota, if it may be changed.
    quota: Option<PathBuf>,
    number: u64,
    started: Nanos,
}

impl TrialRunner<'_> {
    fn load(
        &mut self,
        change: Option<Change>,
        pace: TrialLoad,
        hypothesis: TestedHypothesis,
        on_event: &mut dyn FnMut(TrialEvent<'_>),
    ) -> TrialOutcome {
        let warmup = self.limits.trial / WARMUP_PART;
        if self.stop.load(Ordering::Relaxed) {
            return TrialOutcome::Over("interrupted".to_owned());
        }
        let used = Nanos::now().since(self.started);
        if used + warmup + self.limits.trial > self.limits.time {
            return TrialOutcome::Over(format!(
                "the time for tests ({} s) was used up",
                format::rounded(self.limits.time.as_secs_f64(), 1)
            ));
        }
        let config = match self.changed(change, pace, warmup) {
            Ok(config) => config,
            Err(why) => return TrialOutcome::Impossible(why),
        };
        // Both end with this function.
        let (burner, _smaller) = match self.start_disturbance(change) {
            Ok(both) => both,
            Err(why) => return TrialOutcome::Impossible(why),
        };
        let (stop, length) = (self.stop, self.limits.trial);
        let trial = TrialRun { number: self.number, hypothesis, config };
        on_event(TrialEvent::Started(&trial));
        let (outcome, samples) = self.observer.during(warmup, Some(length), |begin| {
            let message = &mut |second: &Second, record: &LoadStats| {
                on_event(TrialEvent::Second(second, record))
            };
            run::run_with_start_hook(&trial.config, stop, &mut |at| begin.at(at), message)
        });
        let taken = burner.map(|burner| burner.taken_cores());
        if let Ok(outcome) = &outcome {
            on_event(TrialEvent::Ended(&trial, outcome));
        }
        match outcome {
            Ok(outcome) if outcome.end == RunEnd::Interrupted => {
                TrialOutcome::Over("interrupted".to_owned())
            }
            Err(RunError::InterruptedBefore) => TrialOutcome::Over("interrupted".to_owned()),
            Err(error) if change.is_none() => TrialOutcome::Over(error.to_string()),
            Err(error) => TrialOutcome::Impossible(error.to_string()),
            Ok(outcome) => insufficient_disturbance(change, taken)
                .unwrap_or_else(|| self.outcome_of(change, &outcome, samples.as_ref())),
        }
    }

    /// Starts the disturbance beside the load.
    fn start_disturbance(
        &self,
        change: Option<Change>,
    ) -> Result<(Option<Burner>, Option<ReducedQuota>), String> {
        match (change, &self.quota, &self.limits.changes) {
            (Some(Change::BurnCpus(cores)), ..) => {
                let burner = Burner::start(cores)
                    .map_err(|error| format!("no thread could be started: {error}"))?;
                Ok((Some(burner), None))
            }
            (Some(Change::Quota(part)), Some(file), Some(restore)) => {
                let reduced = ReducedQuota::make(file, part, restore)
                    .map_err(|e| format!("{}: {e}", file.display()))?;
                Ok((None, Some(reduced)))
            }
            (Some(Change::Quota(_)), ..) => Err("the cgroup may not be changed".to_owned()),
            _ => Ok((None, None)),
        }
    }

    fn outcome_of(
        &self,
        change: Option<Change>,
        outcome: &Outcome,
        samples: Option<&Samples>,
    ) -> TrialOutcome {
        let measured = measured(outcome, samples);
        let responses = measured.rate_rps * self.limits.trial.as_secs_f64();
        if change.is_none() && responses < RESPONSES_MIN && measured.failed_share == 0.0 {
            return TrialOutcome::Over(format!(
                "{responses:.0} responses in a trial are too few to compare; make the load longer"
            ));
        }
        if change == Some(Change::Head) && measured.failed_share > FAILED_SHARE_MAX {
            return TrialOutcome::Impossible(
                "the target responds to HEAD differently than to GET".to_owned(),
            );
        }
        TrialOutcome::Measured(measured)
    }

    fn changed(
        &mut self,
        change: Option<Change>,
        pace: TrialLoad,
        warmup: Duration,
    ) -> Result<Config, String> {
        self.number += 1;
        // Different ids and arrival times in each trial.
        let seed = self.config.seed.wrapping_add(self.number);
        let pace = match (pace, change) {
            (_, Some(Change::RateCap(rps))) => {
                let rate = Rate::new(rps, rps).map_err(|error| error.to_string())?;
                plan::LoadModel::Open { rate, arrivals: Arrivals::Uniform }
            }
            (TrialLoad::Closed, _) => match self.limits.rate_max {
                // Beyond what connections can carry, an open loop equals a closed one.
                Some(most) => {
                    let rate = Rate::new(most, most).map_err(|error| error.to_string())?;
                    plan::LoadModel::Open { rate, arrivals: Arrivals::Uniform }
                }
                None => plan::LoadModel::Closed,
            },
            (TrialLoad::AsLoaded, Some(Change::Rate(times))) => {
                faster(self.config.plan.model, times)?
            }
            (TrialLoad::AsLoaded, _) => self.config.plan.model,
        };
        let extent = StopCondition { duration: Some(self.limits.trial), requests: None };
        let trial = self.limits.trial;
        let mut config = Config {
            plan: Plan { model: pace, warmup, stop: extent, seed },
            seed,
            timeout: trial_timeout(self.config.timeout, trial, self.typical),
            // The kernel retries a SYN after a second; such a connect has not failed.
            connect_timeout: trial_timeout(self.config.connect_timeout, trial, trial),
            ..self.config.clone()
        };
        match change {
            Some(Change::Connections(n)) => config.connections = n,
            Some(Change::GeneratorThreads(n)) => config.threads = n,
            Some(Change::BurnGenerator(share)) => {
                config.burn_per_request = self.cpu_per_request.mul_f64(share)
            }
            Some(Change::Head) => {
                config.requests = config.requests.as_head().ok_or("not every request is a GET")?;
            }
            Some(Change::Keepalive) => {
                (config.requests, config.keepalive) = (config.requests.with_keepalive(), true)
            }
            Some(Change::BurnCpus(_) | Change::Quota(_) | Change::Rate(_) | Change::RateCap(_))
            | None => {}
        }
        config.threads = config.threads.min(config.connections);
        Ok(config)
    }
}

/// Returns the outcome of a trial without result, because too little CPU time could be taken away.
fn insufficient_disturbance(
    change: Option<Change>,
    taken_cores: Option<f64>,
) -> Option<TrialOutcome> {
    let (Some(Change::BurnCpus(wanted)), Some(taken)) = (change, taken_cores) else { return None };
    (taken < TAKEN_SHARE_MIN * wanted).then(|| {
        TrialOutcome::Impossible(format!("only {taken:.2} of {wanted:.2} CPUs could be consumed"))
    })
}

/// Returns the time limit of a request or connect in a trial, from its normal limit and its typical
/// duration. The same for every trial, so that they are comparable.
fn trial_timeout(given: Duration, trial: Duration, typical: Duration) -> Duration {
    let quick = typical <= trial / QUICK_PART;
    given.min(if quick { trial / 2 } else { trial * 2 + TIMEOUT_SPARE })
}

fn faster(pace: plan::LoadModel, times: f64) -> Result<plan::LoadModel, String> {
    match pace {
        plan::LoadModel::Closed => Ok(pace),
        plan::LoadModel::Open { rate, arrivals } => {
            let rate = Rate::new(rate.from() * times, rate.to() * times)
                .map_err(|error| error.to_string())?;
            Ok(plan::LoadModel::Open { rate, arrivals })
        }
    }
}

fn measured(outcome: &Outcome, samples: Option<&Samples>) -> TrialMeasurement {
    let counts = &outcome.total.counts;
    // Requests that were never sent do not count: an overloaded open loop leaves many, without
    // failures.
    let failed = counts.errors.total() + counts.timeouts + counts.connect_errors;
    let due = counts.scheduled + counts.connect_errors;
    let overflows = samples.and_then(|samples| {
        let per_s = samples.tcp_errors?.listen_overflows as f64 / samples.span.as_secs_f64();
        per_s.is_finite().then_some(per_s)
    });
    let services = samples.into_iter().flat_map(|samples| samples.with_role(Role::Service));
    TrialMeasurement {
        rate_rps: outcome.throughput_rps(),
        failed_share: if due > 0 { (failed as f64 / due as f64).min(1.0) } else { 0.0 },
        overflows_per_s: overflows.unwrap_or(0.0),
        unread_share: services.filter_map(|process| process.unread_share).reduce(f64::max),
        generator_limited: outcome.limit().is_generator(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_has_bounded_time_limits() {
        let (long, short) = (Duration::from_secs(60), Duration::from_millis(100));
        assert_eq!(trial_timeout(long, TRIAL_MAX, TRIAL_MAX / 2), Duration::from_secs(3));
        assert_eq!(trial_timeout(long, TRIAL_MIN, TRIAL_MIN), Duration::from_millis(1_400));
        assert_eq!(
            trial_timeout(long, TRIAL_MAX, Duration::from_millis(20)),
            Duration::from_millis(500)
        );
        assert_eq!(
            trial_timeout(short, TRIAL_MIN, TRIAL_MIN),
            short,
            "a configured limit is never extended"
        );
    }

    #[test]
    fn a_disturbance_without_cpu_time_gives_no_result() {
        let burn = Some(Change::BurnCpus(0.4));
        assert!(matches!(
            insufficient_disturbance(burn, Some(0.12)),
            Some(TrialOutcome::Impossible(why)) if why.contains("0.12 of 0.40")
        ));
        assert_eq!(insufficient_disturbance(burn, Some(0.35)), None);
        assert_eq!(insufficient_disturbance(Some(Change::Head), None), None);
    }
}
