//! Instances that follow the database, and their followers.
//!
//! A follower keeps for each record the newest commit that it has read, reads a record when it gets
//! its event, and everything at a beginning and at a reset. Once it has an id, it must have read
//! the effect of every commit up to there; and what it reads for an event shows the event.

use hotrow_measure::clock::Nanos;
use hotrow_push::{ChangeLog, Config, FollowPlant};
use hotrow_types::key::CollectionId;
use hotrow_types::version::{ChangeId, Position, Version};

use super::follower::Follower;
use super::tally::Tally;
use super::{Mistake, Steps, round_trip_steps};
use crate::database::{COLLECTIONS, Database, Target};
use crate::random::Random;
use crate::slab::SlabId;

pub(super) const IDS: usize = 5;
const INSTANCES: usize = 2;
const FOLLOWERS: usize = 6;
/// Positions within one commit: each row of a log without transactions has its own.
pub(super) const COMMIT_BYTES: u64 = 10;
/// Logs whose rows have points and are visible when they are delivered; whose transactions have the
/// place of their commit, visible in any order; and whose transactions have none.
const ENGINES: [&str; 3] = ["sqlite", "postgres", "mysql"];

/// A look at the log's end.
struct Probe {
    end: u64,
    visible: Option<Version>,
}

/// An instance.
pub(super) struct Instance {
    pub(super) log: ChangeLog,
    is_following: bool,
    /// Commits that were delivered in full, and changes of the next one.
    delivered: usize,
    part: usize,
    probe: Option<Probe>,
    gap: Option<CollectionId>,
    /// Flushes outside of the log, by collection.
    pub(super) flushes: [usize; COLLECTIONS as usize],
}

/// What followers see.
pub(super) struct Surroundings {
    pub(super) random: Random,
    pub(super) now: u64,
    pub(super) database: Database,
    pub(super) instances: Vec<Instance>,
    pub(super) tally: Tally,
}

pub(super) struct World {
    engine: &'static str,
    around: Surroundings,
    /// Transactions under way: they reach the log in any order.
    open: Vec<SlabId>,
    followers: Vec<Follower>,
}

/// Returns the position at which a commit of this number ends, from 1; where the log begins with 0.
pub(super) fn end_of(number: usize) -> u64 {
    (number as u64 + 1) * COMMIT_BYTES
}

impl Steps for World {
    const STEPS: u64 = 1_000;

    fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let plant =
            if let Some(Mistake::Follow(plant)) = mistake { plant } else { FollowPlant::None };
        let engine = ENGINES[(seed % 3) as usize];
        let mut random = Random::new(seed);
        let instance = |number: u32| {
            let config = Config { window_bytes: 900, pending_bytes: 900, generation: number << 16 };
            let mut log = ChangeLog::new(&config, &[true; COLLECTIONS as usize]);
            log.plant(plant);
            Instance {
                log,
                is_following: false,
                delivered: 0,
                part: 0,
                probe: None,
                gap: None,
                flushes: [0; COLLECTIONS as usize],
            }
        };
        let instances = (1..=INSTANCES as u32).map(instance).collect();
        let followers = (0..FOLLOWERS).map(|_| Follower::new(&mut random, round_trip_steps(seed)));
        let followers = followers.collect();
        let database = Database::of(engine, IDS);
        let around = Surroundings { random, now: 0, database, instances, tally: Tally::default() };
        Self { engine, around, open: Vec::new(), followers }
    }

    fn step(&mut self, _: u64) -> Result<(), String> {
        self.around.now += 1;
        let at = self.around.random.below(INSTANCES);
        match self.around.random.below(100) {
            0..6 => self.commit(),
            6..13 => self.show(),
            13..25 => self.deliver(at),
            25..35 => self.probe(at),
            35..39 => self.start(at),
            39 if self.around.instances[at].gap.is_some() => self.gap(at),
            40 => self.fault(at),
            _ => {
                let follower = self.around.random.below(FOLLOWERS);
                self.followers[follower].step(&mut self.around)?;
            }
        }
        Ok(())
    }

    /// Ends all faults, and lets every follower catch up.
    fn settle(&mut self) -> Result<(), String> {
        let now = Nanos(self.around.now);
        for id in self.open.drain(..) {
            self.around.database.log_begun(id, now, |_| Some(0));
        }
        self.around.database.show_all(now);
        for at in 0..INSTANCES {
            self.start(at);
            while self.around.instances[at].delivered < self.around.database.log.len() {
                self.deliver(at);
            }
            if self.around.instances[at].gap.is_some() {
                self.gap(at);
            }
            self.around.instances[at].probe = None;
            self.probe(at);
            self.probe(at);
            let overflows = self.around.instances[at].log.usage().overflows_total;
            self.around.tally.add("overflows", overflows);
        }
        let around = &mut self.around;
        self.followers.iter_mut().try_for_each(|follower| follower.catch_up(around))
    }

    fn tally(&mut self) -> &mut Tally {
        &mut self.around.tally
    }
}

impl World {
    fn commit(&mut self) {
        let Surroundings { random, now, database, .. } = &mut self.around;
        for _ in self.open.len()..3 {
            let rows = (0..1 + random.below(4)).map(|_| Target::Row(random.below(2 * IDS)));
            let mut targets: Vec<Target> = rows.collect();
            if random.one_in(25) {
                let collection = CollectionId(random.below(2) as u16);
                targets = vec![Target::Collection(collection, hotrow_source::FlushCause::Bulk)];
            }
            targets.sort_by_key(|target| format!("{target:?}"));
            targets.dedup();
            self.open.extend(database.begin(&targets));
        }
        if !self.open.is_empty() {
            let id = self.open.swap_remove(random.below(self.open.len()));
            database.log_begun(id, Nanos(*now), |_| Some(0));
        }
    }

