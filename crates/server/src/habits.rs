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
/// The same of one that roams. Little, so that even a scan many times as busy as all others does not become what is usual; not nothing,
/// or all would roam for ever once everybody's requests have changed.
const ROAMING_WEIGHT: f64 = ROUND_WEIGHT / 16.0;

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

/// The share of lookups that memory answers, usually: a moving average in which those who roam count little. Shared by all workers and
/// touched once a round; on cache lines of its own, for it stands beside what every hit reads.
#[derive(Debug, Default)]
#[repr(align(128))]
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
        let weight = if self.roams.get() { ROAMING_WEIGHT } else { ROUND_WEIGHT };
        usual.set(is_usual + weight * (share - is_usual));
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
mod tests;
