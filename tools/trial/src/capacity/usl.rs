//! The universal scalability law: X(N) = λN / (1 + σ(N − 1) + κN(N − 1)) responses per second from
//! N connections (Gunther, "Guerrilla Capacity Planning", 2007, chapter 4). λ is the rate of one
//! connection, σ the contention (serialised share), κ the coherency cost (pairwise agreement).
//!
//! N / X is linear in 1 / λ, σ / λ and κ / λ, so least squares find them; residuals are relative to
//! the throughput, as its noise is. None of the three can be negative. With so few unknowns the
//! best non-negative fit is the best among those that hold some of them at zero (Lawson and Hanson,
//! "Solving Least Squares Problems", 1974, chapter 23): all four cases are solved. Confidence
//! intervals come from a bootstrap: each number of connections is resampled from its own rounds,
//! [`RESAMPLES`] times, and fitted; the ends are the 2.5 and 97.5 % points.

use hotrow_load::random::Random;
use hotrow_measure::statistics::quantile;

/// Fewest different numbers of connections for three unknowns.
pub const LEVELS_MIN: usize = 4;
/// Number of bootstrap resamples.
pub const RESAMPLES: u64 = 500;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Connections.
    pub connections: f64,
    /// Responses per second.
    pub rate_rps: f64,
}

/// The law with its three coefficients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// Requests per second of one connection.
    pub lambda_rps: f64,
    /// Contention, not negative.
    pub sigma: f64,
    /// Coherency, not negative.
    pub kappa: f64,
}

/// A value with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uncertain {
    /// Value of the best fit.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A fit with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The best fit.
    pub law: Law,
    /// Its λ.
    pub lambda_rps: Uncertain,
    /// Its σ.
    pub sigma: Uncertain,
    /// Its κ.
    pub kappa: Uncertain,
    /// Mean relative distance of the measurements from the fit, 0 to 1.
    pub error: f64,
    /// Share of refits whose peak lies within the measured range, 0 to 1.
    pub peaks_within: f64,
}

impl Law {
    /// Returns the responses per second from `connections`.
    pub fn rate_rps(&self, connections: f64) -> f64 {
        let others = connections - 1.0;
        self.lambda_rps * connections
            / (1.0 + self.sigma * others + self.kappa * connections * others)
    }

    /// Returns the number of connections beyond which throughput falls, √((1 − σ) / κ), at least 1;
    /// `None` if it never falls.
    pub fn peak(&self) -> Option<f64> {
        (self.kappa > 0.0).then(|| ((1.0 - self.sigma).max(0.0) / self.kappa).sqrt().max(1.0))
    }
}

/// Fits the law to measurements; `None` with fewer than [`LEVELS_MIN`] numbers of connections.
pub fn fit(points: &[Point], seed: u64) -> Option<Fit> {
    let levels = by_level(points);
    if levels.len() < LEVELS_MIN {
        return None;
    }
    let points: Vec<Point> = levels.iter().flatten().copied().collect();
    let law = best(&points)?;
    let most = points.iter().map(|point| point.connections).fold(0.0, f64::max);
    let mut random = Random::new(seed, 0);
    let refits: Vec<Law> =
        (0..RESAMPLES).filter_map(|_| best(&resample(&levels, &mut random))).collect();
    let within = refits.iter().filter(|law| law.peak().is_some_and(|peak| peak <= most)).count();
    let uncertain = |of: fn(&Law) -> f64| {
        let values: Vec<f64> = refits.iter().map(of).collect();
        let value = of(&law);
        let end = |share| quantile(&values, share).unwrap_or(value);
        Uncertain { value, low: end(0.025), high: end(0.975) }
    };
    let distance = |point: &Point| (law.rate_rps(point.connections) / point.rate_rps - 1.0).abs();
    Some(Fit {
        law,
        lambda_rps: uncertain(|law| law.lambda_rps),
        sigma: uncertain(|law| law.sigma),
        kappa: uncertain(|law| law.kappa),
        error: points.iter().map(distance).sum::<f64>() / points.len() as f64,
        peaks_within: within as f64 / refits.len().max(1) as f64,
    })
}

/// Returns the lower and upper end of the law's curve at each of `at`, in 95 % of the refits that
/// [`fit`] makes of the same measurements with the same seed. Empty without a fit.
pub fn band(points: &[Point], seed: u64, at: &[f64]) -> Vec<(f64, f64)> {
    let levels = by_level(points);
    if levels.len() < LEVELS_MIN {
        return Vec::new();
    }
    let mut random = Random::new(seed, 0);
    let refits: Vec<Law> =
        (0..RESAMPLES).filter_map(|_| best(&resample(&levels, &mut random))).collect();
    let ends = |connections: &f64| {
        let rates: Vec<f64> = refits.iter().map(|law| law.rate_rps(*connections)).collect();
        Some((quantile(&rates, 0.025)?, quantile(&rates, 0.975)?))
    };
    at.iter().filter_map(ends).collect()
}

