//! How sure a load is of what it says. Requests in a queue are not independent: one crowd makes many of them late, so that the
//! share that is late scatters far more than a binomial one. How much more is seen in the load itself, in how its seconds
//! differ.
//!
//! Of n requests in m seconds a share p was bad, where p₀ is allowed. The index of dispersion φ is Pearson's statistic
//! of the seconds over its degrees of freedom (McCullagh and Nelder, "Generalized Linear Models", 1989, section 4.5), and
//! the score z = (p − p₀) / √(p₀ φ / n) says by how many standard errors the load misses (above 0) or keeps (below 0) what is
//! allowed. The variance is taken at p₀, not at p: a load that happened to meet few crowds would be too sure of itself. Seconds
//! that follow each other may be alike too, so φ is taken of seconds, of pairs of them, and of longer blocks
//! (batch means: Law, "Simulation Modeling and Analysis", 2015, section 9.5.3), and the largest counts.

/// From this many standard errors on a plateau is sure: of what lies just at the limit 1 in 40 is called kept, and 1 in 40
/// missed.
pub const SURE: f64 = 2.0;
/// No single plateau counts for more than this, however sure it is: a disturbance of the machine is not in its statistics, and
/// two others must be able to outvote it.
pub const SURE_MOST: f64 = 2.0 * SURE;
/// Blocks of so many seconds are looked at.
const BLOCKS_S: [usize; 3] = [1, 2, 4];
/// Fewer blocks than this say nothing of how blocks differ.
pub const BLOCKS_MIN: usize = 5;

/// What one second of a load came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Requests.
    pub requests: f64,
    /// Those of them that were beyond what the objective asks of each.
    pub bad: f64,
}

/// What a load says of a share that is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Standard errors between what was measured and what is allowed: above 0 it was missed.
    pub z: f64,
    /// The share that was bad, 0 to 1.
    pub share: f64,
    /// Its standard error where it is just what is allowed.
    pub error: f64,
    /// How many times as much as that of independent requests its variance is, at least 1.
    pub dispersion: f64,
}

/// Scores a load by its seconds; none of fewer than [`BLOCKS_MIN`], of no requests, or where `allowed` is not between 0 and 1.
///
/// Of bad requests that come in crowds the variance is in proportion to their number, so that φ stays the same when there
/// are more or fewer crowds.
#[must_use]
pub fn score(seconds: &[Second], allowed: f64) -> Option<Score> {
    let all = sum(seconds);
    scored(seconds, allowed, all.bad / all.requests)
}

/// The same of what does not come in crowds but may go up and down, even below 0, as what is due in a second and answered in the
/// next: its variance has nothing to do with its number.
#[must_use]
pub fn score_level(seconds: &[Second], allowed: f64) -> Option<Score> {
    scored(seconds, allowed, allowed)
}

/// With the variance of independent requests of which the share `usual` is bad as the measure of φ.
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

/// The index of dispersion of blocks of so many seconds; none of too few, or where none or all of the requests were bad.
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
    fn independent_requests_scatter_like_a_binomial() {
        // 10 of 1,000 in each of ten seconds: just what is allowed.
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
        assert!(found.share > 0.04 && found.z > 0.0 && found.z < SURE && found.dispersion > 100.0, "{found:?}");
        // Nor do several in a row, as of one long disturbance.
        bad[4..7].fill(500.0);
        let longer = score(&seconds(&bad), 0.01).unwrap();
        assert!(longer.dispersion > found.dispersion, "{longer:?}");
        // But the last half of a plateau does: a queue that grows.
        bad[4..].fill(1_000.0);
        assert!(score(&seconds(&bad), 0.01).unwrap().z > SURE);
    }

    #[test]
    fn what_goes_up_and_down_is_no_crowd() {
        let level = |bad: &[f64]| score_level(&seconds(bad), 0.02).unwrap().z;
        let up_and_down: Vec<f64> = (0..10).map(|i| if i % 2 == 0 { 21.0 } else { -20.0 }).collect();
        assert!(level(&up_and_down) < -SURE, "{}", level(&up_and_down));
        assert!(level(&[40.0; 10]) > SURE);
    }

    #[test]
    fn too_little_is_no_score() {
        assert_eq!(score(&seconds(&[1.0; 4]), 0.01), None);
        assert_eq!(score(&[Second::default(); 9], 0.01), None);
        assert_eq!(score(&seconds(&[1.0; 9]), 0.0), None);
        assert_eq!(score(&seconds(&[1.0; 9]), f64::NAN), None);
        assert!(score(&seconds(&[1_000.0; 9]), 0.01).is_some_and(|score| score.z > SURE));
    }
}
