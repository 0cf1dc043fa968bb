//! Service level objectives such as `p99<5ms`: parsed from text and evaluated on an [`Outcome`].
//! Both are pure.

mod share;

use std::fmt;

use crate::outcome::{Outcome, RunEnd};
use crate::stats::{CensoredNs, Timing};

/// Maximum number of objectives of a run.
pub const OBJECTIVES_MAX: usize = 32;

/// A condition on a metric, as in `p99<5ms`.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    metric: Metric,
    operator: Operator,
    /// The bound, in `unit`.
    bound: f64,
    unit: Unit,
}

/// The metric of an objective.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Metric {
    /// Latency: from the intended time to the complete response.
    Latency(Statistic),
    /// Service time: from the actual send to the complete response.
    Service(Statistic),
    /// Schedule lag: from the intended time to the actual send.
    Lag(Statistic),
    /// Due requests without the expected response: lost, wrong, timed out, or never sent.
    Errors,
    /// Expected responses per second.
    Rate,
}

/// A statistic of a distribution, with its name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Statistic {
    Mean,
    Max,
    Quantile(f64, &'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Below,
    AtMost,
    Above,
    AtLeast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Micros,
    Millis,
    Seconds,
    /// Percent of the due requests, or of the target rate.
    Percent,
    /// A number, or a number per second.
    Plain,
}

/// The evaluation of an objective.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectiveResult {
    /// The objective.
    pub objective: Objective,
    /// The measured value, in the objective's own unit.
    pub value: MeasuredValue,
    /// Result of the objective.
    pub met: ObjectiveStatus,
}

/// A measured value, possibly censored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MeasuredValue {
    /// No samples.
    Nothing,
    /// An exact value.
    Exact(f64),
    /// A lower bound: the statistic falls among abandoned requests.
    AtLeast(f64),
}

/// Result of an objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectiveStatus {
    /// It is met.
    Met,
    /// It is missed.
    Missed,
    /// The generator was the limit, and the measurement shows neither.
    Inconclusive,
}

/// Errors in an objective's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectiveError {
    /// The text is empty.
    #[error("an objective is missing; write for instance p99<5ms, errors<0.1% or rate>=10000")]
    Empty,
    /// There are too many objectives.
    #[error("there are {0} objectives; {OBJECTIVES_MAX} are possible")]
    TooMany(usize),
    /// There is no comparison operator.
    #[error(
        "{0:?} compares nothing; put <, <=, > or >= between what is measured and its bound, as in \
         p99<5ms"
    )]
    Operator(String),
    /// The metric is unknown.
    #[error(
        "{0:?} is not measured; p50, p75, p90, p95, p99, p999, p9999, mean and max are, of the \
         latency, or with service. or lag. before them; also lag, errors and rate"
    )]
    Metric(String),
    /// The bound is no number, or one that no measurement can have.
    #[error("{0:?} must be a number that is not negative, as in 5ms")]
    Number(String),
    /// The unit does not fit.
    #[error("{text:?} needs a bound {expected}")]
    Unit {
        /// The objective.
        text: String,
        /// The units that fit.
        expected: &'static str,
    },
}

const POINTS: [(&str, Statistic); 12] = [
    ("mean", Statistic::Mean),
    ("max", Statistic::Max),
    ("p50", Statistic::Quantile(0.5, "p50")),
    ("p75", Statistic::Quantile(0.75, "p75")),
    ("p90", Statistic::Quantile(0.9, "p90")),
    ("p95", Statistic::Quantile(0.95, "p95")),
    ("p99", Statistic::Quantile(0.99, "p99")),
    ("p999", Statistic::Quantile(0.999, "p999")),
    ("p99.9", Statistic::Quantile(0.999, "p999")),
    ("p9999", Statistic::Quantile(0.9999, "p9999")),
    ("p99.99", Statistic::Quantile(0.9999, "p9999")),
    ("median", Statistic::Quantile(0.5, "p50")),
];

/// Parses objectives separated by commas.
///
/// # Errors
/// Returns the first invalid objective with the reason.
pub fn parse(text: &str) -> Result<Vec<Objective>, ObjectiveError> {
    let texts: Vec<&str> = text.split(',').map(str::trim).collect();
    if texts.len() > OBJECTIVES_MAX {
        return Err(ObjectiveError::TooMany(texts.len()));
    }
    texts.into_iter().map(Objective::parse).collect()
}

/// Evaluates every objective.
#[must_use]
pub fn evaluate(objectives: &[Objective], outcome: &Outcome) -> Vec<ObjectiveResult> {
    let limited = outcome.limit().is_generator();
    let judged = |objective: &Objective| {
        let value = objective.value(outcome);
        ObjectiveResult { met: objective.met(value, limited), value, objective: objective.clone() }
    };
    objectives.iter().map(judged).collect()
}

