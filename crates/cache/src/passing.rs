//! Which answers are not kept: those read for someone who roams over everything, and for nobody else.
//!
//! A client that reads all records alike makes each of them look used, to any policy that only sees keys. What tells it apart is
//! that it finds little (`server::habits`). What is read for it passes: the answer is given and not kept, unless it asked for the
//! same lately, so that a client whose records are merely others than everybody's is not shut out for ever.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::key::Key;
use crate::{Cache, Wish};

/// Of the entries that fit, the share of keys that are remembered as asked for by those who roam. Few, or a client that reads at
/// random would often ask for one of them again.
const REMEMBERED_SHARE: f64 = 1.0 / 16.0;
const REMEMBERED_MIN: u64 = 1 << 8;
const REMEMBERED_MAX: u64 = 1 << 20;
/// Slots for reads under way; more than a few batches of 1,000 keys need.
const MARKS: usize = 1 << 14;

impl<E: Clone> Cache<E> {
    /// The wish as the configuration has it.
    pub(crate) fn granted(&self, wish: Wish) -> Wish {
        if wish == Wish::Passing && !self.config.isolate_scans { Wish::Any } else { wish }
    }

    /// Notes for whom the keys are read that are queued now; under the desk's lock.
    pub(crate) fn note_readers(&self, unread: &[&Key], wish: Wish) {
        let passes = wish == Wish::Passing && !unread.is_empty() && self.store.is_full();
        for key in unread {
            let hash = self.hash(key);
            if passes { self.passing.mark(hash) } else { self.passing.keep(hash) }
        }
    }
}

/// Marks on keys, by hash. A key that finds its slot taken takes it over: the other is forgotten, which keeps its answer.
#[derive(Debug)]
pub(crate) struct Passing {
    /// Keys whose read now under way is for those who roam alone.
    marks: Box<[AtomicU32]>,
    /// Keys that those asked for last.
    asked: Box<[AtomicU32]>,
}

impl Passing {
    /// For a cache into which so many entries fit.
    pub(crate) fn new(entries: u64) -> Self {
        let remembered = ((entries as f64 * REMEMBERED_SHARE) as u64).clamp(REMEMBERED_MIN, REMEMBERED_MAX);
        let table = |slots: usize| (0..slots).map(|_| AtomicU32::new(0)).collect();
        // At most 2^20, so it fits.
        Self { marks: table(MARKS), asked: table(remembered.next_power_of_two() as usize) }
    }

    /// A read was queued for someone who roams.
    pub(crate) fn mark(&self, hash: u64) {
        let (asked, tag) = place(&self.asked, hash);
        let again = asked.swap(tag, Relaxed) == tag;
        place(&self.marks, hash).0.store(if again { 0 } else { tag }, Relaxed);
    }

    /// Someone else waits for it too, or queued it.
    pub(crate) fn keep(&self, hash: u64) {
        let _ = self.take(hash);
    }

    /// Whether the answer that has come is not to be kept; forgets that.
    pub(crate) fn take(&self, hash: u64) -> bool {
        let (mark, tag) = place(&self.marks, hash);
        // Looked at first, for nearly always it is not there.
        mark.load(Relaxed) == tag && mark.compare_exchange(tag, 0, Relaxed, Relaxed).is_ok()
    }
}

/// A key's slot, by the low bits of its hash, and what stands in it, by the high ones; nought is no key. Tables have 2^n slots.
fn place(table: &[AtomicU32], hash: u64) -> (&AtomicU32, u32) {
    (&table[(hash as usize) & (table.len() - 1)], ((hash >> 32) as u32).max(1))
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;
    use crate::Lookup;
    use crate::config::Config;
    use crate::testkit::*;

    /// A cache that has begun to push entries out, by its ids from 1,000 on.
    fn full(isolate_scans: bool) -> TestCache {
        let cache = cache(Config { capacity_bytes: 20_000, query_keys: 1, isolate_scans, ..config() });
        for id in 1_000..1_300 {
            read(&cache, id, &[Wish::Any]);
        }
        assert!(cache.store.is_full());
        cache
    }

    /// Those who wish look the record up, one after the other, and then it is read. Whether it is kept.
    fn read(cache: &TestCache, id: i64, wishes: &[Wish]) -> bool {
        let mut waiters: Vec<_> = wishes.iter().map(|wish| waiter(cache.lookup(&key(id), *wish, START))).collect();
        let mut turn = cache.turn(FIRST).unwrap();
        assert_eq!(turn.next_query(START).unwrap(), [key(id)]);
        turn.complete(answers(7, 1), START);
        assert!(turn.next_query(START).is_none());
        waiters.iter_mut().for_each(|waiter| assert_eq!(body(poll(waiter)), Some(7)));
        cache.peek(&key(id), START).is_some()
    }

    #[test]
    fn what_only_those_who_roam_ask_for_is_answered_and_not_kept() {
        let cache = full(true);
        assert!(!read(&cache, 1, &[Wish::Passing]));
        assert!(!read(&cache, 2, &[Wish::Passing, Wish::Passing]));
        assert!(read(&cache, 3, &[Wish::Passing, Wish::Any]), "another waits too");
        assert!(read(&cache, 4, &[Wish::Any, Wish::Passing]));
        assert!(read(&cache, 1, &[Wish::Passing]), "asked for again");
        assert!(read(&cache, 2, &[Wish::Any]));
        assert_eq!(cache.stats(FIRST).passing_total, 2);
        assert!(matches!(cache.lookup(&key(1), Wish::Passing, START), Lookup::Hit(..)), "what is there is found");
    }

    #[test]
    fn what_is_missing_is_kept_for_everybody() {
        let cache = full(true);
        let mut waiter = waiter(cache.lookup(&key(1), Wish::Passing, START));
        let mut turn = cache.turn(FIRST).unwrap();
        turn.next_query(START).unwrap();
        turn.complete(missing(7, 1), START);
        assert_eq!(body(poll(&mut waiter)), None);
        assert!(matches!(cache.lookup(&key(1), Wish::Any, START), Lookup::Negative(..)));
    }

    #[test]
    fn all_is_kept_while_there_is_room_and_where_scans_are_not_isolated() {
        assert!(read(&cache(Config { query_keys: 1, ..config() }), 1, &[Wish::Passing]));
        assert!(read(&full(false), 1, &[Wish::Passing]));
    }

    #[test]
    fn what_is_asked_for_once_passes_and_what_is_asked_for_again_or_by_others_is_kept() {
        let passing = Passing::new(100_000);
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert!(!passing.take(hash(1)), "nobody roams");
        passing.mark(hash(1));
        assert!(passing.take(hash(1)));
        assert!(!passing.take(hash(1)), "each mark is for one read");
        passing.mark(hash(1));
        assert!(!passing.take(hash(1)), "asked for again");
        passing.mark(hash(2));
        passing.keep(hash(2));
        assert!(!passing.take(hash(2)), "others wait too");
        // Another key in the same slot.
        passing.mark(hash(3));
        let same_slot = hash(3) ^ (1 << 40);
        passing.mark(same_slot);
        assert!(!passing.take(hash(3)) && passing.take(same_slot));
    }
}
