//! Followers of changes: `GET /_changes/{collection}` as server-sent events.
//!
//! Reading order: here (what all followers share), `request` (from a request to an answer),
//! `stream` (one follower), `events` (its text), `worker` (waking the followers of a worker),
//! `judge` (its credential, again and again).
//!
//! [`hotrow_push`] decides when a change may leave and what is replayed. A follower is a body of an
//! answer that is never complete. It reads from the shared log when its worker wakes it, a little
//! more than [`FRAME_BYTES`] at a time at most, and nothing more before its client has taken that.

mod counts;
pub mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hotrow_access::caller::Peer;
use hotrow_answer::clients::{Clients, CountedConnection};
use hotrow_answer::collections::Collections;
#[cfg(feature = "failpoints")]
use hotrow_cache::{Cache, Safeguard};
#[cfg(feature = "failpoints")]
use hotrow_push::FollowPlant;
use hotrow_push::{
    ChangeLog, Config as LogConfig, Cursor, Event, Opening, Progress, ResumeId, Usage,
};
use hotrow_source::Change;
#[cfg(feature = "failpoints")]
use hotrow_source::ReadFailure;
use hotrow_types::key::CollectionId;
use hotrow_types::source::SourceId;
use hotrow_types::version::{ChangeId, Position, Version};
use parking_lot::Mutex;
use tokio::sync::watch;

pub use self::counts::{EndCause, FollowCounts};

pub use self::worker::WorkerFollowers;
use hotrow_config::follow::Follow as Settings;

/// Bytes of events from which a follower gets no more at once.
pub const FRAME_BYTES: usize = 4 << 10;
/// Most changes that a follower looks at while it holds the lock of the log.
pub const CHANGES_PER_READ: usize = 64;

/// What all followers share with the feed.
#[derive(Debug)]
pub struct Follows {
    /// By source.
    logs: Box<[SourceLog]>,
    /// By collection.
    sources: Box<[SourceId]>,
    /// Raised whenever followers must look.
    version: watch::Sender<u64>,
    settings: Settings,
    followers: AtomicUsize,
    /// Changes are purged in front: they are wanted without a follower.
    has_purger: bool,
    clients: Option<Arc<Clients>>,
    /// What operators see.
    pub counts: FollowCounts,
}

/// Changes of one source.
#[derive(Debug)]
struct SourceLog {
    log: Mutex<ChangeLog>,
    /// Followers wait for changes that are not proven visible.
    wants_proof: AtomicBool,
}

/// A follower's places in the counts; returned when dropped.
#[derive(Debug)]
pub struct FollowerGuard {
    follows: Arc<Follows>,
    _client: Option<CountedConnection>,
}

impl FollowerGuard {
    /// Returns what followers share.
    pub fn follows(&self) -> &Arc<Follows> {
        &self.follows
    }
}

impl Drop for FollowerGuard {
    fn drop(&mut self) {
        self.follows.followers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reason for which a follower is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// `follow.followers`.
    Full,
    /// `follow.followers_per_client`.
    TooMany,
}

impl Follows {
    /// Creates what followers share; `None`: no collection may be followed, and none is purged.
    /// `purged`: collections whose changes are purged in front. `generation`: random.
    pub fn new(
        settings: &Settings,
        purged: &[CollectionId],
        collections: &Collections,
        generation: u32,
    ) -> Option<Arc<Self>> {
        if settings.collections.is_empty() && purged.is_empty() {
            return None;
        }
        let sources: Box<[SourceId]> =
            collections.all().iter().map(|collection| collection.source).collect();
        let count = sources.iter().map(|source| source.index() + 1).max().unwrap_or(0);
        let bytes = settings.window_bytes;
        let config = LogConfig { window_bytes: bytes, pending_bytes: bytes, generation };
        let log = |source| {
            let mut followed = vec![false; sources.len()];
            for CollectionId(id) in settings.collections.iter().chain(purged) {
                let id = usize::from(*id);
                if sources.get(id).is_some_and(|own| own.index() == source) {
                    followed[id] = true;
                }
            }
            let log = Mutex::new(ChangeLog::new(&config, &followed));
            SourceLog { log, wants_proof: AtomicBool::new(false) }
        };
        Some(Arc::new(Self {
            logs: (0..count).map(log).collect(),
            sources,
            version: watch::Sender::new(0),
            settings: settings.clone(),
            followers: AtomicUsize::new(0),
            has_purger: !purged.is_empty(),
            clients: Clients::new(settings.followers_per_client),
            counts: FollowCounts::default(),
        }))
    }

