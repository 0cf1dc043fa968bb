//! The parts of the model, and their steps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use hotrow_types::key::{CollectionId, Key, KeyPart, KeySchema, KeyType};
use hotrow_types::version::{ChangeId, Position, Snapshot, Version};

use super::Plant;
use crate::{
    Added, Batch, BatchLimits, ChangeLog, Config, Cursor, Event, Progress, Purge, PurgeLimits,
    PurgeQueue,
};

const COLLECTIONS: u16 = 2;
const KEYS: i64 = 4;
/// Longest time of a fetch, and of a purge on its way.
const FETCH_MS_MAX: u64 = 50;
const REPEAT_AFTER: Duration = Duration::from_millis(FETCH_MS_MAX + 1);
const COMMIT_BYTES: u64 = 10;
const LIMITS: BatchLimits = BatchLimits { entries: 3, key_bytes: 1_000 };

/// What happened in a run.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) stored: usize,
    pub(super) purged: usize,
    pub(super) failed: usize,
    pub(super) collapsed: usize,
    pub(super) losses: usize,
    pub(super) checked: usize,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        self.stored += other.stored;
        self.purged += other.purged;
        self.failed += other.failed;
        self.collapsed += other.collapsed;
        self.losses += other.losses;
        self.checked += other.checked;
    }
}

struct Commit {
    xid: u64,
    key: Key,
    is_visible: bool,
}

/// An answer on its way to the cache in front.
struct Fetch {
    key: Key,
    /// Number of commits that it shows.
    value: usize,
    ends_at: Duration,
}

/// A request of the purger.
struct Request {
    batch: Batch,
    ends_at: Duration,
    /// Whether it reaches the cache, and whether the purger gets to know that.
    arrives: bool,
    is_answered: bool,
}

pub(super) struct World {
    plant: Plant,
    rng: Rng,
    now: Duration,
    commits: Vec<Commit>,
    log: ChangeLog,
    cursors: Vec<Cursor>,
    is_following: bool,
    /// A report of progress has followed the feed's beginning.
    is_current: bool,
    delivered: usize,
    /// The service's own entries.
    memory: BTreeMap<Vec<u8>, usize>,
    /// Changes that were delivered and are not visible.
    fenced: Vec<usize>,
    fetches: Vec<Fetch>,
    /// The cache in front.
    front: BTreeMap<Vec<u8>, (Key, usize)>,
    queue: PurgeQueue,
    request: Option<Request>,
    is_down: bool,
    pub(super) counts: Counts,
}

fn key(collection: u16, id: i64) -> Key {
    let schema = KeySchema::new(CollectionId(collection), vec![KeyType::Integer]);
    schema.key(&[KeyPart::Integer(id)]).unwrap()
}

impl World {
    pub(super) fn new(plant: Plant, seed: u64) -> Self {
        let config = Config { window_bytes: 900, pending_bytes: 900, generation: 1 };
        let log = ChangeLog::new(&config, &[true; COLLECTIONS as usize]);
        let repeat_after = if plant == Plant::NotRepeated { Duration::ZERO } else { REPEAT_AFTER };
        let mut queue = PurgeQueue::new(PurgeLimits { repeat_after, records: 4, bytes: 100_000 });
        queue.plant = plant;
        let cursor = |id| log.open(CollectionId(id), None).expect("followed").0;
        let cursors = (0..COLLECTIONS).map(cursor).collect();
        Self {
            plant,
            rng: Rng::with_seed(seed),
            now: Duration::ZERO,
            commits: Vec::new(),
            log,
            cursors,
            is_following: false,
            is_current: false,
            delivered: 0,
            memory: BTreeMap::new(),
            fenced: Vec::new(),
            fetches: Vec::new(),
            front: BTreeMap::new(),
            queue,
            request: None,
            is_down: false,
            counts: Counts::default(),
        }
    }

