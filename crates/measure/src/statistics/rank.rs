//! The rank test of Mann and Whitney ("On a Test of Whether one of Two Random Variables is
//! Stochastically Larger than the Other", 1947).

/// Up to this many values on both sides together, every assignment of ranks is counted. Beyond, the
/// normal distribution approximates the count.
const COUNTED_VALUES_MAX: usize = 40;

/// Returns the probability of ranks at least this far apart if both sides were alike, two-sided, 0
/// to 1; `None` when a side is empty. Values must be numbers.
///
/// Up to 40 values it is exact, also with ties: every assignment of the ranks is counted. Beyond,
/// it is the normal approximation with the corrections for ties (Lehmann, "Nonparametrics", 1975,
/// section 1.4) and for continuity.
pub fn mann_whitney(these: &[f64], those: &[f64]) -> Option<f64> {
    if these.is_empty() || those.is_empty() {
        return None;
    }
    let ranks = doubled_ranks(these, those);
    let of_these: u64 = ranks[..these.len()].iter().sum();
    Some(if ranks.len() <= COUNTED_VALUES_MAX {
        exact(&ranks, these.len(), of_these)
    } else {
        approximate(&ranks, these.len(), of_these)
    })
}

/// Returns twice the rank of each value among all, from 2 on. Equal values share their mean rank,
/// so twice that is whole.
fn doubled_ranks(these: &[f64], those: &[f64]) -> Vec<u64> {
    let values: Vec<f64> = these.iter().chain(those).copied().collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0; values.len()];
    let mut first = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let last = first + equal.len() - 1;
        equal.iter().for_each(|at| ranks[*at] = (first + last + 2) as u64);
        first = last + 1;
    }
    ranks
}

/// Counts the choices of `n` ranks by their sum: `ways[k][s]` for `k` ranks with sum `s`. The
/// largest count is 40 over 20, about 1.4 · 10¹¹, so `f64` holds each count exactly.
fn exact(ranks: &[u64], n: usize, of_these: u64) -> f64 {
    let total: u64 = ranks.iter().sum();
    let mut ways = vec![vec![0.0; total as usize + 1]; n + 1];
    ways[0][0] = 1.0;
    for rank in ranks {
        let rank = *rank as usize;
        for k in (1..=n).rev() {
            let (fewer, more) = ways.split_at_mut(k);
            for (sum, without) in fewer[k - 1].iter().enumerate().take(total as usize + 1 - rank) {
                more[0][sum + rank] += without;
            }
        }
    }
    let sums = &ways[n];
    let all: f64 = sums.iter().sum();
    let low: f64 = sums[..=of_these as usize].iter().sum();
    let high: f64 = sums[of_these as usize..].iter().sum();
    (2.0 * low.min(high) / all).min(1.0)
}

/// The approximation for any number of values.
#[cfg(test)]
pub(super) fn approximate_for_test(these: &[f64], those: &[f64]) -> f64 {
    let ranks = doubled_ranks(these, those);
    approximate(&ranks, these.len(), ranks[..these.len()].iter().sum())
}

fn approximate(ranks: &[u64], n: usize, of_these: u64) -> f64 {
    let n = n as f64;
    let all = ranks.len() as f64;
    let m = all - n;
    let u = of_these as f64 / 2.0 - n * (n + 1.0) / 2.0;
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    let ties: f64 = sorted
        .chunk_by(|a, b| a == b)
        .map(|equal| (equal.len() as f64).powi(3) - equal.len() as f64)
        .sum();
    let variance = n * m / 12.0 * ((all + 1.0) - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * (1.0 - normal_cdf(z))).min(1.0)
}

/// Returns the share of the normal distribution below `z`, to about 10⁻⁷ (Numerical Recipes, second
/// edition, section 6.2, `erfcc`).
pub(super) fn normal_cdf(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    let series = [
        0.170_872_77,
        -0.822_152_23,
        1.488_515_87,
        -1.135_203_98,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_68,
        -1.265_512_23,
    ];
    let exponent = series.iter().fold(0.0, |sum, factor| sum * t + factor);
    let upper = 0.5 * t * (-x * x + exponent).exp();
    if z > 0.0 { 1.0 - upper } else { upper }
}
