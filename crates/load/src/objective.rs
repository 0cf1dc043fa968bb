//! What a run must reach: objectives such as `p99<5ms`, read from text and judged on an [`Outcome`]. Both are pure.

mod share;

use std::fmt;

use crate::outcome::{End, Outcome};
use crate::record::{Known, Timing};

/// Most objectives of one run.
pub const OBJECTIVES_MAX: usize = 32;

/// One thing that must hold, as in `p99<5ms`.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    metric: Metric,
    operator: Operator,
    /// In `unit`.
    bound: f64,
    unit: Unit,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Metric {
    /// From the intended time to the complete answer.
    Latency(Point),
    /// From the actual send to the complete answer.
    Service(Point),
    /// From the intended time to the actual send.
    Lag(Point),
    /// Requests that were due and not answered as expected: lost, wrong, timed out, or never sent.
    Errors,
    /// Answers as expected per second.
    Rate,
}

/// A point of a distribution, with its name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
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
    /// Of what was due, or of the target rate.
    Percent,
    /// A number, or a number per second.
    Plain,
}

/// How an objective came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The objective.
    pub objective: Objective,
    /// What was measured, in the objective's own unit.
    pub value: Value,
    /// Whether it holds.
    pub met: Met,
}

/// A measured value, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// There are no samples.
    Nothing,
    /// The value.
    Exactly(f64),
    /// At least this: the truth lies among requests that were given up.
    AtLeast(f64),
}

/// Whether an objective holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// The generator was the limit, and what it measured proves neither.
    NotProven,
}

/// What is wrong with an objective's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectiveError {
    /// No objective at all.
    #[error("an objective is missing; write for instance p99<5ms, errors<0.1% or rate>=10000")]
    Empty,
    /// Too many.
    #[error("there are {0} objectives; {OBJECTIVES_MAX} are possible")]
    TooMany(usize),
    /// No comparison in it.
    #[error("{0:?} compares nothing; put <, <=, > or >= between what is measured and its bound, as in p99<5ms")]
    Operator(String),
    /// An unknown metric.
    #[error(
        "{0:?} is not measured; p50, p75, p90, p95, p99, p999, p9999, mean and max are, of the latency, or with service. or lag. \
         before them; also lag, errors and rate"
    )]
    Metric(String),
    /// No number, or none that a measurement can have.
    #[error("{0:?} must be a number that is not negative, as in 5ms")]
    Number(String),
    /// A unit that does not fit.
    #[error("{text:?} needs a bound {expected}")]
    Unit {
        /// The objective.
        text: String,
        /// What fits.
        expected: &'static str,
    },
}

const POINTS: [(&str, Point); 12] = [
    ("mean", Point::Mean),
    ("max", Point::Max),
    ("p50", Point::Quantile(0.5, "p50")),
    ("p75", Point::Quantile(0.75, "p75")),
    ("p90", Point::Quantile(0.9, "p90")),
    ("p95", Point::Quantile(0.95, "p95")),
    ("p99", Point::Quantile(0.99, "p99")),
    ("p999", Point::Quantile(0.999, "p999")),
    ("p99.9", Point::Quantile(0.999, "p999")),
    ("p9999", Point::Quantile(0.9999, "p9999")),
    ("p99.99", Point::Quantile(0.9999, "p9999")),
    ("median", Point::Quantile(0.5, "p50")),
];

/// Reads objectives that commas separate.
///
/// # Errors
/// The first that cannot be read, and why.
pub fn parse(text: &str) -> Result<Vec<Objective>, ObjectiveError> {
    let texts: Vec<&str> = text.split(',').map(str::trim).collect();
    if texts.len() > OBJECTIVES_MAX {
        return Err(ObjectiveError::TooMany(texts.len()));
    }
    texts.into_iter().map(Objective::parse).collect()
}

/// Judges every objective.
#[must_use]
pub fn judge(objectives: &[Objective], outcome: &Outcome) -> Vec<Judged> {
    let limited = outcome.limit().is_generator();
    let judged = |objective: &Objective| {
        let value = objective.value(outcome);
        Judged { met: objective.met(value, limited), value, objective: objective.clone() }
    };
    objectives.iter().map(judged).collect()
}

