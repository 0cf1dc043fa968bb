//! Evaluation of objectives on an [`Outcome`]. Where the generator was the limit, only what it
//! cannot have caused counts against the target.

use super::{
    MeasuredValue, Metric, Objective, ObjectiveResult, ObjectiveStatus, Operator, Statistic, Unit,
};
use crate::bottleneck;
use crate::format::{duration, grouped};
use crate::outcome::{Outcome, RunEnd};
use crate::stats::{CensoredNs, Timing};

/// Evaluates every objective.
pub fn evaluate(objectives: &[Objective], outcome: &Outcome) -> Vec<ObjectiveResult> {
    let judged = |objective: &Objective| {
        let value = objective.value(outcome);
        ObjectiveResult { met: objective.met(value, outcome), value, objective: objective.clone() }
    };
    objectives.iter().map(judged).collect()
}

impl Objective {
    /// Returns the measured value, in the unit of the bound.
    fn value(&self, outcome: &Outcome) -> MeasuredValue {
        let total = &outcome.total;
        match self.metric {
            Metric::Latency(point) => self.time(point.of(&total.latency)),
            Metric::Service(point) => self.time(point.of(&total.service)),
            Metric::Lag(point) => self.time(point.of(&Timing::exact(total.schedule_lag.clone()))),
            Metric::Errors => self.errors(outcome),
            Metric::Rate if self.unit == Unit::Percent => outcome
                .rate_ratio()
                .map_or(MeasuredValue::Nothing, |ratio| MeasuredValue::Exact(ratio * 100.0)),
            Metric::Rate => MeasuredValue::Exact(outcome.throughput_rps()),
        }
    }

    fn time(&self, known: Option<CensoredNs>) -> MeasuredValue {
        let unit_ns = self.unit_ns();
        match known {
            None => MeasuredValue::Nothing,
            Some(CensoredNs::Exact(ns)) => MeasuredValue::Exact(ns as f64 / unit_ns),
            Some(CensoredNs::AtLeast(ns)) => MeasuredValue::AtLeast(ns as f64 / unit_ns),
        }
    }

    /// Returns the unit of a time, in ns.
    pub(super) fn unit_ns(&self) -> f64 {
        match self.unit {
            Unit::Micros => 1e3,
            Unit::Millis => 1e6,
            Unit::Seconds | Unit::Percent | Unit::Plain => 1e9,
        }
    }

    /// Counts requests never sent as errors: a target that accepts no connection has not answered.
    /// Excludes requests that an interruption left open.
    fn errors(&self, outcome: &Outcome) -> MeasuredValue {
        let counts = &outcome.total.counts;
        let unsent = if outcome.end == RunEnd::Interrupted { 0 } else { counts.unsent };
        self.failures(outcome, counts.errors.total() + counts.timeouts + unsent)
    }

    /// Returns `failed` requests in the unit of the bound.
    fn failures(&self, outcome: &Outcome, failed: u64) -> MeasuredValue {
        match (self.unit, outcome.total.counts.scheduled) {
            (_, 0) => MeasuredValue::Nothing,
            (Unit::Percent, due) => MeasuredValue::Exact(failed as f64 / due as f64 * 100.0),
            _ => MeasuredValue::Exact(failed as f64),
        }
    }

    fn met(&self, value: MeasuredValue, outcome: &Outcome) -> ObjectiveStatus {
        let limited = outcome.limit().is_generator() && value != MeasuredValue::Nothing;
        match (self.holds(value), limited) {
            (true, false) => ObjectiveStatus::Met,
            (true, true) if self.metric.generator_only_worsens(self.operator) => {
                ObjectiveStatus::Met
            }
            (false, false) => ObjectiveStatus::Missed,
            (false, true) if self.missed_by_target(outcome) => ObjectiveStatus::Missed,
            _ => ObjectiveStatus::Inconclusive,
        }
    }

