//! Service level objectives such as `p99<5ms`: parsed from text and evaluated on an [`Outcome`].
//! Both are pure.

mod judge;
mod share;

use std::fmt;

use crate::stats::{CensoredNs, Timing};

pub use judge::evaluate;

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
    /// Latency: from the intended time to the complete expected response.
    Latency(Statistic),
    /// Service time: from the actual send to the complete expected response.
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
    /// A lower bound: the statistic falls among requests without the expected response.
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

impl Objective {
    /// `errors<1%`: what a rate must meet to be served at all, where nothing else is demanded.
    pub const FEW_ERRORS: Self =
        Self { metric: Metric::Errors, operator: Operator::Below, bound: 1.0, unit: Unit::Percent };

    /// Returns whether it bounds the failed requests.
    pub fn bounds_errors(&self) -> bool {
        self.metric == Metric::Errors && self.operator.is_upper()
    }

    /// Returns the bound of a latency objective, in ns; `None` for other objectives.
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
    pub fn needs_target_rate(&self) -> bool {
        (self.metric, self.unit) == (Metric::Rate, Unit::Percent)
    }

    /// Returns the number of requests that an evaluation needs: 100 beyond a percentile, which
    /// gives the share beyond it to a tenth for independent requests (a binomial count has its
    /// square root as standard deviation); 10 allowed errors; 1,000 for a mean, a maximum, an error
    /// count or a rate, for which no number suffices.
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
