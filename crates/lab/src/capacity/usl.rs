//! The universal scalability law: X(N) = λN / (1 + σ(N − 1) + κN(N − 1)) answers per second from N connections (Gunther,
//! "Guerrilla Capacity Planning", 2007, chapter 4). λ is what one brings, σ what they wait for each other in line
//! (contention), κ what they must agree on in pairs (coherency).
//!
//! N / X is linear in 1 / λ, σ / λ and κ / λ, so that they are found by least squares; residuals are relative to the
//! throughput, for its noise is. None of the three can be negative. With so few unknowns the best fit without negative ones
//! is the best among those that hold some of them at zero (Lawson and Hanson, "Solving Least Squares Problems", 1974,
//! chapter 23): all four cases are solved. How far to trust them: each number of connections is drawn again from its own
//! rounds, [`RESAMPLES`] times, and fitted; the ends are the 2.5 and 97.5 % points.

use hotrow_load::random::Random;
use hotrow_measure::statistics::quantile;

/// Fewer different numbers of connections say nothing of three unknowns.
pub const LEVELS_MIN: usize = 4;
/// How often measurements are drawn again.
pub const RESAMPLES: u64 = 500;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Connections.
    pub connections: f64,
    /// Answers per second.
    pub rate_rps: f64,
}

/// The law with its three numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// Requests per second that one connection brings.
    pub lambda_rps: f64,
    /// Contention, not negative.
    pub sigma: f64,
    /// Coherency, not negative.
    pub kappa: f64,
}

/// A number and the ends of its interval of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uncertain {
    /// The best fit's.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A fit and how far to trust it.
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
    /// Mean relative distance of the measurements from it, 0 to 1.
    pub error: f64,
    /// The share of refits whose peak lies within what was tried, 0 to 1.
    pub peaks_within: f64,
}

impl Law {
    /// Answers per second from so many connections.
    #[must_use]
    pub fn rate_rps(&self, connections: f64) -> f64 {
        let others = connections - 1.0;
        self.lambda_rps * connections / (1.0 + self.sigma * others + self.kappa * connections * others)
    }

    /// The number of connections beyond which more bring less, √((1 − σ) / κ), at least 1; none where they never do.
    #[must_use]
    pub fn peak(&self) -> Option<f64> {
        (self.kappa > 0.0).then(|| ((1.0 - self.sigma).max(0.0) / self.kappa).sqrt().max(1.0))
    }
}

/// Fits the law to measurements; none of fewer than [`LEVELS_MIN`] numbers of connections.
#[must_use]
pub fn fit(points: &[Point], seed: u64) -> Option<Fit> {
    let levels = by_level(points);
    if levels.len() < LEVELS_MIN {
        return None;
    }
    let points: Vec<Point> = levels.iter().flatten().copied().collect();
    let law = best(&points)?;
    let most = points.iter().map(|point| point.connections).fold(0.0, f64::max);
    let mut random = Random::new(seed, 0);
    let refits: Vec<Law> = (0..RESAMPLES).filter_map(|_| best(&drawn_again(&levels, &mut random))).collect();
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

/// Where the law's curve lies at each of `at`, in 95 % of the refits that [`fit`] makes of the same measurements with the same
/// seed: lower and upper end. Empty where there is no fit.
#[must_use]
pub fn band(points: &[Point], seed: u64, at: &[f64]) -> Vec<(f64, f64)> {
    let levels = by_level(points);
    if levels.len() < LEVELS_MIN {
        return Vec::new();
    }
    let mut random = Random::new(seed, 0);
    let refits: Vec<Law> = (0..RESAMPLES).filter_map(|_| best(&drawn_again(&levels, &mut random))).collect();
    let ends = |connections: &f64| {
        let rates: Vec<f64> = refits.iter().map(|law| law.rate_rps(*connections)).collect();
        Some((quantile(&rates, 0.025)?, quantile(&rates, 0.975)?))
    };
    at.iter().filter_map(ends).collect()
}

/// What can be fitted, by number of connections.
fn by_level(points: &[Point]) -> Vec<Vec<Point>> {
    let fits = |point: &&Point| point.rate_rps.is_finite() && point.rate_rps > 0.0 && point.connections >= 1.0;
    let mut levels: Vec<Vec<Point>> = Vec::new();
    for point in points.iter().filter(fits) {
        match levels.iter_mut().find(|level| level[0].connections == point.connections) {
            Some(level) => level.push(*point),
            None => levels.push(vec![*point]),
        }
    }
    levels
}

/// Each level drawn again from its own rounds. Of n values drawn again the mean scatters too little, by √((n − 1) / n), which is
/// made up for around the level's mean (Davison and Hinkley, "Bootstrap Methods and Their Application", 1997, section 2.3).
fn drawn_again(levels: &[Vec<Point>], random: &mut Random) -> Vec<Point> {
    let mut drawn = Vec::new();
    for level in levels {
        let n = level.len() as f64;
        let mean_rps = level.iter().map(|point| point.rate_rps).sum::<f64>() / n;
        let wider = if n > 1.0 { (n / (n - 1.0)).sqrt() } else { 1.0 };
        drawn.extend((0..level.len()).map(|_| {
            let point = level[random.below(level.len() as u64) as usize];
            let rate_rps = mean_rps + (point.rate_rps - mean_rps) * wider;
            // No throughput is 0 or less, however wide its rounds lie.
            Point { rate_rps: rate_rps.max(mean_rps * 1e-3), ..point }
        }));
    }
    drawn
}

/// The best of the fits with nothing, σ, κ or both of them.
fn best(points: &[Point]) -> Option<Law> {
    let laws = [&[0][..], &[0, 1], &[0, 2], &[0, 1, 2]].into_iter().filter_map(|used| least_squares(points, used));
    laws.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, law)| law)
}

