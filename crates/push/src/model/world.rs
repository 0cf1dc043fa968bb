//! A database, two instances that follow it, and their followers.

use std::sync::Arc;

use fastrand::Rng;
use hotrow_types::key::{CollectionId, Key, KeyPart, KeySchema, KeyType};
use hotrow_types::version::{ChangeId, Gtid, GtidSet, Position, Snapshot, SourceId, Version};

use super::follower::Follower;
use super::{Engine, Plant};
use crate::{ChangeLog, Config};

pub(super) const INCARNATION: u64 = 1;
pub(super) const COLLECTIONS: u16 = 2;
pub(super) const KEYS: i64 = 5;
const INSTANCES: usize = 2;
const FOLLOWERS: usize = 6;
/// Bytes of a log that a commit occupies.
const COMMIT_BYTES: u64 = 10;

/// What happened in a run.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) changes: usize,
    pub(super) flushes: usize,
    pub(super) resets: usize,
    pub(super) resumed: usize,
    pub(super) overruns: usize,
    pub(super) ahead: usize,
    pub(super) overflows: usize,
    pub(super) checks: usize,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        self.changes += other.changes;
        self.flushes += other.flushes;
        self.resets += other.resets;
        self.resumed += other.resumed;
        self.overruns += other.overruns;
        self.ahead += other.ahead;
        self.overflows += other.overflows;
        self.checks += other.checks;
    }
}

/// A committed transaction.
pub(super) struct Commit {
    xid: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Changed records; none: any of the collection.
    pub(super) rows: Vec<(CollectionId, Option<i64>)>,
    pub(super) is_visible: bool,
}

/// The database.
pub(super) struct Database {
    engine: Engine,
    /// Transactions under way.
    open: Vec<u64>,
    next_xid: u64,
    pub(super) log: Vec<Commit>,
}

impl Database {
    fn end(&self) -> u64 {
        self.log.last().map_or(COMMIT_BYTES, |commit| commit.end)
    }

    fn commit(&mut self, rng: &mut Rng) {
        while self.open.len() < 3 {
            self.open.push(self.next_xid);
            self.next_xid += 1;
        }
        let xid = self.open.swap_remove(rng.usize(..self.open.len()));
        let start = self.end();
        let mut rows: Vec<_> = (0..rng.usize(1..5))
            .map(|_| (CollectionId(rng.u16(..COLLECTIONS)), Some(rng.i64(0..KEYS))))
            .collect();
        if rng.u8(..) < 10 {
            rows[0].1 = None;
        }
        let is_visible = self.engine == Engine::Log;
        self.log.push(Commit { xid, start, end: start + COMMIT_BYTES, rows, is_visible });
    }

    fn version(&self) -> Option<Version> {
        let mut hidden: Vec<u64> =
            self.log.iter().filter(|commit| !commit.is_visible).map(|commit| commit.xid).collect();
        match self.engine {
            Engine::Log => None,
            Engine::Transactions => {
                hidden.extend(&self.open);
                hidden.sort_unstable();
                let xmin = hidden.first().copied().unwrap_or(self.next_xid);
                let snapshot = Snapshot { xmin, xmax: self.next_xid, running: hidden };
                let snapshot = Arc::new(snapshot);
                Some(Version::Snapshot { incarnation: INCARNATION, snapshot })
            }
            Engine::Gtids => {
                let seen = |commit: &&Commit| commit.is_visible;
                let number = |commit: &Commit| format!(":{}", commit.xid);
                let numbers: String = self.log.iter().filter(seen).map(number).collect();
                let text = match numbers.is_empty() {
                    true => String::new(),
                    false => format!("00000000-0000-0000-0000-000000000005{numbers}"),
                };
                GtidSet::parse(&text).ok().map(|set| Version::Gtids(Arc::new(set)))
            }
        }
    }

    /// Returns the number of commits up to the last visible one that changed the record.
    pub(super) fn read(&self, collection: CollectionId, id: i64) -> usize {
        let last = self.log.iter().rposition(|commit| {
            commit.is_visible
                && commit
                    .rows
                    .iter()
                    .any(|(of, row)| *of == collection && row.is_none_or(|row| row == id))
        });
        last.map_or(0, |index| index + 1)
    }
}