impl Objective {
    /// Returns the bound of a latency objective, in ns; `None` for other objectives.
    #[must_use]
    pub fn latency_bound_ns(&self) -> Option<f64> {
        matches!(self.metric, Metric::Latency(_)).then(|| self.bound * self.unit_ns())
    }

    fn parse(text: &str) -> Result<Self, ObjectiveError> {
        if text.is_empty() {
            return Err(ObjectiveError::Empty);
        }
        let at = text.find(['<', '>']).ok_or_else(|| ObjectiveError::Operator(text.to_owned()))?;
        let (metric, rest) = (text[..at].trim(), &text[at..]);
        let (operator, bytes) = match rest.as_bytes() {
            [b'<', b'=', ..] => (Operator::AtMost, 2),
            [b'>', b'=', ..] => (Operator::AtLeast, 2),
            [b'<', ..] => (Operator::Below, 1),
            _ => (Operator::Above, 1),
        };
        let metric = Metric::parse(metric)?;
        let bound = rest[bytes..].trim();
        let end = bound.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(bound.len());
        let (number, unit) = (&bound[..end], bound[end..].trim());
        let unit = metric
            .unit(unit)
            .map_err(|expected| ObjectiveError::Unit { text: text.to_owned(), expected })?;
        let bound = number.parse().map_err(|_| ObjectiveError::Number(bound.to_owned()))?;
        Ok(Self { metric, operator, bound, unit })
    }

    /// Returns whether the bound is a share of the target rate, which a closed loop lacks.
    #[must_use]
    pub fn needs_target_rate(&self) -> bool {
        (self.metric, self.unit) == (Metric::Rate, Unit::Percent)
    }

    /// Returns the number of requests that an evaluation needs: 100 beyond a percentile, which
    /// gives the share beyond it to a tenth for independent requests (a binomial count has its
    /// square root as standard deviation); 10 allowed errors; 1,000 for a mean, a maximum, an error
    /// count or a rate, for which no number suffices.
    #[must_use]
    pub fn requests_wanted(&self) -> u64 {
        /// An upper bound, for percentiles beyond 99.99 and tiny error shares.
        const MOST: f64 = 1e6;
        const OTHERS: u64 = 1_000;
        let wanted = match (self.metric, self.unit) {
            (
                Metric::Latency(Statistic::Quantile(q, _))
                | Metric::Service(Statistic::Quantile(q, _))
                | Metric::Lag(Statistic::Quantile(q, _)),
                _,
            ) => 100.0 / (1.0 - q),
            (Metric::Errors, Unit::Percent) if self.bound > 0.0 => 10.0 / (self.bound / 100.0),
            _ => return OTHERS,
        };
        wanted.round().min(MOST) as u64
    }

    /// Returns the measured value, in the unit of the bound.
    fn value(&self, outcome: &Outcome) -> MeasuredValue {
        let total = &outcome.total;
        match self.metric {
            Metric::Latency(point) => self.time(point.of(&total.latency)),
            Metric::Service(point) => self.time(point.of(&total.service)),
            Metric::Lag(point) => self
                .time(point.of(&Timing { answered: total.schedule_lag.clone(), abandoned: None })),
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
    fn unit_ns(&self) -> f64 {
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
        let failed = counts.errors.total() + counts.timeouts + unsent;
        match (self.unit, counts.scheduled) {
            (_, 0) => MeasuredValue::Nothing,
            (Unit::Percent, due) => MeasuredValue::Exact(failed as f64 / due as f64 * 100.0),
            _ => MeasuredValue::Exact(failed as f64),
        }
    }

    fn met(&self, value: MeasuredValue, limited: bool) -> ObjectiveStatus {
        let holds = match value {
            MeasuredValue::Nothing => false,
            MeasuredValue::Exact(value) => self.operator.holds(value, self.bound),
            // The true value is larger by an unknown amount.
            MeasuredValue::AtLeast(value) => {
                !self.operator.is_upper() && self.operator.holds(value, self.bound)
            }
        };
        match (holds, limited && value != MeasuredValue::Nothing) {
            (true, false) => ObjectiveStatus::Met,
            (false, false) => ObjectiveStatus::Missed,
            (true, true) if self.metric.generator_only_worsens(self.operator) => {
                ObjectiveStatus::Met
            }
            // The generator's own lateness is a valid measurement even when the generator is the
            // limit.
            (false, true) if matches!(self.metric, Metric::Lag(_)) => ObjectiveStatus::Missed,
            _ => ObjectiveStatus::Inconclusive,
        }
    }

    fn suffix(&self) -> &'static str {
        match (self.unit, self.metric) {
            (Unit::Micros, _) => "us",
            (Unit::Millis, _) => "ms",
            (Unit::Seconds, _) => "s",
            (Unit::Percent, _) => "%",
            (Unit::Plain, Metric::Rate) => " requests/s",
            (Unit::Plain, _) => "",
        }
    }
}

impl Metric {
    fn parse(text: &str) -> Result<Self, ObjectiveError> {
        let point = |name: &str| POINTS.iter().find(|(n, _)| *n == name).map(|(_, point)| *point);
        let metric = match text.split_once('.').unwrap_or(("", text)) {
            ("", "errors") => Some(Self::Errors),
            ("", "rate") => Some(Self::Rate),
            ("", "lag") => point("p99").map(Self::Lag),
            ("latency", name) => point(name).map(Self::Latency),
            ("service", name) => point(name).map(Self::Service),
            ("lag", name) => point(name).map(Self::Lag),
            _ => point(text).map(Self::Latency),
        };
        metric.ok_or_else(|| ObjectiveError::Metric(text.to_owned()))
    }

