//! Cost of a query by its number of keys: a base and a part per key, learnt from queries.
//!
//! Queries are merged, so a latency alone says little: one of 1,000 keys may take a hundred times
//! as long as one of a single key. A line through recent queries makes them comparable.

use std::time::Duration;

/// Weight of a query relative to the next one; about the last 30 matter.
const FORGET: f64 = 0.97;
/// Spread of the sizes, relative to their mean, below which base and cost per key cannot be
/// separated.
const SPREAD_MIN: f64 = 0.3;

/// A line of latency over keys, fitted by weighted least squares with exponential forgetting.
///
/// Weights are `1 / keys²`: queries of all sizes count by their relative error; otherwise a few
/// large ones would hide the base.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    weight: f64,
    keys: f64,
    seconds: f64,
    keys_squared: f64,
    keys_seconds: f64,
    /// Largest query that still counts.
    largest: f64,
    /// Base and cost per key when sizes last differed enough to separate them.
    shape: Option<(f64, f64)>,
}

impl Cost {
    /// Learns from one query.
    pub fn learn(&mut self, keys: usize, latency: Duration) {
        let keys = keys.max(1) as f64;
        let seconds = latency.as_secs_f64();
        let weight = 1.0 / (keys * keys);
        self.scale(FORGET);
        self.weight += weight;
        self.keys += weight * keys;
        self.seconds += weight * seconds;
        self.keys_squared += weight * keys * keys;
        self.keys_seconds += weight * keys * seconds;
        self.largest = (self.largest * FORGET.sqrt()).max(keys);
        self.shape = self.fit().or(self.shape);
    }

    /// Scales what was learnt by a factor below 1, because the database has become faster.
    pub fn correct(&mut self, factor: f64) {
        self.seconds *= factor;
        self.keys_seconds *= factor;
    }

    /// Returns the expected latency of a query of `keys` keys; `None` before the first query.
    /// Beyond the largest known query it is an upper bound: each further key costs as much as the
    /// average one did.
    pub fn estimate(&self, keys: usize) -> Option<Duration> {
        let keys = keys.max(1) as f64;
        let (base, per_key) = self.line()?;
        let known = keys.min(self.largest);
        Some(Duration::from_secs_f64((base + per_key * known) * (keys / known)))
    }

    /// Returns whether queries of this size were seen recently.
    pub fn knows(&self, keys: usize) -> bool {
        self.weight > 0.0 && keys as f64 <= self.largest * 1.5
    }

    /// Returns base and cost per key in seconds. When sizes differ too little, the shape is the
    /// last known one and the height the present one; without a known shape, all of it is the base.
    fn line(&self) -> Option<(f64, f64)> {
        if self.weight <= 0.0 {
            return None;
        }
        let keys = self.keys / self.weight;
        let seconds = self.seconds / self.weight;
        Some(self.fit().unwrap_or_else(|| match self.shape {
            Some((base, per_key)) if base + per_key * keys > 0.0 => {
                let factor = seconds / (base + per_key * keys);
                (base * factor, per_key * factor)
            }
            _ => (seconds, 0.0),
        }))
    }

    /// Fits by least squares, with neither part below zero.
    fn fit(&self) -> Option<(f64, f64)> {
        let keys = self.keys / self.weight;
        let seconds = self.seconds / self.weight;
        let variance = self.keys_squared / self.weight - keys * keys;
        // A total weight of zero gives NaN.
        if variance.is_nan() || variance <= (SPREAD_MIN * keys) * (SPREAD_MIN * keys) {
            return None;
        }
        let per_key = ((self.keys_seconds / self.weight - keys * seconds) / variance).max(0.0);
        let base = seconds - per_key * keys;
        Some(if base < 0.0 { (0.0, seconds / keys) } else { (base, per_key) })
    }

