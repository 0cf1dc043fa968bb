//! The complete result of a search, and its meaning. Texts, pages and JSON are made from it alone.

use hotrow_diagnose::rules::finding::Finding;
use hotrow_load::bottleneck::BUSY_SHARE;
use hotrow_load::objective::Objective;
use hotrow_report::numbers::{grouped, number, percent};
use hotrow_report::plot::{Rule, RulePosition};
use hotrow_trial::capacity::certainty::SURE;
use hotrow_trial::capacity::closed::{ClimbEnd, Level};
use hotrow_trial::capacity::search::{Bound, SearchEnd, SearchOutcome};
use hotrow_trial::capacity::usl::Fit;

use super::advice::Advice;
use super::step_result::StepResult;
use crate::diagnosis::DiagnosisResult;
use crate::machine::MeasuredOn;
use hotrow_load::format::counted;

/// Ratio of the interval's ends from which it is wide and explained.
const WIDE: f64 = 1.1;

const HARM: &str = "Ended to do no more harm: a step lost more than --abort-errors allows, or had \
    no right answer at all";
/// The text of a closed loop, which sends again only after a response.
const HARM_CLOSED: &str = "Ended to do no more harm: a step lost more than --abort-errors allows, \
    or had no right answer at all (where answers take longer than a step, give it a longer --step)";
/// Ratio of best to worst round at the same number of connections, from which rounds contradict
/// each other.
const ROUNDS_DIFFER: f64 = 1.5;

/// Relative difference below which rates are equal.
const SAME: f64 = 1e-6;

pub(super) struct Report {
    pub(super) url: String,
    pub(super) connections: usize,
    pub(super) threads: usize,
    pub(super) keepalive: bool,
    /// The watched processes, as text.
    pub(super) watched: String,
    pub(super) local: bool,
    pub(super) took_s: f64,
    pub(super) measured_on: MeasuredOn,
    pub(super) result: SearchResult,
    /// Reason why the target is unreachable, if it is.
    pub(super) gone: Option<String>,
    pub(super) steps: Vec<StepResult>,
    /// Index of the step whose findings show the limit.
    pub(super) at_limit: Option<usize>,
    pub(super) next: Vec<Advice>,
    /// The limit, and the conclusion of its tests.
    pub(super) diagnosis: DiagnosisResult,
    /// The demanded minimum; none without one.
    pub(super) at_least: Option<f64>,
}

/// The result by mode.
pub(super) enum SearchResult {
    Open(OpenResult),
    Closed(ClosedResult),
}

pub(super) struct OpenResult {
    pub(super) slo: String,
    pub(super) objectives: Vec<Objective>,
    /// `errors<1%` was added, because none of the demanded objectives bounds the errors.
    pub(super) errors_assumed: bool,
    pub(super) arrivals: &'static str,
    pub(super) found: SearchOutcome,
    pub(super) rate_max_rps: f64,
    /// Requests that the objectives need, and requests of the confirming plateau.
    pub(super) requests_wanted: u64,
    pub(super) requests_confirmed: Option<u64>,
}

pub(super) struct ClosedResult {
    pub(super) end: ClimbEnd,
    pub(super) levels: Vec<Level>,
    /// Connections and throughput at the knee.
    pub(super) knee: Option<(usize, f64)>,
    pub(super) fit: Option<Fit>,
    /// Seed of the refits.
    pub(super) seed: u64,
}

impl Report {
    /// Returns the findings of the step at the limit, the most certain first.
    pub(super) fn findings(&self) -> &[Finding] {
        &self.diagnosis.findings
    }

    /// Returns the latency objectives, as positions on an axis in µs.
    pub(super) fn latency_bounds(&self) -> Vec<Rule> {
        let SearchResult::Open(open) = &self.result else { return Vec::new() };
        let rule = |objective: &Objective| {
            let label = format!("the objective: {objective}");
            Some(Rule { label, at: RulePosition::Y(objective.latency_bound_ns()? / 1e3) })
        };
        open.objectives.iter().filter_map(rule).collect()
    }

    /// Returns the highest confirmed rate, in requests per second.
    pub(super) fn confirmed_rps(&self) -> Option<f64> {
        match &self.result {
            SearchResult::Open(open) => {
                open.found.kept.filter(|kept| kept.firm).map(|kept| kept.rate_rps)
            }
            SearchResult::Closed(closed) => closed.knee.map(|(_, rate)| rate),
        }
    }