/// Groups usable measurements by number of connections.
fn by_level(points: &[Point]) -> Vec<Vec<Point>> {
    let fits = |point: &&Point| {
        point.rate_rps.is_finite() && point.rate_rps > 0.0 && point.connections >= 1.0
    };
    let mut levels: Vec<Vec<Point>> = Vec::new();
    for point in points.iter().filter(fits) {
        match levels.iter_mut().find(|level| level[0].connections == point.connections) {
            Some(level) => level.push(*point),
            None => levels.push(vec![*point]),
        }
    }
    levels
}

/// Resamples each level from its own rounds. The mean of n resampled values varies too little, by
/// √((n − 1) / n); this is compensated around the level's mean (Davison and Hinkley, "Bootstrap
/// Methods and Their Application", 1997, section 2.3).
fn resample(levels: &[Vec<Point>], random: &mut Random) -> Vec<Point> {
    let mut drawn = Vec::new();
    for level in levels {
        let n = level.len() as f64;
        let mean_rps = level.iter().map(|point| point.rate_rps).sum::<f64>() / n;
        let wider = if n > 1.0 { (n / (n - 1.0)).sqrt() } else { 1.0 };
        drawn.extend((0..level.len()).map(|_| {
            let point = level[random.below(level.len() as u64) as usize];
            let rate_rps = mean_rps + (point.rate_rps - mean_rps) * wider;
            // Throughput stays above 0, however wide the rounds lie.
            Point { rate_rps: rate_rps.max(mean_rps * 1e-3), ..point }
        }));
    }
    drawn
}

/// Returns the best of the fits with neither, one or both of σ and κ.
fn best(points: &[Point]) -> Option<Law> {
    let laws = [&[0][..], &[0, 1], &[0, 2], &[0, 1, 2]]
        .into_iter()
        .filter_map(|used| least_squares(points, used));
    laws.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, law)| law)
}

/// Solves the least squares of X/N·(a + b(N − 1) + cN(N − 1)) = 1 in the unknowns `used` (0: a, 1:
/// b, 2: c), with the others at zero. Returns the sum of squares and the law; `None` if it is
/// negative or undetermined.
fn least_squares(points: &[Point], used: &[usize]) -> Option<(f64, Law)> {
    let row = |point: &Point| {
        let (n, each) = (point.connections, point.rate_rps / point.connections);
        [each, each * (n - 1.0), each * n * (n - 1.0)]
    };
    let (mut normal, mut right) = ([[0.0; 3]; 3], [0.0; 3]);
    for row in points.iter().map(row) {
        for (i, from) in used.iter().enumerate() {
            right[i] += row[*from];
            for (j, to) in used.iter().enumerate() {
                normal[i][j] += row[*from] * row[*to];
            }
        }
    }
    let solution = solve(normal, right, used.len())?;
    let mut unknowns = [0.0; 3];
    for (value, at) in solution.iter().zip(used) {
        unknowns[*at] = *value;
    }
    let [a, b, c] = unknowns;
    if a <= 0.0 || b < 0.0 || c < 0.0 {
        return None;
    }
    let residual = |row: [f64; 3]| (row[0] * a + row[1] * b + row[2] * c - 1.0).powi(2);
    let squares = points.iter().map(row).map(residual).sum();
    Some((squares, Law { lambda_rps: 1.0 / a, sigma: b / a, kappa: c / a }))
}

