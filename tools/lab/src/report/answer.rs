//! The answer to the question in one sentence, limited to what the numbers support.

use hotrow_measure::statistics::{Comparison, ComparisonVerdict, Estimate, Spread, VALUES_MIN};

use super::bounds::Bound;
use super::labels::label;
use super::summary::{RowState, RowSummary, Run, Summary};
use hotrow_report::numbers::{bytes, number, percent, ratio, ratio_ends};
use hotrow_results::{Compare, Row};

/// Ratio from which it is stated as a multiple; below, as a percentage.
const MULTIPLE_FROM: f64 = 1.95;

/// Most further figures in an answer.
const FIGURES_MAX: usize = 4;

/// The figure by which two rows are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    /// Requests per second; more is better.
    Rate,
    /// CPU time per request without the generator; less is better. Used for two rows at the same
    /// requested rate, where the rate itself says nothing.
    Cpu,
}

impl Metric {
    pub(super) fn of(this: &Row, that: &Row) -> Self {
        if this.rate.is_some() && this.rate == that.rate { Self::Cpu } else { Self::Rate }
    }

    pub(super) fn figure(self, run: &Run<'_>) -> Option<f64> {
        match self {
            Self::Rate => Some(run.load.rps),
            Self::Cpu => run.served_cpu_us_per_request(),
        }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Result of this run.
    pub(super) statement: String,
    /// Caveats and the published result; may be empty.
    pub(super) caveats: String,
}

impl Answer {
    fn unknown(claim: &str, why: &str) -> Self {
        Self {
            statement: format!("{claim} …: not known, because {why}."), caveats: String::new()
        }
    }
}

/// Returns the answer of a comparison.
pub(super) fn answer(compare: &Compare, summary: &Summary<'_>) -> Answer {
    let claim = compare.claim.trim();
    let (this, that) = match (summary.row(&compare.row), summary.row(&compare.with)) {
        (Some(this), Some(that)) => (this, that),
        (None, _) => return Answer::unknown(claim, &format!("there is no row {:?}", compare.row)),
        (_, None) => return Answer::unknown(claim, &format!("there is no row {:?}", compare.with)),
    };
    if let Some(name) = &compare.figure {
        return by_figure(claim, name, [this, that], summary);
    }
    let metric = Metric::of(this.row, that.row);
    let Some(found) = this.over(that, |run| metric.figure(run)) else {
        return Answer::unknown(claim, &why_not([this, that], summary));
    };
    // CPU time per request does not depend on whether the generator could send more.
    let bound = if metric == Metric::Rate { Bound::of_ratio(this, that) } else { Bound::Exact };
    let bound_sentence = match bound {
        Bound::Exact | Bound::Unknown => "",
        Bound::AtLeast => {
            "The generator was the limit of the first, so that the true ratio may be larger."
        }
        Bound::AtMost => {
            "The generator was the limit of the second, so that the true ratio may be smaller."
        }
    };
    let (published_sentence, figures) = (published(this.row, that.row), figures(this, that));
    let cost = if metric == Metric::Rate { cost(this, that) } else { String::new() };
    let more = [cost.as_str(), &figures, bound_sentence, &published_sentence];
    let caveats: Vec<&str> = more.into_iter().filter(|words| !words.is_empty()).collect();
    let statement = if bound == Bound::Unknown {
        Answer::unknown(claim, &limited_both(this, that)).statement
    } else {
        format!("{claim} {}.", phrase(&found, metric, bound))
    };
    Answer { statement, caveats: caveats.join(" ") }
}

/// Explains why two rates that are both lower bounds have no ratio.
fn limited_both(this: &RowSummary<'_>, that: &RowSummary<'_>) -> String {
    let rate = |row: &RowSummary<'_>| number(row.rps().map_or(f64::NAN, |rps| rps.median));
    format!(
        "the generator was the limit of both: at least {} against at least {} requests/s",
        rate(this),
        rate(that)
    )
}

/// Returns the CPU cost beside the rate: it varies less, and shows a difference that another limit
/// hides.
fn cost(this: &RowSummary<'_>, that: &RowSummary<'_>) -> String {
    let found =
        this.over(that, |run| Metric::Cpu.figure(run)).filter(|found| found.ratio.is_finite());
    found
        .map(|found| format!("It {}.", phrase(&found, Metric::Cpu, Bound::Exact)))
        .unwrap_or_default()
}

/// Returns the answer from one of the service's own figures: both values, and whether they differ
/// beyond their spread.
fn by_figure(
    claim: &str,
    name: &str,
    sides: [&RowSummary<'_>; 2],
    summary: &Summary<'_>,
) -> Answer {
    let [Some(a), Some(b)] = sides.map(|row| row.estimate(|run| Some(run.figure_named(name)?.0)))
    else {
        let why = if sides.iter().any(|row| row.runs().is_empty()) {
            why_not(sides, summary)
        } else {
            format!("a row has no figure {name:?}")
        };
        return Answer::unknown(claim, &why);
    };
    let unit =
        sides[0].runs().iter().find_map(|run| Some(run.figure_named(name)?.1)).unwrap_or_default();
    let words = |of: &Estimate| {
        let ends = if of.low == of.high {
            String::new()
        } else {
            format!(" ({}–{})", with_unit(of.low, unit), with_unit(of.high, unit))
        };
        format!("{}{ends}", with_unit(of.median, unit))
    };
    let apart = a.low > b.high || a.high < b.low;
    let caveat = match (a.spread, b.spread) {
        _ if !apart => ", which is no significant difference in this run",
        (Spread::Interval, Spread::Interval) => "",
        _ => ", but that is uncertain, because there were too few rounds",
    };
    Answer {
        statement: format!("{claim}: {name} {} against {}{caveat}.", words(&a), words(&b)),
        caveats: String::new(),
    }
}

/// Formats a figure with its unit.
pub(super) fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "" => number(value),
        "B" => bytes(value),
        _ => format!("{} {unit}", number(value)),
    }
}

