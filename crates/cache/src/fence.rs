//! Fence against Race B: changes that the feed has delivered and that a read may not see yet.
//!
//! Every database but SQLite sends a change when it is written to the log, before it is visible to
//! other sessions. A read sent after the change was handled may still return the old row, and no
//! later event would invalidate it. So each such change is remembered until every future read sees
//! it. An answer that does not see all changes of its key is given to its waiters and not stored.

use std::collections::HashSet;

use foldhash::fast::FixedState;

use hotrow_types::key::Key;
use hotrow_types::version::{ChangeId, Version};

/// Most transactions remembered per collection; beyond it the fence is coarser, never open.
const TRANSACTIONS_MAX: usize = 4096;
/// Most keys remembered per collection; beyond it a transaction concerns every key.
const KEYS_MAX: usize = 65_536;
/// Most logs with transactions beyond the bound, each represented by its last one; beyond it the
/// fence stays closed until the feed restarts. Only MySQL has several logs: each source of GTIDs is
/// one.
const OVERFLOWS_MAX: usize = 64;

/// Fence of one collection. Also counts the queries in flight: a change is forgotten only when no
/// query remains that was sent before the change was known to be visible.
#[derive(Debug)]
pub(crate) struct Fence {
    hidden: Vec<Hidden>,
    keys: usize,
    /// Transactions beyond the bound: a read must contain everything up to each of these.
    overflow: Vec<ChangeId>,
    /// More than [`OVERFLOWS_MAX`] of them: nothing is stored any more.
    closed: bool,
    /// Point of the log that follows the start of the newest commit record forgotten.
    forgotten: u64,
    sent: u64,
    /// Number of queries sent when a change of the collection last became known to be visible.
    shown_at: u64,
    under_way: Vec<u64>,
    hasher: FixedState,
}

/// A delivered transaction that some read may not see.
#[derive(Debug)]
struct Hidden {
    mark: ChangeId,
    /// `None`: every key.
    keys: Option<HashSet<Key, FixedState>>,
    /// Number of queries sent when it was known to be visible; later ones see it.
    visible_at: Option<u64>,
}

