//! All that a search came to, and what it means in words. Texts, pages and JSON are made from it alone.

use hotrow_diagnose::rules::finding::Finding;
use hotrow_lab::capacity::certainty::SURE;
use hotrow_lab::capacity::closed::{self, Level};
use hotrow_lab::capacity::search::{self, Found};
use hotrow_lab::capacity::usl::Fit;
use hotrow_lab::report::numbers::{grouped, number, percent};
use hotrow_lab::report::plot::{Place, Rule};
use hotrow_load::objective::Objective;

use super::measured::Measured;
use super::next::Advice;
use crate::diagnosis::diagnosed::Diagnosed;
use crate::load::text::counted;

/// An interval whose ends lie this far apart is wide, and says why.
const WIDE: f64 = 1.1;

const HARM: &str =
    "Ended to do no more harm: a step lost more than --abort-errors allows, or had no right answer at all";
/// The same of a closed loop, which asks again only when it is answered.
const HARM_CLOSED: &str = "Ended to do no more harm: a step lost more than --abort-errors allows, or had no right answer at all (where \
                           answers take longer than a step, give it a longer --step)";
/// Rounds at the same number of connections of which the best brings this many times what the worst does.
const ROUNDS_DIFFER: f64 = 1.5;

/// Rates that differ by less than this part are the same.
const SAME: f64 = 1e-6;

/// The whole result.
pub(super) struct Report {
    pub(super) url: String,
    pub(super) connections: usize,
    pub(super) threads: usize,
    pub(super) keepalive: bool,
    /// Who was looked at, in words.
    pub(super) watched: String,
    pub(super) local: bool,
    pub(super) took_s: f64,
    pub(super) result: Sought,
    /// Why the target is gone, if it is.
    pub(super) gone: Option<String>,
    pub(super) steps: Vec<Measured>,
    /// The step whose findings tell the limit, by its number.
    pub(super) at_limit: Option<usize>,
    pub(super) next: Vec<Advice>,
    /// What limited it, and what tests say of that.
    pub(super) diagnosed: Diagnosed,
    /// Confirmed less than was demanded; none when nothing was demanded.
    pub(super) at_least: Option<f64>,
}

/// What was looked for, and found.
pub(super) enum Sought {
    Open(Open),
    Closed(Closed),
}

pub(super) struct Open {
    /// The objectives, in words.
    pub(super) slo: String,
    pub(super) objectives: Vec<Objective>,
    pub(super) arrivals: &'static str,
    pub(super) found: Found,
    /// The highest rate that was allowed, in requests per second.
    pub(super) rate_max_rps: f64,
    /// Requests that the objectives want, and that the confirmation had.
    pub(super) requests_wanted: u64,
    pub(super) requests_confirmed: Option<u64>,
}

pub(super) struct Closed {
    pub(super) end: closed::End,
    pub(super) levels: Vec<Level>,
    /// Connections, and what they bring.
    pub(super) knee: Option<(usize, f64)>,
    pub(super) fit: Option<Fit>,
    /// With which the fit was drawn again.
    pub(super) seed: u64,
}

impl Report {
    /// What the step at the limit says of it, the most certain first.
    pub(super) fn findings(&self) -> &[Finding] {
        &self.diagnosed.findings
    }

    /// The objectives on the latency, as places on an axis in µs.
    pub(super) fn latency_bounds(&self) -> Vec<Rule> {
        let Sought::Open(open) = &self.result else { return Vec::new() };
        let rule = |objective: &Objective| {
            let label = format!("the objective: {objective}");
            Some(Rule { label, at: Place::Y(objective.latency_bound_ns()? / 1e3) })
        };
        open.objectives.iter().filter_map(rule).collect()
    }

    /// The highest rate that is sure, in requests per second.
    pub(super) fn confirmed_rps(&self) -> Option<f64> {
        match &self.result {
            Sought::Open(open) => open.found.kept.filter(|kept| kept.firm).map(|kept| kept.rate_rps),
            Sought::Closed(closed) => closed.knee.map(|(_, rate)| rate),
        }
    }

