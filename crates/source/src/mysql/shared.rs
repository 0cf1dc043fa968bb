//! What the feed tells the readers: which server to read, how each collection is read, or that nothing can be; and which
//! keys were told lately whose changes readers may not see yet.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_cache::key::{Key, KeySchema};
use parking_lot::RwLock;

use super::inspect::Table;
use super::plan::ReadPlan;
use super::server::Identity;

/// What readers read by.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// A connection opened for another generation leads to another server, or to the same in a state that is gone.
    pub(crate) generation: u64,
    /// Which server it must be.
    pub(crate) identity: Identity,
    /// Per collection the statement, or why there is none.
    pub(crate) collections: Vec<Result<Arc<ReadPlan>, Arc<str>>>,
    /// Of the feed's present session.
    pub(crate) recent: Arc<Recent>,
}

/// State shared by feed and readers.
#[derive(Debug)]
pub(crate) struct Shared {
    schemas: Arc<[KeySchema]>,
    state: RwLock<Result<Arc<Plan>, Arc<str>>>,
    generation: AtomicU64,
    /// Queries sent since the start.
    pub(crate) queries: AtomicU64,
}

impl Shared {
    /// Nothing can be read until [`Shared::publish`]. `schemas` are the keys as they were at the start; a table whose
    /// key is another one by now cannot be read.
    pub(crate) fn new(schemas: Arc<[KeySchema]>) -> Self {
        Self {
            schemas,
            state: RwLock::new(Err("the database has not been looked at yet".into())),
            generation: AtomicU64::new(0),
            queries: AtomicU64::new(0),
        }
    }

    /// The current plan, or why nothing can be read.
    pub(crate) fn plan(&self) -> Result<Arc<Plan>, Arc<str>> {
        self.state.read().clone()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// From now on readers read this server, and so. Connections to another one are of the past. What is returned is for
    /// the feed's session that begins with this: points of the log of an earlier one mean nothing any more.
    pub(crate) fn publish(&self, identity: Identity, tables: &[Result<Table, String>]) -> Arc<Recent> {
        let mut state = self.state.write();
        if state.as_ref().is_ok_and(|plan| plan.identity != identity) {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        let collections = tables.iter().enumerate().map(|(i, table)| self.statement(i, table, &identity)).collect();
        let recent = Arc::new(Recent::new());
        let (generation, plan_recent) = (self.generation(), Arc::clone(&recent));
        *state = Ok(Arc::new(Plan { generation, identity, collections, recent: plan_recent }));
        recent
    }

    /// From now on one collection is read so, or cannot be. Nothing happens when that is so already, or when nothing can
    /// be read at all.
    pub(crate) fn set_table(&self, collection: usize, table: &Result<Table, String>) {
        let mut state = self.state.write();
        let Ok(plan) = state.as_mut() else { return };
        let statement = self.statement(collection, table, &plan.identity);
        if plan.collections.get(collection).is_some_and(|current| *current != statement) {
            Arc::make_mut(plan).collections[collection] = statement;
        }
    }

    /// From now on nothing can be read, and every open connection is of the past.
    pub(crate) fn down(&self, why: &str) {
        let mut state = self.state.write();
        self.generation.fetch_add(1, Ordering::AcqRel);
        *state = Err(why.into());
    }

    /// Tells readers more about why nothing can be read.
    pub(crate) fn explain(&self, why: &str) {
        let mut state = self.state.write();
        if state.is_err() {
            *state = Err(why.into());
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
        match table {
            // Ids in flight, and the feed's keys, were made by the key at the start.
            Ok(table) if self.schemas.get(collection).is_none_or(|s| s.types() != table.key_schema().types()) => {
                Err(format!(
                    "the key of `{}` changed its type since the start; restart to serve it by the new one",
                    table.name.table
                )
                .into())
            }
            Ok(table) => Ok(Arc::new(ReadPlan::new(table, identity))),
            Err(why) => Err(why.as_str().into()),
        }
    }
}

/// Places for keys that were told lately; more keys than that share.
const PLACES: usize = 4096;

/// What one session of the feed knows of MariaDB's commits between the log and visibility: the log has a commit before
/// other sessions see it. A read of a key that was told past the newest point known to be visible must find out for itself
/// what it sees, which costs the server some ten times as much as a plain read; all others are plain.
///
/// Points are those of [`hotrow_cache::version::Position`]. What is forgotten or shared here only makes reads dearer:
/// whether an answer may be kept is decided by its version.
#[derive(Debug)]
pub(crate) struct Recent {
    /// Every commit up to here is visible to a read that begins now.
    visible: AtomicU64,
    /// Per place, the end of the newest commit that told one of its keys.
    told: Box<[AtomicU64]>,
    /// The end of the newest commit that told a whole collection.
    flushed: AtomicU64,
}

impl Recent {
    fn new() -> Self {
        let told = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { visible: AtomicU64::new(0), told, flushed: AtomicU64::new(0) }
    }

    /// The feed is about to tell that `key` changed in the commit that ends at `at`: to be called before the sink is.
    pub(crate) fn telling(&self, key: &Key, at: u64) {
        self.told[place(key)].fetch_max(at, Ordering::AcqRel);
    }

    /// The feed is about to flush a collection for a commit that ends at `at`: to be called before the sink is.
    pub(crate) fn flushing(&self, at: u64) {
        self.flushed.fetch_max(at, Ordering::AcqRel);
    }

    /// Somebody saw every commit up to `at` of this session's log.
    pub(crate) fn saw(&self, at: u64) {
        self.visible.fetch_max(at, Ordering::AcqRel);
    }

    /// What a plain read of these keys sees at least, if that is enough to be kept.
    pub(crate) fn plain(&self, keys: &[Key]) -> Option<u64> {
        let visible = self.visible.load(Ordering::Acquire);
        let quiet = |place: &AtomicU64| place.load(Ordering::Acquire) <= visible;
        (quiet(&self.flushed) && keys.iter().all(|key| quiet(&self.told[place(key)]))).then_some(visible)
    }
}

fn place(key: &Key) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    // Fewer places than fit 32 bits.
    hasher.finish() as usize % PLACES
}

#[cfg(test)]
mod tests {
    use hotrow_cache::key::{CollectionId, KeyPart, KeyType};

    use super::*;

    #[test]
    fn a_key_is_read_plainly_once_its_commit_was_seen() {
        let schema = KeySchema::new(CollectionId(0), vec![KeyType::Integer]);
        let key = |id| schema.key(&[KeyPart::Integer(id)]).unwrap();
        let (a, b) = (key(1), (2..).map(key).find(|b| place(b) != place(&key(1))).unwrap());
        let recent = Recent::new();
        assert_eq!(recent.plain(std::slice::from_ref(&a)), Some(0));
        recent.telling(&a, 40);
        recent.saw(30);
        assert_eq!(recent.plain(std::slice::from_ref(&b)), Some(30));
        assert_eq!((recent.plain(std::slice::from_ref(&a)), recent.plain(&[b.clone(), a.clone()])), (None, None));
        recent.saw(40);
        assert_eq!(recent.plain(&[a.clone(), b.clone()]), Some(40));
        recent.flushing(50);
        assert_eq!(recent.plain(std::slice::from_ref(&b)), None);
        recent.saw(60);
        // What is seen never goes back.
        recent.saw(10);
        assert_eq!(recent.plain(&[a, b]), Some(60));
    }
}
