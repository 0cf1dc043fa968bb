//! A service, a cache in front of it, and the purges of that cache.
//!
//! The cache in front stores what it fetched when the fetch ends, whatever was purged during it.
//! Once everything is visible, delivered and purged, it must hold no record as it was before its
//! last change.

use std::collections::BTreeMap;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_push::{
    Added, Batch, BatchLimits, ChangeLog, Config, Cursor, Event, Progress, Purge, PurgeLimits,
    PurgePlant, PurgeQueue,
};
use hotrow_types::key::CollectionId;

use super::tally::Tally;
use super::{Mistake, Steps, round_trip};
use crate::database::{COLLECTIONS, Database, Target};
use crate::random::Random;

const IDS: usize = 4;
/// Longest time of a fetch that is not far.
const FETCH_MAX: Duration = Duration::from_millis(50);
const LIMITS: BatchLimits = BatchLimits { entries: 3, key_bytes: 1_000 };

/// An answer on its way to the cache in front.
struct Fetch {
    row: usize,
    /// Number of the commit that it shows.
    value: u64,
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
    plant: PurgePlant,
    random: Random,
    now: Duration,
    database: Database,
    log: ChangeLog,
    cursors: Vec<Cursor>,
    is_following: bool,
    /// A report of progress has followed the feed's beginning.
    is_current: bool,
    delivered: u64,
    /// The service's own entries, by row.
    memory: BTreeMap<usize, u64>,
    /// Time of a fetch: the service's reader may be far.
    fetch: (Duration, Duration),
    fetches: Vec<Fetch>,
    /// The cache in front.
    front: BTreeMap<usize, u64>,
    queue: PurgeQueue,
    request: Option<Request>,
    is_down: bool,
    tally: Tally,
}

impl Steps for World {
    const STEPS: u64 = 2_000;

    fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let plant =
            if let Some(Mistake::Purge(plant)) = mistake { plant } else { PurgePlant::None };
        let config = Config { window_bytes: 900, pending_bytes: 900, generation: 1 };
        let log = ChangeLog::new(&config, &[true; COLLECTIONS as usize]);
        let trip = round_trip(seed);
        let fetch = (trip, trip + FETCH_MAX);
        let repeat_after = match plant {
            PurgePlant::NotRepeated => Duration::ZERO,
            _ => fetch.1 + Duration::from_millis(1),
        };
        let mut queue = PurgeQueue::new(PurgeLimits { repeat_after, records: 4, bytes: 100_000 });
        queue.plant(plant);
        let opened = |id| log.open(CollectionId(id), None);
        Self {
            plant,
            random: Random::new(seed),
            now: Duration::ZERO,
            database: Database::of("postgres", IDS),
            cursors: (0..COLLECTIONS).filter_map(opened).map(|opened| opened.0).collect(),
            log,
            is_following: false,
            is_current: false,
            delivered: 0,
            memory: BTreeMap::new(),
            fetch,
            fetches: Vec::new(),
            front: BTreeMap::new(),
            queue,
            request: None,
            is_down: false,
            tally: Tally::default(),
        }
    }

    fn step(&mut self, number: u64) -> Result<(), String> {
        let time = Duration::from_millis(self.random.below(4) as u64);
        self.pass(time);
        let now = self.clock();
        match self.random.below(1_000) {
            0..60 => {
                let row = self.random.below(self.database.rows());
                self.database.write(&[Target::Row(row)], now, |_| Some(0));
            }
            60..120 => self.database.show_any(&mut self.random, now),
            120..300 => self.deliver(),
            300..400 => self.report(),
            400..620 => self.fetch(),
            620..740 => self.read_changes(),
            740..970 => self.purge(),
            970..972 => self.lose(),
            972..974 => self.is_down = true,
            974..980 => self.is_down = false,
            _ => self.begin(),
        }
        if number % 500 == 499 { self.settle() } else { Ok(()) }
    }

    /// Checks what the cache in front holds.
    fn settle(&mut self) -> Result<(), String> {
        self.is_down = false;
        self.begin();
        self.database.show_all(self.clock());
        while self.delivered < self.database.end() {
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
        for (row, value) in &self.front {
            self.tally.note("checked");
            let newest = self.database.seen(*row);
            if *value != newest {
                return Err(format!("{row} is as of commit {value}, and {newest} changed it"));
            }
        }
        Ok(())
    }

    fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }
}