/// Solves the first `n` equations by Gaussian elimination with partial pivoting; `None` if they are
/// not independent. The scales of the unknowns differ by powers of N, so both sides are first
/// divided by the root of the diagonal (Jacobi scaling).
fn solve(mut matrix: [[f64; 3]; 3], mut right: [f64; 3], n: usize) -> Option<[f64; 3]> {
    /// Smallest pivot, as a part of the scaled diagonal, which is 1.
    const PIVOT_MIN: f64 = 1e-12;
    let scale: [f64; 3] = std::array::from_fn(|i| if i < n { matrix[i][i].sqrt() } else { 1.0 });
    if scale.iter().any(|scale| !scale.is_finite() || *scale <= 0.0) {
        return None;
    }
    for i in 0..n {
        right[i] /= scale[i];
        for j in 0..n {
            matrix[i][j] /= scale[i] * scale[j];
        }
    }
    for column in 0..n {
        let pivot = (column..n)
            .max_by(|i, j| matrix[*i][column].abs().total_cmp(&matrix[*j][column].abs()))?;
        if matrix[pivot][column].abs() < PIVOT_MIN {
            return None;
        }
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let (row, value) = (matrix[column], right[column]);
        for below in column + 1..n {
            let factor = matrix[below][column] / row[column];
            for k in column..n {
                matrix[below][k] -= factor * row[k];
            }
            right[below] -= factor * value;
        }
    }
    let mut solution = [0.0; 3];
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| matrix[i][k] * solution[k]).sum();
        solution[i] = (right[i] - known) / matrix[i][i];
    }
    Some(std::array::from_fn(|i| solution[i] / scale[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

    /// Three rounds of a law's rates, each off by up to `noise`.
    fn rounds(law: Law, noise: f64, seed: u64) -> Vec<Point> {
        let mut random = Random::new(seed, 9);
        let mut point = |n: f64| {
            let rate_rps = law.rate_rps(n) * (1.0 + noise * (2.0 * random.unit() - 1.0));
            Point { connections: n, rate_rps }
        };
        (0..3).flat_map(|_| LEVELS).map(&mut point).collect()
    }

    const LAW: Law = Law { lambda_rps: 1_000.0, sigma: 0.05, kappa: 0.000_5 };

    #[test]
    fn an_exact_law_is_recovered() {
        for law in [
            LAW,
            Law { sigma: 0.0, ..LAW },
            Law { kappa: 0.0, ..LAW },
            Law { sigma: 0.0, kappa: 0.0, ..LAW },
        ] {
            let fit = fit(&rounds(law, 0.0, 1), 1).unwrap();
            assert!((fit.law.lambda_rps / 1_000.0 - 1.0).abs() < 1e-6, "{law:?} {fit:?}");
            assert!(
                (fit.law.sigma - law.sigma).abs() < 1e-6
                    && (fit.law.kappa - law.kappa).abs() < 1e-6,
                "{fit:?}"
            );
            assert!(fit.error < 1e-6, "{fit:?}");
        }
        // √(0.95 / 0.0005) = 43.6.
        assert!(LAW.peak().is_some_and(|peak| (peak - 43.59).abs() < 0.01));
        assert_eq!(Law { kappa: 0.0, ..LAW }.peak(), None);
    }

    #[test]
    fn the_interval_covers_the_truth_in_spite_of_noise() {
        let covers =
            |of: Uncertain, truth: f64| of.low <= truth && truth <= of.high && of.low <= of.high;
        let fits: Vec<Fit> =
            (0..100).filter_map(|seed| fit(&rounds(LAW, 0.05, seed), seed)).collect();
        let of = |value: fn(&Fit) -> Uncertain, truth| {
            fits.iter().filter(|fit| covers(value(fit), truth)).count()
        };
        let covered = [
            of(|f| f.lambda_rps, LAW.lambda_rps),
            of(|f| f.sigma, LAW.sigma),
            of(|f| f.kappa, LAW.kappa),
        ];
        assert!(covered.iter().all(|covered| *covered >= 88), "{covered:?} of 100");
        for fit in &fits {
            assert!((fit.law.lambda_rps / LAW.lambda_rps - 1.0).abs() < 0.1, "{fit:?}");
            assert!(fit.law.peak().is_some_and(|peak| (peak / 43.6 - 1.0).abs() < 0.2), "{fit:?}");
            assert!(fit.peaks_within > 0.9 && fit.error < 0.05, "{fit:?}");
        }
    }

    #[test]
    fn no_coefficient_is_negative_whatever_is_measured() {
        let mut random = Random::new(7, 0);
        for _ in 0..200 {
            let noise = |n: &f64| Point { connections: *n, rate_rps: 1.0 + random.unit() * 1e6 };
            let points: Vec<Point> = LEVELS.iter().map(noise).collect();
            let Law { lambda_rps, sigma, kappa } = best(&points).unwrap();
            assert!(lambda_rps > 0.0 && sigma >= 0.0 && kappa >= 0.0, "{points:?}");
        }
        // Better than linear: both are zero, and there is no peak.
        let steep: Vec<Point> =
            LEVELS.iter().map(|n| Point { connections: *n, rate_rps: n * n }).collect();
        let fit = fit(&steep, 1).unwrap();
        assert_eq!(
            (fit.law.sigma, fit.law.kappa, fit.law.peak(), fit.peaks_within),
            (0.0, 0.0, None, 0.0)
        );
    }

    #[test]
    fn the_band_contains_the_law_and_widens_beyond_the_measurements() {
        let points = rounds(LAW, 0.05, 3);
        let fit = fit(&points, 3).unwrap();
        let at = [1.0, 44.0, 2_560.0];
        let band = band(&points, 3, &at);
        for (at, (low, high)) in at.iter().zip(&band) {
            assert!(
                low <= high && (*low..=*high).contains(&fit.law.rate_rps(*at)),
                "{at}: {band:?}"
            );
        }
        let width = |(low, high): (f64, f64)| (high - low) / low;
        assert!(width(band[2]) > width(band[1]), "ten times beyond what was measured: {band:?}");
        assert!(super::band(&points[..3], 3, &at).is_empty(), "one round of three levels");
    }

    #[test]
    fn too_few_levels_have_no_fit() {
        let point = |connections: f64, rate_rps: f64| Point { connections, rate_rps };
        assert_eq!(fit(&[], 1), None);
        assert_eq!(fit(&[point(1.0, 5.0), point(2.0, 9.0), point(4.0, 15.0)], 1), None);
        let odd = [
            point(1.0, 5.0),
            point(2.0, f64::NAN),
            point(4.0, 15.0),
            point(8.0, 0.0),
            point(0.0, 4.0),
        ];
        assert_eq!(fit(&odd, 1), None);
    }
}
