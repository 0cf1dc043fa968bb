//! What a drawing shows, as plain values; [`super::svg`] draws it.

use crate::models::timeline::Row;

/// A drawing.
#[derive(Clone, Debug, PartialEq)]
pub enum Plot {
    /// Bars side by side.
    Bars(Bars),
    /// Curves over one axis.
    Lines(Lines),
    /// The same, with what helps to read them.
    Marked(Marked),
    /// Who did what when.
    Timeline(Timeline),
}

/// Bars from zero on, one below the other, each under its label.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// What it shows.
    pub title: String,
    /// The same in a sentence, for those who do not see it.
    pub description: String,
    /// The bars.
    pub bars: Vec<Bar>,
    /// What a bar's mark means; none without marks.
    pub mark: Option<String>,
    /// What a whisker means; none without whiskers.
    pub whisker: Option<String>,
}

/// A bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// What it stands for.
    pub label: String,
    /// Its length; none draws no bar.
    pub value: Option<f64>,
    /// Its value in words, or why there is none.
    pub words: String,
    /// Ends of the interval.
    pub whisker: Option<(f64, f64)>,
    /// Where the mark stands.
    pub mark: Option<f64>,
}

/// Curves.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// What it shows.
    pub title: String,
    /// The same in a sentence, for those who do not see it.
    pub description: String,
    /// The axis to the right.
    pub x: Axis,
    /// The axis up.
    pub y: Axis,
    /// The curves.
    pub lines: Vec<Line>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it measures.
    pub name: String,
    /// How values lie on it.
    pub scale: Scale,
    /// How they are told.
    pub unit: Unit,
}

/// How values lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero on.
    Linear,
    /// By their logarithm; what is not above zero is left out.
    Log,
    /// Shares from 0 to below 1 by the logarithm of what is missing to 1, so that 90, 99 and 99.9 % are as far apart.
    Nines,
}

/// How values are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number.
    Number,
    /// A time in µs, in the unit that fits.
    Micros,
    /// A time in s.
    Seconds,
    /// A share, in per cent.
    Share,
}

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What it stands for.
    pub label: String,
    /// Its points, with `x` rising.
    pub points: Vec<(f64, f64)>,
}

/// Curves with single measurements, how far to trust them, and where something lies.
#[derive(Clone, Debug, PartialEq)]
pub struct Marked {
    /// The curves.
    pub lines: Lines,
    /// Measurements.
    pub dots: Vec<Dot>,
    /// What a hollow dot means; none where there is none.
    pub hollow: Option<String>,
    /// How far curves can be trusted.
    pub bands: Vec<Band>,
    /// Where something lies.
    pub rules: Vec<Rule>,
}

/// A measurement, in the colour of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// The curve's number, from 0.
    pub curve: usize,
    /// Where it lies.
    pub at: (f64, f64),
    /// Whether it is of another kind than the others.
    pub hollow: bool,
}

/// What a curve lies in, in its colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// The curve's number, from 0.
    pub curve: usize,
    /// What it means.
    pub label: String,
    /// Its ends: `x`, lower, upper, with `x` rising.
    pub points: Vec<(f64, f64, f64)>,
}

/// A place on an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What it means.
    pub label: String,
    /// Where it is.
    pub at: Place,
}

/// Where on which axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// To the right.
    X(f64),
    /// To the right, between two places.
    Between(f64, f64),
    /// Up.
    Y(f64),
}

/// Rows of stretches of time, one below the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// What it shows.
    pub title: String,
    /// The same in a sentence, for those who do not see it.
    pub description: String,
    /// Where the time ends, in µs; it begins at 0.
    pub end_us: f64,
    /// The rows.
    pub rows: Vec<Row>,
}