impl World {
    fn clock(&self) -> Nanos {
        Nanos(self.now.as_nanos() as u64)
    }

    fn deliver(&mut self) {
        if !self.is_following || self.delivered == self.database.end() {
            return;
        }
        self.delivered += 1;
        let mark = self.database.mark(self.delivered);
        for change in &self.database.log[self.delivered as usize - 1].changes {
            for row in self.database.targets(change.target) {
                self.memory.remove(&row);
                let key = self.database.key(row);
                if self.plant == PurgePlant::PurgedHidden {
                    self.queue.add(Purge::Record(key), None, self.now);
                } else {
                    _ = self.log.change(&key, mark);
                }
            }
        }
    }

    /// Reports what is delivered, and what every new read sees.
    fn report(&mut self) {
        if self.is_following {
            let position = self.database.position(self.delivered);
            self.log.advance(Some(position), Some(&self.database.snapshot()));
            self.is_current = true;
        }
    }

    fn lose(&mut self) {
        self.tally.note("losses");
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
        self.database.show_all(self.clock());
        self.delivered = self.database.end();
        self.log.begin(Some(self.database.position(self.delivered)));
    }

    /// The cache in front fetches a record. What the service did not admit to its memory has no
    /// surrogate key, and is not stored.
    fn fetch(&mut self) {
        let row = self.random.below(self.database.rows());
        if self.front.contains_key(&row) || !self.is_current {
            return;
        }
        let value = match self.memory.get(&row) {
            Some(value) => *value,
            None if self.is_fenced(row) => return,
            None => self.database.seen(row),
        };
        self.memory.insert(row, value);
        let ends_at = self.now + self.fetch.0 + self.random.up_to(self.fetch.1 - self.fetch.0);
        self.fetches.push(Fetch { row, value, ends_at });
    }

    /// Returns whether a change of the row was delivered that readers do not see.
    fn is_fenced(&self, row: usize) -> bool {
        let seen = self.database.seen(row);
        let is_hidden = self.database.has_commit(row, seen + 1..=self.delivered);
        is_hidden && self.plant != PurgePlant::PurgedHidden
    }

    fn read_changes(&mut self) {
        for collection in (0..COLLECTIONS).map(CollectionId) {
            let mut found = Vec::new();
            let mut take = |event: Event<'_>| {
                found.push(match event {
                    Event::Change { key, .. } => Purge::Record(key.clone()),
                    Event::Flush { .. } => Purge::Collection(collection),
                    Event::Reset { .. } if self.plant == PurgePlant::LossNotPurged => return,
                    Event::Reset { .. } => Purge::Collection(collection),
                });
            };
            let cursor = &mut self.cursors[usize::from(collection.0)];
            if self.log.read(collection, cursor, &|_| true, 4, &mut take) == Progress::Overrun {
                found.push(Purge::Collection(collection));
                if let Some((opened, _)) = self.log.open(collection, None) {
                    *cursor = opened;
                }
            }
            for purge in found {
                let added = self.queue.add(purge, None, self.now);
                self.tally.note_if(matches!(added, Added::Collapsed(_)), "collapsed");
            }
        }
    }

    fn purge(&mut self) {
        if let Some(batch) = self.queue.take(LIMITS, self.now) {
            let ends_at = self.now + Duration::from_millis(self.random.below(20) as u64);
            let arrives = !self.is_down && !self.random.one_in(20);
            let is_answered = arrives && !self.random.one_in(20);
            self.request = Some(Request { batch, ends_at, arrives, is_answered });
        }
    }

    /// Lets time pass, and with it what takes time.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        let now = self.now;
        for fetch in self.fetches.extract_if(.., |fetch| fetch.ends_at <= now) {
            self.tally.note("stored");
            self.front.insert(fetch.row, fetch.value);
        }
        let Some(request) = self.request.take_if(|request| request.ends_at <= now) else { return };
        if request.arrives {
            for (purge, _) in &request.batch.purges {
                self.tally.note("purged");
                self.front.retain(|row, _| match purge {
                    Purge::Record(purged) => self.database.key(*row) != *purged,
                    Purge::Collection(of) => self.database.collection_of(*row) != *of,
                });
            }
        }
        if request.is_answered {
            self.queue.complete(request.batch);
        } else {
            self.tally.note("failed");
            self.queue.fail(request.batch, None, self.random.share(), now);
        }
    }
}
