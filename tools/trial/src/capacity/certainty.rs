//! Statistical certainty of a load's result. Requests in a queue are not independent: one burst
//! makes many of them late, so the share of late requests varies far more than a binomial share.
//! The load itself shows by how much, in the differences between its seconds.
//!
//! Of n requests in m seconds a share p was bad, and p₀ is allowed. The index of dispersion φ is
//! Pearson's statistic of the seconds over its degrees of freedom (McCullagh and Nelder,
//! "Generalized Linear Models", 1989, section 4.5). The score z = (p − p₀) / √(p₀ φ / n) is the
//! number of standard errors by which the load misses (above 0) or meets (below 0) the objective.
//! The variance is taken at p₀, not at p: a load that met few bursts by chance would be too
//! certain. Consecutive seconds may be correlated too, so φ is computed for seconds, pairs of
//! seconds and longer blocks (batch means: Law, "Simulation Modeling and Analysis", 2015, section
//! 9.5.3), and the largest value counts.

/// Standard errors from which a plateau is certain. At exactly the limit, 1 plateau in 40 is
/// reported as met and 1 in 40 as missed.
pub const SURE: f64 = 2.0;
/// Largest score of a single plateau, in standard errors. Statistics do not show a disturbance of
/// the machine, so two other plateaus must be able to outvote one.
pub const SURE_MOST: f64 = 2.0 * SURE;
/// Block lengths for the dispersion, in seconds.
const BLOCKS_S: [usize; 3] = [1, 2, 4];
/// Fewest blocks that show how blocks differ.
pub const BLOCKS_MIN: usize = 5;

/// One second of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Requests.
    pub requests: f64,
    /// Requests that exceeded the objective's limit for a single request.
    pub bad: f64,
}

/// Score of a load against an allowed share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Standard errors between the measured and the allowed share; above 0 the objective was
    /// missed.
    pub z: f64,
    /// The share that was bad, 0 to 1.
    pub share: f64,
    /// Standard error of the share at the allowed value.
    pub error: f64,
    /// Variance relative to that of independent requests, at least 1.
    pub dispersion: f64,
}

/// Returns the score of a load from its seconds; `None` with fewer than [`BLOCKS_MIN`] seconds,
/// without requests, or if `allowed` is not between 0 and 1.
///
/// The variance of bad requests that come in bursts is proportional to their number, so φ does not
/// depend on the number of bursts.
pub fn score(seconds: &[Second], allowed: f64) -> Option<Score> {
    let all = sum(seconds);
    scored(seconds, allowed, all.bad / all.requests)
}

/// Returns the score for a quantity that does not come in bursts but varies up and down, even below
/// 0, such as requests due in one second and answered in the next. Its variance does not depend on
/// its mean.
pub fn score_level(seconds: &[Second], allowed: f64) -> Option<Score> {
    scored(seconds, allowed, allowed)
}

/// Computes the score with φ relative to the variance of independent requests of which the share
/// `usual` is bad.
fn scored(seconds: &[Second], allowed: f64, usual: f64) -> Option<Score> {
    let all = sum(seconds);
    let usable = all.requests > 0.0 && allowed > 0.0 && allowed < 1.0;
    if !usable || seconds.len() < BLOCKS_MIN {
        return None;
    }
    let dispersions = BLOCKS_S.iter().filter_map(|length| dispersion(seconds, *length, usual));
    let dispersion = dispersions.fold(1.0, f64::max);
    let share = all.bad / all.requests;
    let error = (allowed * (1.0 - allowed) * dispersion / all.requests).sqrt();
    Some(Score { z: (share - allowed) / error, share, error, dispersion })
}

