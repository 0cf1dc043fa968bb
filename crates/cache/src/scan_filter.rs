//! Scan filter: answers read only for clients that scan are not admitted to the cache.
//!
//! A client that reads all records equally makes each of them look used to any policy that sees
//! only keys. Its low hit ratio reveals it (`server::scan_detector`). An answer read for such a
//! client alone is given and not stored, unless a scanning client requested the same key recently;
//! otherwise a client whose records differ from those of all others would be locked out for ever.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::{Cache, ReadMode};
use hotrow_types::key::Key;

/// Number of keys remembered as requested by scanning clients, as a share of the entries that fit.
/// Small, because a client that reads at random would otherwise often repeat a remembered key.
const REMEMBERED_SHARE: f64 = 1.0 / 16.0;
const REMEMBERED_MIN: u64 = 1 << 8;
const REMEMBERED_MAX: u64 = 1 << 20;
/// Slots for reads in flight; more than a few batches of 1,000 keys need.
const MARKS: usize = 1 << 14;

impl<E: Clone> Cache<E> {
    /// Returns the mode after applying the configuration.
    pub(crate) fn granted(&self, mode: ReadMode) -> ReadMode {
        if mode == ReadMode::NoAdmit && !self.config.isolate_scans {
            ReadMode::Normal
        } else {
            mode
        }
    }

    /// Notes for which mode the queued keys are read; called under the queue's lock.
    pub(crate) fn note_readers(&self, unread: &[&Key], mode: ReadMode) {
        let passes = mode == ReadMode::NoAdmit && !unread.is_empty() && self.store.is_full();
        for key in unread {
            let hash = self.hash(key);
            if passes { self.scan_filter.mark(hash) } else { self.scan_filter.unmark(hash) }
        }
    }
}

/// Marks on keys, by hash. A key whose slot is taken replaces the other mark, whose answer is then
/// admitted.
#[derive(Debug)]
pub(crate) struct ScanFilter {
    /// Keys whose read in flight serves scanning clients alone.
    marks: Box<[AtomicU32]>,
    /// Keys that scanning clients requested last.
    requested: Box<[AtomicU32]>,
}

impl ScanFilter {
    /// Creates the filter of a cache with room for `entries`.
    pub(crate) fn new(entries: u64) -> Self {
        let remembered =
            ((entries as f64 * REMEMBERED_SHARE) as u64).clamp(REMEMBERED_MIN, REMEMBERED_MAX);
        let table = |slots: usize| (0..slots).map(|_| AtomicU32::new(0)).collect();
        // At most 2^20, so it fits.
        Self { marks: table(MARKS), requested: table(remembered.next_power_of_two() as usize) }
    }

    /// Marks the key of a read queued for a scanning client.
    pub(crate) fn mark(&self, hash: u64) {
        let (requested, tag) = slot(&self.requested, hash);
        let again = requested.swap(tag, Relaxed) == tag;
        slot(&self.marks, hash).0.store(if again { 0 } else { tag }, Relaxed);
    }

    /// Removes the mark: another client waits for the key or queued it.
    pub(crate) fn unmark(&self, hash: u64) {
        let _ = self.take(hash);
    }

    /// Returns whether the arrived answer must not be admitted, and removes the mark.
    pub(crate) fn take(&self, hash: u64) -> bool {
        let (mark, tag) = slot(&self.marks, hash);
        // Loaded first, because the mark is nearly always absent.
        mark.load(Relaxed) == tag && mark.compare_exchange(tag, 0, Relaxed, Relaxed).is_ok()
    }
}

/// Returns the slot of a key, by the low bits of its hash, and its content, by the high ones; zero
/// is no key. Tables have 2^n slots.
fn slot(table: &[AtomicU32], hash: u64) -> (&AtomicU32, u32) {
    (&table[(hash as usize) & (table.len() - 1)], ((hash >> 32) as u32).max(1))
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;
    use crate::Lookup;
    use crate::config::Config;
    use crate::testkit::*;

    /// Creates a cache that has begun to evict, with ids from 1,000 on.
    fn full(isolate_scans: bool) -> TestCache {
        let cache =
            cache(Config { capacity_bytes: 20_000, query_keys: 1, isolate_scans, ..config() });
        for id in 1_000..1_300 {
            read(&cache, id, &[ReadMode::Normal]);
        }
        assert!(cache.store.is_full());
        cache
    }

    /// Looks the record up once per mode, then completes the read. Returns whether it is stored.
    fn read(cache: &TestCache, id: i64, modes: &[ReadMode]) -> bool {
        let mut waiters: Vec<_> =
            modes.iter().map(|mode| waiter(cache.lookup(&key(id), *mode, START))).collect();
        let mut loader = cache.batch_loader(FIRST).unwrap();
        assert_eq!(loader.next_batch(START).unwrap(), [key(id)]);
        loader.complete(answers(7, 1), START);
        assert!(loader.next_batch(START).is_none());
        waiters.iter_mut().for_each(|waiter| assert_eq!(body(poll(waiter)), Some(7)));
        cache.peek(&key(id), START).is_some()
    }

    #[test]
    fn records_requested_only_by_scanning_clients_are_answered_and_not_kept() {
        let cache = full(true);
        assert!(!read(&cache, 1, &[ReadMode::NoAdmit]));
        assert!(!read(&cache, 2, &[ReadMode::NoAdmit, ReadMode::NoAdmit]));
        assert!(read(&cache, 3, &[ReadMode::NoAdmit, ReadMode::Normal]), "another waits too");
        assert!(read(&cache, 4, &[ReadMode::Normal, ReadMode::NoAdmit]));
        assert!(read(&cache, 1, &[ReadMode::NoAdmit]), "requested again");
        assert!(read(&cache, 2, &[ReadMode::Normal]));
        assert_eq!(cache.stats(FIRST).fills_not_admitted_total, 2);
        assert!(
            matches!(cache.lookup(&key(1), ReadMode::NoAdmit, START), Lookup::Hit(..)),
            "what is there is found"
        );
    }

    #[test]
    fn missing_records_are_kept_for_all_clients() {
        let cache = full(true);
        let mut waiter = waiter(cache.lookup(&key(1), ReadMode::NoAdmit, START));
        let mut loader = cache.batch_loader(FIRST).unwrap();
        loader.next_batch(START).unwrap();
        loader.complete(missing(7, 1), START);
        assert_eq!(body(poll(&mut waiter)), None);
        assert!(matches!(cache.lookup(&key(1), ReadMode::Normal, START), Lookup::Negative(..)));
    }

    #[test]
    fn everything_is_kept_with_room_or_without_scan_isolation() {
        assert!(read(&cache(Config { query_keys: 1, ..config() }), 1, &[ReadMode::NoAdmit]));
        assert!(read(&full(false), 1, &[ReadMode::NoAdmit]));
    }

    #[test]
    fn records_requested_again_or_by_others_are_kept() {
        let filter = ScanFilter::new(100_000);
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert!(!filter.take(hash(1)), "no client scans");
        filter.mark(hash(1));
        assert!(filter.take(hash(1)));
        assert!(!filter.take(hash(1)), "each mark is for one read");
        filter.mark(hash(1));
        assert!(!filter.take(hash(1)), "requested again");
        filter.mark(hash(2));
        filter.unmark(hash(2));
        assert!(!filter.take(hash(2)), "others wait too");
        // Another key in the same slot.
        filter.mark(hash(3));
        let same_slot = hash(3) ^ (1 << 40);
        filter.mark(same_slot);
        assert!(!filter.take(hash(3)) && filter.take(same_slot));
    }
}
