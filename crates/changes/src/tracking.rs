//! Client-side caching (`CLIENT TRACKING` of the Redis protocol): clients that keep copies of what
//! they read, and get the keys of those that have changed.
//!
//! Reading order: here (what all workers share with the feeds), `worker` (the clients of one
//! worker), `mailbox` (what waits for one connection), `access` (credentials of clients, judged
//! again), `counts`.
//!
//! [`hotrow_push::invalidation`] decides when a change leaves, and [`hotrow_push::tracking`] who
//! gets it. A reply may be kept by its client only if memory holds the very record that was
//! replied ([`Cache::keeps_until`](hotrow_cache::Cache::keeps_until)); any other is followed by its
//! invalidation. So whatever keeps a record out of memory (the fence, a dead lease, an open gap)
//! keeps it out of the clients' memories too.

mod counts;
mod mailbox;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use hotrow_cache::Cache;
use hotrow_measure::clock::Nanos;
use hotrow_push::invalidation::{Invalidation, InvalidationBounds, InvalidationLog, Reading};
#[cfg(feature = "failpoints")]
use hotrow_push::tracking::TrackingPlant;
use hotrow_push::tracking::TrackingTable;
use hotrow_source::{Change, ReadFailure};
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::source::SourceId;
use hotrow_types::version::{ChangeId, Version};
use parking_lot::Mutex;
use tokio::sync::watch;

pub(crate) use self::counts::TrackingCounts;
pub use self::mailbox::{CHANNEL, Mailbox, Owner, Redirect};

use hotrow_config::Config;

/// Bytes of released invalidations: a worker that is further behind has its clients give up
/// everything.
const RELEASED_BYTES_MAX: usize = 1 << 20;
/// Bytes of changes of one source that wait for the proof that they are visible.
const UNPROVEN_BYTES_MAX: usize = 1 << 20;

/// What all workers share with the feeds.
#[derive(Debug)]
pub struct Tracking {
    log: Mutex<InvalidationLog>,
    /// Raised whenever workers must look.
    version: watch::Sender<u64>,
    /// Clients that track, of all workers. Without any, changes are not noted.
    clients: AtomicUsize,
    /// By source: clients wait for changes that are not proven visible.
    wants_proof: Box<[AtomicBool]>,
    /// Connections that may be named as the target of invalidations, by their number.
    mailboxes: Mutex<HashMap<u64, Weak<Mailbox>>>,
    /// Most bytes of one worker's table.
    bytes_per_worker: usize,
    /// What operators see.
    pub counts: TrackingCounts,
    /// Mistake that a test has planted.
    #[cfg(feature = "failpoints")]
    pub plant: TrackingPlant,
}

/// Returns the mistake that a test has planted.
#[cfg(feature = "failpoints")]
fn planted(cache: &Cache<ReadFailure>) -> TrackingPlant {
    use hotrow_cache::Safeguard;
    let plants = [
        (Safeguard::CopyInterest, TrackingPlant::RegisteredLate),
        (Safeguard::CopyOrder, TrackingPlant::PushedBeforeReply),
        (Safeguard::CopyFence, TrackingPlant::HiddenReplyKept),
        (Safeguard::CopySpelling, TrackingPlant::SecondSpellingForgotten),
        (Safeguard::CopyBeginning, TrackingPlant::NothingAtBeginning),
    ];
    let found = plants.into_iter().find(|(safeguard, _)| !cache.has(*safeguard));
    found.map_or(TrackingPlant::None, |(_, plant)| plant)
}

impl Tracking {
    /// Creates what workers share; `None`: there is no Redis protocol.
    pub fn new(config: &Config, cache: &Cache<ReadFailure>) -> Option<Arc<Self>> {
        let redis = config.transport.redis?;
        // Longest wait of a change for the proof that it is visible.
        let proof_wait = cache.config().max_staleness;
        let sources = cache.source_count();
        let bounds = InvalidationBounds {
            released_bytes: RELEASED_BYTES_MAX,
            unproven_bytes: UNPROVEN_BYTES_MAX,
            proof_wait,
        };
        Some(Arc::new(Self {
            log: Mutex::new(InvalidationLog::new(bounds, sources)),
            version: watch::Sender::new(0),
            clients: AtomicUsize::new(0),
            wants_proof: (0..sources).map(|_| AtomicBool::new(false)).collect(),
            mailboxes: Mutex::default(),
            bytes_per_worker: redis.tracking_bytes / config.workers.max(1),
            counts: TrackingCounts::default(),
            #[cfg(feature = "failpoints")]
            plant: planted(cache),
        }))
    }