    /// Returns the number of keys that a query reads in about `time`, when the line is known to
    /// rise; `None` when nothing says that a larger query takes longer. Never so few that the base
    /// would be more than a quarter of the query.
    pub fn keys_within(&self, time: Duration) -> Option<usize> {
        /// Least ratio of the keys' part to the base.
        const EFFICIENT: f64 = 3.0;
        self.shape?;
        let (base, per_key) = self.line()?;
        if per_key <= 0.0 {
            return None;
        }
        let keys = ((time.as_secs_f64() - base) / per_key).max(EFFICIENT * base / per_key);
        // `as` saturates.
        Some((keys.round() as usize).max(1))
    }

    /// Returns the size of the largest query that still counts.
    pub fn largest(&self) -> usize {
        self.largest as usize
    }

    fn scale(&mut self, factor: f64) {
        let sums = [
            &mut self.weight,
            &mut self.keys,
            &mut self.seconds,
            &mut self.keys_squared,
            &mut self.keys_seconds,
        ];
        sums.into_iter().for_each(|sum| *sum *= factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: f64) -> Duration {
        Duration::from_secs_f64(ms / 1e3)
    }

    fn learnt(queries: &[(usize, f64)]) -> Cost {
        let mut cost = Cost::default();
        queries.iter().for_each(|&(keys, latency_ms)| cost.learn(keys, ms(latency_ms)));
        cost
    }

    #[track_caller]
    fn assert_near(cost: &Cost, keys: usize, latency_ms: f64) {
        let estimate = cost.estimate(keys).unwrap().as_secs_f64() * 1e3;
        assert!(
            (estimate / latency_ms - 1.0).abs() < 0.01,
            "{keys} keys: {estimate} ms, not {latency_ms}"
        );
    }

    #[test]
    fn the_line_is_found_with_any_sizes() {
        let cost =
            learnt(&[(1, 4.0), (1000, 2002.0), (10, 22.0), (100, 202.0), (1, 4.0), (1, 4.0)]);
        for (keys, latency) in [(1, 4.0), (10, 22.0), (500, 1002.0)] {
            assert_near(&cost, keys, latency);
        }
        let flat = learnt(&[(1, 5.0), (10, 5.0), (1000, 5.0), (30, 5.0)]);
        assert_near(&flat, 700, 5.0);
        assert_eq!(flat.keys_within(ms(1.0)), None, "nothing says that size costs");
    }

    #[test]
    fn nothing_is_known_before_the_first_and_little_after_queries_of_one_size() {
        assert_eq!(Cost::default().estimate(1), None);
        assert_eq!(Cost::default().keys_within(ms(100.0)), None);
        let singles = learnt(&[(1, 2.0); 50]);
        assert_near(&singles, 1, 2.0);
        // An upper bound: all of it may be the base.
        assert_near(&singles, 100, 200.0);
        assert!(singles.knows(1) && !singles.knows(2));
        assert_eq!(singles.keys_within(ms(100.0)), None);
    }

    #[test]
    fn a_query_is_as_large_as_its_time_allows_and_never_mostly_base() {
        let rows = learnt(&[(1, 4.0), (10, 40.0), (100, 400.0)]);
        assert_eq!(rows.keys_within(ms(100.0)), Some(25));
        assert_eq!(rows.keys_within(ms(1.0)), Some(1));
        let far = learnt(&[(1, 201.0), (10, 210.0), (100, 300.0)]);
        let keys = far.keys_within(ms(100.0)).unwrap();
        assert!((595..=605).contains(&keys), "{keys}");
    }

    #[test]
    fn with_one_size_the_known_shape_stays_and_the_height_follows() {
        let mut cost = learnt(&[(1, 4.0), (10, 40.0), (100, 400.0)]);
        (0..500).for_each(|_| cost.learn(25, ms(200.0)));
        // The large ones are forgotten.
        assert_eq!(cost.largest(), 25);
        let keys = cost.keys_within(ms(100.0)).unwrap();
        assert!((12..=13).contains(&keys), "each key takes 8 ms now: {keys}");
    }
}