    /// The result in a sentence or two.
    pub(super) fn answer(&self) -> String {
        let answer = match (&self.result, &self.gone) {
            // It was no step that lost too much.
            (Sought::Open(open), Some(_)) => format!("{} with {}.", open.so_far(), open.slo),
            (Sought::Open(open), None) => open.answer(),
            (Sought::Closed(closed), Some(_)) => format!("{}.", closed.so_far()),
            (Sought::Closed(closed), None) => closed.answer(),
        };
        match &self.gone {
            Some(why) => format!("The target takes no connection any more ({why}). Until then: {answer}"),
            None if self.diagnosed.interrupted => {
                format!("{answer} The search was complete; the tests of what limited it were interrupted.")
            }
            None => answer,
        }
    }
}

impl Open {
    /// The highest rate that was kept.
    fn so_far(&self) -> String {
        let Some(kept) = self.found.kept else { return "no rate was kept".to_owned() };
        let how = if kept.firm { "on a plateau" } else { "in a short step, not confirmed on a plateau" };
        format!("{} requests/s were kept {how}", number(kept.rate_rps))
    }

    fn answer(&self) -> String {
        let rate = |bound: search::Bound| number(bound.rate_rps);
        let so_far = self.so_far();
        let slo = &self.slo;
        match (self.found.end, self.found.kept, self.found.refuted) {
            (search::End::Found, Some(low), Some(high)) if low.firm => format!(
                "Between {} and {} requests/s with {slo}: the lower was kept on a plateau, the upper was not.",
                rate(low),
                rate(high)
            ),
            (search::End::AboveRateMax, Some(low), _) if low.rate_rps >= self.rate_max_rps * (1.0 - SAME) => {
                format!(
                    "The bound was not found: {so_far} with {slo}, which is the highest rate that --rate-max allows."
                )
            }
            (search::End::AboveRateMax, ..) => format!(
                "The bound was not found: {so_far} with {slo}; whether {} are kept, the highest rate that --rate-max allows, is not \
                 sure.",
                number(self.rate_max_rps)
            ),
            (search::End::GeneratorLimited, Some(_), Some(high)) => format!(
                "The bound was not found: {so_far} with {slo}, and at {} the generator was the limit. Add threads \
                 (-t), or load from another machine.",
                rate(high)
            ),
            (search::End::NothingKept, _, Some(high)) => {
                format!("The objectives {slo} are missed at every rate down to {} requests/s.", rate(high))
            }
            (search::End::TimeUp, _, high) => format!(
                "The time was up before the interval was narrow: {so_far} with {slo}{}. Give it more --time.",
                high.map(|high| format!(", {} were not", rate(high))).unwrap_or_default()
            ),
            (search::End::Harmed, ..) => format!("{HARM}; {so_far} with {slo}."),
            (search::End::Interrupted, ..) => format!("Interrupted: {so_far} with {slo}."),
            (search::End::GeneratorLimited, ..) => {
                "The bound was not found: the generator was the limit at every rate. Add threads (-t), or load from \
                 another machine."
                    .to_owned()
            }
            (search::End::Found | search::End::NothingKept, ..) => {
                format!("The bound was not found: {so_far} with {slo}.")
            }
        }
    }

    /// What the plateaus' noise means for the result, if anything.
    pub(super) fn noise(&self, steps: &[Measured]) -> Option<String> {
        let noise = &self.found.noise;
        if let Some((kept, missed)) = noise.contradiction {
            return Some(format!(
                "Too noisy for a statement that is sure: on one plateau {} requests/s were clearly kept, on another {} \
                 clearly missed. The target, or its machine, changed meanwhile; measure again when it is at rest.",
                number(kept),
                number(missed)
            ));
        }
        let wide = match (self.found.end, self.found.kept, self.found.refuted) {
            (search::End::Found, Some(low), Some(high)) => high.rate_rps > low.rate_rps * WIDE,
            (search::End::TimeUp, ..) => true,
            _ => false,
        };
        let least = steps.iter().filter_map(|step| step.noise.filter(|noise| noise.z.abs() < SURE)).map(|n| n.error);
        let least = least.fold(f64::INFINITY, f64::min);
        (wide && noise.unsure > 0 && least.is_finite()).then(|| {
            format!(
                "{} of {} plateaus were not sure: by chance alone, the share of requests beyond the objective differs by ±{} (one \
                 standard error) from one to the next. Longer ones (--plateau, --time) make the interval narrower.",
                noise.unsure,
                noise.plateaus,
                percent(least)
            )
        })
    }

