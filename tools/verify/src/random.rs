//! Reproducible random numbers.

use hotrow_measure::random::SplitMix64;
pub(crate) use hotrow_measure::random::mix;

/// Pseudorandom generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    /// Creates the sequence of this seed and this part of the run.
    pub(crate) fn new(seed: u64, part: u64) -> Self {
        Self(SplitMix64(mix(seed) ^ mix(part.wrapping_add(1))))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// Returns a number below `n`; 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next().checked_rem(n).unwrap_or(0)
    }

    /// Returns true with a probability of `percent` per cent.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of the values, if there is any.
    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len() as u64) as usize).copied()
    }

    /// Returns a number from 0 to below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0.unit()
    }
}

/// Zipf distribution over the ranks 0 to `n` − 1 with exponent 1, by the inverse of its continuous
/// form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipf {
    n: u32,
    log_of_end: f64,
}

impl Zipf {
    pub(crate) fn new(n: u32) -> Self {
        Self { n, log_of_end: (f64::from(n) + 1.0).ln() }
    }

    pub(crate) fn pick(&self, random: &mut Random) -> u32 {
        let rank = (random.unit() * self.log_of_end).exp() - 1.0;
        // Rounding may reach the end.
        (rank as u32).min(self.n.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_reproducible_and_its_parts_differ() {
        let draw = |seed, part| {
            let mut random = Random::new(seed, part);
            [random.next(), random.next()]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
        assert_eq!(Random::new(1, 1).below(0), 0);
        assert_eq!(Random::new(1, 1).one_of::<u8>(&[]), None);
    }

    #[test]
    fn low_ranks_are_frequent_and_all_ranks_are_in_range() {
        let zipf = Zipf::new(1000);
        let mut random = Random::new(7, 7);
        let mut counts = vec![0_u32; 1000];
        for _ in 0..20_000 {
            counts[zipf.pick(&mut random) as usize] += 1;
        }
        // ln 2 / ln 1001 is a tenth; half of the ranks are below about 30.
        assert!((1800..2200).contains(&counts[0]), "{}", counts[0]);
        assert!((9_000..11_000).contains(&counts[..31].iter().sum::<u32>()));
        assert!(counts[500..].iter().sum::<u32>() > 500);
        assert_eq!(Zipf::new(1).pick(&mut random), 0);
    }
}
