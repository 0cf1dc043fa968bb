//! Content of a plot as plain values; [`super::svg`] draws it.

use serde::{Deserialize, Serialize};

/// Curves that a plot shows; the same number as in `charts.js`.
pub const CURVES_MAX: usize = 6;

/// A plot.
#[derive(Clone, Debug, PartialEq)]
pub enum Plot {
    /// Horizontal bars.
    Bars(Bars),
    /// Curves.
    Lines(Lines),
    /// Curves with marks: dots, bands and rules.
    Marked(MarkedLines),
    /// States over time.
    Timeline(Timeline),
    /// Counts over time and latency.
    HeatMap(HeatMap),
}

impl Plot {
    /// Returns its title and its description.
    pub(crate) fn texts(&self) -> (&str, &str) {
        match self {
            Self::Bars(bars) => (&bars.title, &bars.description),
            Self::Lines(lines) | Self::Marked(MarkedLines { lines, .. }) => {
                (&lines.title, &lines.description)
            }
            Self::Timeline(timeline) => (&timeline.title, &timeline.description),
            Self::HeatMap(map) => (&map.title, &map.description),
        }
    }
}

/// Horizontal bars from zero, one below the other, each under its label.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Title.
    pub title: String,
    /// Description in a sentence, for readers who cannot see the plot.
    pub description: String,
    /// The bars.
    pub bars: Vec<Bar>,
    /// Meaning of a bar's mark; `None` without marks.
    pub mark: Option<String>,
    /// Meaning of a whisker; `None` without whiskers.
    pub whisker: Option<String>,
}

/// A bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// Label.
    pub label: String,
    /// Length; `None` draws no bar.
    pub value: Option<f64>,
    /// Its value in words, or the reason there is none.
    pub words: String,
    /// Ends of the interval.
    pub whisker: Option<(f64, f64)>,
    /// Position of the mark.
    pub mark: Option<f64>,
}

/// Curves.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// Title.
    pub title: String,
    /// Description in a sentence, for readers who cannot see the plot.
    pub description: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The curves.
    pub lines: Vec<Line>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// Quantity.
    pub name: String,
    /// Scale.
    pub scale: Scale,
    /// Unit.
    pub unit: Unit,
}

/// Scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Linear from zero.
    Linear,
    /// Logarithmic; values that are not above zero are omitted.
    Log,
    /// Shares from 0 to below 1, by the logarithm of the distance to 1, so that 90, 99 and 99.9 %
    /// have equal distances.
    Nines,
}

/// Unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A number.
    Number,
    /// A time in µs, in a suitable unit.
    Micros,
    /// A time in s.
    Seconds,
    /// A share, as a percentage.
    Share,
}

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Label.
    pub label: String,
    /// Its points, with `x` rising.
    pub points: Vec<(f64, f64)>,
}

/// Curves with single measurements, confidence bands and reference lines.
#[derive(Clone, Debug, PartialEq)]
pub struct MarkedLines {
    /// The curves.
    pub lines: Lines,
    /// Measurements.
    pub dots: Vec<Dot>,
    /// Meaning of a hollow dot; `None` without any.
    pub hollow: Option<String>,
    /// Confidence bands of curves.
    pub bands: Vec<Band>,
    /// Reference lines.
    pub rules: Vec<Rule>,
}

/// A measurement, in the colour of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// Index of the curve.
    pub curve: usize,
    /// Position.
    pub at: (f64, f64),
    /// True if it differs in kind from the others.
    pub hollow: bool,
}

/// Confidence band of a curve, in its colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Index of the curve.
    pub curve: usize,
    /// Label.
    pub label: String,
    /// Its ends: `x`, lower, upper, with `x` rising.
    pub points: Vec<(f64, f64, f64)>,
}

/// Reference line or region.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Label.
    pub label: String,
    /// Position.
    pub at: RulePosition,
}

/// Position of a reference line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RulePosition {
    /// At a value of x.
    X(f64),
    /// Between two values of x.
    Between(f64, f64),
    /// At a value of y.
    Y(f64),
}

/// Requests by time and latency, as shades.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    /// Title.
    pub title: String,
    /// Description in a sentence, for readers who cannot see the plot.
    pub description: String,
    /// Length of a column, in s; the first begins at 0.
    pub column_s: f64,
    /// Lower end of each row and upper end of the last, in µs, rising and above zero.
    pub row_ends_us: Vec<f64>,
    /// Requests of each column, by row.
    pub counts: Vec<Vec<u64>>,
}

impl HeatMap {
    /// Returns the meaning of the shades.
    pub fn note(&self) -> String {
        let most = self.counts.iter().flatten().copied().max().unwrap_or(0);
        format!(
            "The stronger the colour, the more requests, on a logarithmic scale; the strongest has {}.",
            crate::numbers::grouped(most as f64)
        )
    }
}

/// Rows of time spans, one below the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Title.
    pub title: String,
    /// Description in a sentence, for readers who cannot see the plot.
    pub description: String,
    /// End of the time axis, in µs; it begins at 0.
    pub end_us: f64,
    /// The rows.
    pub rows: Vec<Lane>,
}

impl Axis {
    /// Returns the quantity, and the scale if it is logarithmic.
    pub fn title(&self) -> String {
        match self.scale {
            Scale::Log => format!("{}, logarithmic", self.name),
            Scale::Linear | Scale::Nines => self.name.clone(),
        }
    }

    /// Returns an axis of the time since the measurement began.
    #[must_use]
    pub fn time() -> Self {
        Self { name: "time".to_owned(), scale: Scale::Linear, unit: Unit::Seconds }
    }

    /// Returns a logarithmic axis of latencies.
    #[must_use]
    pub fn latency() -> Self {
        Self { name: "latency".to_owned(), scale: Scale::Log, unit: Unit::Micros }
    }
}

/// Returns a plot of latencies over the share of requests that were at least as fast: µs on a
/// logarithmic scale.
pub fn latency_percentiles(title: String, description: String, lines: Vec<Line>) -> Lines {
    Lines {
        title,
        description,
        x: Axis { name: "share of requests".to_owned(), scale: Scale::Nines, unit: Unit::Share },
        y: Axis::latency(),
        lines,
    }
}

/// Returns the points of a curve from `(upper bound in µs, requests up to it)`. A bound is placed
/// at the middle of the last request below it, so that the slowest request lies below 100 %.
pub fn latency_curve(distribution: &[(f64, u64)]) -> Vec<(f64, f64)> {
    let total = distribution.last().map_or(0, |(_, requests)| *requests);
    let place = |requests: u64| (requests as f64 - 0.5) / total as f64;
    distribution
        .iter()
        .filter(|(_, requests)| *requests > 0)
        .map(|(us, requests)| (place(*requests), *us))
        .collect()
}

/// State of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneState {
    /// It had a request and ran or was runnable.
    Running,
    /// Its request slept.
    Sleeping,
    /// It waited for work, for a slot, or for the others of its batch.
    Waiting,
}

/// A period in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneSpan {
    /// The state.
    pub state: LaneState,
    /// Start, in µs since the run began.
    pub from_us: u64,
    /// End, in µs since the run began.
    pub to_us: u64,
}

/// A lane of the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// Its label.
    pub label: String,
    /// Its periods, in order.
    pub spans: Vec<LaneSpan>,
}