/// Describes a ratio that is exact, or a bound.
fn phrase(found: &Comparison, metric: Metric, bound: Bound) -> String {
    let at = bound.words();
    let times = ratio(found.ratio);
    let ends = ratio_ends(found.low, found.high, "–");
    match found.verdict {
        ComparisonVerdict::Faster | ComparisonVerdict::Slower => match (metric, found.ratio) {
            (Metric::Rate, r) if r >= MULTIPLE_FROM => {
                format!("{at}{times} times as fast (95 %: {ends})")
            }
            (Metric::Rate, r) => {
                let (way, of_way) =
                    if r > 1.0 { ("faster", bound) } else { ("slower", bound.inverse()) };
                format!(
                    "{}{} {way} ({at}{times} times as fast; 95 %: {ends})",
                    of_way.words(),
                    percent((r - 1.0).abs())
                )
            }
            (Metric::Cpu, r) if r >= MULTIPLE_FROM => {
                format!("cost {times} times as much CPU per request (95 %: {ends})")
            }
            (Metric::Cpu, r) => {
                let way = if r > 1.0 { "more" } else { "less" };
                format!(
                    "cost {} {way} CPU per request ({times} times as much; 95 %: {ends})",
                    percent((r - 1.0).abs())
                )
            }
        },
        ComparisonVerdict::NoDifferenceShown => {
            let neither = match (metric, bound) {
                (Metric::Rate, Bound::AtLeast) => "at least as fast",
                (Metric::Rate, Bound::AtMost) => "at most as fast",
                (Metric::Rate, _) => "neither faster nor slower",
                (Metric::Cpu, _) => "cost neither more nor less CPU per request",
            };
            format!("{neither}, within the accuracy of this run (ratio {at}{times}; 95 %: {ends})")
        }
        ComparisonVerdict::TooFew => {
            let what = match metric {
                Metric::Rate if bound == Bound::Exact => format!("about {times} times as fast"),
                Metric::Rate => format!("{at}{times} times as fast"),
                Metric::Cpu => format!("cost about {times} times as much CPU per request"),
            };
            let seen = match found.values {
                1 => "1 round is too few".to_owned(),
                n => format!("{n} rounds are too few; range {ends}"),
            };
            format!("{what}, but that is uncertain ({seen}; {VALUES_MIN} are needed)")
        }
    }
}

fn published(this: &Row, that: &Row) -> String {
    match (this.published_rps, that.published_rps) {
        (Some(a), Some(b)) if a > 0.0 && b > 0.0 => {
            let (times, a, b) = (ratio(a / b), number(a), number(b));
            format!("The published ratio is {times} ({a} against {b} requests/s).")
        }
        _ => String::new(),
    }
}

/// Returns further figures that both rows have.
fn figures(this: &RowSummary<'_>, that: &RowSummary<'_>) -> String {
    let Some(run) = this.runs().first() else { return String::new() };
    let shown = run.of.figures.iter().take(FIGURES_MAX).filter_map(|(name, _, unit)| {
        let of = |row: &RowSummary<'_>| {
            row.median(|run| run.figure(name, unit)).filter(|value| value.is_finite())
        };
        Some(format!(
            "{name} {} against {}",
            with_unit(of(this)?, unit),
            with_unit(of(that)?, unit)
        ))
    });
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { String::new() } else { format!("Further figures: {}.", shown.join("; ")) }
}

fn why_not(sides: [&RowSummary<'_>; 2], summary: &Summary<'_>) -> String {
    let all: Vec<&Row> = summary.rows.iter().map(|row| row.row).collect();
    let side = sides.iter().find_map(|side| match &side.state {
        RowState::Failed(_) => Some(format!("{} failed", label(side.row, &all))),
        RowState::Missing => Some(format!("{} was not measured", label(side.row, &all))),
        RowState::Measured(_) => None,
    });
    side.unwrap_or_else(|| "no round has both".to_owned())
}

/// Returns the answer without a comparison: the fastest and the slowest row.
pub(super) fn without_question(summary: &Summary<'_>) -> String {
    let all: Vec<&Row> = summary.rows.iter().map(|row| row.row).collect();
    let mut rates: Vec<(f64, &RowSummary<'_>)> =
        summary.rows.iter().filter_map(|row| Some((row.rps()?.median, row))).collect();
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let rate = |(rps, row): &(f64, &RowSummary<'_>)| {
        format!("{}{}", Bound::of_rate(row).words(), number(*rps))
    };
    let name = |(_, row): &(f64, &RowSummary<'_>)| label(row.row, &all);
    match rates.as_slice() {
        [] => "There is no valid measurement.".to_owned(),
        [only] => format!("{}: {} requests/s.", name(only), rate(only)),
        [slowest, .., fastest] => format!(
            "From {} requests/s ({}) to {} ({}).",
            rate(slowest),
            name(slowest),
            rate(fastest),
            name(fastest)
        ),
    }
}
