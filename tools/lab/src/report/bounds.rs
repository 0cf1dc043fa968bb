//! Bounds: where the generator was the bottleneck, a rate is a lower bound, and a ratio of rates a
//! bound or unknown.

use hotrow_measure::statistics::ComparisonVerdict;

use super::summary::RowSummary;

/// What a figure says about the true value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// The value itself.
    Exact,
    /// The true value may be larger.
    AtLeast,
    /// The true value may be smaller.
    AtMost,
    /// Nothing.
    Unknown,
}

impl Bound {
    /// Returns the bound of a row's rate.
    pub(super) fn of_rate(row: &RowSummary<'_>) -> Self {
        if row.generator_limited() { Self::AtLeast } else { Self::Exact }
    }

    /// Returns the bound of the ratio of two rows' rates.
    pub(super) fn of_ratio(this: &RowSummary<'_>, that: &RowSummary<'_>) -> Self {
        match (Self::of_rate(this), Self::of_rate(that)) {
            (Self::AtLeast, Self::AtLeast) => Self::Unknown,
            (Self::AtLeast, _) => Self::AtLeast,
            (_, Self::AtLeast) => Self::AtMost,
            _ => Self::Exact,
        }
    }

    /// Returns the bound of a figure that falls when this one rises.
    pub(super) fn inverse(self) -> Self {
        match self {
            Self::AtLeast => Self::AtMost,
            Self::AtMost => Self::AtLeast,
            same => same,
        }
    }

    /// Returns the sign before a figure in a table.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::AtLeast => "≥ ",
            Self::AtMost => "≤ ",
            Self::Exact | Self::Unknown => "",
        }
    }

    /// Returns the words before a figure in a sentence.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::AtLeast => "at least ",
            Self::AtMost => "at most ",
            Self::Exact | Self::Unknown => "",
        }
    }

    /// Returns whether a verdict on figures with this bound holds for the true values.
    pub(super) fn supports(self, verdict: ComparisonVerdict) -> bool {
        match verdict {
            ComparisonVerdict::Faster => matches!(self, Self::Exact | Self::AtLeast),
            ComparisonVerdict::Slower => matches!(self, Self::Exact | Self::AtMost),
            ComparisonVerdict::NoDifferenceShown => self == Self::Exact,
            ComparisonVerdict::TooFew => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::Summary;
    use super::super::tests::fixture;
    use super::*;

    #[test]
    fn a_ratio_has_the_bound_of_its_rates() {
        for (this, that, expected) in [
            (false, false, Bound::Exact),
            (true, false, Bound::AtLeast),
            (false, true, Bound::AtMost),
            (true, true, Bound::Unknown),
        ] {
            let mut results = fixture::results(1);
            for measurement in &mut results.measurements {
                let limited = match measurement.row.as_str() {
                    "direct/date/6" => this,
                    "weights/date/6" => that,
                    _ => false,
                };
                measurement.load.as_mut().unwrap().generator_limited = limited;
            }
            let summary = Summary::of(&results);
            let row = |id| summary.row(id).unwrap();
            let found = Bound::of_ratio(row("direct/date/6"), row("weights/date/6"));
            assert_eq!(found, expected);
            assert_eq!(found.inverse().inverse(), found);
        }
    }

    #[test]
    fn only_a_bound_in_its_direction_supports_a_verdict() {
        use ComparisonVerdict::{Faster, NoDifferenceShown, Slower};
        assert!(Bound::AtLeast.supports(Faster) && !Bound::AtLeast.supports(Slower));
        assert!(Bound::AtMost.supports(Slower) && !Bound::AtMost.supports(Faster));
        for verdict in [Faster, Slower, NoDifferenceShown] {
            assert!(Bound::Exact.supports(verdict) && !Bound::Unknown.supports(verdict));
        }
    }
}
