//! Order of the measurements: interleaved over the rounds, so that drift of the machine favours no
//! deployment.

use hotrow_load::random::Random;

/// One deployment in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasurementStep {
    /// Round, from 0.
    pub round: u32,
    /// Index of the deployment.
    pub deployment: usize,
}

/// Returns every deployment once per round, shuffled anew in each round by `seed`. No deployment
/// comes first twice in a row, because the first one meets a rested machine.
pub fn order(rounds: u32, deployments: &[usize], seed: u64) -> Vec<MeasurementStep> {
    let mut steps: Vec<MeasurementStep> = Vec::with_capacity(rounds as usize * deployments.len());
    let mut first_before = None;
    for round in 0..rounds {
        let mut random = Random::new(seed, u64::from(round));
        let mut shuffled = deployments.to_vec();
        // Fisher-Yates shuffle, in Durstenfeld's form.
        for i in (1..shuffled.len()).rev() {
            shuffled.swap(i, random.below(i as u64 + 1) as usize);
        }
        if shuffled.len() > 1 && shuffled.first().copied() == first_before {
            let other = 1 + random.below(shuffled.len() as u64 - 1) as usize;
            shuffled.swap(0, other);
        }
        first_before = shuffled.first().copied();
        steps.extend(shuffled.into_iter().map(|deployment| MeasurementStep { round, deployment }));
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const DEPLOYMENTS: [usize; 5] = [0, 2, 3, 7, 9];

    #[test]
    fn every_round_has_every_deployment_once() {
        let steps = order(20, &DEPLOYMENTS, 1);
        assert_eq!(steps.len(), 100);
        for (round, steps) in steps.chunks(DEPLOYMENTS.len()).enumerate() {
            assert!(steps.iter().all(|step| step.round as usize == round), "{steps:?}");
            assert_eq!(
                steps.iter().map(|step| step.deployment).collect::<BTreeSet<_>>(),
                BTreeSet::from(DEPLOYMENTS)
            );
        }
    }

    #[test]
    fn no_deployment_is_always_first() {
        for seed in 0..200 {
            let firsts: Vec<usize> =
                order(10, &DEPLOYMENTS, seed).chunks(5).map(|steps| steps[0].deployment).collect();
            assert!(firsts.windows(2).all(|pair| pair[0] != pair[1]), "{seed}: {firsts:?}");
        }
        // Over 1,000 rounds each deployment has each position about equally often: 200 expected,
        // tolerance five deviations.
        let steps = order(1000, &DEPLOYMENTS, 4);
        for position in 0..5 {
            let times = steps.chunks(5).filter(|steps| steps[position].deployment == 7).count();
            assert!(times.abs_diff(200) < 64, "{position}: {times}");
        }
    }

    #[test]
    fn a_seed_repeats_the_order() {
        assert_eq!(order(5, &DEPLOYMENTS, 3), order(5, &DEPLOYMENTS, 3));
        assert_ne!(order(5, &DEPLOYMENTS, 3), order(5, &DEPLOYMENTS, 4));
        assert_eq!(
            order(2, &[4], 1),
            [
                MeasurementStep { round: 0, deployment: 4 },
                MeasurementStep { round: 1, deployment: 4 }
            ]
        );
        assert!(order(3, &[], 1).is_empty());
    }
}
