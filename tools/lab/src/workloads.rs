//! Published workloads W1 to W21 that are not experiments, and the commands that reproduce them.
//!
//! The others are aliases of built-in experiments ([`crate::experiment::SHIPPED`]).

use crate::experiment::find_shipped;

/// Number of published workloads.
pub const WORKLOADS: u32 = 21;

/// A workload that a command other than `run` reproduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// Its number, as in `w2`.
    pub name: &'static str,
    /// Its subject.
    pub what: &'static str,
    /// The command.
    pub command: &'static str,
}

const fn elsewhere(name: &'static str, what: &'static str, command: &'static str) -> Elsewhere {
    Elsewhere { name, what, command }
}

/// All workloads that are not experiments.
pub const ELSEWHERE: [Elsewhere; 7] = [
    elsewhere("w2", "the rate limiter's vectors", "hotrow-lab limiter"),
    elsewhere(
        "w6",
        "the lag between a commit and its visibility, checked under writes",
        "hotrow verify --config FILE --collection NAME --url URL",
    ),
    elsewhere("w14", "sequential processing", "hotrow-lab models sequential"),
    elsewhere(
        "w15",
        "a thread per request",
        "hotrow-lab models thread-per-request --no-safe [--max-map-count 100000]",
    ),
    elsewhere("w16", "batches of threads", "hotrow-lab models batches"),
    elsewhere("w17", "thread pools", "hotrow-lab models pool"),
    elsewhere("w18", "the I/O-aware pool", "hotrow-lab models io-aware"),
];

/// Finds the command that reproduces a workload, ignoring case.
pub fn find_elsewhere(name: &str) -> Option<&'static Elsewhere> {
    ELSEWHERE.iter().find(|elsewhere| elsewhere.name.eq_ignore_ascii_case(name))
}

/// Returns whether a workload is reproduced, by an experiment or another command but not both.
pub fn is_reproduced(number: u32) -> bool {
    let name = format!("w{number}");
    find_shipped(&name).is_some() != find_elsewhere(&name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_an_experiment_or_another_command() {
        let missing: Vec<u32> = (1..=WORKLOADS).filter(|number| !is_reproduced(*number)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(!is_reproduced(0) && !is_reproduced(WORKLOADS + 1));
        assert_eq!(find_elsewhere("W15").map(|found| found.name), Some("w15"));
        assert_eq!(find_elsewhere("w1"), None);
    }
}
