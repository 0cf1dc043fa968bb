//! Statistics for a noisy machine: medians with bootstrap intervals, and tests for differences.
//!
//! Intervals cover 95 % and come from the bootstrap: rounds are resampled with replacement,
//! [`RESAMPLES`] times, from a seed, so that equal figures give equal intervals. They are *expanded
//! percentile* intervals (Hesterberg, "What Teachers Should Know About the Bootstrap", The American
//! Statistician 69, 2015, section 5.3): plain percentile intervals are too narrow for few values,
//! by about the factor between Student's t and the normal distribution. Ratios are bootstrapped
//! over rounds in which both sides were measured one after the other, so that a disturbance of a
//! whole round affects both sides and cancels (Bulej et al., "Duet Benchmarking", ICPE 2020).

mod rank;
mod resample;

use self::resample::Resampler;
pub use rank::mann_whitney;

/// Fewer values than this have no interval. The smallest and the largest of 5 values enclose the
/// true median in 94 % of all cases (1 − 2 · 0.5⁵), those of 4 in 88 %.
pub const VALUES_MIN: usize = 5;
/// An interval closer to 1 than this shows no difference. The order of the sides within a round, or
/// the placement of a program's pages, causes differences of this size that no interval covers.
pub const DIFFERENCE_MIN: f64 = 0.005;
/// Number of bootstrap resamples.
pub const RESAMPLES: usize = 2_000;

/// A median with its interval or range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// Lower end of [`Estimate::spread`].
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// The meaning of `low` and `high`.
    pub spread: Spread,
    /// Number of values behind the estimate.
    pub values: usize,
}

/// The meaning of the two bounds of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// A 95 % interval.
    Interval,
    /// The smallest and the largest of fewer than [`VALUES_MIN`] values: no statement about other
    /// values.
    Range,
}

/// The ratio of one side to the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Median of this side over the median of the other.
    pub ratio: f64,
    /// Lower bound of the ratio's 95 % interval; with [`ComparisonVerdict::TooFew`] the smallest
    /// ratio seen.
    pub low: f64,
    /// Upper bound; with [`ComparisonVerdict::TooFew`] the largest ratio seen.
    pub high: f64,
    /// Probability of rank sums at least this far apart if both sides were alike (Mann–Whitney,
    /// two-sided). It ignores pairs, so it can miss a difference that the interval of a paired
    /// comparison shows.
    pub p: f64,
    /// The conclusion.
    pub verdict: ComparisonVerdict,
    /// Number of values of the side with fewer.
    pub values: usize,
}

/// Verdict on the difference of two sides, for figures of which more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonVerdict {
    /// This side is faster: the whole interval lies above 1 + [`DIFFERENCE_MIN`].
    Faster,
    /// This side is slower: the whole interval lies below 1 − [`DIFFERENCE_MIN`].
    Slower,
    /// The interval includes 1 or comes close to it. A difference smaller than the interval shows
    /// may exist.
    NoDifferenceShown,
    /// Fewer than [`VALUES_MIN`] values.
    TooFew,
}

/// Returns the middle value, or the mean of the two middle values; `None` without values. Values
/// must be numbers.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Returns the value below which a share of `quantile` (0 to 1) lies, interpolated between
/// neighbours (type 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996, the
/// default of R and NumPy); `None` without values. Values must be numbers.
pub fn quantile(values: &[f64], quantile: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, quantile)
}

fn quantile_of_sorted(sorted: &[f64], quantile: f64) -> Option<f64> {
    let at = quantile.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let below = sorted.get(at.floor() as usize)?;
    let above = sorted.get(at.ceil() as usize)?;
    Some(below + (above - below) * at.fract())
}

/// Returns the median with its interval; `None` without values. Values that are not finite are left
/// out.
pub fn estimate(values: &[f64], seed: u64) -> Option<Estimate> {
    let mut values: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let n = values.len();
    let middle = median(&values)?;
    let (low, high, spread) = if n < VALUES_MIN {
        values.sort_by(f64::total_cmp);
        (values[0], values[n - 1], Spread::Range)
    } else {
        let mut resampler = Resampler::new(seed);
        let medians = (0..RESAMPLES).filter_map(|_| resampler.median_of(&values)).collect();
        let (low, high) = interval(medians, n)?;
        (low, high, Spread::Interval)
    };
    Some(Estimate { median: middle, low, high, spread, values: n })
}

