//! Log-linear histograms of `u64` values (nanoseconds, bytes, keys per query).
//!
//! Each power of two is cut into [`SUB_BUCKETS`] equal buckets, the layout of HdrHistogram. Every
//! `u64` has a bucket. A reported value is at most 1/[`SUB_BUCKETS`] too high and never too low;
//! values below 2 × [`SUB_BUCKETS`] are exact. Every histogram takes [`BUCKETS`] × 8 bytes (30 kB).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets per power of two; the relative error is at most one over this.
pub const SUB_BUCKETS: u64 = 1 << SUB_BITS;
/// Buckets of one histogram.
pub const BUCKETS: usize = ((64 - SUB_BITS as usize) + 1) << SUB_BITS;
const SUB_BITS: u32 = 6;

/// A histogram with one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    sum: u128,
    max: u64,
}

/// A histogram that one thread writes and any thread copies. Recording is loads and stores, without
/// locked instructions. Two concurrent writers lose samples and do no other harm.
#[derive(Debug)]
pub struct SharedHistogram {
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
    max: AtomicU64,
}

/// A bucket that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The smallest value that it counts.
    pub low: u64,
    /// The largest value that it counts.
    pub high: u64,
    /// Samples in it.
    pub count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS].into_boxed_slice(), count: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Adds one sample.
    pub fn record(&mut self, value: u64) {
        self.buckets[index_of(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Adds `n` samples of the same value.
    pub fn record_n(&mut self, value: u64, n: u64) {
        if n > 0 {
            self.buckets[index_of(value)] += n;
            self.count += n;
            self.sum += u128::from(value) * u128::from(n);
            self.max = self.max.max(value);
        }
    }

    /// Adds every sample of `other`, as if each had been recorded here.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Returns the samples added since `earlier`, a copy of the same histogram. A bucket that has
    /// lost samples since then counts as empty. The maximum is that of the last bucket with a
    /// sample, at most 1/[`SUB_BUCKETS`] too high.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        let buckets: Box<[u64]> = pairs.map(|(now, before)| now.saturating_sub(*before)).collect();
        let last = buckets.iter().rposition(|n| *n > 0);
        Self {
            count: buckets.iter().sum(),
            sum: self.sum.saturating_sub(earlier.sum),
            max: last.map_or(0, |index| high_of(index).min(self.max)),
            buckets,
        }
    }

    /// Returns the number of samples.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the exact sum of the samples.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Returns the largest sample, exact; 0 without samples.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the mean, exact but for the rounding of the division; `None` without samples.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// Returns the smallest value that at least `quantile` (0 to 1) of the samples do not exceed,
    /// at most 1/[`SUB_BUCKETS`] too high and never above [`Histogram::max`]; `None` without
    /// samples. This is the nearest-rank definition: 0 gives the smallest sample, 1 the largest.
    pub fn value_at_quantile(&self, quantile: f64) -> Option<u64> {
        self.value_at_rank(rank_of(quantile, self.count))
    }

    /// Returns the `rank`-th smallest sample (the smallest is the first), with the error of
    /// [`Histogram::value_at_quantile`]; `None` when there are fewer.
    pub fn value_at_rank(&self, rank: u64) -> Option<u64> {
        if rank == 0 || rank > self.count {
            return None;
        }
        let mut seen = 0;
        for (index, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return Some(high_of(index).min(self.max));
            }
        }
        Some(self.max)
    }

    /// Returns how many samples are at most `value`. All samples in the bucket of `value` count as
    /// at most `value`.
    pub fn count_up_to(&self, value: u64) -> u64 {
        self.buckets[..=index_of(value)].iter().sum()
    }

    /// Iterates over the buckets that are not empty, by rising value.
    pub fn iter(&self) -> impl Iterator<Item = Bucket> + '_ {
        let filled = self.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
        filled.map(|(index, n)| Bucket { low: low_of(index), high: high_of(index), count: *n })
    }
}

impl Default for SharedHistogram {
    fn default() -> Self {
        let buckets = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        Self { buckets, sum: AtomicU64::new(0), max: AtomicU64::new(0) }
    }
}

impl SharedHistogram {
    /// Adds one sample. Only the writing thread may call this.
    #[inline]
    pub fn record(&self, value: u64) {
        self.record_n(value, 1);
    }

    /// Adds `n` equal samples. Only the writing thread may call this.
    #[inline]
    pub fn record_n(&self, value: u64, n: u64) {
        let bucket = &self.buckets[index_of(value)];
        bucket.store(bucket.load(Relaxed) + n, Relaxed);
        let sum = self.sum.load(Relaxed).saturating_add(value.saturating_mul(n));
        self.sum.store(sum, Relaxed);
        if value > self.max.load(Relaxed) {
            self.max.store(value, Relaxed);
        }
    }

    /// Returns an approximate copy; any thread may call this. Its count is that of its buckets. Sum
    /// and maximum may lag or lead by the samples recorded during the copy. The sum saturates at
    /// 2⁶⁴ − 1.
    pub fn snapshot(&self) -> Histogram {
        let buckets: Box<[u64]> = self.buckets.iter().map(|n| n.load(Relaxed)).collect();
        let count = buckets.iter().sum();
        Histogram {
            buckets,
            count,
            sum: u128::from(self.sum.load(Relaxed)),
            max: self.max.load(Relaxed),
        }
    }
}

/// Returns the nearest rank of `quantile` (0 to 1) among `count` samples: from 1 to `count`.
pub fn rank_of(quantile: f64, count: u64) -> u64 {
    ((quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1))
}

/// Returns the bucket of `value`. Values of the first power of two with [`SUB_BUCKETS`] members,
/// and below, have a bucket each. Above, the leading bit chooses the group and the next
/// [`SUB_BITS`] bits the bucket.
#[inline]
fn index_of(value: u64) -> usize {
    let exponent = 63 - (value | 1).leading_zeros();
    let shift = exponent.saturating_sub(SUB_BITS);
    ((u64::from(shift) << SUB_BITS) + (value >> shift)) as usize
}

fn low_of(index: usize) -> u64 {
    let shift = (index as u64 >> SUB_BITS).saturating_sub(1);
    (index as u64 - (shift << SUB_BITS)) << shift
}

fn high_of(index: usize) -> u64 {
    let shift = (index as u64 >> SUB_BITS).saturating_sub(1);
    low_of(index) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests;
