//! A database with a log, a feed that lags, reads that see the log at a moment of their own, and
//! the cache.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hotrow_measure::clock::Nanos;

use super::check::{Asked, Counts, Fences};
use super::db::{self, Commit, Db, Reveal, Versions};
use crate::config::{CollectionPolicy, Config};
use crate::flight::Waiter;
use crate::stats::Removal;
use crate::testkit::{Bell, ONLY, START, TestCache, TestError, key_of};
use crate::{Answers, BatchLoader, Cache, Fetched, ReadMode, Safeguard};
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::{ChangeId, Gtid, Position, Version};

pub(super) const BOUND: Duration = Duration::from_millis(100);
pub(super) const TTL: Duration = Duration::from_millis(600);
pub(super) const NEGATIVE_TTL: Duration = Duration::from_millis(250);
/// Longest wait of a request.
pub(super) const PATIENCE: Duration = Duration::from_millis(200);
const COLLECTIONS: u16 = 2;
const IDS: u16 = 7;

pub(super) struct Settings {
    pub(super) cache: Config,
    /// 0: the engine's reads have no version; 1: a snapshot; else a point of the log.
    pub(super) versions: Versions,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Look,
    LookNew,
    Batch,
    NextBatch,
    Complete,
    Commit,
    Reveal,
    Deliver,
    CatchUp,
    Clock,
    Poll,
    DropWaiter,
    DropTurn,
    Purge,
    Flush,
    Lose,
    Start,
}

impl Op {
    pub(super) fn of(byte: u8) -> Self {
        match byte {
            0..46 => Self::Look,
            46..50 => Self::Reveal,
            50..58 => Self::LookNew,
            58..72 => Self::Batch,
            72..104 => Self::NextBatch,
            104..138 => Self::Complete,
            138..160 => Self::Commit,
            160..172 => Self::Deliver,
            172..190 => Self::CatchUp,
            190..204 => Self::Clock,
            204..232 => Self::Poll,
            232..238 => Self::DropWaiter,
            238..244 => Self::DropTurn,
            244..246 => Self::Purge,
            246..248 => Self::Flush,
            248..250 => Self::Lose,
            250.. => Self::Start,
        }
    }
}

/// The feed: the delivered part of the log, and the probes it has not passed yet.
#[derive(Default)]
struct Feed {
    /// Commits before it were not delivered.
    began_at: u64,
    delivered: u64,
    probes: Vec<(Nanos, u64)>,
    lost: bool,
}

pub(super) struct Reader {
    pub(super) loader: BatchLoader<TestError>,
    /// The query in flight: its keys and the time at which it was sent.
    pub(super) query: Option<(Vec<Key>, Nanos)>,
}

pub(super) struct Pending {
    pub(super) waiter: Waiter<TestError>,
    pub(super) bell: Arc<Bell>,
    pub(super) rings_seen: Option<usize>,
    pub(super) asked: Asked,
}

pub(super) struct World {
    pub(super) cache: TestCache,
    versions: Versions,
    pub(super) now: Nanos,
    pub(super) db: Db,
    feed: Feed,
    pub(super) readers: Vec<Reader>,
    pub(super) pending: Vec<Pending>,
    pub(super) answered: HashMap<Key, u64>,
    /// Versions of missing rows, which have no body to carry one: by key and time of the read.
    pub(super) missing: HashMap<(Key, Nanos), u64>,
    pub(super) fences: HashMap<Key, Fences>,
    pub(super) failed_at: HashMap<Key, Nanos>,
    pub(super) counts: Counts,
}

