//! Who roams: a connection whose requests find in memory far less than others' usually do reads everything alike, as a batch job or
//! a crawler does. What is read for it is not kept for the others' cost ([`Wish::Passing`]).
//!
//! Judged by connection, for that is what one client is as long as nobody stands in between; a proxy's connections carry what all its
//! clients ask for, and do not roam. The connection whose requests are being handled is known to its thread: requests carry nothing
//! for it, and the hit path counts in two plain cells.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hotrow_cache::Wish;

use crate::lookups::LookupKind;

/// Lookups after which a connection is judged anew. The share of hits among so many is known within 4 points (standard deviation).
const ROUND: u32 = 128;
/// Who finds less than this share of what is usual roams. W5's batch job finds a quarter of the records, the others four fifths.
const ROAMS_BELOW: f64 = 0.6;
/// How much one round of one connection counts for what is usual.
const ROUND_WEIGHT: f64 = 1.0 / 16.0;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Habits>>> = const { RefCell::new(None) };
}

/// The lookups of one connection. One thread uses it.
#[derive(Debug, Default)]
pub(crate) struct Habits {
    looked_up: Cell<u32>,
    found: Cell<u32>,
    roams: Cell<bool>,
}

/// The share of lookups that memory answers, usually: of those who do not roam, a moving average. Shared by all workers and touched
/// once a round.
#[derive(Debug, Default)]
pub(crate) struct Usual(AtomicU64);

/// Runs `work`, in which requests of the connection with these habits are handled.
pub(crate) fn while_current<T>(habits: &Rc<Habits>, work: impl FnOnce() -> T) -> T {
    /// Leaves nobody's habits behind, after a panic neither.
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.with_borrow_mut(|current| *current = None);
        }
    }
    CURRENT.with_borrow_mut(|current| *current = Some(habits.clone()));
    let _restore = Restore;
    work()
}

/// What the current connection's requests for any answer wish.
pub(crate) fn wish() -> Wish {
    let roams = CURRENT.with_borrow(|current| current.as_ref().is_some_and(|habits| habits.roams.get()));
    if roams { Wish::Passing } else { Wish::Any }
}

/// Notes what a lookup of the current connection came to.
pub(crate) fn note(kind: LookupKind, usual: &Usual) {
    CURRENT.with_borrow(|current| {
        if let Some(habits) = current {
            habits.note(kind, usual);
        }
    });
}

impl Habits {
    fn note(&self, kind: LookupKind, usual: &Usual) {
        let found = match kind {
            LookupKind::Hit | LookupKind::Negative | LookupKind::Stale => 1,
            LookupKind::Miss | LookupKind::Wait => 0,
            // They tell nothing about what is asked for.
            LookupKind::Bypass | LookupKind::Refused => return,
        };
        self.looked_up.set(self.looked_up.get() + 1);
        self.found.set(self.found.get() + found);
        if self.looked_up.get() == ROUND {
            self.judge(usual);
        }
    }

    fn judge(&self, usual: &Usual) {
        let share = f64::from(self.found.take()) / f64::from(self.looked_up.take());
        let is_usual = usual.get();
        self.roams.set(share < ROAMS_BELOW * is_usual);
        if !self.roams.get() {
            usual.set(is_usual + ROUND_WEIGHT * (share - is_usual));
        }
    }
}

impl Usual {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }

    /// When two connections end a round at once, one of the rounds may be lost.
    fn set(&self, share: f64) {
        self.0.store(share.to_bits(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(habits: &Rc<Habits>, usual: &Usual, hits_percent: u32) -> Wish {
        while_current(habits, || {
            for i in 0..ROUND {
                note(if i * 100 < hits_percent * ROUND { LookupKind::Hit } else { LookupKind::Miss }, usual);
            }
            wish()
        })
    }

    #[test]
    fn who_finds_far_less_than_usual_roams_until_he_finds_it_again() {
        let (usual, good, other) = (Usual::default(), Rc::new(Habits::default()), Rc::new(Habits::default()));
        assert_eq!(round(&other, &usual, 0), Wish::Any, "at the start nobody finds anything");
        (0..100).for_each(|_| assert_eq!(round(&good, &usual, 80), Wish::Any));
        assert_eq!(round(&other, &usual, 60), Wish::Any);
        let before = usual.get();
        for _ in 0..100 {
            assert_eq!(round(&other, &usual, 25), Wish::Passing);
        }
        assert!((usual.get() - before).abs() < f64::EPSILON, "who roams does not set what is usual");
        assert_eq!(round(&good, &usual, 80), Wish::Any);
        assert_eq!(round(&other, &usual, 70), Wish::Any);
        assert_eq!(wish(), Wish::Any, "nobody's requests");
    }

    #[test]
    fn refusals_and_reads_at_will_do_not_count() {
        let (usual, habits) = (Usual::default(), Rc::new(Habits::default()));
        (0..20).for_each(|_| _ = round(&habits, &usual, 90));
        while_current(&habits, || {
            for _ in 0..10 * ROUND {
                note(LookupKind::Bypass, &usual);
                note(LookupKind::Refused, &usual);
            }
            assert_eq!(wish(), Wish::Any);
        });
    }

    #[test]
    fn a_panic_leaves_nobody_current() {
        let habits = Rc::new(Habits { roams: Cell::new(true), ..Habits::default() });
        let work = std::panic::AssertUnwindSafe(|| while_current(&habits, || panic!("as the test asks")));
        assert!(std::panic::catch_unwind(work).is_err());
        assert_eq!(wish(), Wish::Any);
    }
}
