//! Recently changed keys, whose changes may not be visible to reads yet.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_types::key::Key;
use hotrow_types::version::{ChangeId, Gtid, GtidSet};
use parking_lot::Mutex;

/// Hash slots for recently changed keys. Further keys share them.
const SLOTS: usize = 4096;
/// Maximum of delivered transactions of MySQL that no probe has seen.
const PENDING_MAX: usize = 65_536;

/// Changes between log and visibility, in one session of the feed: the log has a commit before
/// other sessions see it. A read of a key that changed after the newest visible point must query
/// what is visible itself. That costs MariaDB about ten times as much as a plain read, and MySQL a
/// text of all its intervals of GTIDs. All other reads are plain.
///
/// Points are those of [`hotrow_types::version::Position`]. A shared or forgotten slot only makes
/// reads more expensive. Correctness does not depend on it: the version of an answer decides if the
/// answer may be cached.
#[derive(Debug)]
pub(crate) struct Recent {
    /// Point up to which every commit is visible to a read that begins now.
    visible: AtomicU64,
    /// Per slot, the end of the newest commit that changed one of its keys.
    changed: Box<[AtomicU64]>,
    /// End of the newest commit that flushed a collection.
    flushed: AtomicU64,
    gtids: Mutex<Gtids>,
}

/// Transactions of MySQL.
#[derive(Debug, Default)]
struct Gtids {
    /// Those of which the newest probe has seen that they are visible.
    visible: Option<Arc<GtidSet>>,
    /// Delivered ones that no probe has seen, by their ends.
    pending: VecDeque<(u64, Gtid)>,
}

impl Recent {
    pub(crate) fn new() -> Self {
        let changed = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        let visible = AtomicU64::new(0);
        Self { visible, changed, flushed: AtomicU64::new(0), gtids: Mutex::default() }
    }

    /// Records that `key` changed in the commit that ends at `at`. Call it before the sink receives
    /// the change.
    pub(crate) fn record_change(&self, key: &Key, at: u64) {
        self.changed[slot(key)].fetch_max(at, Ordering::AcqRel);
    }

    /// Records a flush for a commit that ends at `at`. Call it before the sink receives the flush.
    pub(crate) fn record_flush(&self, at: u64) {
        self.flushed.fetch_max(at, Ordering::AcqRel);
    }

    /// Records that the commit that ends at `at` has changes, before the sink receives them.
    pub(crate) fn record_commit(&self, mark: ChangeId, at: u64) {
        let mut gtids = self.gtids.lock();
        if let ChangeId::Gtid(gtid) = mark
            && gtids.pending.len() < PENDING_MAX
        {
            gtids.pending.push_back((at, gtid));
        }
    }

    /// Records that these transactions of MySQL are visible.
    pub(crate) fn mark_visible_gtids(&self, set: &Arc<GtidSet>) {
        let mut gtids = self.gtids.lock();
        // Before the point: a reader takes the set after the point.
        gtids.visible = Some(Arc::clone(set));
        while gtids.pending.front().is_some_and(|(_, gtid)| set.contains(gtid)) {
            if let Some((at, _)) = gtids.pending.pop_front() {
                self.mark_visible(at);
            }
        }
    }

    /// Returns the transactions that a plain read of these keys sees at least, if its answer may be
    /// cached.
    pub(crate) fn plain_read_gtids(&self, keys: &[Key]) -> Option<Arc<GtidSet>> {
        self.plain_read_point(keys)?;
        self.gtids.lock().visible.clone()
    }

    /// Records that every commit up to `at` of this session's log is visible.
    pub(crate) fn mark_visible(&self, at: u64) {
        self.visible.fetch_max(at, Ordering::AcqRel);
    }

    /// Returns the point that a plain read of these keys sees at least, if its answer may be
    /// cached.
    pub(crate) fn plain_read_point(&self, keys: &[Key]) -> Option<u64> {
        let visible = self.visible.load(Ordering::Acquire);
        let quiet = |slot: &AtomicU64| slot.load(Ordering::Acquire) <= visible;
        (quiet(&self.flushed) && keys.iter().all(|key| quiet(&self.changed[slot(key)])))
            .then_some(visible)
    }
}

fn slot(key: &Key) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    // The slots need fewer than 32 bits.
    hasher.finish() as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use hotrow_types::key::{CollectionId, KeyPart, KeySchema, KeyType};

    use super::*;

    #[test]
    fn a_key_is_read_plainly_once_its_commit_was_seen() {
        let schema = KeySchema::new(CollectionId(0), vec![KeyType::Integer]);
        let key = |id| schema.key(&[KeyPart::Integer(id)]).unwrap();
        let a = key(1);
        let b = (2..).map(key).find(|b| slot(b) != slot(&a)).unwrap();
        let recent = Recent::new();
        assert_eq!(recent.plain_read_point(std::slice::from_ref(&a)), Some(0));
        recent.record_change(&a, 40);
        recent.mark_visible(30);
        assert_eq!(recent.plain_read_point(std::slice::from_ref(&b)), Some(30));
        assert_eq!(
            (
                recent.plain_read_point(std::slice::from_ref(&a)),
                recent.plain_read_point(&[b.clone(), a.clone()])
            ),
            (None, None)
        );
        recent.mark_visible(40);
        assert_eq!(recent.plain_read_point(&[a.clone(), b.clone()]), Some(40));
        recent.record_flush(50);
        assert_eq!(recent.plain_read_point(std::slice::from_ref(&b)), None);
        recent.mark_visible(60);
        // The visible point never goes back.
        recent.mark_visible(10);
        assert_eq!(recent.plain_read_point(&[a, b]), Some(60));
    }

    #[test]
    fn transactions_of_mysql_become_visible_in_the_order_of_the_log() {
        let schema = KeySchema::new(CollectionId(0), vec![KeyType::Integer]);
        let keys = [schema.key(&[KeyPart::Integer(1)]).unwrap()];
        let uuid = "00000000-0000-0000-0000-000000000007";
        let set = |numbers: &str| Arc::new(GtidSet::parse(&format!("{uuid}:{numbers}")).unwrap());
        let recent = Recent::new();
        assert_eq!(recent.plain_read_gtids(&keys), None, "no probe yet");
        recent.mark_visible_gtids(&set("1-4"));
        assert_eq!(recent.plain_read_gtids(&keys), Some(set("1-4")));
        for (number, end) in [(5, 50), (6, 60)] {
            let source = hotrow_types::version::SourceId::new(7, "").unwrap();
            recent.record_commit(ChangeId::Gtid(Gtid { source, number }), end);
        }
        recent.record_change(&keys[0], 60);
        for (seen, expected) in [("1-4", false), ("1-4:6", false), ("1-5", false), ("1-6", true)] {
            recent.mark_visible_gtids(&set(seen));
            assert_eq!(recent.plain_read_gtids(&keys).is_some(), expected, "{seen}");
        }
    }
}