impl World {
    pub(super) fn new(settings: &Settings, without: Option<Safeguard>) -> Self {
        let own = CollectionPolicy {
            ttl: TTL,
            negative_ttl: NEGATIVE_TTL,
            has_tenants: false,
            has_views: false,
        };
        let cache = Cache::new(settings.cache.clone(), vec![own; usize::from(COLLECTIONS)]);
        #[cfg(feature = "failpoints")]
        without.into_iter().for_each(|safeguard| cache.disable(safeguard));
        let _ = without;
        Self {
            cache,
            versions: settings.versions,
            now: START,
            db: Db::default(),
            feed: Feed::default(),
            readers: Vec::new(),
            pending: Vec::new(),
            answered: HashMap::new(),
            missing: HashMap::new(),
            fences: HashMap::new(),
            failed_at: HashMap::new(),
            counts: Counts::default(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        for collection in (0..COLLECTIONS).map(CollectionId) {
            let stats = self.cache.stats(collection);
            counts.dead_leases += stats.fills_discarded_total;
            counts.rereads += stats.fill_retries_total;
            counts.evictions += stats.removed[Removal::Capacity as usize];
            counts.queue_full += stats.refused_total;
            counts.overdue += stats.deadline_rejected_total;
            counts.displaced += stats.queue_dropped_total;
            counts.merged_queries += stats.query_keys[1..].iter().sum::<u64>();
        }
        counts
    }

    pub(super) fn step(&mut self, op: Op, a: u16, b: u16) -> Result<(), String> {
        self.counts.steps += 1;
        // No two events share a time, so that times give their order.
        self.now = self.now.after(Duration::from_nanos(1));
        let key = key_of(CollectionId(a % COLLECTIONS), i64::from(b % IDS));
        match op {
            Op::Look => self.look(&[key], ReadMode::Normal)?,
            Op::LookNew => self.look(&[key], ReadMode::Revalidate)?,
            Op::Batch => {
                let ids = (0..IDS).filter(|id| b >> id & 1 == 1);
                let keys: Vec<Key> =
                    ids.map(|id| key_of(key.collection(), i64::from(id))).collect();
                self.look(&keys, if a % 16 < 2 { ReadMode::Revalidate } else { ReadMode::Normal })?;
            }
            Op::NextBatch => self.next_batch(a),
            Op::Complete => self.complete(a, b),
            Op::Commit => {
                self.counts.commits += 1;
                let whole = b % 64 == 63;
                let hidden = self.versions.run_behind() && a % 64 < 24;
                self.counts.hidden_commits += u64::from(hidden);
                let at = self.now;
                let collection = key.collection();
                if self.versions.are_in_log_order() && !hidden {
                    self.db.reveal(Reveal::All, at);
                }
                let visible_at = (!hidden).then_some(at);
                self.db.commit(
                    Commit { at, visible_at, collection, key: (!whole).then_some(key) },
                    self.versions.are_in_log_order(),
                );
            }
            Op::Reveal if self.versions.are_in_log_order() => {
                self.db.reveal(Reveal::Oldest, self.now)
            }
            Op::Reveal => self.db.reveal(Reveal::Any(a.into()), self.now),
            Op::Deliver => self.deliver(1 + u64::from(a % 3)),
            Op::CatchUp => {
                self.feed.probes.push((self.now, self.db.end()));
                self.deliver(u64::MAX);
            }
            Op::Clock => {
                let ms = if a.is_multiple_of(16) { u64::from(b % 800) } else { u64::from(b % 60) };
                self.now = self.now.after(Duration::from_millis(ms));
            }
            Op::Poll => self.poll_one(a)?,
            Op::DropWaiter if !self.pending.is_empty() => {
                self.counts.dropped_waiters += 1;
                self.pending.swap_remove(usize::from(a) % self.pending.len());
            }
            Op::DropTurn if !self.readers.is_empty() => {
                self.counts.dropped_turns += 1;
                self.readers.swap_remove(usize::from(a) % self.readers.len());
            }
            Op::DropWaiter | Op::DropTurn => {}
            Op::Purge => {
                self.counts.purges += 1;
                self.cache.purge(&key);
                self.fence(&key, |fences, now| fences.key = now);
            }
            Op::Flush => self.flush(key.collection(), None),
            Op::Lose => self.mark_gap(None),
            Op::Start if self.feed.lost => {
                // A feed starts when every read sees what was written before.
                self.db.reveal(Reveal::All, self.now);
                let end = self.db.end();
                self.feed = Feed { began_at: end, delivered: end, ..Feed::default() };
                self.mark_gap(Some(self.position(end)));
            }
            Op::Start => {}
        }
        self.check_accounting()
    }

    fn position(&self, at: u64) -> Position {
        Position { incarnation: 1, at }
    }

    fn fence(&mut self, key: &Key, set: impl Fn(&mut Fences, Nanos)) {
        set(self.fences.entry(key.clone()).or_default(), self.now);
    }

    fn fence_all(&mut self, collection: Option<CollectionId>, set: impl Fn(&mut Fences, Nanos)) {
        for (c, id) in (0..COLLECTIONS).flat_map(|c| (0..IDS).map(move |id| (CollectionId(c), id)))
        {
            if collection.is_none_or(|only| only == c) {
                self.fence(&key_of(c, i64::from(id)), &set);
            }
        }
    }

    fn mark(&self, number: u64) -> ChangeId {
        match self.versions {
            Versions::None | Versions::Log => ChangeId::Log(self.position(number)),
            Versions::Snapshots => ChangeId::Transaction { xid: number, commit: number - 1 },
            Versions::Commits | Versions::Spans => ChangeId::Commit(self.position(number)),
            Versions::Gtids => ChangeId::Gtid(Gtid { source: db::source(), number }),
        }
    }

    fn flush(&mut self, collection: CollectionId, mark: Option<ChangeId>) {
        self.counts.flushes += 1;
        self.cache.flush(collection, mark);
        self.fence_all(Some(collection), |fences, now| fences.flush = now);
    }

    /// Marks a gap in the feed, or its restart at `position`.
    fn mark_gap(&mut self, position: Option<Position>) {
        self.counts.losses += 1;
        self.feed.lost = position.is_none();
        self.cache.mark_gap(ONLY, position);
        self.fence_all(None, |fences, now| fences.loss = now);
    }

    /// Delivers up to `most` commits in the order of the log, and reports the newest probe that was
    /// passed.
    fn deliver(&mut self, most: u64) {
        if self.feed.lost {
            return;
        }
        let until = self.db.end().min(self.feed.delivered.saturating_add(most));
        for i in self.feed.delivered..until {
            let Commit { collection, key, .. } = &self.db.log[i as usize];
            let mark = self.mark(i + 1);
            match (*collection, key.clone()) {
                (_, Some(key)) => {
                    if self.cache.invalidate(&key, mark) {
                        self.counts.hot_refreshes += 1;
                        self.lead(key.collection());
                    }
                    self.fence(&key, |fences, now| fences.key = now);
                }
                (collection, None) => self.flush(collection, Some(mark)),
            }
        }
        self.feed.delivered = until;
        let passed = self.feed.probes.iter().rposition(|(_, end)| *end <= until);
        if let Some((sent_at, _)) = passed.and_then(|i| self.feed.probes.drain(..=i).next_back()) {
            self.cache.advance(ONLY, sent_at, Some(self.position(until)));
            let visible = match self.versions {
                Versions::None | Versions::Log => return,
                Versions::Snapshots => self.db.snapshot(self.now),
                Versions::Commits | Versions::Spans => {
                    Version::Log(self.position(self.db.visible_end(self.now)))
                }
                Versions::Gtids => self.db.gtids(self.now),
            };
            self.cache.advance_visibility(ONLY, &visible);
            self.inform_followers(&visible);
        }
    }

    /// Clients are informed of the delivered changes that are proven visible: what they read from
    /// now on shows them.
    fn inform_followers(&mut self, visible: &Version) {
        for number in self.feed.began_at + 1..=self.feed.delivered {
            if !visible.contains(&self.mark(number)) {
                continue;
            }
            let Commit { collection, key, .. } = &self.db.log[number as usize - 1];
            let ids = (0..IDS).map(|id| key_of(*collection, i64::from(id)));
            for key in ids.filter(|id| key.as_ref().is_none_or(|key| key == id)) {
                let floor = self.answered.entry(key).or_default();
                *floor = number.max(*floor);
            }
        }
    }

    fn next_batch(&mut self, a: u16) {
        let idle: Vec<usize> =
            (0..self.readers.len()).filter(|&i| self.readers[i].query.is_none()).collect();
        if let Some(&i) = idle.get(usize::from(a) % idle.len().max(1)) {
            match self.readers[i].loader.next_batch(self.now) {
                Some(keys) => self.readers[i].query = Some((keys, self.now)),
                None => drop(self.readers.swap_remove(i)),
            }
        }
    }

    /// Ends a query: it saw the log at some moment since it was sent, or it failed.
    fn complete(&mut self, a: u16, b: u16) {
        let busy: Vec<usize> =
            (0..self.readers.len()).filter(|&i| self.readers[i].query.is_some()).collect();
        let Some(&i) = busy.get(usize::from(a) % busy.len().max(1)) else { return };
        let Some((keys, sent_at)) = self.readers[i].query.take() else { return };
        if b.is_multiple_of(32) {
            keys.iter().for_each(|key| _ = self.failed_at.insert(key.clone(), self.now));
            self.readers[i].loader.complete(Err("down"), self.now);
            return;
        }
        let time = Nanos(
            sent_at.0 + (self.now.0 - sent_at.0) * u64::from(b >> 5) / (u64::from(u16::MAX) >> 5),
        );
        let end = self.db.end_at(time);
        let read_at = self.readers[i].loader.lease().started_at;
        let mut rows: Vec<Fetched<TestError>> = Vec::new();
        for key in &keys {
            let version = self.db.row_at(key, time);
            if b % 32 == 1 && rows.len() == 1 {
                self.failed_at.insert(key.clone(), self.now);
                rows.push(Fetched::Failed("bad"));
            } else if Db::exists(version) {
                rows.push(Fetched::Found(version.to_string().into_bytes()));
            } else {
                self.missing.insert((key.clone(), read_at), version);
                rows.push(Fetched::Missing);
            }
        }
        let log_end = self.position(self.db.end());
        let (version, position) = match self.versions {
            Versions::None => (Version::Unknown, None),
            Versions::Log => (Version::Log(self.position(end)), Some(self.position(end))),
            // The log's end is read after the snapshot and may be ahead of it.
            Versions::Snapshots => (self.db.snapshot(time), Some(log_end)),
            Versions::Commits => {
                let seen = self.position(self.db.visible_end(time));
                (Version::Log(seen), Some(seen))
            }
            Versions::Spans => {
                let from = self.position(self.db.visible_end(sent_at));
                (Version::Span { from, to: log_end }, Some(log_end))
            }
            Versions::Gtids => (self.db.gtids(sent_at), Some(log_end)),
        };
        self.readers[i].loader.complete(Ok(Answers { version, position, rows }), self.now);
    }

    /// Checks that bytes and entries match the store and stay within their bounds.
    fn check_accounting(&self) -> Result<(), String> {
        let counted = self.cache.store.recount();
        let mut bytes_total = 0;
        for collection in (0..COLLECTIONS).map(CollectionId) {
            let stats = self.cache.stats(collection);
            let booked = [stats.entries, stats.negative_entries, stats.bytes];
            let counted = counted.get(&collection).copied().unwrap_or_default();
            if booked != counted {
                return Err(format!(
                    "the books of {collection:?} say {booked:?}, the store {counted:?}"
                ));
            }
            bytes_total += stats.bytes;
        }
        if bytes_total > self.cache.config().capacity_bytes {
            return Err(format!("{bytes_total} bytes are more than the capacity"));
        }
        Ok(())
    }

    /// Ends the run: reads return, woken waiters are polled, and those asked to lead do so; nothing
    /// else happens. Every request must be answered, nothing may be left, and when the feed has
    /// caught up every key must equal the database.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.db.reveal(Reveal::All, self.now);
        self.work_off()?;
        if !self.pending.is_empty() {
            return Err(format!("{} waiters were never answered", self.pending.len()));
        }
        if self.feed.lost {
            self.step(Op::Start, 0, 0)?;
        }
        self.step(Op::CatchUp, 0, 0)?;
        for (c, id) in (0..COLLECTIONS).flat_map(|c| (0..IDS).map(move |id| (c, id))) {
            let key = key_of(CollectionId(c), i64::from(id));
            self.failed_at.clear();
            self.now = self.now.after(BOUND * 4);
            self.step(Op::CatchUp, 0, 0)?;
            self.answered.remove(&key);
            self.look(std::slice::from_ref(&key), ReadMode::Normal)?;
            self.work_off()?;
            let got = self.answered.get(&key).copied();
            let want = self.db.row(&key, self.db.end());
            if got != Some(want) {
                return Err(format!(
                    "{key:?} differs from the database when all is quiet: {got:?}, not {want}"
                ));
            }
        }
        self.check_idle()
    }

    fn work_off(&mut self) -> Result<(), String> {
        for round in 0..10_000 {
            let before = (self.readers.len(), self.pending.len());
            self.now = self.now.after(Duration::from_nanos(1));
            self.poll_one(0)?;
            self.next_batch(0);
            self.complete(0, 2);
            if round > 100 && before == (0, 0) {
                break;
            }
        }
        Ok(())
    }

    fn check_idle(&self) -> Result<(), String> {
        for collection in (0..COLLECTIONS).map(CollectionId) {
            let flights = self.cache.collection(collection).0.fetch_queue.lock().in_flight.len();
            let stats = self.cache.stats(collection);
            if (flights, stats.waiting_keys, stats.queries_in_flight) != (0, 0, 0)
                || !self.readers.is_empty()
            {
                return Err(format!("left over: {flights} flights, {stats:?}"));
            }
        }
        Ok(())
    }
}