/// Compares paired values, one pair per round: `(this, that)`. Pairs without two finite positive
/// numbers are left out; `None` without any pair.
pub fn compare_paired(pairs: &[(f64, f64)], seed: u64) -> Option<Comparison> {
    let pairs: Vec<(f64, f64)> =
        pairs.iter().copied().filter(|(a, b)| positive(*a) && positive(*b)).collect();
    let (these, those): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let ratio = median(&these)? / median(&those)?;
    let p = mann_whitney(&these, &those)?;
    let n = pairs.len();
    if n < VALUES_MIN {
        return Some(too_few(ratio, pairs.iter().map(|(a, b)| a / b), p, n));
    }
    let mut resampler = Resampler::new(seed);
    let ratios = (0..RESAMPLES).filter_map(|_| resampler.ratio_of_pairs(&these, &those)).collect();
    let (low, high) = interval(ratios, n)?;
    Some(Comparison { ratio, low, high, p, verdict: judge(low, high), values: n })
}

/// Compares unpaired values. Reports a difference only when Mann–Whitney finds one too (p below
/// 0.05). Values that are not finite and positive are left out; `None` when a side is empty.
pub fn compare(these: &[f64], those: &[f64], seed: u64) -> Option<Comparison> {
    let kept =
        |values: &[f64]| values.iter().copied().filter(|v| positive(*v)).collect::<Vec<f64>>();
    let these = kept(these);
    let those = kept(those);
    let ratio = median(&these)? / median(&those)?;
    let p = mann_whitney(&these, &those)?;
    let n = these.len().min(those.len());
    if n < VALUES_MIN {
        let all = these.iter().flat_map(|a| those.iter().map(move |b| a / b));
        return Some(too_few(ratio, all, p, n));
    }
    let mut resampler = Resampler::new(seed);
    let ratios = (0..RESAMPLES)
        .filter_map(|_| Some(resampler.median_of(&these)? / resampler.median_of(&those)?));
    let (low, high) = interval(ratios.collect(), n)?;
    let verdict =
        if p < 1.0 - CONFIDENCE { judge(low, high) } else { ComparisonVerdict::NoDifferenceShown };
    Some(Comparison { ratio, low, high, p, verdict, values: n })
}

const CONFIDENCE: f64 = 0.95;

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn judge(low: f64, high: f64) -> ComparisonVerdict {
    if low > 1.0 + DIFFERENCE_MIN {
        ComparisonVerdict::Faster
    } else if high < 1.0 - DIFFERENCE_MIN {
        ComparisonVerdict::Slower
    } else {
        ComparisonVerdict::NoDifferenceShown
    }
}

fn too_few(ratio: f64, seen: impl Iterator<Item = f64>, p: f64, values: usize) -> Comparison {
    let (low, high) = seen.fold((ratio, ratio), |(low, high), r| (low.min(r), high.max(r)));
    Comparison { ratio, low, high, p, verdict: ComparisonVerdict::TooFew, values }
}

/// Returns the expanded percentile interval of statistics resampled from `n` values.
fn interval(mut resampled: Vec<f64>, n: usize) -> Option<(f64, f64)> {
    resampled.sort_by(f64::total_cmp);
    let freedom = (n - 1) as f64;
    let tail = 1.0 - rank::normal_cdf((n as f64 / freedom).sqrt() * student_t_975(freedom));
    Some((quantile_of_sorted(&resampled, tail)?, quantile_of_sorted(&resampled, 1.0 - tail)?))
}

/// Returns the 97.5 % point of Student's t, by the series of Abramowitz and Stegun, 26.7.5; within
/// 0.3 % from 4 degrees of freedom on.
fn student_t_975(freedom: f64) -> f64 {
    const Z: f64 = 1.959_963_985;
    let z = |power: i32| Z.powi(power);
    let terms = [
        (z(3) + Z) / 4.0,
        (5.0 * z(5) + 16.0 * z(3) + 3.0 * Z) / 96.0,
        (3.0 * z(7) + 19.0 * z(5) + 17.0 * z(3) - 15.0 * Z) / 384.0,
    ];
    terms.iter().zip(1..).fold(Z, |sum, (term, power)| sum + term / freedom.powi(power))
}

#[cfg(test)]
mod tests;
