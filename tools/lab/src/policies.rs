//! Hit ratios of cache policies on access traces: LRU, LFU, S3-FIFO and the read server's own,
//! beside the clairvoyant bound.

use hotrow_replay::opt;
use hotrow_replay::policy::{Hotrow, Lfu, Lru, Policy, S3Fifo, S3Settings};
use hotrow_replay::trace::Trace;

/// Capacities by default, in % of a trace's different keys.
pub const PERCENTS: [f64; 6] = [0.5, 1.0, 5.0, 10.0, 30.0, 50.0];

/// A policy: its name, and how to create it for a number of entries.
type Candidate = (&'static str, fn(usize) -> Box<dyn Policy>);

/// The compared policies.
const CANDIDATES: [Candidate; 4] = [
    ("LRU", |capacity| Box::new(Lru::new(capacity))),
    ("LFU", |capacity| Box::new(Lfu::new(capacity))),
    ("S3-FIFO", |capacity| Box::new(S3Fifo::new(capacity, S3_FIFO))),
    ("Hotrow", |capacity| Box::new(Hotrow::new(capacity))),
];

/// Settings of the publication.
const S3_FIFO: S3Settings = S3Settings { small: 0.1, promote_at: 1, adapt: None, ghost: 0.9 };

/// Hit ratios with one capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct HitRatios {
    /// Capacity in % of the trace's different keys.
    pub percent: f64,
    /// Capacity in entries.
    pub entries: usize,
    /// One per policy, in the order of [`names`], in %.
    pub hits_percent: Vec<f64>,
    /// That of the best possible policy, which knows the future, in %.
    pub bound_percent: f64,
}

/// Returns the names of the policies.
pub fn names() -> impl Iterator<Item = &'static str> {
    CANDIDATES.iter().map(|(name, _)| *name)
}

/// Replays a trace against every policy with one capacity. Repeats exactly.
pub fn replay(trace: &Trace, percent: f64) -> HitRatios {
    let entries = trace.capacity_entries(percent);
    let hits = |(_, build): &Candidate| trace.percent(build(entries).replay(&trace.keys));
    HitRatios {
        percent,
        entries,
        hits_percent: CANDIDATES.iter().map(hits).collect(),
        bound_percent: trace.percent(opt::hits(&trace.keys, entries)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Popular keys, then a scan: the policies differ, and none is above the bound.
    #[test]
    fn no_policy_exceeds_the_bound() {
        let mut keys: Vec<u32> = (0..20_000_u32).map(|n| (n.wrapping_mul(n) >> 3) % 97).collect();
        keys.extend(1_000..3_000);
        keys.extend((0..5_000_u32).map(|n| n % 60));
        let unique = keys.iter().collect::<std::collections::HashSet<_>>().len();
        let trace = Trace { name: "test".to_owned(), keys, unique };
        let small = replay(&trace, 1.0);
        let large = replay(&trace, 100.0);
        assert_eq!(small.hits_percent.len(), names().count());
        for (hits, more) in small.hits_percent.iter().zip(&large.hits_percent) {
            assert!(*hits <= small.bound_percent && hits < more, "{small:?} {large:?}");
        }
        // With room for every key only first requests miss.
        let all = 100.0 - trace.percent(trace.unique as u64);
        assert!((large.bound_percent - all).abs() < 1e-9, "{large:?}");
        assert_eq!(replay(&trace, 1.0), small, "a replay repeats");
    }
}
