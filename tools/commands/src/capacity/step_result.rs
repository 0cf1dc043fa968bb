//! One step of a search, as reports show it.

use std::time::Duration;

use hotrow_diagnose::rules::finding::{Finding, LimitClass};
use hotrow_diagnose::samples::{Role, Samples};
use hotrow_load::bottleneck::{self, RATE_KEPT, RateCause};
use hotrow_load::objective::{ObjectiveResult, ObjectiveStatus};
use hotrow_load::outcome::{Outcome, RunEnd};
use hotrow_load::run::Config;
use hotrow_load::stats::CensoredNs;
use hotrow_trial::capacity::certainty::Score;
use hotrow_trial::capacity::search::RateVerdict;
use hotrow_trial::confirm::{self, Context};
use hotrow_trial::observe::Observer;

pub(super) struct StepResult {
    /// Target rate in requests per second; none in a closed loop.
    pub(super) rate_rps: Option<f64>,
    pub(super) connections: usize,
    /// The purpose, in a word.
    pub(super) purpose: &'static str,
    pub(super) verdict: &'static str,
    pub(super) length: Duration,
    pub(super) requests: u64,
    pub(super) answered_rps: f64,
    pub(super) p50: Option<CensoredNs>,
    pub(super) p99: Option<CensoredNs>,
    /// Requests lost, wrong, timed out or never sent, as a share of due requests, 0 to 1.
    pub(super) failed_share: f64,
    /// CPU share of the generator's busiest thread, 0 to 1.
    pub(super) generator_share: f64,
    /// Busy share of all CPUs of this machine, 0 to 1.
    pub(super) cpu_busy: Option<f64>,
    /// CPUs of this machine.
    pub(super) cpus: Option<usize>,
    /// CPUs used by the service's processes; none when they were not watched.
    pub(super) service_cpus: Option<f64>,
    pub(super) judged: Vec<ObjectiveResult>,
    /// Certainty of the verdict, where the step was long enough.
    pub(super) noise: Option<Score>,
    pub(super) findings: Vec<Finding>,
    /// Inputs of a test of the findings; none where the machine was not observed.
    pub(super) context: Option<Context>,
    /// Connections that the rate keeps busy, when none was free in time.
    pub(super) connections_wanted: Option<f64>,
}

impl StepResult {
    pub(super) fn new(outcome: &Outcome, samples: Option<&Samples>) -> Self {
        let total = &outcome.total;
        let counts = &total.counts;
        let services = samples.filter(|samples| samples.with_role(Role::Service).next().is_some());
        Self {
            rate_rps: None,
            connections: outcome.max_in_flight,
            purpose: "",
            verdict: "",
            length: outcome.window,
            requests: counts.scheduled,
            answered_rps: outcome.throughput_rps(),
            p50: total.latency.quantile(0.5),
            p99: total.latency.quantile(0.99),
            failed_share: total.latency.unbounded_count() as f64
                / (total.latency.count().max(1)) as f64,
            generator_share: outcome.cpu_share(),
            cpu_busy: samples.and_then(Samples::busy),
            cpus: samples.map(|samples| samples.cores.len()).filter(|cpus| *cpus > 0),
            service_cpus: services
                .map(|samples| samples.with_role(Role::Service).map(|p| p.cores_used()).sum()),
            judged: Vec::new(),
            noise: None,
            findings: Vec::new(),
            context: None,
            connections_wanted: match bottleneck::cause(outcome) {
                RateCause::ConnectionsBusy { needed, .. } => Some(needed),
                _ => None,
            },
        }
    }

    /// Adds the findings about the machine.
    pub(super) fn diagnose(
        &mut self,
        watch: &Observer,
        config: &Config,
        outcome: &Outcome,
        samples: Option<Samples>,
    ) {
        let Some(samples) = samples else { return };
        self.context = Some(confirm::context(config, outcome, &samples, watch.local));
        self.findings = watch.findings(samples, outcome);
    }