    /// Returns whether a client tracks. In one order with registrations: a change that is applied
    /// before a client registers is seen by its lookups.
    fn is_watched(&self) -> bool {
        self.clients.load(Ordering::SeqCst) > 0
    }

    /// Notes a client that begins to track.
    pub fn client_began(&self) {
        self.clients.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes the end of a client that tracks.
    pub fn client_ended(&self) {
        self.clients.fetch_sub(1, Ordering::SeqCst);
    }

    /// Creates the table of a worker.
    pub fn new_table(&self) -> TrackingTable {
        #[cfg_attr(not(feature = "failpoints"), allow(unused_mut, reason = "nothing is planted"))]
        let mut table = TrackingTable::new(self.bytes_per_worker);
        #[cfg(feature = "failpoints")]
        table.plant(self.plant);
        table
    }

    /// Returns the number of sources.
    pub fn source_count(&self) -> usize {
        self.wants_proof.len()
    }

    /// Returns the place behind the last released invalidation.
    pub fn log_end(&self) -> u64 {
        self.log.lock().end()
    }

    /// Reads released invalidations from `place` on, and moves it behind them.
    pub fn read_log(&self, place: &mut u64, max: usize, out: &mut Vec<Invalidation>) -> Reading {
        self.log.lock().read(place, max, out)
    }

    /// Returns a receiver that changes whenever workers must look at the log.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Returns whether the feed should prove soon what is visible: clients wait for it.
    pub(crate) fn wants_proof(&self, source: SourceId) -> bool {
        let wants = |own: &AtomicBool| own.load(Ordering::Relaxed);
        self.wants_proof.get(source.index()).is_some_and(wants) && self.is_watched()
    }

    fn update(&self, source: SourceId, act: impl FnOnce(&mut InvalidationLog) -> bool) {
        let mut log = self.log.lock();
        let has_news = act(&mut log);
        if let Some(own) = self.wants_proof.get(source.index()) {
            own.store(log.wants_proof(source), Ordering::Relaxed);
        }
        drop(log);
        if has_news {
            self.version.send_modify(|version| *version += 1);
        }
    }

    /// Names the connection of this number for invalidations, if it is open and has this owner.
    pub fn redirect(&self, id: u64, owner: &Owner) -> Option<Redirect> {
        let mailbox = self.mailboxes.lock().get(&id)?.upgrade()?;
        Redirect::to(&mailbox, owner)
    }

    /// Makes the mailbox of a connection.
    pub fn open_mailbox(self: &Arc<Self>, id: u64, owner: Owner) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::new(id, owner, Arc::clone(self)));
        self.mailboxes.lock().insert(id, Arc::downgrade(&mailbox));
        mailbox
    }

    fn close_mailbox(&self, id: u64) {
        self.mailboxes.lock().remove(&id);
    }
}

/// What the feed of a source reports, after the cache has applied it, and what operators purge.
impl Tracking {
    pub(crate) fn changes(&self, source: SourceId, changes: &[Change]) {
        if !self.is_watched() {
            return;
        }
        let now = Nanos::now();
        self.update(source, |log| {
            let mut has_news = false;
            for Change { key, mark } in changes {
                has_news |= log.change(source, Invalidation::Record(key.clone()), *mark, now);
            }
            has_news
        });
    }

    /// All records of a collection have changed.
    pub fn flush(&self, source: SourceId, collection: CollectionId, mark: Option<ChangeId>) {
        if !self.is_watched() {
            return;
        }
        let flushed = Invalidation::Collection(collection);
        self.update(source, |log| match mark {
            Some(mark) => log.change(source, flushed, mark, Nanos::now()),
            None => {
                log.now(flushed);
                true
            }
        });
    }

    /// Changes of a source may be missed from now on.
    pub(crate) fn reset(&self, source: SourceId) {
        if self.is_watched() {
            self.update(source, |log| {
                log.reset(source);
                true
            });
        }
    }

    /// A new feed begins.
    pub(crate) fn started(&self, source: SourceId) {
        #[cfg(feature = "failpoints")]
        if self.plant == TrackingPlant::NothingAtBeginning {
            return;
        }
        self.reset(source);
    }

    pub(crate) fn advance(&self, source: SourceId, visible: Option<&Version>) {
        if self.is_watched() {
            self.update(source, |log| log.advance(source, visible, Nanos::now()));
        }
    }

    /// An operator has purged a record.
    pub fn purged(&self, source: SourceId, key: &Key) {
        if self.is_watched() {
            self.update(source, |log| {
                log.now(Invalidation::Record(key.clone()));
                true
            });
        }
    }
}