/// A look at the log's end.
struct Probe {
    end: u64,
    visible: Option<Version>,
}

/// An instance.
pub(super) struct Instance {
    pub(super) log: ChangeLog,
    is_following: bool,
    /// Commits that were delivered in full, and rows of the next one.
    delivered: usize,
    rows: usize,
    position: u64,
    probe: Option<Probe>,
    gap: Option<CollectionId>,
    /// Flushes outside of the log, by collection.
    pub(super) flushes: [usize; COLLECTIONS as usize],
}

pub(super) struct World {
    engine: Engine,
    rng: Rng,
    database: Database,
    instances: Vec<Instance>,
    followers: Vec<Follower>,
    pub(super) counts: Counts,
}

pub(super) fn key(collection: CollectionId, id: i64) -> Key {
    let schema = KeySchema::new(collection, vec![KeyType::Integer]);
    schema.key(&[KeyPart::Integer(id)]).unwrap()
}

impl World {
    pub(super) fn new(engine: Engine, plant: Plant, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let instance = |number: u32| {
            let config = Config { window_bytes: 900, pending_bytes: 900, generation: number << 16 };
            let mut log = ChangeLog::new(&config, &[true; COLLECTIONS as usize]);
            log.plant(plant);
            Instance {
                log,
                is_following: false,
                delivered: 0,
                rows: 0,
                position: 0,
                probe: None,
                gap: None,
                flushes: [0; COLLECTIONS as usize],
            }
        };
        let instances = (1..=INSTANCES as u32).map(instance).collect();
        let followers = (0..FOLLOWERS).map(|_| Follower::new(&mut rng)).collect();
        let database = Database { engine, open: Vec::new(), next_xid: 1, log: Vec::new() };
        Self { engine, rng, database, instances, followers, counts: Counts::default() }
    }

    pub(super) fn step(&mut self) -> Result<(), String> {
        let at = self.rng.usize(..INSTANCES);
        match self.rng.u8(..100) {
            0..6 => self.database.commit(&mut self.rng),
            6..13 => self.show(),
            13..25 => self.deliver(at),
            25..35 => self.probe(at),
            35..39 => self.start(at),
            39..40 if self.instances[at].gap.is_some() => self.gap(at),
            40..41 => self.fault(at),
            _ => {
                let follower = self.rng.usize(..FOLLOWERS);
                self.follow(follower)?;
            }
        }
        Ok(())
    }

    fn follow(&mut self, follower: usize) -> Result<(), String> {
        let rng = &mut self.rng;
        self.followers[follower].step(rng, &self.database, &self.instances, &mut self.counts)
    }

    /// Makes hidden commits visible: any of them, or all.
    fn show(&mut self) {
        let mut hidden: Vec<_> =
            self.database.log.iter_mut().filter(|commit| !commit.is_visible).collect();
        if self.rng.u8(..4) == 0 {
            hidden.iter_mut().for_each(|commit| commit.is_visible = true);
        } else if !hidden.is_empty() {
            let index = self.rng.usize(..hidden.len());
            hidden[index].is_visible = true;
        }
    }

    /// Delivers some rows, perhaps without the end of their commit.
    fn deliver(&mut self, at: usize) {
        let instance = &mut self.instances[at];
        if !instance.is_following {
            return;
        }
        let mut left = self.rng.usize(1..8);
        while left > 0
            && let Some(commit) = self.database.log.get(instance.delivered)
        {
            let is_whole = self.engine == Engine::Gtids;
            for (index, (collection, row)) in commit.rows.iter().enumerate().skip(instance.rows) {
                if left == 0 && !is_whole {
                    break;
                }
                left = left.saturating_sub(1);
                instance.rows += 1;
                let mark = mark(self.engine, commit, index);
                if instance.gap == Some(*collection) {
                    continue;
                }
                match row {
                    Some(row) => _ = instance.log.change(&key(*collection, *row), mark),
                    None => _ = instance.log.flush(*collection, Some(mark)),
                }
            }
            if instance.rows == commit.rows.len() {
                instance.delivered += 1;
                instance.rows = 0;
                instance.position = commit.end;
            }
        }
        // A poll ends between two commits.
        let is_between = self.engine != Engine::Log || instance.rows == 0;
        if is_between && self.rng.bool() {
            instance.advance(None);
        }
    }