    pub(super) fn suspicion(&self) -> Option<LimitClass> {
        self.findings.first().map(|finding| finding.class)
    }
}

/// Returns the verdict on an open-loop step. Harm has priority; an inconclusive objective, caused
/// by the generator's own limit, says nothing about the target.
pub(super) fn verdict(
    outcome: &Outcome,
    judged: &[ObjectiveResult],
    abort_share: f64,
) -> RateVerdict {
    if harmed(outcome, abort_share) {
        return RateVerdict::Harmed;
    }
    if judged.iter().any(|judged| judged.met == ObjectiveStatus::Missed) {
        return RateVerdict::Missed;
    }
    if judged.iter().any(|judged| judged.met == ObjectiveStatus::Inconclusive) {
        return RateVerdict::GeneratorLimited;
    }
    match (rate_kept(outcome), outcome.limit().is_generator()) {
        (true, _) => RateVerdict::Kept,
        (false, true) => RateVerdict::GeneratorLimited,
        // The queue grows, regardless of the objective in the few seconds observed.
        (false, false) => RateVerdict::Missed,
    }
}

/// Returns whether more requests were lost than the user allows, no response was as expected, or
/// the target stopped answering.
/// Rejections are responses: a server may reject excess load.
pub(super) fn harmed(outcome: &Outcome, abort_share: f64) -> bool {
    let counts = &outcome.total.counts;
    let lost = counts.errors.lost() + counts.timeouts;
    let stopped = matches!(outcome.end, RunEnd::StoppedAnswering { .. });
    stopped
        || (counts.ok == 0 && counts.scheduled > 0)
        || lost as f64 > abort_share * counts.sent as f64
}

/// Returns whether as many responses arrived as requests were due, except for those in flight at
/// the end. Their status does not matter: failures are the objective's business.
fn rate_kept(outcome: &Outcome) -> bool {
    let mean_s = outcome.total.latency.mean().map_or(0.0, |mean| mean.ns() as f64 / 1e9);
    let under_way = mean_s / outcome.window.as_secs_f64().max(f64::MIN_POSITIVE);
    outcome.answered_ratio().is_none_or(|ratio| ratio >= RATE_KEPT - under_way)
}

#[cfg(test)]
mod tests {
    use hotrow_load::objective::{self, parse};
    use hotrow_load::stats::LoadStats;

    use super::*;

    /// One second of 1,000 requests, some of them rejected and some without a response in it.
    fn said(slo: &str, refused: u64, unanswered: u64) -> RateVerdict {
        let mut total = LoadStats::default();
        total.latency.answered.record_n(1_000_000, 1_000 - refused);
        total.latency.record_unbounded(1_000_000, refused);
        let counts = &mut total.counts;
        (counts.scheduled, counts.sent, counts.ok) = (1_000, 1_000, 1_000 - refused);
        counts.ok_in_window = 1_000 - refused - unanswered;
        (counts.errors.unexpected_status, counts.unexpected_in_window) = (refused, refused);
        let outcome = Outcome {
            end: RunEnd::Complete,
            window: Duration::from_secs(1),
            total,
            in_flight_at_end: 0,
            target_rate: Some(1_000.0),
            max_in_flight: 10,
            seconds: Vec::new(),
            threads: Vec::new(),
            failure_messages: Vec::new(),
            latency_map: hotrow_load::latency_map::LatencyMap::default(),
        };
        verdict(&outcome, &objective::evaluate(&parse(slo).unwrap(), &outcome), 0.5)
    }

    #[test]
    fn rejections_are_responses() {
        assert_eq!(said("errors<5%", 40, 0), RateVerdict::Kept);
        assert_eq!(said("errors<5%", 60, 0), RateVerdict::Missed);
        assert_eq!(said("errors<5%", 0, 40), RateVerdict::Missed, "a queue that grows");
        assert_eq!(said("p95<1s,errors<5%", 40, 0), RateVerdict::Kept);
        assert_eq!(said("p99<1s,errors<5%", 40, 0), RateVerdict::Missed, "beyond any bound");
    }
}
