//! Seeded pseudorandom numbers. Not for secrets.

use hotrow_measure::random::SplitMix64;

/// xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021),
/// seeded by SplitMix64 as its authors recommend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random([u64; 4]);

impl Random {
    /// Returns stream number `stream` of `seed`. Streams of one seed are unrelated for all
    /// practical purposes.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let seed = SplitMix64(seed).bits();
        let mut seeds = SplitMix64(seed ^ stream.wrapping_mul(0xa076_1d64_78bd_642f));
        Self(std::array::from_fn(|_| seeds.bits()))
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a uniform number in [0, 1), a multiple of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Returns a uniform number in 0..`below`; 0 when `below` is 0. The bias of the plain
    /// multiplication (Lemire, 2019, without the rejection step) is below `below`/2⁶⁴.
    pub fn below(&mut self, below: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(below)) >> 64) as u64
    }

    /// Returns an exponential number with mean 1: the gap between arrivals of a Poisson process of
    /// rate 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_streams_differ() {
        let take = |seed, stream| {
            let mut random = Random::new(seed, stream);
            (0..100).map(|_| random.bits()).collect::<Vec<_>>()
        };
        assert_eq!(take(7, 1), take(7, 1));
        assert_ne!(take(7, 1), take(7, 2));
        assert_ne!(take(7, 1), take(8, 1));
    }

    #[test]
    fn moments_are_right() {
        const N: u32 = 200_000;
        let mut random = Random::new(1, 0);
        let mean = |f: &mut dyn FnMut() -> f64| (0..N).map(|_| f()).sum::<f64>() / f64::from(N);
        // Standard errors: 0.29/√N = 0.00065 and 1/√N = 0.0022; five of them are allowed.
        assert!((mean(&mut || random.unit()) - 0.5).abs() < 0.0033);
        assert!((mean(&mut || random.exponential()) - 1.0).abs() < 0.011);
        let mut counts = [0_u32; 10];
        (0..N).for_each(|_| counts[random.below(10) as usize] += 1);
        assert!(counts.iter().all(|n| n.abs_diff(N / 10) < 700), "{counts:?}");
        assert_eq!(random.below(0), 0);
    }
}
