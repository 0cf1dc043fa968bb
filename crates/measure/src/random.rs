//! Seeded pseudorandom numbers that need no quality beyond being well mixed. Not for secrets.
//!
//! Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.

/// Distance between two states.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the number of a state: a bijection, so that distinct states have distinct numbers.
#[inline]
pub const fn mix(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// SplitMix64, from the state that is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Returns a uniform number from 0 to below `bound`; 0 when `bound` is 0. The bias of the
    /// multiplication (Lemire, 2019, without the rejection step) is below `bound`/2⁶⁴.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a uniform number from 0 to below 1, a multiple of 2⁻⁵³.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: the first numbers of `SplittableRandom(1234567)` in Java.
    #[test]
    fn the_numbers_are_those_of_the_reference() {
        let mut random = SplitMix64(1_234_567);
        let numbers: [u64; 3] = std::array::from_fn(|_| random.bits());
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut random = SplitMix64(7);
        for bound in [1, 2, 3, 1_000, u64::MAX] {
            assert!((0..1_000).all(|_| random.below(bound) < bound));
        }
        assert_eq!(random.below(0), 0);
        assert!((0..1_000).all(|_| (0.0..1.0).contains(&random.unit())));
    }
}
