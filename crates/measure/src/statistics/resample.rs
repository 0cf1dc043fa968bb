//! Resampling with replacement.

use crate::random::SplitMix64;

/// A source of resampled medians: equal seeds give equal samples.
#[derive(Debug)]
pub(super) struct Resampler {
    random: SplitMix64,
    these: Vec<f64>,
    those: Vec<f64>,
}

impl Resampler {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: SplitMix64(seed), these: Vec::new(), those: Vec::new() }
    }

    /// Returns the median of a resample of `values`, of equal size.
    pub(super) fn median_of(&mut self, values: &[f64]) -> Option<f64> {
        self.these.clear();
        for _ in 0..values.len() {
            let value = values[self.below(values.len())];
            self.these.push(value);
        }
        middle(&mut self.these)
    }

    /// Returns the ratio of the medians of resampled pairs.
    pub(super) fn ratio_of_pairs(&mut self, these: &[f64], those: &[f64]) -> Option<f64> {
        self.these.clear();
        self.those.clear();
        let n = these.len().min(those.len());
        for _ in 0..n {
            let at = self.below(n);
            self.these.push(these[at]);
            self.those.push(those[at]);
        }
        Some(middle(&mut self.these)? / middle(&mut self.those)?)
    }

    /// Returns a uniform number from 0 to `n` − 1.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.random.below(n as u64) as usize
    }
}

/// Returns the median without a full sort.
fn middle(values: &mut [f64]) -> Option<f64> {
    let half = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    let upper = *upper;
    // With an even count, the lower of the two middle values is the largest below the upper one.
    let lower = if even { below.iter().copied().fold(f64::NEG_INFINITY, f64::max) } else { upper };
    Some((lower + upper) / 2.0)
}
