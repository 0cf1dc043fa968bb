//! One step of a search as reports show it.

use std::time::Duration;

use hotrow_diagnose::rules::finding::{Class, Finding};
use hotrow_diagnose::samples::{Role, Samples};
use hotrow_lab::capacity::certainty::Score;
use hotrow_lab::capacity::search;
use hotrow_lab::prove::{self, Scene};
use hotrow_lab::watch::Watch;
use hotrow_load::limited::{self, Cause, RATE_KEPT};
use hotrow_load::objective::{Judged, Met};
use hotrow_load::outcome::Outcome;
use hotrow_load::record::Known;
use hotrow_load::run::Config;

/// A step.
pub(super) struct Measured {
    /// Requests per second that were asked for; none in a closed loop.
    pub(super) rate_rps: Option<f64>,
    pub(super) connections: usize,
    /// What for, in a word.
    pub(super) purpose: &'static str,
    /// What came of it, in a word or two.
    pub(super) verdict: &'static str,
    pub(super) length: Duration,
    pub(super) requests: u64,
    pub(super) answered_rps: f64,
    pub(super) p50: Option<Known>,
    pub(super) p99: Option<Known>,
    /// Requests that were lost, wrong, timed out or never sent, as a share of what was due, 0 to 1.
    pub(super) failed_share: f64,
    /// The generator's busiest thread's share of a CPU, 0 to 1.
    pub(super) generator_share: f64,
    /// Share of all CPUs of this machine that were busy, 0 to 1.
    pub(super) cpu_busy: Option<f64>,
    /// CPUs of this machine.
    pub(super) cpus: Option<usize>,
    /// CPUs that the processes of the service used; none when they were not looked at.
    pub(super) service_cpus: Option<f64>,
    pub(super) judged: Vec<Judged>,
    /// How sure the verdict is, where the step was long enough to tell.
    pub(super) noise: Option<Score>,
    pub(super) findings: Vec<Finding>,
    /// What can be changed to test them; none where nothing was seen of the machine.
    pub(super) scene: Option<Scene>,
    /// Connections that the rate keeps busy, where none was free in time.
    pub(super) connections_wanted: Option<f64>,
}

impl Measured {
    pub(super) fn new(outcome: &Outcome, samples: Option<&Samples>) -> Self {
        let total = &outcome.total;
        let counts = &total.counts;
        let failed = counts.errors.total() + counts.timeouts + counts.unsent;
        let services = samples.filter(|samples| samples.with_role(Role::Service).next().is_some());
        Self {
            rate_rps: None,
            connections: outcome.places,
            purpose: "",
            verdict: "",
            length: outcome.window,
            requests: counts.scheduled,
            answered_rps: outcome.throughput_rps(),
            p50: total.latency.quantile(0.5),
            p99: total.latency.quantile(0.99),
            failed_share: if counts.scheduled > 0 { failed as f64 / counts.scheduled as f64 } else { 0.0 },
            generator_share: outcome.cpu_share(),
            cpu_busy: samples.and_then(Samples::busy),
            cpus: samples.map(|samples| samples.cores.len()).filter(|cpus| *cpus > 0),
            service_cpus: services.map(|samples| samples.with_role(Role::Service).map(|p| p.cores_used()).sum()),
            judged: Vec::new(),
            noise: None,
            findings: Vec::new(),
            scene: None,
            connections_wanted: match limited::cause(outcome) {
                Cause::ConnectionsBusy { needed, .. } => Some(needed),
                _ => None,
            },
        }
    }

    /// Adds what was found of the machine meanwhile.
    pub(super) fn diagnose(&mut self, watch: &Watch, config: &Config, outcome: &Outcome, samples: Option<Samples>) {
        let Some(samples) = samples else { return };
        self.scene = Some(prove::scene(config, outcome, &samples, watch.local));
        self.findings = watch.judge(samples, outcome);
    }

    pub(super) fn suspicion(&self) -> Option<Class> {
        self.findings.first().map(|finding| finding.class)
    }
}

/// What a step of the open loop says. Harm comes first; what is not proven, for the generator was the limit, says
/// nothing of the target.
pub(super) fn verdict(outcome: &Outcome, judged: &[Judged], abort_share: f64) -> search::Verdict {
    if harmed(outcome, abort_share) {
        return search::Verdict::Harmed;
    }
    if judged.iter().any(|judged| judged.met == Met::No) {
        return search::Verdict::Missed;
    }
    if judged.iter().any(|judged| judged.met == Met::NotProven) {
        return search::Verdict::GeneratorLimited;
    }
    match (rate_kept(outcome), outcome.limit().is_generator()) {
        (true, _) => search::Verdict::Kept,
        (false, true) => search::Verdict::GeneratorLimited,
        // The queue grows, whatever the objective says of the few seconds that were seen.
        (false, false) => search::Verdict::Missed,
    }
}

/// Whether requests were lost beyond what the user wants to do to the target, or no answer is right at all. Refusals
/// are answers: a server may say no to what is too much.
pub(super) fn harmed(outcome: &Outcome, abort_share: f64) -> bool {
    let counts = &outcome.total.counts;
    let errors = &counts.errors;
    let lost = errors.reset + errors.closed + errors.malformed + counts.timeouts;
    (counts.ok == 0 && counts.scheduled > 0) || lost as f64 > abort_share * counts.sent as f64
}

/// Whether as many answers came as requests were due, but for those that are under way at the end. Whatever they say: how many may
/// fail is the objective's business.
fn rate_kept(outcome: &Outcome) -> bool {
    let mean_s = outcome.total.latency.mean().map_or(0.0, |mean| mean.ns() as f64 / 1e9);
    let under_way = mean_s / outcome.window.as_secs_f64().max(f64::MIN_POSITIVE);
    outcome.answered_ratio().is_none_or(|ratio| ratio >= RATE_KEPT - under_way)
}

#[cfg(test)]
mod tests {
    use hotrow_load::objective::{self, parse};
    use hotrow_load::outcome::End;
    use hotrow_load::record::Record;

    use super::*;

    /// One second of 1,000 requests, of which some are refused and some not answered in it.
    fn said(slo: &str, refused: u64, unanswered: u64) -> search::Verdict {
        let mut total = Record::default();
        total.latency.answered.record_n(1_000_000, 1_000);
        let counts = &mut total.counts;
        (counts.scheduled, counts.sent, counts.ok) = (1_000, 1_000, 1_000 - refused);
        counts.ok_in_window = 1_000 - refused - unanswered;
        (counts.errors.unexpected_status, counts.unexpected_in_window) = (refused, refused);
        let outcome = Outcome {
            end: End::Complete,
            window: Duration::from_secs(1),
            total,
            in_flight_at_end: 0,
            target_rate: Some(1_000.0),
            places: 10,
            seconds: Vec::new(),
            threads: Vec::new(),
            troubles: Vec::new(),
        };
        verdict(&outcome, &objective::judge(&parse(slo).unwrap(), &outcome), 0.5)
    }

    #[test]
    fn refusals_are_answers() {
        assert_eq!(said("errors<5%", 40, 0), search::Verdict::Kept);
        assert_eq!(said("errors<5%", 60, 0), search::Verdict::Missed);
        assert_eq!(said("errors<5%", 0, 40), search::Verdict::Missed, "a queue that grows");
    }
}