    pub(super) fn answer(&self) -> String {
        let answer = match (&self.result, &self.gone) {
            // No step lost too many requests.
            (SearchResult::Open(open), Some(_)) => format!("{} with {}.", open.so_far(), open.slo),
            (SearchResult::Open(open), None) => open.answer(self.remedy()),
            (SearchResult::Closed(closed), Some(_)) => format!("{}.", closed.so_far()),
            (SearchResult::Closed(closed), None) => closed.answer(self.remedy()),
        };
        match &self.gone {
            Some(why) => {
                format!("The target accepts no more connections ({why}). Until then: {answer}")
            }
            None if self.diagnosis.interrupted => {
                format!(
                    "{answer} The search was complete; the tests of what limited it were \
                     interrupted."
                )
            }
            None => answer,
        }
    }

    /// Returns the advice for a generator that was the limit.
    fn remedy(&self) -> &'static str {
        if self.steps.iter().any(|step| step.generator_share >= BUSY_SHARE) {
            "Add threads (-t), or load from another machine"
        } else {
            "Its threads were not full, so others had its CPUs: search again when the machine is \
             idle, or load from another"
        }
    }
}

impl OpenResult {
    /// Describes the highest rate that was kept.
    fn so_far(&self) -> String {
        let Some(kept) = self.found.kept else { return "no rate was kept".to_owned() };
        let how =
            if kept.firm { "on a plateau" } else { "in a short step, not confirmed on a plateau" };
        format!("{} requests/s were kept {how}", number(kept.rate_rps))
    }

    fn answer(&self, remedy: &str) -> String {
        let rate = |bound: Bound| number(bound.rate_rps);
        let so_far = self.so_far();
        let slo = &self.slo;
        match (self.found.end, self.found.kept, self.found.refuted) {
            (SearchEnd::Found, Some(low), Some(high)) if low.firm => format!(
                "Between {} and {} requests/s with {slo}: the lower was kept on a plateau, the \
                 upper was not.",
                rate(low),
                rate(high)
            ),
            (SearchEnd::AboveRateMax, Some(low), _)
                if low.rate_rps >= self.rate_max_rps * (1.0 - SAME) =>
            {
                format!(
                    "The bound was not found: {so_far} with {slo}, which is the highest rate that \
                     --rate-max allows."
                )
            }
            (SearchEnd::AboveRateMax, ..) => format!(
                "The bound was not found: {so_far} with {slo}; whether {} are kept, the highest \
                 rate that --rate-max allows, is not sure.",
                number(self.rate_max_rps)
            ),
            (SearchEnd::GeneratorLimited, Some(_), Some(high)) => format!(
                "The bound was not found: {so_far} with {slo}, and at {} the generator was the \
                 limit. {remedy}.",
                rate(high)
            ),
            (SearchEnd::NothingKept, _, Some(high)) => {
                format!(
                    "The objectives {slo} are missed at every rate down to {} requests/s.",
                    rate(high)
                )
            }
            (SearchEnd::TimeUp, _, Some(high)) if high.generator => format!(
                "The time was up before the interval was narrow: {so_far} with {slo}; at {} the \
                 generator was the limit. {remedy}.",
                rate(high)
            ),
            (SearchEnd::TimeUp, _, high) => format!(
                "The time was up before the interval was narrow: {so_far} with {slo}{}. Give it \
                 more --time.",
                high.map(|high| format!(", {} were not", rate(high))).unwrap_or_default()
            ),
            (SearchEnd::Harmed, ..) => format!("{HARM}; {so_far} with {slo}."),
            (SearchEnd::Interrupted, ..) => format!("Interrupted: {so_far} with {slo}."),
            (SearchEnd::GeneratorLimited, ..) => format!(
                "The bound was not found: the generator was the limit at every rate. {remedy}."
            ),
            (SearchEnd::Found | SearchEnd::NothingKept, ..) => {
                format!("The bound was not found: {so_far} with {slo}.")
            }
        }
    }

    /// Describes the effect of noise on the result, if any.
    pub(super) fn noise(&self, steps: &[StepResult]) -> Option<String> {
        let noise = &self.found.noise;
        if let Some((kept, missed)) = noise.contradiction {
            return Some(format!(
                "Too noisy for a reliable statement: on one plateau {} requests/s were clearly \
                 kept, on another {} clearly missed. The target or its machine changed during the \
                 search; measure again when it is idle.",
                number(kept),
                number(missed)
            ));
        }
        let wide = match (self.found.end, self.found.kept, self.found.refuted) {
            (SearchEnd::Found, Some(low), Some(high)) => high.rate_rps > low.rate_rps * WIDE,
            (SearchEnd::TimeUp, ..) => true,
            _ => false,
        };
        let least = steps
            .iter()
            .filter_map(|step| step.noise.filter(|noise| noise.z.abs() < SURE))
            .map(|n| n.error);
        let least = least.fold(f64::INFINITY, f64::min);
        (wide && noise.unsure > 0 && least.is_finite()).then(|| {
            format!(
                "{} of {} plateaus were not sure: by chance alone, the share of requests beyond \
                 the objective differs by ±{} (one standard error) from one to the next. Longer \
                 plateaus (--plateau, --time) make the interval narrower.",
                noise.unsure,
                noise.plateaus,
                percent(least)
            )
        })
    }

