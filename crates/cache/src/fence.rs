//! Fences against Race B: changes that the feed has delivered and that a read may not see yet.
//!
//! PostgreSQL sends a change when it is written to the log, before it is visible to other sessions. A read sent after the
//! change was handled may still bring the old row, and nothing would ever invalidate it. So each such change is
//! remembered until every read that is still to come sees it; an answer that does not see all of its key's is given to
//! those who wait and not kept.

use std::collections::HashSet;

use foldhash::fast::FixedState;

use crate::key::Key;
use crate::version::{Mark, Version};

/// Transactions remembered per collection; beyond these the fence is coarser, never open.
const TRANSACTIONS_MAX: usize = 4096;
/// Keys remembered per collection; beyond these a transaction concerns every key.
const KEYS_MAX: usize = 65_536;

/// One collection's fence. It also counts the queries under way: a change is forgotten only when no query is left that was
/// sent before the change was known to be visible.
#[derive(Debug)]
pub(crate) struct Fence {
    hidden: Vec<Hidden>,
    keys: usize,
    /// Transactions that found no room: a read must see everything up to this one.
    overflow: Option<u64>,
    sent: u64,
    under_way: Vec<u64>,
    hasher: FixedState,
}

/// A delivered transaction that some read may not see.
#[derive(Debug)]
struct Hidden {
    xid: u64,
    /// `None`: every key.
    keys: Option<HashSet<Key, FixedState>>,
    /// Queries sent when it was known to be visible: later ones see it.
    visible_at: Option<u64>,
}

impl Fence {
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self { hidden: Vec::new(), keys: 0, overflow: None, sent: 0, under_way: Vec::new(), hasher }
    }

    /// A query is sent; its number is for [`Self::query_ended`].
    pub(crate) fn query_sent(&mut self) -> u64 {
        self.sent += 1;
        self.under_way.push(self.sent);
        self.sent
    }

    pub(crate) fn query_ended(&mut self, number: u64) {
        self.under_way.retain(|&other| other != number);
        self.forget();
    }

    /// The feed delivered a change of `key`, or of every key. Logs in the order of visibility need no fence.
    pub(crate) fn delivered(&mut self, mark: Mark, key: Option<&Key>) {
        let Mark::Transaction(xid) = mark else { return };
        let known = self.hidden.last().is_some_and(|last| last.xid == xid);
        if !known && self.hidden.len() >= TRANSACTIONS_MAX {
            self.overflow = self.overflow.max(Some(xid));
            return;
        }
        if !known {
            let keys = key.map(|_| HashSet::with_hasher(self.hasher.clone()));
            self.hidden.push(Hidden { xid, keys, visible_at: None });
        }
        let Some(last) = self.hidden.last_mut() else { return };
        match (key, last.keys.as_mut()) {
            (_, None) => {}
            (Some(key), Some(keys)) if self.keys < KEYS_MAX => self.keys += usize::from(keys.insert(key.clone())),
            (_, Some(keys)) => {
                self.keys -= keys.len();
                last.keys = None;
            }
        }
    }

    /// Whether a delivered change of `key` may be missing in what `version` saw.
    pub(crate) fn hides(&self, key: &Key, version: &Version) -> bool {
        let unseen = |xid: u64| !version.sees(&Mark::Transaction(xid));
        let beyond = self.overflow.is_some_and(|xid| !sees_all_up_to(version, xid));
        beyond
            || self
                .hidden
                .iter()
                .any(|hidden| unseen(hidden.xid) && hidden.keys.as_ref().is_none_or(|keys| keys.contains(key)))
    }

    /// Whether there may be a read that does not see a delivered change of `key`.
    pub(crate) fn concerns(&self, key: &Key) -> bool {
        let concerns = |hidden: &Hidden| hidden.keys.as_ref().is_none_or(|keys| keys.contains(key));
        self.overflow.is_some() || self.hidden.iter().any(concerns)
    }

    /// Nothing is fenced.
    pub(crate) fn is_open(&self) -> bool {
        self.hidden.is_empty() && self.overflow.is_none()
    }

    /// A read has seen `version`: whatever is sent from now on sees at least that.
    pub(crate) fn seen(&mut self, version: &Version) {
        for hidden in self.hidden.iter_mut().filter(|hidden| hidden.visible_at.is_none()) {
            hidden.visible_at = version.sees(&Mark::Transaction(hidden.xid)).then_some(self.sent);
        }
        // Kept for queries under way as well: it becomes a transaction of every key that is known to be visible.
        if let Some(xid) = self.overflow.filter(|&xid| sees_all_up_to(version, xid)) {
            self.overflow = None;
            self.hidden.push(Hidden { xid, keys: None, visible_at: Some(self.sent) });
        }
        self.forget();
    }

    /// Another log begins: transactions of the old one say nothing.
    pub(crate) fn clear(&mut self) {
        self.hidden.clear();
        self.keys = 0;
        self.overflow = None;
    }

    fn forget(&mut self) {
        let oldest = self.under_way.iter().copied().min().unwrap_or(u64::MAX);
        let mut keys = self.keys;
        self.hidden.retain(|hidden| {
            let kept = hidden.visible_at.is_none_or(|at| at >= oldest);
            keys -= if kept { 0 } else { hidden.keys.as_ref().map_or(0, HashSet::len) };
            kept
        });
        self.keys = keys;
    }
}