    pub(super) fn step(&mut self) {
        let time = Duration::from_millis(self.rng.u64(..4));
        self.pass(time);
        match self.rng.u16(..1_000) {
            0..60 => self.commit(),
            60..160 => self.show(),
            160..300 => self.deliver(),
            300..400 => self.report(),
            400..620 => self.fetch(),
            620..740 => self.read_changes(),
            740..970 => self.purge(),
            970..972 => self.lose(),
            972..974 => self.is_down = true,
            974..980 => self.is_down = false,
            _ => self.begin(),
        }
    }

    fn commit(&mut self) {
        let key = key(self.rng.u16(..COLLECTIONS), self.rng.i64(0..KEYS));
        let xid = self.commits.len() as u64 + 1;
        self.commits.push(Commit { xid, key, is_visible: false });
    }

    fn show(&mut self) {
        if let Some(commit) = self.rng.choice(&mut self.commits) {
            commit.is_visible = true;
        }
        let commits = &self.commits;
        self.fenced.retain(|index| !commits[*index].is_visible);
    }

    fn end_of(commits: usize) -> u64 {
        (commits as u64 + 1) * COMMIT_BYTES
    }

    fn deliver(&mut self) {
        if !self.is_following || self.delivered == self.commits.len() {
            return;
        }
        let index = self.delivered;
        self.delivered += 1;
        let Commit { xid, key, is_visible } = &self.commits[index];
        self.memory.remove(key.as_bytes());
        if !is_visible {
            self.fenced.push(index);
        }
        let mark = ChangeId::Transaction { xid: *xid, commit: Self::end_of(self.delivered) - 1 };
        if self.plant == Plant::PurgedHidden {
            self.queue.add(Purge::Record(key.clone()), None, self.now);
        } else {
            self.log.change(key, mark);
        }
    }

    /// Reports what is delivered, and what every new read sees.
    fn report(&mut self) {
        if !self.is_following {
            return;
        }
        let hidden = self.commits.iter().filter(|commit| !commit.is_visible);
        let running: Vec<u64> = hidden.map(|commit| commit.xid).collect();
        let xmax = self.commits.len() as u64 + 1;
        let xmin = running.first().copied().unwrap_or(xmax);
        let snapshot = Arc::new(Snapshot { xmin, xmax, running });
        let visible = Version::Snapshot { incarnation: 1, snapshot };
        let position = Position { incarnation: 1, at: Self::end_of(self.delivered) };
        self.log.advance(Some(position), Some(&visible));
        self.is_current = true;
    }

    fn lose(&mut self) {
        self.counts.losses += 1;
        self.is_following = false;
        self.is_current = false;
        self.memory.clear();
        self.log.lose();
    }

    fn begin(&mut self) {
        if self.is_following {
            return;
        }
        self.is_following = true;
        self.memory.clear();
        // What is not delivered any more must be visible: a feed begins behind a look at the log.
        self.commits.iter_mut().for_each(|commit| commit.is_visible = true);
        self.fenced.clear();
        self.delivered = self.commits.len();
        let at = Self::end_of(self.delivered);
        self.log.begin(Some(Position { incarnation: 1, at }));
    }

    /// Returns the number of commits up to the last visible one of a record.
    fn visible_value(&self, key: &Key) -> usize {
        let is_it = |commit: &Commit| commit.is_visible && commit.key == *key;
        self.commits.iter().rposition(is_it).map_or(0, |index| index + 1)
    }

    /// The cache in front fetches a record. What the service did not admit to its memory has no
    /// surrogate key, and is not stored.
    fn fetch(&mut self) {
        let key = key(self.rng.u16(..COLLECTIONS), self.rng.i64(0..KEYS));
        let bytes = key.as_bytes().to_vec();
        if self.front.contains_key(&bytes) || !self.is_current {
            return;
        }
        let value = match self.memory.get(&bytes) {
            Some(value) => *value,
            None if self.is_fenced(&key) => return,
            None => self.visible_value(&key),
        };
        self.memory.insert(bytes, value);
        let ends_at = self.now + Duration::from_millis(self.rng.u64(..=FETCH_MS_MAX));
        self.fetches.push(Fetch { key, value, ends_at });
    }