    /// Sends a probe, or takes its answer once the feed has passed it.
    fn probe(&mut self, at: usize) {
        let instance = &mut self.instances[at];
        match instance.probe.take() {
            None => {
                let (end, visible) = (self.database.end(), self.database.version());
                instance.probe = Some(Probe { end, visible });
            }
            Some(probe) if instance.position >= probe.end && instance.is_following => {
                if self.engine != Engine::Log || instance.rows == 0 {
                    instance.advance(probe.visible.as_ref());
                }
            }
            Some(probe) => instance.probe = Some(probe),
        }
    }

    fn fault(&mut self, at: usize) {
        match self.rng.u8(..4) {
            0 => self.lose(at),
            1 => self.gap(at),
            2 => self.flush(at),
            _ => self.hold_back(at),
        }
    }

    fn lose(&mut self, at: usize) {
        let instance = &mut self.instances[at];
        instance.is_following = false;
        instance.log.lose();
    }

    /// Starts a feed where everything is visible.
    fn start(&mut self, at: usize) {
        let instance = &mut self.instances[at];
        if instance.is_following || self.database.log.iter().any(|commit| !commit.is_visible) {
            return;
        }
        if let Some(collection) = instance.gap.take() {
            instance.log.close_gap(collection);
        }
        instance.is_following = true;
        instance.probe = None;
        instance.delivered = self.database.log.len();
        instance.rows = 0;
        instance.position = self.database.end();
        let at = instance.position;
        instance.log.begin(Some(Position { incarnation: INCARNATION, at }));
    }

    /// Opens a gap, or closes it when everything that was not delivered is visible.
    fn gap(&mut self, at: usize) {
        let instance = &mut self.instances[at];
        let is_visible = self.database.log.iter().all(|commit| commit.is_visible);
        match instance.gap {
            None => {
                let collection = CollectionId(self.rng.u16(..COLLECTIONS));
                instance.gap = Some(collection);
                instance.log.open_gap(collection);
            }
            Some(collection) if is_visible && instance.rows == 0 => {
                instance.gap = None;
                instance.log.close_gap(collection);
                instance.advance(None);
            }
            Some(_) => {}
        }
    }

    fn flush(&mut self, at: usize) {
        let collection = CollectionId(self.rng.u16(..COLLECTIONS));
        let instance = &mut self.instances[at];
        instance.flushes[usize::from(collection.0)] += 1;
        instance.log.flush(collection, None);
    }

    /// Many commits while one stays hidden.
    fn hold_back(&mut self, at: usize) {
        for _ in 0..12 {
            self.database.commit(&mut self.rng);
            self.deliver(at);
        }
    }

    /// Ends all faults, and lets every follower catch up.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        for commit in &mut self.database.log {
            commit.is_visible = true;
        }
        for at in 0..INSTANCES {
            self.start(at);
            while self.instances[at].delivered < self.database.log.len() {
                self.deliver(at);
            }
            if self.instances[at].gap.is_some() {
                self.gap(at);
            }
            self.instances[at].probe = None;
            self.probe(at);
            self.probe(at);
            self.counts.overflows += self.instances[at].log.usage().overflows_total as usize;
        }
        let instances = &self.instances;
        for follower in &mut self.followers {
            follower.catch_up(&mut self.rng, &self.database, instances, &mut self.counts)?;
        }
        Ok(())
    }
}

impl Instance {
    fn advance(&mut self, visible: Option<&Version>) {
        let position = Position { incarnation: INCARNATION, at: self.position };
        self.log.advance(Some(position), visible);
    }
}

fn mark(engine: Engine, commit: &Commit, row: usize) -> ChangeId {
    match engine {
        Engine::Log => {
            let at = commit.start + 1 + row as u64;
            ChangeId::Log(Position { incarnation: INCARNATION, at })
        }
        Engine::Transactions => ChangeId::Transaction { xid: commit.xid, commit: commit.start },
        Engine::Gtids => {
            let source = SourceId::new(5, "").unwrap();
            ChangeId::Gtid(Gtid { source, number: commit.xid })
        }
    }
}