/// Whether a read saw every transaction up to `xid` that ever commits.
fn sees_all_up_to(version: &Version, xid: u64) -> bool {
    matches!(version, Version::Snapshot(snapshot) if snapshot.xmin > xid)
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testkit::key;
    use crate::version::Snapshot;

    fn snapshot(xmin: u64, xmax: u64, running: &[u64]) -> Version {
        Version::Snapshot(Arc::new(Snapshot { xmin, xmax, running: running.to_vec() }))
    }

    #[test]
    fn only_the_keys_of_unseen_transactions_are_hidden() {
        let mut fence = Fence::new(1);
        fence.delivered(Mark::Transaction(10), Some(&key(1)));
        fence.delivered(Mark::Transaction(10), Some(&key(2)));
        fence.delivered(Mark::Transaction(12), Some(&key(3)));
        let reads = snapshot(10, 13, &[10]);
        assert_eq!([1, 2, 3, 4].map(|id| fence.hides(&key(id), &reads)), [true, true, false, false]);
        assert!(!fence.hides(&key(1), &snapshot(11, 13, &[11])));
        assert!(fence.hides(&key(1), &Version::Unknown), "when in doubt");
    }

    #[test]
    fn a_change_of_everything_hides_every_key() {
        let mut fence = Fence::new(1);
        fence.delivered(Mark::Transaction(10), Some(&key(1)));
        fence.delivered(Mark::Transaction(10), None);
        assert!(fence.hides(&key(9), &snapshot(10, 11, &[10])));
        assert_eq!(fence.keys, 0);
    }

    #[test]
    fn a_change_is_forgotten_when_no_query_is_left_that_may_not_see_it() {
        let mut fence = Fence::new(1);
        let before = fence.query_sent();
        fence.delivered(Mark::Transaction(10), Some(&key(1)));
        let between = fence.query_sent();
        fence.seen(&snapshot(11, 11, &[]));
        let after = fence.query_sent();
        assert!(fence.hides(&key(1), &snapshot(10, 11, &[10])), "a query of before may end later");
        fence.query_ended(before);
        assert!(!fence.is_open());
        fence.query_ended(between);
        assert!(fence.is_open(), "the last query was sent when the change was visible");
        fence.query_ended(after);
        assert_eq!(fence.keys, 0);
    }

    #[test]
    fn without_room_the_fence_is_coarser_and_not_open() {
        let mut fence = Fence::new(1);
        for xid in 1..=TRANSACTIONS_MAX as u64 + 5 {
            fence.delivered(Mark::Transaction(xid), Some(&key(1)));
        }
        let last = TRANSACTIONS_MAX as u64 + 5;
        assert!(fence.hides(&key(2), &snapshot(last, last + 1, &[last])));
        assert!(!fence.hides(&key(2), &snapshot(last + 1, last + 1, &[])));
        let reading = fence.query_sent();
        fence.seen(&snapshot(last + 1, last + 1, &[]));
        assert!(fence.hides(&key(2), &snapshot(last, last + 1, &[last])), "the query of before may end later");
        fence.query_ended(reading);
        assert!(fence.is_open());
        for id in 0..=KEYS_MAX as i64 {
            fence.delivered(Mark::Transaction(last + 1), Some(&key(id)));
        }
        assert!(fence.hides(&key(-1), &snapshot(last + 1, last + 2, &[last + 1])));
    }
}