    /// Makes hidden commits visible: any of them, or all.
    fn show(&mut self) {
        let Surroundings { random, now, database, .. } = &mut self.around;
        if random.one_in(4) {
            database.show_all(Nanos(*now));
        } else {
            database.show_any(random, Nanos(*now));
        }
    }

    fn mark(&self, commit: usize, part: usize) -> ChangeId {
        let (start, number) = (end_of(commit), commit as u64 + 1);
        match self.around.database.mark(number) {
            ChangeId::Log(_) => ChangeId::Log(position(start + 1 + part as u64)),
            ChangeId::Transaction { xid, .. } => ChangeId::Transaction { xid, commit: start },
            mark => mark,
        }
    }

    /// Delivers some rows, perhaps without the end of their commit.
    fn deliver(&mut self, at: usize) {
        if !self.around.instances[at].is_following {
            return;
        }
        let mut left = 1 + self.around.random.below(7);
        let is_whole = self.engine == "mysql";
        while left > 0
            && let Some(entry) = self.around.database.log.get(self.around.instances[at].delivered)
        {
            let changes = entry.changes.clone();
            for change in &changes[self.around.instances[at].part..] {
                if left == 0 && !is_whole {
                    break;
                }
                left = left.saturating_sub(1);
                let instance = &self.around.instances[at];
                let mark = self.mark(instance.delivered, instance.part);
                let row = self.around.database.targets(change.target).start;
                let collection = self.around.database.collection_of(row);
                let key = self.around.database.key(row);
                let instance = &mut self.around.instances[at];
                instance.part += 1;
                if instance.gap == Some(collection) {
                    continue;
                }
                match change.target {
                    Target::Row(_) => _ = instance.log.change(&key, mark),
                    Target::Collection(..) => _ = instance.log.flush(collection, Some(mark)),
                }
            }
            let instance = &mut self.around.instances[at];
            if instance.part == changes.len() {
                instance.delivered += 1;
                instance.part = 0;
            }
        }
        // A poll ends between two commits.
        let is_between = self.engine != "sqlite" || self.around.instances[at].part == 0;
        if is_between && self.around.random.one_in(2) {
            self.around.instances[at].advance(None);
        }
    }

    /// Sends a probe, or takes its answer once the feed has passed it.
    fn probe(&mut self, at: usize) {
        let database = &self.around.database;
        let instance = &mut self.around.instances[at];
        match instance.probe.take() {
            None => {
                let (end, visible) = (database.end(), database.visible_version());
                instance.probe = Some(Probe { end, visible });
            }
            Some(probe) if instance.delivered as u64 >= probe.end && instance.is_following => {
                if self.engine != "sqlite" || instance.part == 0 {
                    instance.advance(probe.visible.as_ref());
                }
            }
            Some(probe) => instance.probe = Some(probe),
        }
    }

    fn fault(&mut self, at: usize) {
        let instance = &mut self.around.instances[at];
        match self.around.random.below(4) {
            0 => {
                instance.is_following = false;
                instance.log.lose();
            }
            1 => self.gap(at),
            2 => {
                let collection = CollectionId(self.around.random.below(2) as u16);
                instance.flushes[usize::from(collection.0)] += 1;
                instance.log.flush(collection, None);
            }
            _ => self.hold_back(at),
        }
    }

    /// Starts a feed where everything is visible.
    fn start(&mut self, at: usize) {
        let database = &self.around.database;
        let instance = &mut self.around.instances[at];
        if instance.is_following || !database.hidden().is_empty() {
            return;
        }
        if let Some(collection) = instance.gap.take() {
            instance.log.close_gap(collection);
        }
        instance.is_following = true;
        instance.probe = None;
        instance.delivered = database.log.len();
        instance.part = 0;
        instance.log.begin(Some(position(end_of(instance.delivered))));
    }

    /// Opens a gap, or closes it when everything that was not delivered is visible.
    fn gap(&mut self, at: usize) {
        let is_visible = self.around.database.hidden().is_empty();
        let instance = &mut self.around.instances[at];
        match instance.gap {
            None => {
                let collection = CollectionId(self.around.random.below(2) as u16);
                instance.gap = Some(collection);
                instance.log.open_gap(collection);
            }
            Some(collection) if is_visible && instance.part == 0 => {
                instance.gap = None;
                instance.log.close_gap(collection);
                instance.advance(None);
            }
            Some(_) => {}
        }
    }

    /// Many commits that no probe has passed, of which the first stays hidden.
    fn hold_back(&mut self, at: usize) {
        for _ in 0..16 {
            self.commit();
            let now = Nanos(self.around.now);
            for id in self.around.database.hidden().into_iter().skip(1) {
                self.around.database.show(id, now);
            }
            self.deliver(at);
        }
    }
}

impl Instance {
    fn advance(&mut self, visible: Option<&Version>) {
        self.log.advance(Some(position(end_of(self.delivered))), visible);
    }
}

fn position(at: u64) -> Position {
    Position { incarnation: 1, at }
}
