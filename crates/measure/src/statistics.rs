//! Statistics for a noisy machine: medians with bootstrap intervals, and whether two things differ.
//!
//! Intervals are of 95 % and found by the bootstrap: rounds are drawn again with replacement, [`RESAMPLES`] times, from a
//! seed, so that the same figures give the same interval. They are *expanded percentile* intervals (Hesterberg, "What
//! Teachers Should Know About the Bootstrap", The American Statistician 69, 2015, section 5.3): plain percentile
//! intervals are too narrow for few values, by about the factor between Student's t and the normal distribution.
//! Ratios are bootstrapped over rounds in which both sides were measured one after the other, so that what disturbs a
//! whole round touches both sides and cancels (Bulej et al., "Duet Benchmarking", ICPE 2020).

mod rank;
mod resample;

use self::resample::Resampler;
pub use rank::mann_whitney;

/// Fewer values than this have no interval: of 5, the least and the largest hold the true median between them in 94 % of
/// all cases (1 − 2 · 0.5⁵), of 4 in 88 %.
pub const VALUES_MIN: usize = 5;
/// An interval that comes this close to 1 tells no difference: the order of the sides within a round, or where a program's
/// pages happened to lie, make as much, and no interval knows of them.
pub const DIFFERENCE_MIN: f64 = 0.005;
/// How often values are drawn again.
pub const RESAMPLES: usize = 2_000;

/// A median and how far it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// Lower end of [`Estimate::spread`].
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// What `low` and `high` are.
    pub spread: Spread,
    /// Values that it was made from.
    pub values: usize,
}

/// What two ends mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// An interval of 95 %.
    Interval,
    /// The least and the largest of fewer than [`VALUES_MIN`] values: no statement about others.
    Range,
}

/// One side over the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Median of this over the median of that.
    pub ratio: f64,
    /// Lower end of the ratio's interval of 95 %; with [`Verdict::TooFew`] the least ratio that was seen.
    pub low: f64,
    /// Upper end; with [`Verdict::TooFew`] the largest ratio that was seen.
    pub high: f64,
    /// Chance of ranks as far apart as these if both sides were alike (Mann–Whitney, two-sided). It knows nothing of pairs, so
    /// it can miss what the interval of a paired comparison shows.
    pub p: f64,
    /// What can be said.
    pub verdict: Verdict,
    /// Values, of the side that has fewer.
    pub values: usize,
}

/// Whether two sides differ, for figures of which more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This side is faster: the whole interval lies above 1 + [`DIFFERENCE_MIN`].
    Faster,
    /// This side is slower: the whole interval lies below 1 − [`DIFFERENCE_MIN`].
    Slower,
    /// The interval holds 1, or comes close to it. There may be a difference that is smaller than it shows.
    NoDifferenceShown,
    /// Fewer than [`VALUES_MIN`] values.
    TooFew,
}

/// The middle value, or the mean of the two in the middle; none without values. Values must be numbers.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which a share of `quantile` (0 to 1) lies, interpolated between neighbours (type 7 of Hyndman and Fan,
/// "Sample Quantiles in Statistical Packages", 1996, which R and NumPy use); none without values. Values must be numbers.
#[must_use]
pub fn quantile(values: &[f64], quantile: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, quantile)
}

fn quantile_of_sorted(sorted: &[f64], quantile: f64) -> Option<f64> {
    let at = quantile.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted.get(at.floor() as usize)?, sorted.get(at.ceil() as usize)?);
    Some(below + (above - below) * at.fract())
}

/// The median with its interval; none without values. Values that are no finite numbers are left out.
#[must_use]
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

/// Compares values that belong together in pairs, one per round: `(this, that)`. Pairs with something else than two finite
/// positive numbers are left out; none without any.
#[must_use]
pub fn compare_paired(pairs: &[(f64, f64)], seed: u64) -> Option<Comparison> {
    let pairs: Vec<(f64, f64)> = pairs.iter().copied().filter(|(a, b)| positive(*a) && positive(*b)).collect();
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

/// Compares values that do not belong together. A difference is only told when Mann–Whitney too finds one (p below 0.05).
/// Values that are no finite positive numbers are left out; none when a side has no others.
#[must_use]
pub fn compare(these: &[f64], those: &[f64], seed: u64) -> Option<Comparison> {
    let kept = |values: &[f64]| values.iter().copied().filter(|v| positive(*v)).collect::<Vec<f64>>();
    let (these, those) = (kept(these), kept(those));
    let ratio = median(&these)? / median(&those)?;
    let p = mann_whitney(&these, &those)?;
    let n = these.len().min(those.len());
    if n < VALUES_MIN {
        let all = these.iter().flat_map(|a| those.iter().map(move |b| a / b));
        return Some(too_few(ratio, all, p, n));
    }
    let mut resampler = Resampler::new(seed);
    let ratios = (0..RESAMPLES).filter_map(|_| Some(resampler.median_of(&these)? / resampler.median_of(&those)?));
    let (low, high) = interval(ratios.collect(), n)?;
    let verdict = if p < 1.0 - CONFIDENCE { judge(low, high) } else { Verdict::NoDifferenceShown };
    Some(Comparison { ratio, low, high, p, verdict, values: n })
}

const CONFIDENCE: f64 = 0.95;

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn judge(low: f64, high: f64) -> Verdict {
    if low > 1.0 + DIFFERENCE_MIN {
        Verdict::Faster
    } else if high < 1.0 - DIFFERENCE_MIN {
        Verdict::Slower
    } else {
        Verdict::NoDifferenceShown
    }
}

fn too_few(ratio: f64, seen: impl Iterator<Item = f64>, p: f64, values: usize) -> Comparison {
    let (low, high) = seen.fold((ratio, ratio), |(low, high), r| (low.min(r), high.max(r)));
    Comparison { ratio, low, high, p, verdict: Verdict::TooFew, values }
}

/// The expanded percentile interval of statistics that were resampled from `n` values.
fn interval(mut resampled: Vec<f64>, n: usize) -> Option<(f64, f64)> {
    resampled.sort_by(f64::total_cmp);
    let freedom = (n - 1) as f64;
    let tail = 1.0 - rank::normal_cdf((n as f64 / freedom).sqrt() * student_t_975(freedom));
    Some((quantile_of_sorted(&resampled, tail)?, quantile_of_sorted(&resampled, 1.0 - tail)?))
}

/// The 97.5 % point of Student's t, by the series of Abramowitz and Stegun, 26.7.5; from 4 degrees of freedom on within 0.3 %.
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
