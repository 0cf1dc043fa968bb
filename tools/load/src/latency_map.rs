//! Latency over time: counts by interval and latency, fine enough for a heat map and for a curve
//! with a point per interval, in bounded memory.

use hotrow_measure::histogram::rank_of;

/// Length of the first intervals, in ns.
const INTERVAL_MIN_NS: u64 = 100_000_000;
/// Most intervals. When a run is longer, pairs of intervals are merged and the length doubles: a
/// run of at most 12.8 s keeps intervals of 100 ms.
pub const INTERVALS_MAX: usize = 128;
/// Rows per factor of two; a value is at most one row, 4.4 %, too high.
const ROWS_PER_OCTAVE: u32 = 16;
/// The first row ends at 2^10 ns (1 µs), the last one at 2^38 ns (275 s).
const OCTAVE_MIN: u32 = 10;
const OCTAVES: u32 = 28;
/// Rows of an interval. Each map takes at most [`INTERVALS_MAX`] × this × 4 bytes (230 kB).
pub const ROWS: usize = (OCTAVES * ROWS_PER_OCTAVE) as usize + 1;

/// Requests by interval and latency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyMap {
    /// Length of every interval, in ns.
    interval_ns: u64,
    intervals: Vec<Interval>,
}

/// Requests that ended in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Requests without the expected response.
    pub failed: u64,
    /// Expected responses by latency; see [`row_ends_ns`].
    rows: Box<[u32]>,
}

impl Default for LatencyMap {
    fn default() -> Self {
        Self { interval_ns: INTERVAL_MIN_NS, intervals: Vec::new() }
    }
}

impl Default for Interval {
    fn default() -> Self {
        Self { failed: 0, rows: vec![0; ROWS].into_boxed_slice() }
    }
}

impl LatencyMap {
    /// Returns the length of an interval, in s.
    pub fn interval_s(&self) -> f64 {
        self.interval_ns as f64 / 1e9
    }

    /// Returns the intervals from the beginning of the measurement, without gaps.
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// Adds an expected response at `at_ns` from the beginning of the measurement.
    #[inline]
    pub(crate) fn answered(&mut self, at_ns: u64, latency_ns: u64) {
        let count = &mut self.interval(at_ns).rows[row_of(latency_ns)];
        *count = count.saturating_add(1);
    }

    /// Adds a request without the expected response.
    pub(crate) fn failed(&mut self, at_ns: u64) {
        self.interval(at_ns).failed += 1;
    }

    /// Adds all of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        while other.interval_ns < self.interval_ns {
            other.double();
        }
        while self.interval_ns < other.interval_ns {
            self.double();
        }
        let longest = self.intervals.len().max(other.intervals.len());
        self.intervals.resize_with(longest, Interval::default);
        self.intervals.iter_mut().zip(&other.intervals).for_each(|(mine, more)| mine.merge(more));
    }

    fn interval(&mut self, at_ns: u64) -> &mut Interval {
        let mut index = at_ns / self.interval_ns;
        while index >= INTERVALS_MAX as u64 {
            self.double();
            index = at_ns / self.interval_ns;
        }
        let index = index as usize;
        if index >= self.intervals.len() {
            self.intervals.resize_with(index + 1, Interval::default);
        }
        &mut self.intervals[index]
    }

    /// Merges pairs of intervals into intervals of twice the length.
    fn double(&mut self) {
        let mut merged: Vec<Interval> = Vec::with_capacity(INTERVALS_MAX);
        for (index, interval) in std::mem::take(&mut self.intervals).into_iter().enumerate() {
            match merged.last_mut() {
                Some(first) if index % 2 == 1 => first.merge(&interval),
                _ => merged.push(interval),
            }
        }
        self.intervals = merged;
        self.interval_ns = self.interval_ns.saturating_mul(2);
    }
}

impl Interval {
    /// Returns the number of expected responses.
    pub fn answered(&self) -> u64 {
        self.rows.iter().map(|count| u64::from(*count)).sum()
    }

    /// Returns the expected responses by latency; see [`row_ends_ns`].
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Returns the latency in ns at `quantile` (0 to 1) of all requests of the interval, at most
    /// one row too high; `None` without requests, or if it lies among those without the expected
    /// response.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let rank = rank_of(quantile, self.answered() + self.failed);
        let mut seen = 0;
        for (row, count) in self.rows.iter().enumerate() {
            seen += u64::from(*count);
            if rank > 0 && seen >= rank {
                return Some(row_end_ns(row));
            }
        }
        None
    }

    fn merge(&mut self, other: &Self) {
        self.failed += other.failed;
        for (mine, more) in self.rows.iter_mut().zip(&other.rows) {
            *mine = mine.saturating_add(*more);
        }
    }
}