impl Objective {
    /// The bound of an objective on a point of the latency, in ns; none of any other objective.
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
        let unit = metric.unit(unit).map_err(|expected| ObjectiveError::Unit { text: text.to_owned(), expected })?;
        let bound = number.parse().map_err(|_| ObjectiveError::Number(bound.to_owned()))?;
        Ok(Self { metric, operator, bound, unit })
    }

    /// Whether it speaks of a share of the target rate, which a closed loop has none of.
    #[must_use]
    pub fn needs_target_rate(&self) -> bool {
        (self.metric, self.unit) == (Metric::Rate, Unit::Percent)
    }

    /// Requests that it takes to tell: 100 beyond a percentile, so that the share beyond it is known to a tenth where
    /// requests are independent (a binomial count scatters by its root); 10 of the errors that are allowed; 1,000 for a
    /// mean, a largest value, a number of errors or a rate, of which no number is enough.
    #[must_use]
    pub fn requests_wanted(&self) -> u64 {
        /// Percentiles beyond 99.99 and smaller shares of errors are not waited for.
        const MOST: f64 = 1e6;
        const OTHERS: u64 = 1_000;
        let wanted = match (self.metric, self.unit) {
            (
                Metric::Latency(Point::Quantile(q, _))
                | Metric::Service(Point::Quantile(q, _))
                | Metric::Lag(Point::Quantile(q, _)),
                _,
            ) => 100.0 / (1.0 - q),
            (Metric::Errors, Unit::Percent) if self.bound > 0.0 => 10.0 / (self.bound / 100.0),
            _ => return OTHERS,
        };
        wanted.round().min(MOST) as u64
    }

    /// What `outcome` says, in the unit of the bound.
    fn value(&self, outcome: &Outcome) -> Value {
        let total = &outcome.total;
        match self.metric {
            Metric::Latency(point) => self.time(point.of(&total.latency)),
            Metric::Service(point) => self.time(point.of(&total.service)),
            Metric::Lag(point) => self.time(point.of(&Timing { answered: total.schedule_lag.clone(), given_up: None })),
            Metric::Errors => self.errors(outcome),
            Metric::Rate if self.unit == Unit::Percent => {
                outcome.rate_ratio().map_or(Value::Nothing, |ratio| Value::Exactly(ratio * 100.0))
            }
            Metric::Rate => Value::Exactly(outcome.throughput_rps()),
        }
    }

    fn time(&self, known: Option<Known>) -> Value {
        let unit_ns = self.unit_ns();
        match known {
            None => Value::Nothing,
            Some(Known::Exactly(ns)) => Value::Exactly(ns as f64 / unit_ns),
            Some(Known::AtLeast(ns)) => Value::AtLeast(ns as f64 / unit_ns),
        }
    }

    /// A time's unit in ns.
    fn unit_ns(&self) -> f64 {
        match self.unit {
            Unit::Micros => 1e3,
            Unit::Millis => 1e6,
            Unit::Seconds | Unit::Percent | Unit::Plain => 1e9,
        }
    }

    /// What was never sent counts: a target that takes no connection has not answered. An interruption leaves requests
    /// behind that nobody can be blamed for.
    fn errors(&self, outcome: &Outcome) -> Value {
        let counts = &outcome.total.counts;
        let unsent = if outcome.end == End::Interrupted { 0 } else { counts.unsent };
        let failed = counts.errors.total() + counts.timeouts + unsent;
        match (self.unit, counts.scheduled) {
            (_, 0) => Value::Nothing,
            (Unit::Percent, due) => Value::Exactly(failed as f64 / due as f64 * 100.0),
            _ => Value::Exactly(failed as f64),
        }
    }

    fn met(&self, value: Value, limited: bool) -> Met {
        let holds = match value {
            Value::Nothing => false,
            Value::Exactly(value) => self.operator.holds(value, self.bound),
            // The truth is larger by nobody knows how much.
            Value::AtLeast(value) => !self.operator.is_upper() && self.operator.holds(value, self.bound),
        };
        match (holds, limited && value != Value::Nothing) {
            (true, false) => Met::Yes,
            (false, false) => Met::No,
            (true, true) if self.metric.generator_only_worsens(self.operator) => Met::Yes,
            // Its own lateness is what it is.
            (false, true) if matches!(self.metric, Metric::Lag(_)) => Met::No,
            _ => Met::NotProven,
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

    /// The unit that `text` names, or which would fit.
    fn unit(self, text: &str) -> Result<Unit, &'static str> {
        match (self, text) {
            (Self::Latency(_) | Self::Service(_) | Self::Lag(_), "us" | "µs") => Ok(Unit::Micros),
            (Self::Latency(_) | Self::Service(_) | Self::Lag(_), "ms") => Ok(Unit::Millis),
            (Self::Latency(_) | Self::Service(_) | Self::Lag(_), "s") => Ok(Unit::Seconds),
            (Self::Latency(_) | Self::Service(_) | Self::Lag(_), _) => Err("with a unit: us, ms or s, as in p99<5ms"),
            (Self::Errors | Self::Rate, "%") => Ok(Unit::Percent),
            (Self::Errors | Self::Rate, "") => Ok(Unit::Plain),
            (Self::Errors, _) => Err("in % of the requests that were due, or a number of them, as in errors<0.1%"),
            (Self::Rate, _) => Err("in requests per second, or in % of --rate, as in rate>=10000"),
        }
    }

    /// Whether a generator that is the limit can only make this objective look worse than it is: latencies are upper bounds
    /// then, and rates lower bounds.
    fn generator_only_worsens(self, operator: Operator) -> bool {
        match self {
            Self::Latency(_) | Self::Service(_) | Self::Errors => operator.is_upper(),
            Self::Rate => !operator.is_upper(),
            Self::Lag(_) => true,
        }
    }
}

impl Point {
    fn of(self, timing: &Timing) -> Option<Known> {
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

impl Judged {
    /// What was measured and by how much that misses the bound, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let Objective { bound, operator, .. } = self.objective;
        let suffix = self.objective.suffix();
        let (measured, value) = match self.value {
            Value::Nothing => return "nothing was measured".to_owned(),
            Value::Exactly(value) => (format!("{}{suffix}", digits(value)), value),
            Value::AtLeast(value) => (format!(">{}{suffix}", digits(value)), value),
        };
        let by = (value - bound).abs();
        let share = if bound > 0.0 { format!(" ({:.1} %)", by / bound * 100.0) } else { String::new() };
        match (self.met, self.value) {
            (Met::Yes, _) => measured,
            (_, Value::AtLeast(_)) => format!("{measured}: it falls among requests that were given up"),
            (_, _) if by == 0.0 => format!("{measured}, just the bound"),
            _ if operator.is_upper() => format!("{measured}, {}{suffix}{share} too much", digits(by)),
            _ => format!("{measured}, {}{suffix}{share} too little", digits(by)),
        }
    }
}

/// As many digits as matter, no exponent.
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
        let named = |f: &mut fmt::Formatter<'_>, what: &str, point: Point| {
            let name = match point {
                Point::Mean => "mean",
                Point::Max => "max",
                Point::Quantile(_, name) => name,
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