/// Least squares of X/N·(a + b(N − 1) + cN(N − 1)) = 1 in the unknowns `used` (0: a, 1: b, 2: c), the others held at zero:
/// the squares' sum and the law, unless it comes out negative or cannot be told.
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

/// Gauss's elimination of the first `n` equations, the largest pivot first; none where they are not independent. The scales of
/// the unknowns differ by powers of N, so each equation is first divided by its diagonal's root on both sides (Jacobi).
fn solve(mut matrix: [[f64; 3]; 3], mut right: [f64; 3], n: usize) -> Option<[f64; 3]> {
    /// A pivot below this part of the scaled diagonal, which is 1, is none.
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
        let pivot = (column..n).max_by(|i, j| matrix[*i][column].abs().total_cmp(&matrix[*j][column].abs()))?;
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
    fn a_law_is_found_again() {
        for law in [LAW, Law { sigma: 0.0, ..LAW }, Law { kappa: 0.0, ..LAW }, Law { sigma: 0.0, kappa: 0.0, ..LAW }] {
            let fit = fit(&rounds(law, 0.0, 1), 1).unwrap();
            assert!((fit.law.lambda_rps / 1_000.0 - 1.0).abs() < 1e-6, "{law:?} {fit:?}");
            assert!((fit.law.sigma - law.sigma).abs() < 1e-6 && (fit.law.kappa - law.kappa).abs() < 1e-6, "{fit:?}");
            assert!(fit.error < 1e-6, "{fit:?}");
        }
        // √(0.95 / 0.0005) = 43.6.
        assert!(LAW.peak().is_some_and(|peak| (peak - 43.59).abs() < 0.01));
        assert_eq!(Law { kappa: 0.0, ..LAW }.peak(), None);
    }

    #[test]
    fn the_interval_covers_the_truth_in_spite_of_noise() {
        let covers = |of: Uncertain, truth: f64| of.low <= truth && truth <= of.high && of.low <= of.high;
        let fits: Vec<Fit> = (0..100).filter_map(|seed| fit(&rounds(LAW, 0.05, seed), seed)).collect();
        let of = |value: fn(&Fit) -> Uncertain, truth| fits.iter().filter(|fit| covers(value(fit), truth)).count();
        let covered = [of(|f| f.lambda_rps, LAW.lambda_rps), of(|f| f.sigma, LAW.sigma), of(|f| f.kappa, LAW.kappa)];
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
        let steep: Vec<Point> = LEVELS.iter().map(|n| Point { connections: *n, rate_rps: n * n }).collect();
        let fit = fit(&steep, 1).unwrap();
        assert_eq!((fit.law.sigma, fit.law.kappa, fit.law.peak(), fit.peaks_within), (0.0, 0.0, None, 0.0));
    }

    #[test]
    fn the_band_holds_the_law_and_is_wider_where_less_is_known() {
        let points = rounds(LAW, 0.05, 3);
        let fit = fit(&points, 3).unwrap();
        let at = [1.0, 44.0, 2_560.0];
        let band = band(&points, 3, &at);
        for (at, (low, high)) in at.iter().zip(&band) {
            assert!(low <= high && (*low..=*high).contains(&fit.law.rate_rps(*at)), "{at}: {band:?}");
        }
        let width = |(low, high): (f64, f64)| (high - low) / low;
        assert!(width(band[2]) > width(band[1]), "ten times beyond what was measured: {band:?}");
        assert!(super::band(&points[..3], 3, &at).is_empty(), "one round of three levels");
    }

    #[test]
    fn too_little_is_no_fit() {
        let point = |connections: f64, rate_rps: f64| Point { connections, rate_rps };
        assert_eq!(fit(&[], 1), None);
        assert_eq!(fit(&[point(1.0, 5.0), point(2.0, 9.0), point(4.0, 15.0)], 1), None);
        let odd = [point(1.0, 5.0), point(2.0, f64::NAN), point(4.0, 15.0), point(8.0, 0.0), point(0.0, 4.0)];
        assert_eq!(fit(&odd, 1), None);
    }
}