/// Returns the upper ends of the rows, in ns; longer latencies are in the last row.
pub fn row_ends_ns() -> impl Iterator<Item = u64> {
    (0..ROWS).map(row_end_ns)
}

/// Returns the row of a latency: the first one for all up to 2^[`OCTAVE_MIN`] ns.
#[inline]
fn row_of(latency_ns: u64) -> usize {
    let octave = latency_ns.max(1).ilog2();
    if octave < OCTAVE_MIN {
        return 0;
    }
    let part = (latency_ns >> (octave - ROWS_PER_OCTAVE.ilog2())) as u32 - ROWS_PER_OCTAVE;
    let row = (octave - OCTAVE_MIN) * ROWS_PER_OCTAVE + part + 1;
    (row as usize).min(ROWS - 1)
}

fn row_end_ns(row: usize) -> u64 {
    let octave = row as u32 / ROWS_PER_OCTAVE + OCTAVE_MIN;
    let part = u64::from(row as u32 % ROWS_PER_OCTAVE);
    (1 << octave) + (part << (octave - ROWS_PER_OCTAVE.ilog2()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_below_the_end_of_its_row_and_close_to_it() {
        let mut before = 0;
        for ns in (0..400_000_u64).chain((0..30).map(|shift| 400_001 << shift)) {
            let row = row_of(ns);
            assert!(row >= before && row < ROWS, "{ns}: {row}");
            before = row;
            if (1 << OCTAVE_MIN..1 << (OCTAVE_MIN + OCTAVES)).contains(&ns) {
                let end = row_end_ns(row);
                assert!(end > ns && end <= ns + ns / 15, "{ns} in the row up to {end}");
            }
        }
        assert_eq!((row_of(0), row_of(1023), row_of(1024)), (0, 0, 1));
        assert_eq!((row_end_ns(0), row_of(u64::MAX)), (1024, ROWS - 1));
    }

    #[test]
    fn a_short_run_keeps_intervals_of_100_ms() {
        let mut map = LatencyMap::default();
        (0..128).for_each(|i| map.answered(i * INTERVAL_MIN_NS, 1_000_000));
        assert_eq!((map.interval_s(), map.intervals().len()), (0.1, INTERVALS_MAX));
        assert!(map.intervals().iter().all(|interval| interval.answered() == 1));
    }

    #[test]
    fn a_long_run_takes_no_more_memory_and_loses_nothing() {
        let mut map = LatencyMap::default();
        (0..5_000).for_each(|i| map.answered(i * INTERVAL_MIN_NS, 1_000_000));
        map.failed(u64::MAX / 2);
        assert!(map.intervals().len() <= INTERVALS_MAX);
        let all: u64 = map.intervals().iter().map(Interval::answered).sum();
        assert_eq!((all, map.intervals().last().unwrap().failed), (5_000, 1));
    }

    #[test]
    fn maps_of_different_intervals_are_merged_at_the_longer() {
        let mut short = LatencyMap::default();
        short.answered(250_000_000, 1_000);
        let mut long = LatencyMap::default();
        long.answered(0, 1_000);
        long.answered(20_000_000_000, 1_000_000);
        for (one, other) in [(&short, &long), (&long, &short)] {
            let mut sum = one.clone();
            sum.merge(other);
            assert_eq!(sum.interval_s(), 0.2);
            assert_eq!(sum.intervals()[0].answered(), 1);
            assert_eq!(sum.intervals()[1].answered(), 1);
            assert_eq!(sum.intervals()[100].answered(), 1);
        }
    }

    #[test]
    fn quantiles_count_requests_without_the_expected_response_as_the_longest() {
        let mut map = LatencyMap::default();
        (0..8).for_each(|_| map.answered(0, 1_000_000));
        (0..2).for_each(|_| map.failed(0));
        let interval = &map.intervals()[0];
        let p50 = interval.quantile_ns(0.5).unwrap();
        assert!((1_000_000..1_070_000).contains(&p50), "{p50}");
        assert_eq!(interval.quantile_ns(0.9), None);
        assert_eq!(Interval::default().quantile_ns(0.5), None);
    }
}