    fn is_fenced(&self, key: &Key) -> bool {
        let is_ignored = self.plant == Plant::PurgedHidden;
        !is_ignored && self.fenced.iter().any(|index| self.commits[*index].key == *key)
    }

    fn read_changes(&mut self) {
        for id in 0..COLLECTIONS {
            let collection = CollectionId(id);
            let mut found = Vec::new();
            let mut take = |event: Event<'_>| {
                found.push(match event {
                    Event::Change { key, .. } => Purge::Record(key.clone()),
                    Event::Flush { .. } => Purge::Collection(collection),
                    Event::Reset { .. } if self.plant == Plant::LossNotPurged => return,
                    Event::Reset { .. } => Purge::Collection(collection),
                });
            };
            let cursor = &mut self.cursors[usize::from(id)];
            if self.log.read(collection, cursor, &|_| true, 4, &mut take) == Progress::Overrun {
                found.push(Purge::Collection(collection));
                let opened = self.log.open(collection, None).expect("followed");
                self.cursors[usize::from(id)] = opened.0;
            }
            for purge in found {
                if matches!(self.queue.add(purge, None, self.now), Added::Collapsed(_)) {
                    self.counts.collapsed += 1;
                }
            }
        }
    }

    fn purge(&mut self) {
        if let Some(batch) = self.queue.take(LIMITS, self.now) {
            let ends_at = self.now + Duration::from_millis(self.rng.u64(..20));
            let arrives = !self.is_down && self.rng.u8(..20) > 0;
            let is_answered = arrives && self.rng.u8(..20) > 0;
            self.request = Some(Request { batch, ends_at, arrives, is_answered });
        }
    }

    /// Lets time pass, and with it what takes time.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        let now = self.now;
        let (ended, under_way) = std::mem::take(&mut self.fetches)
            .into_iter()
            .partition(|own: &Fetch| own.ends_at <= now);
        self.fetches = under_way;
        for Fetch { key, value, .. } in ended {
            self.counts.stored += 1;
            self.front.insert(key.as_bytes().to_vec(), (key, value));
        }
        let Some(request) = self.request.take_if(|request| request.ends_at <= now) else { return };
        if request.arrives {
            for (purge, _) in &request.batch.purges {
                self.counts.purged += 1;
                self.front.retain(|_, (key, _)| match purge {
                    Purge::Record(purged) => key != purged,
                    Purge::Collection(collection) => key.collection() != *collection,
                });
            }
        }
        if request.is_answered {
            self.queue.complete(request.batch);
        } else {
            self.counts.failed += 1;
            self.queue.fail(request.batch, None, self.rng.f64(), now);
        }
    }

    /// Ends all that is under way, and checks what the cache in front holds.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.is_down = false;
        self.begin();
        self.commits.iter_mut().for_each(|commit| commit.is_visible = true);
        self.fenced.clear();
        while self.delivered < self.commits.len() {
            self.deliver();
        }
        self.report();
        for _ in 0..100_000 {
            self.read_changes();
            self.purge();
            self.pass(Duration::from_millis(5));
            let is_quiet = self.fetches.is_empty() && self.request.is_none();
            if is_quiet && self.queue.entries() == 0 {
                break;
            }
        }
        if self.queue.entries() > 0 {
            return Err(format!("{} entries are never purged", self.queue.entries()));
        }
        for (key, value) in self.front.values() {
            self.counts.checked += 1;
            let newest = self.visible_value(key);
            if *value != newest {
                return Err(format!("{key:?} is as of commit {value}, and {newest} changed it"));
            }
        }
        Ok(())
    }
}