impl Fence {
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self {
            hidden: Vec::new(),
            keys: 0,
            overflow: Vec::new(),
            closed: false,
            forgotten: 0,
            sent: 0,
            shown_at: 0,
            under_way: Vec::new(),
            hasher,
        }
    }

    /// Registers a query; the returned number is for [`Self::query_ended`].
    pub(crate) fn query_sent(&mut self) -> u64 {
        self.sent += 1;
        self.under_way.push(self.sent);
        self.sent
    }

    pub(crate) fn query_ended(&mut self, number: u64) {
        self.under_way.retain(|&other| other != number);
        self.forget();
    }

    /// Registers a delivered change of `key`, or of every key. Changes of a log in order of
    /// visibility need no fence: every query sent from now on sees them.
    pub(crate) fn delivered(&mut self, mark: ChangeId, key: Option<&Key>) {
        if matches!(mark, ChangeId::Log(_)) {
            return self.shown();
        }
        let known = self.hidden.last().is_some_and(|last| last.mark == mark);
        if !known && self.hidden.len() >= TRANSACTIONS_MAX {
            self.no_room(mark);
            return;
        }
        if !known {
            let keys = key.map(|_| HashSet::with_hasher(self.hasher.clone()));
            self.hidden.push(Hidden { mark, keys, visible_at: None });
        }
        let Some(last) = self.hidden.last_mut() else { return };
        match (key, last.keys.as_mut()) {
            (_, None) => {}
            (Some(key), Some(keys)) if self.keys < KEYS_MAX => {
                self.keys += usize::from(keys.insert(key.clone()))
            }
            (_, Some(keys)) => {
                self.keys -= keys.len();
                last.keys = None;
            }
        }
    }

    /// Keeps only the last transaction of each log that exceeds the bound.
    fn no_room(&mut self, mark: ChangeId) {
        for last in &mut self.overflow {
            if let Some(later) = last.later(&mark) {
                *last = later;
                return;
            }
        }
        if self.overflow.len() < OVERFLOWS_MAX {
            self.overflow.push(mark);
        } else {
            self.closed = true;
        }
    }

    /// Returns whether `version` may lack a delivered change of `key`.
    pub(crate) fn hides(&self, key: &Key, version: &Version) -> bool {
        let unseen = |hidden: &Hidden| !version.contains(&hidden.mark);
        self.closed
            || self.overflow.iter().any(|mark| !version.contains_through(mark))
            || self.hidden.iter().any(|hidden| unseen(hidden) && hidden.concerns(key))
    }

    /// Returns whether `version` may lack a delivered change of `key` that committed before the
    /// point `bound` of the log.
    pub(crate) fn hides_before(&self, key: &Key, version: &Version, bound: u64) -> bool {
        let is_before = |mark: &ChangeId| commit_of(mark).is_none_or(|commit| commit < bound);
        let unseen = |hidden: &Hidden| !version.contains(&hidden.mark) && is_before(&hidden.mark);
        self.closed
            || self.overflow.iter().any(|mark| !version.contains_through(mark))
            || self.hidden.iter().any(|hidden| unseen(hidden) && hidden.concerns(key))
    }

    /// Returns whether `version` may lack a delivered change of `key`, or of any key, up to the
    /// point `end` of the log. Changes without a known point count.
    pub(crate) fn hides_up_to(&self, key: Option<&Key>, version: &Version, end: u64) -> bool {
        let is_after = |mark: &ChangeId| match mark {
            // The start of the commit record, which lies before the end of the log that it is in.
            ChangeId::Transaction { commit, .. } => *commit >= end,
            ChangeId::Commit(at) => at.at > end,
            ChangeId::Log(_) | ChangeId::Gtid(_) => false,
        };
        let concerns = |hidden: &Hidden| key.is_none_or(|key| hidden.concerns(key));
        let unseen = |mark: &ChangeId| !version.contains(mark) && !is_after(mark);
        self.closed
            || self.overflow.iter().any(|mark| !version.contains_through(mark))
            || self.hidden.iter().any(|hidden| unseen(&hidden.mark) && concerns(hidden))
    }

    /// Returns the least point of the log that a standby must have replayed in order to see every
    /// delivered change of `key`, forgotten ones included; `None` when no point is known to do.
    pub(crate) fn replayed_at_least(&self, key: &Key) -> Option<u64> {
        self.unforgotten_at_least(key).map(|least| least.max(self.forgotten))
    }

    /// The same without those that were forgotten.
    pub(crate) fn unforgotten_at_least(&self, key: &Key) -> Option<u64> {
        if self.closed {
            return None;
        }
        let mut least = 0;
        let hidden = self.hidden.iter().filter(|hidden| hidden.concerns(key));
        for mark in hidden.map(|hidden| &hidden.mark).chain(&self.overflow) {
            least = least.max(commit_of(mark)? + 1);
        }
        Some(least)
    }

    /// Returns whether a read may exist that does not see a delivered change of `key`.
    pub(crate) fn concerns(&self, key: &Key) -> bool {
        self.closed
            || !self.overflow.is_empty()
            || self.hidden.iter().any(|hidden| hidden.concerns(key))
    }

    /// Notes that queries sent so far may lack a change that later ones see.
    pub(crate) fn shown(&mut self) {
        self.shown_at = self.sent;
    }

    /// Returns whether a change of `key`, or of any key, became known to be visible after the query
    /// of this number was sent. Clients informed of it since may not get that query's answer.
    pub(crate) fn shown_since(&self, query: u64, key: Option<&Key>) -> bool {
        let is_since = |hidden: &Hidden| hidden.visible_at.is_some_and(|at| at >= query);
        let concerns =
            |key| self.hidden.iter().any(|hidden| is_since(hidden) && hidden.concerns(key));
        self.closed || self.shown_at >= query && key.is_none_or(concerns)
    }

    /// Returns whether nothing is fenced.
    pub(crate) fn is_open(&self) -> bool {
        self.hidden.is_empty() && self.overflow.is_empty() && !self.closed
    }

    /// Records that a read has seen `version`: queries sent from now on see at least that.
    pub(crate) fn seen(&mut self, version: &Version) {
        for hidden in self.hidden.iter_mut().filter(|hidden| hidden.visible_at.is_none()) {
            if version.contains(&hidden.mark) {
                hidden.visible_at = Some(self.sent);
                self.shown_at = self.sent;
            }
        }
        // Kept for queries in flight as well: it becomes a transaction of every key that is known
        // to be visible.
        for mark in self.overflow.extract_if(.., |mark| version.contains_through(mark)) {
            self.hidden.push(Hidden { mark, keys: None, visible_at: Some(self.sent) });
            self.shown_at = self.sent;
        }
        self.forget();
    }

    /// Forgets everything: another log begins, and transactions of the old one have no meaning in
    /// it.
    pub(crate) fn clear(&mut self) {
        self.hidden.clear();
        self.keys = 0;
        self.overflow.clear();
        self.closed = false;
        self.forgotten = 0;
    }

    fn forget(&mut self) {
        let oldest = self.under_way.iter().copied().min().unwrap_or(u64::MAX);
        let mut keys = self.keys;
        let mut forgotten = self.forgotten;
        self.hidden.retain(|hidden| {
            let kept = hidden.visible_at.is_none_or(|at| at >= oldest);
            if !kept {
                keys -= hidden.keys.as_ref().map_or(0, HashSet::len);
                forgotten = forgotten.max(commit_of(&hidden.mark).map_or(0, |commit| commit + 1));
            }
            kept
        });
        self.keys = keys;
        self.forgotten = forgotten;
    }
}