    /// What weakens the confirmation, if anything.
    pub(super) fn doubt(&self) -> Option<String> {
        let had = self.requests_confirmed.filter(|had| *had < self.requests_wanted)?;
        Some(format!(
            "The confirmation rests on {} requests, and {} wants {}: make the --plateau longer.",
            number(had as f64),
            self.slo,
            number(self.requests_wanted as f64)
        ))
    }
}

impl Closed {
    /// The most that was reached, and with how many connections.
    fn so_far(&self) -> String {
        self.knee.map_or_else(
            || "no throughput was measured that is the target's own".to_owned(),
            |(connections, rate)| format!("{} requests/s from {}", number(rate), counted(connections, "connection")),
        )
    }

    /// Whether the rounds contradict each other.
    pub(super) fn noise(&self) -> Option<String> {
        let ends = |level: &Level| {
            let low = level.rates_rps.iter().copied().fold(f64::INFINITY, f64::min);
            (level.connections, low, level.rates_rps.iter().copied().fold(0.0, f64::max))
        };
        let times = |(_, low, high): &(usize, f64, f64)| high / low.max(f64::MIN_POSITIVE);
        let worst = self.levels.iter().filter(|level| level.rates_rps.len() > 1).map(ends);
        let (connections, low, high) = worst.max_by(|one, other| times(one).total_cmp(&times(other)))?;
        (high > 0.0 && high >= low * ROUNDS_DIFFER).then(|| {
            format!(
                "Too noisy for a statement that is sure: {} brought {} requests/s in one round and {} in another. The target, or \
                 its machine, changed meanwhile; measure again when it is at rest, or take a longer --step.",
                counted(connections, "connection"),
                number(low),
                number(high)
            )
        })
    }

    fn answer(&self) -> String {
        let Some((connections, _)) = self.knee else {
            let before = match self.end {
                closed::End::Harmed => HARM_CLOSED,
                closed::End::Interrupted => "Interrupted",
                closed::End::TimeUp => "The time was up (give it more --time)",
                closed::End::GeneratorLimited => {
                    "The generator was the limit; add threads (-t), or load from another machine"
                }
                closed::End::Knee | closed::End::StillRising => "Ended",
            };
            return format!("{before}: no throughput was measured that is the target's own.");
        };
        let reached = self.so_far();
        let most = self.levels.iter().map(|level| level.connections).max().unwrap_or(connections);
        match self.end {
            closed::End::Knee => format!("The knee lies at {reached}; up to {most} connections brought no more."),
            closed::End::StillRising => {
                format!(
                    "No knee within what was tried: {reached}, and it still rises; allow more with --connections-max."
                )
            }
            closed::End::GeneratorLimited => format!(
                "The bound was not found: {reached}, and with more connections the generator was the limit. Add \
                 threads (-t), or load from another machine."
            ),
            closed::End::TimeUp => format!("The time was up: {reached} so far. Give it more --time."),
            closed::End::Harmed => format!("{HARM_CLOSED}: {reached} until then."),
            closed::End::Interrupted => format!("Interrupted: {reached} until then."),
        }
    }

    /// The law in words.
    pub(super) fn law(&self) -> String {
        let Some(fit) = &self.fit else {
            return "Too few numbers of connections for the scalability law.".to_owned();
        };
        let most = self.levels.iter().map(|level| level.connections).max().unwrap_or(0) as f64;
        let peak = match fit.law.peak() {
            Some(peak) if peak <= most => {
                format!("its peak is {} requests/s at {} connections", number(fit.law.rate_rps(peak)), grouped(peak))
            }
            Some(peak) => {
                format!("no peak within what was tried (it would lie at {} connections)", grouped(peak))
            }
            None => "no peak: more connections never bring less".to_owned(),
        };
        format!(
            "Scalability law X(N) = λN / (1 + σ(N − 1) + κN(N − 1)): {peak}. It is off by {} on average; {} of the \
             refits have a peak within what was tried.",
            percent(fit.error),
            percent(fit.peaks_within)
        )
    }
}
