//! Detectors of the clients behind trusted proxies, by client key, in a bounded table of each
//! worker.
//!
//! A key lives in one of the eight slots of its set. A key without a slot lowers the activity of
//! all eight, and takes over one that reaches zero (the algorithm *Frequent* of Misra and Gries,
//! 1982, in each set). So a client keeps its slot if it sends more than a ninth of its set's
//! requests, however many clients send the others.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use hotrow_cache::ReadMode;
use hotrow_telemetry::lookups::LookupKind;

use super::{BaselineHitRatio, ScanDetector};

/// Client, as the rate limits identify it.
type ClientKey = [u8; 17];

/// Most clients that one worker distinguishes; 40 bytes each.
pub(crate) const CLIENTS_MAX: usize = 4096;
/// Slots of a set.
const WAYS: usize = 8;
const SETS: usize = CLIENTS_MAX / WAYS;
/// Bound of a slot's activity: the requests of others in its set after which it is free.
const ACTIVITY_MAX: u32 = 4 * super::ROUND;

/// Detectors by client.
#[derive(Debug, Default)]
pub struct ClientDetectors {
    /// Empty until the first request of a trusted proxy.
    sets: std::cell::OnceCell<Box<[[Slot; WAYS]]>>,
    hasher: RandomState,
    /// All clients that have not completed a round. Many of them together determine the baseline
    /// where each sends only a few requests.
    unclassified: ScanDetector,
}

#[derive(Debug, Default)]
struct Slot {
    /// Hash of the key. A collision, once in 2^55 pairs of a set, merges two clients.
    tag: Cell<u64>,
    activity: Cell<u32>,
    detector: ScanDetector,
}

/// Origin of a request: what its lookups are counted for.
#[derive(Clone, Copy, Debug)]
pub enum ScanSubject<'a> {
    /// The connection.
    Connection(&'a ScanDetector),
    /// A client behind a trusted proxy.
    Client {
        /// `None` without a slot.
        own: Option<&'a ScanDetector>,
        /// See [`ClientDetectors`].
        unclassified: &'a ScanDetector,
    },
}

impl ScanSubject<'_> {
    /// Returns the read mode of its ordinary requests.
    pub fn mode(&self) -> ReadMode {
        match self {
            Self::Connection(detector) => detector.mode(),
            Self::Client { own, .. } => own.map_or(ReadMode::Normal, ScanDetector::mode),
        }
    }

    /// Records the outcome of a number of lookups.
    pub fn note(&self, kind: LookupKind, times: u32, baseline: &BaselineHitRatio) {
        match self {
            Self::Connection(detector) => detector.note(kind, times, baseline),
            Self::Client { own, unclassified } => {
                if !own.is_some_and(ScanDetector::is_classified) {
                    unclassified.note(kind, times, baseline);
                }
                own.iter().for_each(|own| own.note(kind, times, baseline));
            }
        }
    }
}

impl ClientDetectors {
    /// Returns what the lookups of a request of this client are counted for. Call it once per
    /// request.
    pub(crate) fn subject(&self, client: &ClientKey) -> ScanSubject<'_> {
        let sets = self.sets.get_or_init(|| (0..SETS).map(|_| Default::default()).collect());
        let hash = self.hasher.hash_one(client);
        let set = &sets[hash as usize % SETS];
        // Zero is a free slot.
        let tag = hash.max(1);
        let own = slot(set, tag).map(|slot| &slot.detector);
        ScanSubject::Client { own, unclassified: &self.unclassified }
    }
}

/// Returns the key's slot and counts a request of it.
fn slot(set: &[Slot; WAYS], tag: u64) -> Option<&Slot> {
    if let Some(slot) = set.iter().find(|slot| slot.tag.get() == tag) {
        slot.activity.set((slot.activity.get() + 1).min(ACTIVITY_MAX));
        return Some(slot);
    }
    if let Some(free) = set.iter().find(|slot| slot.activity.get() == 0) {
        free.tag.set(tag);
        free.activity.set(1);
        free.detector.reset();
        return Some(free);
    }
    set.iter().for_each(|slot| slot.activity.set(slot.activity.get() - 1));
    None
}

