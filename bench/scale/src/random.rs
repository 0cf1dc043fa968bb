//! Random numbers from a seed, and ranks by Zipf's law.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Returns an exponentially distributed number with this rate.
    pub fn exponential(&mut self, rate: f64) -> f64 {
        -(1.0 - self.unit()).ln() / rate
    }

    /// Returns how many events of a Poisson process happen; `mean` is their expected number.
    pub fn poisson(&mut self, mean: f64) -> u64 {
        let (mut events, mut at) = (0, self.exponential(1.0));
        // Means are small here; far above, the exact number does not matter.
        while at < mean && events < 1_000 {
            events += 1;
            at += self.exponential(1.0);
        }
        events
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Ranks by Zipf's law: rank 0 is the most popular.
#[derive(Debug)]
pub struct Zipf {
    /// Sums of the shares of the ranks up to each.
    sums: Vec<f64>,
}

impl Zipf {
    pub fn new(ranks: usize, skew: f64) -> Self {
        let mut sum = 0.0;
        let add = |rank: usize| {
            sum += ((rank + 1) as f64).powf(-skew);
            sum
        };
        let mut sums: Vec<f64> = (0..ranks).map(add).collect();
        sums.iter_mut().for_each(|own| *own /= sum);
        Self { sums }
    }

    pub fn rank(&self, random: &mut Random) -> usize {
        let at = random.unit();
        self.sums.partition_point(|sum| *sum <= at).min(self.sums.len() - 1)
    }

    /// Returns the share of the requests that are for this rank.
    pub fn share(&self, rank: usize) -> f64 {
        let before = rank.checked_sub(1).map_or(0.0, |before| self.sums[before]);
        self.sums[rank] - before
    }

    pub fn ranks(&self) -> usize {
        self.sums.len()
    }

    /// Returns the largest share of the requests that one of `instances` gets where each key has
    /// one instance.
    pub fn largest_share(&self, instances: usize) -> f64 {
        let mut shares = vec![0.0; instances];
        for rank in 0..self.ranks() {
            shares[mix(rank as u64 + 1) as usize % instances] += self.share(rank);
        }
        shares.into_iter().fold(0.0, f64::max)
    }

    /// Returns the expected number of different ranks among the requests of one second.
    pub fn distinct(&self, requests: f64) -> f64 {
        (0..self.ranks()).map(|rank| 1.0 - (-requests * self.share(rank)).exp()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_law_and_of_the_draws() {
        let zipf = Zipf::new(1_000, 1.0);
        // The harmonic number of 1,000 is 7.4855.
        assert!((zipf.share(0) - 1.0 / 7.4855).abs() < 1e-4);
        let mut random = Random::new(1);
        let firsts = (0..200_000).filter(|_| zipf.rank(&mut random) == 0).count();
        assert!((firsts as f64 / 200_000.0 - zipf.share(0)).abs() < 0.003, "{firsts}");
        let mut seen = vec![false; 1_000];
        (0..5_000).for_each(|_| seen[zipf.rank(&mut random)] = true);
        let drawn = seen.iter().filter(|seen| **seen).count() as f64;
        assert!((drawn / zipf.distinct(5_000.0) - 1.0).abs() < 0.05, "{drawn}");
    }
}
