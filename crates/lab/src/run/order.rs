//! In which order set-ups are measured: interleaved over the rounds, so that a machine that drifts favours none.

use hotrow_load::random::Random;

/// Set-up `setup` in round `round`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Round, from 0.
    pub round: u32,
    /// Index of the set-up.
    pub setup: usize,
}

/// Every set-up once in every round, each round in an order of its own that `seed` repeats. No set-up is first in two rounds
/// running: what comes first meets a machine that has rested.
#[must_use]
pub fn order(rounds: u32, setups: &[usize], seed: u64) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::with_capacity(rounds as usize * setups.len());
    let mut first_before = None;
    for round in 0..rounds {
        let mut random = Random::new(seed, u64::from(round));
        let mut shuffled = setups.to_vec();
        // Fisher and Yates, in the form of Durstenfeld.
        for i in (1..shuffled.len()).rev() {
            shuffled.swap(i, random.below(i as u64 + 1) as usize);
        }
        if shuffled.len() > 1 && shuffled.first().copied() == first_before {
            let other = 1 + random.below(shuffled.len() as u64 - 1) as usize;
            shuffled.swap(0, other);
        }
        first_before = shuffled.first().copied();
        steps.extend(shuffled.into_iter().map(|setup| Step { round, setup }));
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SETUPS: [usize; 5] = [0, 2, 3, 7, 9];

    #[test]
    fn every_round_has_every_setup_once() {
        let steps = order(20, &SETUPS, 1);
        assert_eq!(steps.len(), 100);
        for (round, steps) in steps.chunks(SETUPS.len()).enumerate() {
            assert!(steps.iter().all(|step| step.round as usize == round), "{steps:?}");
            assert_eq!(steps.iter().map(|step| step.setup).collect::<BTreeSet<_>>(), BTreeSet::from(SETUPS));
        }
    }

    #[test]
    fn no_setup_is_always_first() {
        for seed in 0..200 {
            let firsts: Vec<usize> = order(10, &SETUPS, seed).chunks(5).map(|steps| steps[0].setup).collect();
            assert!(firsts.windows(2).all(|pair| pair[0] != pair[1]), "{seed}: {firsts:?}");
        }
        // Over many rounds each has every place about equally often: 1,000 rounds, 200 times expected, five deviations.
        let steps = order(1000, &SETUPS, 4);
        for place in 0..5 {
            let times = steps.chunks(5).filter(|steps| steps[place].setup == 7).count();
            assert!(times.abs_diff(200) < 64, "{place}: {times}");
        }
    }

    #[test]
    fn a_seed_repeats_the_order() {
        assert_eq!(order(5, &SETUPS, 3), order(5, &SETUPS, 3));
        assert_ne!(order(5, &SETUPS, 3), order(5, &SETUPS, 4));
        assert_eq!(order(2, &[4], 1), [Step { round: 0, setup: 4 }, Step { round: 1, setup: 4 }]);
        assert!(order(3, &[], 1).is_empty());
    }
}