#[cfg(test)]
mod tests {
    use super::super::ROUND;
    use super::*;

    fn key(client: u32) -> ClientKey {
        let mut key = [4; 17];
        key[1..5].copy_from_slice(&client.to_be_bytes());
        key
    }

    fn note(detectors: &ClientDetectors, client: u32, is_hit: bool, baseline: &BaselineHitRatio) {
        let kind = if is_hit { LookupKind::Hit } else { LookupKind::Miss };
        detectors.subject(&key(client)).note(kind, 1, baseline);
    }

    #[test]
    fn a_scanning_client_is_found_among_clients_that_send_few_requests_each() {
        let detectors = ClientDetectors::default();
        let baseline = BaselineHitRatio::default();
        let scan = 1_000_000_000;
        // 100,000 clients that send one request each, and one that sends a hundredth of all.
        for client in 0..100_000 {
            note(&detectors, client, !client.is_multiple_of(5), &baseline);
            if client.is_multiple_of(100) {
                note(&detectors, scan, client.is_multiple_of(400), &baseline);
            }
        }
        assert!((0.7..0.85).contains(&baseline.get()), "{}", baseline.get());
        assert_eq!(detectors.subject(&key(scan)).mode(), ReadMode::NoAdmit);
        assert_eq!(detectors.subject(&key(7)).mode(), ReadMode::Normal);
    }

    #[test]
    fn a_scan_at_twice_the_others_rate_does_not_become_the_baseline() {
        let detectors = ClientDetectors::default();
        let baseline = BaselineHitRatio::default();
        let scan = 1_000_000_000;
        // Each client misses every fifth time.
        let other = |n: u32| note(&detectors, n % 50, !(n / 50).is_multiple_of(5), &baseline);
        (0..30_000).for_each(other);
        for n in 0..100_000 {
            other(n);
            note(&detectors, scan, n.is_multiple_of(4), &baseline);
            note(&detectors, scan, n % 4 == 1, &baseline);
        }
        assert_eq!(detectors.subject(&key(scan)).mode(), ReadMode::NoAdmit);
        (0..50).for_each(|n| assert_eq!(detectors.subject(&key(n)).mode(), ReadMode::Normal));
    }

    #[test]
    fn a_slot_is_taken_over_only_after_as_many_requests_of_others() {
        let set: [Slot; WAYS] = Default::default();
        (1..=8).for_each(|tag| assert!(slot(&set, tag).is_some()));
        (0..3).for_each(|_| assert!(slot(&set, 1).is_some()));
        assert!(slot(&set, 9).is_none(), "all have been active");
        assert!(slot(&set, 9).is_some());
        assert_eq!(slot(&set, 1).map(|slot| slot.activity.get()), Some(4));
        (0..2 * ACTIVITY_MAX).for_each(|_| assert!(slot(&set, 1).is_some()));
        assert_eq!(set[0].activity.get(), ACTIVITY_MAX);
    }

    #[test]
    fn a_taken_slot_starts_anew() {
        let baseline = BaselineHitRatio::default();
        baseline.set(0.8);
        let set: [Slot; WAYS] = Default::default();
        let detector = &slot(&set, 1).expect("a free slot").detector;
        (0..ROUND + 1).for_each(|_| detector.note(LookupKind::Miss, 1, &baseline));
        assert!(detector.is_classified() && detector.mode() == ReadMode::NoAdmit);
        set[0].activity.set(0);
        let taken = &slot(&set, 2).expect("the free slot").detector;
        assert!(std::ptr::eq(detector, taken), "the first free one");
        assert!(!taken.is_classified() && taken.mode() == ReadMode::Normal);
        assert_eq!(taken.looked_up.get(), 0);
    }

    #[test]
    fn a_worker_without_proxies_has_no_table() {
        assert!(ClientDetectors::default().sets.get().is_none());
        assert!(size_of::<Slot>() <= 40, "{}", size_of::<Slot>());
    }
}
