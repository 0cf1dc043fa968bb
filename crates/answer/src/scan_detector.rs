//! Scan detector: a connection whose requests hit memory far less often than those of others reads
//! everything alike, as a batch job or a crawler does. Records read for it do not displace those of
//! others ([`ReadMode::NoAdmit`]).
//!
//! Detection is by connection, because a connection is one client unless there is a proxy between.
//! A trusted proxy names the client of each request; then detection is by client
//! ([`ClientDetectors`]). Any other proxy's connections carry the requests of all its clients, and
//! do not scan. The hit path counts in two plain cells.

mod clients;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hotrow_cache::ReadMode;
use hotrow_telemetry::lookups::LookupKind;

pub use self::clients::{ClientDetectors, ScanSubject};

/// Lookups per round, after which a connection is classified again. They determine the hit ratio
/// within 4 points (standard deviation).
const ROUND: u32 = 128;
/// A connection whose hit ratio is below this share of the baseline scans. The batch job of
/// the published workload behind `experiments/balancer-hit-ratio.toml` finds a quarter of the
/// records, the other clients four fifths.
const SCANNING_BELOW: f64 = 0.6;
/// Consecutive rounds at or above that share after which a scanning connection is released. A scan
/// of random ids reaches it by chance: at ten times the others' rate in one round of 70. Released
/// after a single such round, it fills the cache and so keeps finding its records.
const RELEASE_AFTER_ROUNDS: u32 = 4;
/// Weight of one round of one connection in the baseline.
const ROUND_WEIGHT: f64 = 1.0 / 16.0;
/// The same for a scanning connection. Low, so that even a scan many times as busy as all others
/// does not become the baseline; not zero, or all connections would count as scanning for ever
/// after a general change of the requests.
const SCANNING_WEIGHT: f64 = ROUND_WEIGHT / 16.0;

/// Lookup counts of one connection or client. Used by one thread.
#[derive(Debug, Default)]
pub struct ScanDetector {
    looked_up: Cell<u32>,
    found: Cell<u32>,
    scans: Cell<bool>,
    /// Consecutive good rounds of a scanning connection.
    good_rounds: Cell<u32>,
    /// True after the first round.
    is_classified: Cell<bool>,
}

/// Baseline hit ratio: a moving average in which scanning connections count little. Shared by all
/// workers and updated once a round; on cache lines of its own, because every hit reads its
/// neighbours.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct BaselineHitRatio(AtomicU64);

impl ScanDetector {
    /// Returns the read mode of the connection's ordinary requests.
    pub(crate) fn mode(&self) -> ReadMode {
        if self.scans.get() { ReadMode::NoAdmit } else { ReadMode::Normal }
    }

    /// Forgets everything, for another client.
    fn reset(&self) {
        let Self { looked_up, found, scans, good_rounds, is_classified } = self;
        [looked_up, found, good_rounds].iter().for_each(|count| count.set(0));
        [scans, is_classified].iter().for_each(|flag| flag.set(false));
    }

    /// Returns whether it has completed a round, which counts in the baseline.
    fn is_classified(&self) -> bool {
        self.is_classified.get()
    }

    /// Records the outcome of a number of lookups.
    pub(crate) fn note(&self, kind: LookupKind, times: u32, baseline: &BaselineHitRatio) {
        let is_found = match kind {
            LookupKind::Hit | LookupKind::Negative | LookupKind::Stale => true,
            LookupKind::Miss | LookupKind::Coalesced => false,
            // They say nothing about the requested keys.
            LookupKind::Bypass | LookupKind::Refused => return,
        };
        let mut rest = times;
        while rest > 0 {
            let some = rest.min(ROUND - self.looked_up.get());
            self.looked_up.set(self.looked_up.get() + some);
            self.found.set(self.found.get() + if is_found { some } else { 0 });
            if self.looked_up.get() == ROUND {
                self.classify(baseline);
            }
            rest -= some;
        }
    }

    fn classify(&self, baseline: &BaselineHitRatio) {
        self.is_classified.set(true);
        let share = f64::from(self.found.take()) / f64::from(self.looked_up.take());
        let expected = baseline.get();
        if share < SCANNING_BELOW * expected {
            self.scans.set(true);
            self.good_rounds.set(0);
        } else if self.scans.get() {
            self.good_rounds.set(self.good_rounds.get() + 1);
            self.scans.set(self.good_rounds.get() < RELEASE_AFTER_ROUNDS);
        }
        let weight = if self.scans.get() { SCANNING_WEIGHT } else { ROUND_WEIGHT };
        baseline.set(expected + weight * (share - expected));
    }
}

impl BaselineHitRatio {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }

    /// If two connections end a round at once, one of the rounds may be lost.
    fn set(&self, share: f64) {
        self.0.store(share.to_bits(), Relaxed);
    }
}

#[cfg(test)]
mod tests;