    fn holds(&self, value: MeasuredValue) -> bool {
        match value {
            MeasuredValue::Nothing => false,
            MeasuredValue::Exact(value) => self.operator.holds(value, self.bound),
            // The true value is larger by an unknown amount.
            MeasuredValue::AtLeast(value) => {
                !self.operator.is_upper() && self.operator.holds(value, self.bound)
            }
        }
    }

    /// Returns whether a missed objective is missed whatever the generator, which was the limit,
    /// did: it may have sent and read late, but not have caused what the target sent.
    fn missed_by_target(&self, outcome: &Outcome) -> bool {
        let total = &outcome.total;
        let limit = outcome.limit();
        let read_late = limit.delays_reading() && !bottleneck::answers_did_not_wait(outcome);
        let timeouts = if read_late { 0 } else { total.counts.timeouts };
        let failed = total.counts.errors.total() + timeouts;
        // More failures alone than the quantile leaves room for.
        let failed_beyond =
            |quantile: f64| failed as f64 > (1.0 - quantile) * total.counts.scheduled as f64;
        match self.metric {
            // The generator's own lateness is a valid measurement.
            Metric::Lag(_) => true,
            _ if !self.operator.is_upper() => false,
            Metric::Errors => !self.holds(self.failures(outcome, failed)),
            Metric::Service(_) if !read_late => true,
            // Latencies contain service times.
            Metric::Latency(point)
                if !read_late && !self.holds(self.time(point.of(&total.service))) =>
            {
                true
            }
            Metric::Latency(Statistic::Quantile(quantile, _))
            | Metric::Service(Statistic::Quantile(quantile, _)) => failed_beyond(quantile),
            Metric::Latency(_) | Metric::Service(_) | Metric::Rate => false,
        }
    }

    /// Formats a value in the unit of the bound; durations in a fitting one.
    fn shown(&self, value: f64) -> String {
        match self.metric {
            Metric::Latency(_) | Metric::Service(_) | Metric::Lag(_) => {
                duration((value * self.unit_ns()).round() as u64)
            }
            Metric::Errors | Metric::Rate => format!("{}{}", digits(value), self.suffix()),
        }
    }
}

impl Metric {
    /// Returns whether a limiting generator can only worsen this metric: latencies are then upper
    /// bounds, rates lower bounds.
    fn generator_only_worsens(self, operator: Operator) -> bool {
        match self {
            Self::Latency(_) | Self::Service(_) | Self::Errors => operator.is_upper(),
            Self::Rate => !operator.is_upper(),
            Self::Lag(_) => true,
        }
    }
}

/// Multiple of the bound from which a distance is a multiple, not a share.
const TIMES_FROM: f64 = 3.0;

impl ObjectiveResult {
    /// Returns the measured value and its distance from the bound as text.
    pub fn words(&self) -> String {
        let Objective { bound, operator, .. } = self.objective;
        let shown = |value: f64| self.objective.shown(value);
        let (measured, value) = match self.value {
            MeasuredValue::Nothing => return "nothing was measured".to_owned(),
            MeasuredValue::Exact(value) => (shown(value), value),
            MeasuredValue::AtLeast(value) => (format!(">{}", shown(value)), value),
        };
        let by = (value - bound).abs();
        let share =
            if bound > 0.0 { format!(" ({:.1} %)", by / bound * 100.0) } else { String::new() };
        match (self.met, self.value) {
            (ObjectiveStatus::Met, _) => measured,
            (_, MeasuredValue::AtLeast(_)) => {
                format!("{measured}: it falls among requests without the expected answer")
            }
            (_, _) if by == 0.0 => format!("{measured}, just the bound"),
            _ if operator.is_upper() && bound > 0.0 && value >= TIMES_FROM * bound => {
                format!("{measured}, {} times the bound", digits(value / bound))
            }
            _ if operator.is_upper() => {
                format!("{measured}, {}{share} too much", shown(by))
            }
            _ => format!("{measured}, {}{share} too little", shown(by)),
        }
    }
}

/// Formats a number with the significant digits, without exponent.
fn digits(value: f64) -> String {
    match value {
        _ if value.fract() == 0.0 => grouped(value),
        1000.0.. => grouped(value),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