    /// Plants the mistake that a test asks for.
    #[cfg(feature = "failpoints")]
    pub fn plant(&self, cache: &Cache<ReadFailure>) {
        let plants = [
            (Safeguard::FollowProof, FollowPlant::PushedHidden),
            (Safeguard::FollowLastId, FollowPlant::IdOnFirstEvent),
            (Safeguard::FollowRest, FollowPlant::ResumeSkipsRest),
            (Safeguard::FollowBeginning, FollowPlant::NoResetAtBeginning),
            (Safeguard::FollowReplay, FollowPlant::RegisteredLate),
        ];
        if let Some((_, plant)) = plants.iter().find(|(safeguard, _)| !cache.has(*safeguard)) {
            self.logs.iter().for_each(|own| own.log.lock().plant(*plant));
        }
    }

    /// Returns whether clients may follow a collection.
    pub fn is_followed(&self, collection: CollectionId) -> bool {
        self.settings.collections.contains(&collection)
    }

    /// Returns the source of a collection.
    pub fn source(&self, CollectionId(id): CollectionId) -> SourceId {
        self.sources[usize::from(id)]
    }

    /// Returns the log that has the changes of a collection.
    pub fn log(&self, collection: CollectionId) -> &Mutex<ChangeLog> {
        &self.logs[self.source(collection).index()].log
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the number of followers.
    pub(crate) fn followers(&self) -> usize {
        self.followers.load(Ordering::Relaxed)
    }

    pub(crate) fn usage(&self) -> Usage {
        self.logs.iter().fold(Usage::default(), |sum, own| sum + own.log.lock().usage())
    }

    /// Returns whether the feed should prove soon what is visible: followers or purges wait for it.
    pub(crate) fn wants_proof(&self, source: SourceId) -> bool {
        let wants = |own: &SourceLog| own.wants_proof.load(Ordering::Relaxed);
        let is_wanted = self.has_purger || self.followers() > 0;
        is_wanted && self.logs.get(source.index()).is_some_and(wants)
    }

    /// Takes a place for a follower.
    pub fn admit(self: &Arc<Self>, client: Peer) -> Result<FollowerGuard, NotAdmitted> {
        if self.followers.fetch_add(1, Ordering::Relaxed) >= self.settings.followers {
            self.followers.fetch_sub(1, Ordering::Relaxed);
            return Err(NotAdmitted::Full);
        }
        // Dropped with its place, if the client has too many.
        let mut guard = FollowerGuard { follows: Arc::clone(self), _client: None };
        if let Some(clients) = &self.clients {
            guard._client = Some(clients.enter(client).ok_or(NotAdmitted::TooMany)?);
        }
        Ok(guard)
    }

    /// Returns a version that changes whenever there is something to read.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Reads changes of a collection, about [`CHANGES_PER_READ`] of them.
    pub(crate) fn read(
        &self,
        id: CollectionId,
        cursor: &mut Cursor,
        take: &mut dyn FnMut(Event<'_>),
    ) -> Progress {
        self.log(id).lock().read(id, cursor, &|_| true, CHANGES_PER_READ, take)
    }

    /// Sets a reader of a collection to where its replay begins.
    pub fn open(&self, id: CollectionId, last: Option<ResumeId>) -> Option<(Cursor, Opening)> {
        self.log(id).lock().open(id, last)
    }

    fn update(&self, source: SourceId, act: impl FnOnce(&mut ChangeLog) -> bool) {
        // Without collections a source has no log.
        let Some(own) = self.logs.get(source.index()) else { return };
        let mut log = own.log.lock();
        let has_news = act(&mut log);
        own.wants_proof.store(log.wants_proof(), Ordering::Relaxed);
        drop(log);
        if has_news {
            self.version.send_modify(|version| *version += 1);
        }
    }
}

/// What the feed of a source reports, after the cache has applied it.
impl Follows {
    pub(crate) fn changes(&self, source: SourceId, changes: &[Change]) {
        self.update(source, |log| {
            let mut has_news = false;
            for Change { key, mark } in changes {
                has_news |= log.change(key, *mark);
            }
            has_news
        });
    }

    pub(crate) fn flush(&self, source: SourceId, collection: CollectionId, mark: Option<ChangeId>) {
        self.update(source, |log| log.flush(collection, mark));
    }

    pub(crate) fn open_gap(&self, source: SourceId, collection: CollectionId) {
        self.update(source, |log| {
            log.open_gap(collection);
            true
        });
    }

    pub(crate) fn close_gap(&self, source: SourceId, collection: CollectionId) {
        self.update(source, |log| {
            log.close_gap(collection);
            true
        });
    }

    pub(crate) fn loss(&self, source: SourceId) {
        self.update(source, |log| {
            log.lose();
            true
        });
    }

    pub(crate) fn started(&self, source: SourceId, position: Option<Position>) {
        self.update(source, |log| {
            log.begin(position);
            true
        });
    }

    pub(crate) fn advance(
        &self,
        source: SourceId,
        position: Option<Position>,
        visible: Option<&Version>,
    ) {
        self.update(source, |log| log.advance(position, visible));
    }
}