    /// Describes what weakens the confirmation, if anything.
    pub(super) fn confirmation_warning(&self) -> Option<String> {
        let had = self.requests_confirmed.filter(|had| *had < self.requests_wanted)?;
        Some(format!(
            "The confirmation rests on {} requests, and {} wants {}: make the --plateau longer.",
            number(had as f64),
            self.slo,
            number(self.requests_wanted as f64)
        ))
    }
}

impl ClosedResult {
    /// Describes the maximum throughput and its number of connections.
    fn so_far(&self) -> String {
        self.knee.map_or_else(
            || "no throughput was measured that is the target's own".to_owned(),
            |(connections, rate)| {
                format!("{} requests/s from {}", number(rate), counted(connections, "connection"))
            },
        )
    }

    /// Describes contradictory rounds, if any.
    pub(super) fn noise(&self) -> Option<String> {
        let ends = |level: &Level| {
            let low = level.rates_rps.iter().copied().fold(f64::INFINITY, f64::min);
            (level.connections, low, level.rates_rps.iter().copied().fold(0.0, f64::max))
        };
        let times = |(_, low, high): &(usize, f64, f64)| high / low.max(f64::MIN_POSITIVE);
        let worst = self.levels.iter().filter(|level| level.rates_rps.len() > 1).map(ends);
        let (connections, low, high) =
            worst.max_by(|one, other| times(one).total_cmp(&times(other)))?;
        (high > 0.0 && high >= low * ROUNDS_DIFFER).then(|| {
            format!(
                "Too noisy for a reliable statement: {} brought {} requests/s in one round and {} \
                 in another. The target or its machine changed during the search; measure again \
                 when it is idle, or use a longer --step.",
                counted(connections, "connection"),
                number(low),
                number(high)
            )
        })
    }

    fn answer(&self, remedy: &str) -> String {
        const NONE: &str = "no throughput was measured that is the target's own";
        let Some((connections, _)) = self.knee else {
            let before = match self.end {
                ClimbEnd::Harmed => HARM_CLOSED,
                ClimbEnd::Interrupted => "Interrupted",
                ClimbEnd::TimeUp => "The time was up (give it more --time)",
                ClimbEnd::GeneratorLimited => {
                    return format!("The generator was the limit: {NONE}. {remedy}.");
                }
                ClimbEnd::Knee | ClimbEnd::StillRising => "Ended",
            };
            return format!("{before}: {NONE}.");
        };
        let reached = self.so_far();
        let most = self.levels.iter().map(|level| level.connections).max().unwrap_or(connections);
        match self.end {
            ClimbEnd::Knee => {
                format!("The knee lies at {reached}; up to {most} connections brought no more.")
            }
            ClimbEnd::StillRising => {
                format!(
                    "No knee within the tried numbers: {reached}, and it still rises; allow more \
                     with --connections-max."
                )
            }
            ClimbEnd::GeneratorLimited => format!(
                "The bound was not found: {reached}, and with more connections the generator was \
                 the limit. {remedy}."
            ),
            ClimbEnd::TimeUp => {
                format!("The time was up: {reached} so far. Give it more --time.")
            }
            ClimbEnd::Harmed => format!("{HARM_CLOSED}: {reached} until then."),
            ClimbEnd::Interrupted => format!("Interrupted: {reached} until then."),
        }
    }

    /// Describes the scalability law.
    pub(super) fn law(&self) -> String {
        let Some(fit) = &self.fit else {
            return "Too few numbers of connections for the scalability law.".to_owned();
        };
        let most = self.levels.iter().map(|level| level.connections).max().unwrap_or(0) as f64;
        let peak = match fit.law.peak() {
            Some(peak) if peak <= most => {
                format!(
                    "its peak is {} requests/s at {} connections",
                    number(fit.law.rate_rps(peak)),
                    grouped(peak)
                )
            }
            Some(peak) => {
                format!(
                    "no peak within the tried numbers (it would be at {} connections)",
                    grouped(peak)
                )
            }
            None => "no peak: more connections never reduce the throughput".to_owned(),
        };
        format!(
            "Scalability law X(N) = λN / (1 + σ(N − 1) + κN(N − 1)): {peak}. It is off by {} on \
             average; {} of the refits have a peak within the tried numbers.",
            percent(fit.error),
            percent(fit.peaks_within)
        )
    }
}
