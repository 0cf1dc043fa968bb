//! State that the feed publishes to the readers: the server, the read plan of each collection or
//! the reason that it has none, and recently changed keys whose changes may not be visible to reads
//! yet.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_types::key::{Key, KeySchema};
use hotrow_types::version::{ChangeId, Gtid, GtidSet};
use parking_lot::Mutex;

use super::embedded_rules::EmbeddedRules;
use super::inspect::Table;
use super::plan::ReadPlan;
use super::server::Identity;
use hotrow_source::origin::Origins;
use hotrow_source::published::{Published, key_is_unchanged};
use tokio::sync::Notify;

/// Plan that readers use.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Generation of the connections. One of another generation leads to another server or to an
    /// outdated state of this one.
    pub(crate) generation: u64,
    pub(crate) identity: Identity,
    /// Per collection the statement, or the reason that it has none.
    pub(crate) collections: Vec<Result<Arc<ReadPlan>, Arc<str>>>,
    /// Recent changes of the feed's current session.
    pub(crate) recent: Arc<Recent>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    schemas: Arc<[KeySchema]>,
    pub(crate) published: Published<Plan>,
    /// Queries sent since the start.
    pub(crate) queries: AtomicU64,
    /// The server that the feed's sessions lead to, for a service that follows a change hub.
    pub(crate) origins: Arc<Origins>,
    /// The change hub reports that the log went back: earlier positions have another meaning.
    pub(crate) went_back: Notify,
    embedded_rules: EmbeddedRules,
}

impl Shared {
    /// Creates the state in which nothing can be read until [`Shared::publish`]. `schemas` are the
    /// keys of the start. A table whose key has changed since cannot be read.
    pub(crate) fn new(schemas: Arc<[KeySchema]>, embedded_rules: EmbeddedRules) -> Self {
        Self {
            schemas,
            published: Published::nothing("the database has not been inspected yet"),
            queries: AtomicU64::new(0),
            origins: Arc::default(),
            went_back: Notify::new(),
            embedded_rules,
        }
    }

    /// Publishes the server and tables that readers use from now on. Connections to another server
    /// become outdated. Returns the recent changes of the feed's new session: points of an earlier
    /// one are meaningless now.
    pub(crate) fn publish(
        &self,
        identity: Identity,
        tables: &[Result<Table, String>],
    ) -> Arc<Recent> {
        let mut current = self.published.write();
        if current.as_ref().is_ok_and(|plan| plan.identity != identity) {
            self.published.next_generation();
        }
        let collections = tables
            .iter()
            .enumerate()
            .map(|(i, table)| self.statement(i, table, &identity))
            .collect();
        let recent = Arc::new(Recent::new());
        let plan = Plan {
            generation: self.published.generation(),
            identity,
            collections,
            recent: Arc::clone(&recent),
        };
        *current = Ok(Arc::new(plan));
        recent
    }

    /// Replaces the plan of one collection. Does nothing if it is unchanged or if nothing can be
    /// read.
    pub(crate) fn set_table(&self, collection: usize, table: &Result<Table, String>) {
        let mut current = self.published.write();
        let Ok(plan) = current.as_mut() else { return };
        let statement = self.statement(collection, table, &plan.identity);
        if plan.collections.get(collection).is_some_and(|before| *before != statement) {
            Arc::make_mut(plan).collections[collection] = statement;
        }
    }

    /// Returns whether readers know no definition of a collection that fits.
    pub(crate) fn is_unreadable(&self, collection: usize) -> bool {
        let plan = self.published.plan();
        plan.is_ok_and(|plan| plan.collections.get(collection).is_some_and(Result::is_err))
    }

    /// Forgets recent changes: the feed starts anew, and points of before may mean other commits.
    pub(crate) fn renew_recent(&self) {
        if let Ok(plan) = self.published.write().as_mut() {
            Arc::make_mut(plan).recent = Arc::new(Recent::new());
        }
    }

    /// Makes readers open new connections, because the account's privileges changed and open
    /// connections keep some privileges of their login.
    pub(crate) fn reconnect(&self) {
        let mut current = self.published.write();
        let generation = self.published.next_generation();
        if let Ok(plan) = current.as_mut() {
            Arc::make_mut(plan).generation = generation;
        }
    }

    pub(crate) fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    fn statement(
        &self,
        collection: usize,
        table: &Result<Table, String>,
        identity: &Identity,
    ) -> Result<Arc<ReadPlan>, Arc<str>> {
        let table = table.as_ref().map_err(|why| Arc::<str>::from(why.as_str()))?;
        key_is_unchanged(
            self.schemas.get(collection),
            &table.key_schema(),
            &table.read_name().table,
        )?;
        Ok(Arc::new(ReadPlan::new(table, identity, self.embedded_rules)))
    }
}

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
    fn new() -> Self {
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
    use hotrow_types::key::{CollectionId, KeyPart, KeyType};

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