/// Returns the index of dispersion of blocks of `length` seconds; `None` with too few blocks, or if
/// none or all of the requests were bad.
fn dispersion(seconds: &[Second], length: usize, usual: f64) -> Option<f64> {
    let blocks: Vec<Second> = seconds.chunks_exact(length).map(sum).collect();
    let all = sum(&blocks);
    if blocks.len() < BLOCKS_MIN || usual <= 0.0 || usual >= 1.0 {
        return None;
    }
    let share = all.bad / all.requests;
    let of = |block: &Second| match block.requests * usual * (1.0 - usual) {
        variance if variance > 0.0 => (block.bad - block.requests * share).powi(2) / variance,
        _ => 0.0,
    };
    Some(blocks.iter().map(of).sum::<f64>() / (blocks.len() - 1) as f64)
}

fn sum(seconds: &[Second]) -> Second {
    seconds.iter().fold(Second::default(), |sum, second| Second {
        requests: sum.requests + second.requests,
        bad: sum.bad + second.bad,
    })
}

#[cfg(test)]
mod tests {
    use hotrow_load::random::Random;

    use super::*;

    fn seconds(bad: &[f64]) -> Vec<Second> {
        bad.iter().map(|bad| Second { requests: 1_000.0, bad: *bad }).collect()
    }

    #[test]
    fn independent_requests_have_binomial_variance() {
        // 10 of 1,000 in each of ten seconds: exactly the allowed share.
        let even = score(&seconds(&[10.0; 10]), 0.01).unwrap();
        assert!((even.z, even.share, even.dispersion) == (0.0, 0.01, 1.0), "{even:?}");
        assert!((even.error - (0.01_f64 * 0.99 / 10_000.0).sqrt()).abs() < 1e-12);
        assert!(score(&seconds(&[0.0; 10]), 0.01).unwrap().z < -10.0);
        assert!(score(&seconds(&[20.0; 10]), 0.01).unwrap().z > 10.0);
        let mut random = Random::new(1, 0);
        let mut one = || (0..1_000).filter(|_| random.unit() < 0.01).count() as f64;
        let of = |bad: Vec<f64>| score(&seconds(&bad), 0.01).unwrap().z.abs() >= SURE;
        let sure = (0..200).filter(|_| of((0..20).map(|_| one()).collect())).count();
        assert!(sure <= 20, "{sure} of 200 just at the limit were called sure");
    }

    #[test]
    fn one_bad_second_proves_nothing() {
        let mut bad = [0.0; 10];
        bad[3] = 500.0;
        let found = score(&seconds(&bad), 0.01).unwrap();
        assert!(
            found.share > 0.04 && found.z > 0.0 && found.z < SURE && found.dispersion > 100.0,
            "{found:?}"
        );
        // Several bad seconds in a row prove nothing either: one long disturbance.
        bad[4..7].fill(500.0);
        let longer = score(&seconds(&bad), 0.01).unwrap();
        assert!(longer.dispersion > found.dispersion, "{longer:?}");
        // But a bad last half of a plateau does: the queue grows.
        bad[4..].fill(1_000.0);
        assert!(score(&seconds(&bad), 0.01).unwrap().z > SURE);
    }

    #[test]
    fn variation_around_a_constant_level_is_not_a_burst() {
        let level = |bad: &[f64]| score_level(&seconds(bad), 0.02).unwrap().z;
        let up_and_down: Vec<f64> =
            (0..10).map(|i| if i % 2 == 0 { 21.0 } else { -20.0 }).collect();
        assert!(level(&up_and_down) < -SURE, "{}", level(&up_and_down));
        assert!(level(&[40.0; 10]) > SURE);
    }

    #[test]
    fn too_few_seconds_have_no_score() {
        assert_eq!(score(&seconds(&[1.0; 4]), 0.01), None);
        assert_eq!(score(&[Second::default(); 9], 0.01), None);
        assert_eq!(score(&seconds(&[1.0; 9]), 0.0), None);
        assert_eq!(score(&seconds(&[1.0; 9]), f64::NAN), None);
        assert!(score(&seconds(&[1_000.0; 9]), 0.01).is_some_and(|score| score.z > SURE));
    }
}