impl Hidden {
    fn concerns(&self, key: &Key) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.contains(key))
    }
}

/// Returns where the commit record of a change starts, in a log that standbys replay.
fn commit_of(mark: &ChangeId) -> Option<u64> {
    match mark {
        ChangeId::Transaction { commit, .. } => Some(*commit),
        ChangeId::Log(_) | ChangeId::Commit(_) | ChangeId::Gtid(_) => None,
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testkit::key;
    use hotrow_types::version::{Gtid, GtidSet, Position, Snapshot, SourceId};

    fn snapshot(xmin: u64, xmax: u64, running: &[u64]) -> Version {
        Version::Snapshot {
            incarnation: 1,
            snapshot: Arc::new(Snapshot { xmin, xmax, running: running.to_vec() }),
        }
    }

    fn transaction(xid: u64) -> ChangeId {
        ChangeId::Transaction { xid, commit: 10 * xid }
    }

    fn replayed(at: u64) -> Version {
        let at = Position { incarnation: 1, at };
        Version::Replayed { from: at, to: at }
    }

    #[test]
    fn a_standby_needs_all_that_was_delivered_of_its_key_and_all_that_was_forgotten() {
        let mut fence = Fence::new(1);
        assert_eq!(fence.replayed_at_least(&key(1)), Some(0));
        fence.delivered(transaction(10), Some(&key(1)));
        fence.delivered(transaction(12), Some(&key(2)));
        assert_eq!(fence.replayed_at_least(&key(1)), Some(101));
        assert_eq!(fence.replayed_at_least(&key(2)), Some(121));
        assert!(fence.hides(&key(1), &replayed(100)) && !fence.hides(&key(1), &replayed(101)));
        fence.seen(&snapshot(11, 11, &[]));
        assert_eq!(fence.replayed_at_least(&key(9)), Some(101), "forgotten: for every key");
        assert!(!fence.hides_before(&key(2), &snapshot(11, 13, &[12]), 120));
        assert!(fence.hides_before(&key(2), &snapshot(11, 13, &[12]), 121));
        for xid in 13..13 + TRANSACTIONS_MAX as u64 {
            fence.delivered(transaction(xid), Some(&key(3)));
        }
        let last = 10 * (12 + TRANSACTIONS_MAX as u64);
        assert_eq!(fence.replayed_at_least(&key(9)), Some(last + 1), "beyond the bound");
        fence.clear();
        assert_eq!(fence.replayed_at_least(&key(1)), Some(0));
    }

    #[test]
    fn only_the_keys_of_unseen_transactions_are_hidden() {
        let mut fence = Fence::new(1);
        fence.delivered(transaction(10), Some(&key(1)));
        fence.delivered(transaction(10), Some(&key(2)));
        fence.delivered(transaction(12), Some(&key(3)));
        let reads = snapshot(10, 13, &[10]);
        assert_eq!(
            [1, 2, 3, 4].map(|id| fence.hides(&key(id), &reads)),
            [true, true, false, false]
        );
        assert!(!fence.hides(&key(1), &snapshot(11, 13, &[11])));
        assert!(fence.hides(&key(1), &Version::Unknown), "when in doubt");
    }

    #[test]
    fn a_change_of_everything_hides_every_key() {
        let mut fence = Fence::new(1);
        fence.delivered(transaction(10), Some(&key(1)));
        fence.delivered(transaction(10), None);
        assert!(fence.hides(&key(9), &snapshot(10, 11, &[10])));
        assert_eq!(fence.keys, 0);
    }

    #[test]
    fn a_change_is_forgotten_when_every_query_sees_it() {
        let mut fence = Fence::new(1);
        let before = fence.query_sent();
        fence.delivered(transaction(10), Some(&key(1)));
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
    fn every_feed_ahead_of_reads_is_fenced() {
        let at = |at| Position { incarnation: 7, at };
        let source = SourceId::new(5, "").unwrap();
        let gtid = |number| ChangeId::Gtid(Gtid { source, number });
        let gtids = |numbers: &str| {
            Version::Gtids(Arc::new(
                GtidSet::parse(&format!("00000000-0000-0000-0000-000000000005:{numbers}")).unwrap(),
            ))
        };
        let cases = [
            (ChangeId::Commit(at(9)), Version::Log(at(8)), Version::Log(at(9))),
            (
                ChangeId::Commit(at(9)),
                Version::Span { from: at(8), to: at(9) },
                Version::Span { from: at(9), to: at(9) },
            ),
            (gtid(3), gtids("1-2:4"), gtids("1-3")),
        ];
        for (mark, blind, seeing) in cases {
            let mut fence = Fence::new(1);
            fence.delivered(mark, Some(&key(1)));
            assert!(
                fence.hides(&key(1), &blind)
                    && !fence.hides(&key(1), &seeing)
                    && !fence.hides(&key(2), &blind)
            );
            fence.seen(&blind);
            assert!(!fence.is_open());
            fence.seen(&seeing);
            assert!(fence.is_open());
        }
        let mut fence = Fence::new(1);
        fence.delivered(ChangeId::Log(at(9)), Some(&key(1)));
        assert!(fence.is_open(), "a log never ahead of its rows");
    }

    #[test]
    fn too_many_servers_transactions_close_the_fence() {
        let mut fence = Fence::new(1);
        let of = |server: u128, number| {
            ChangeId::Gtid(Gtid { source: SourceId::new(server, "").unwrap(), number })
        };
        (1..=TRANSACTIONS_MAX as u64).for_each(|number| fence.delivered(of(1, number), None));
        fence.delivered(of(2, 9), None);
        fence.delivered(of(2, 7), None);
        assert_eq!(fence.overflow, [of(2, 9)], "the last of each");
        let reading = fence.query_sent();
        (3..=OVERFLOWS_MAX as u128 + 2).for_each(|server| fence.delivered(of(server, 1), None));
        assert!(fence.closed && fence.concerns(&key(1)) && fence.hides(&key(1), &Version::Unknown));
        assert!(fence.shown_since(reading, Some(&key(1))), "its clients may know what it forgot");
        fence.clear();
        assert!(fence.is_open());
    }

    #[test]
    fn without_room_the_fence_is_coarser_but_closed() {
        let mut fence = Fence::new(1);
        for xid in 1..=TRANSACTIONS_MAX as u64 + 5 {
            fence.delivered(transaction(xid), Some(&key(1)));
        }
        let last = TRANSACTIONS_MAX as u64 + 5;
        assert!(fence.hides(&key(2), &snapshot(last, last + 1, &[last])));
        assert!(!fence.hides(&key(2), &snapshot(last + 1, last + 1, &[])));
        let reading = fence.query_sent();
        assert!(!fence.shown_since(reading, None));
        fence.seen(&snapshot(last + 1, last + 1, &[]));
        assert!(fence.shown_since(reading, Some(&key(2))), "it may have been of any key");
        assert!(
            fence.hides(&key(2), &snapshot(last, last + 1, &[last])),
            "the query of before may end later"
        );
        fence.query_ended(reading);
        assert!(fence.is_open());
        for id in 0..=KEYS_MAX as i64 {
            fence.delivered(transaction(last + 1), Some(&key(id)));
        }
        assert!(fence.hides(&key(-1), &snapshot(last + 1, last + 2, &[last + 1])));
    }
}