    /// Returns the unit named by `text`, or the units that would fit.
    fn unit(self, text: &str) -> Result<Unit, &'static str> {
        match (self, text) {
            (Self::Latency(_) | Self::Service(_) | Self::Lag(_), "us" | "µs") => Ok(Unit::Micros),
            (Self::Latency(_) | Self::Service(_) | Self::Lag(_), "ms") => Ok(Unit::Millis),
            (Self::Latency(_) | Self::Service(_) | Self::Lag(_), "s") => Ok(Unit::Seconds),
            (Self::Latency(_) | Self::Service(_) | Self::Lag(_), _) => {
                Err("with a unit: us, ms or s, as in p99<5ms")
            }
            (Self::Errors | Self::Rate, "%") => Ok(Unit::Percent),
            (Self::Errors | Self::Rate, "") => Ok(Unit::Plain),
            (Self::Errors, _) => {
                Err("in % of the requests that were due, or a number of them, as in errors<0.1%")
            }
            (Self::Rate, _) => Err("in requests per second, or in % of --rate, as in rate>=10000"),
        }
    }

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

impl Statistic {
    fn of(self, timing: &Timing) -> Option<CensoredNs> {
        match self {
            Self::Mean => timing.mean(),
            Self::Max => timing.max(),
            Self::Quantile(quantile, _) => timing.quantile(quantile),
        }
    }
}

impl Operator {
    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::Below => value < bound,
            Self::AtMost => value <= bound,
            Self::Above => value > bound,
            Self::AtLeast => value >= bound,
        }
    }

    fn is_upper(self) -> bool {
        matches!(self, Self::Below | Self::AtMost)
    }
}

impl ObjectiveResult {
    /// Returns the measured value and its distance from the bound as text.
    #[must_use]
    pub fn words(&self) -> String {
        let Objective { bound, operator, .. } = self.objective;
        let suffix = self.objective.suffix();
        let (measured, value) = match self.value {
            MeasuredValue::Nothing => return "nothing was measured".to_owned(),
            MeasuredValue::Exact(value) => (format!("{}{suffix}", digits(value)), value),
            MeasuredValue::AtLeast(value) => (format!(">{}{suffix}", digits(value)), value),
        };
        let by = (value - bound).abs();
        let share =
            if bound > 0.0 { format!(" ({:.1} %)", by / bound * 100.0) } else { String::new() };
        match (self.met, self.value) {
            (ObjectiveStatus::Met, _) => measured,
            (_, MeasuredValue::AtLeast(_)) => {
                format!("{measured}: it falls among requests that were given up")
            }
            (_, _) if by == 0.0 => format!("{measured}, just the bound"),
            _ if operator.is_upper() => {
                format!("{measured}, {}{suffix}{share} too much", digits(by))
            }
            _ => format!("{measured}, {}{suffix}{share} too little", digits(by)),
        }
    }
}

/// Formats a number with the significant digits, without exponent.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1000.0.. => format!("{value:.0}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |f: &mut fmt::Formatter<'_>, what: &str, point: Statistic| {
            let name = match point {
                Statistic::Mean => "mean",
                Statistic::Max => "max",
                Statistic::Quantile(_, name) => name,
            };
            write!(f, "{what}{name}")
        };
        match self.metric {
            Metric::Latency(point) => named(f, "", point)?,
            Metric::Service(point) => named(f, "service.", point)?,
            Metric::Lag(point) => named(f, "lag.", point)?,
            Metric::Errors => f.write_str("errors")?,
            Metric::Rate => f.write_str("rate")?,
        }
        let operator = match self.operator {
            Operator::Below => "<",
            Operator::AtMost => "<=",
            Operator::Above => ">",
            Operator::AtLeast => ">=",
        };
        let suffix = if self.unit == Unit::Plain { "" } else { self.suffix() };
        write!(f, "{operator}{}{suffix}", self.bound)
    }
}

#[cfg(test)]
mod tests;
