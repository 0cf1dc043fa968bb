//! A follower with its copies of the records, and the check of them.

use fastrand::Rng;
use hotrow_types::key::{CollectionId, Key};

use super::world::{COLLECTIONS, Counts, Database, INCARNATION, Instance, KEYS, key};
use crate::{Cursor, Event, Opening, Progress, ResumeId};

pub(super) struct Follower {
    collection: CollectionId,
    /// Records that it follows.
    ids: Vec<i64>,
    /// Commits up to the newest one that its copy of a record shows, by id.
    held: [usize; KEYS as usize],
    last: Option<ResumeId>,
    /// The instance that gave it.
    last_from: Option<usize>,
    /// The instance that it follows, and its place there.
    at: Option<(usize, Cursor)>,
    /// The instance that it followed last, and the flushes there when it last read everything.
    flushes: Option<(usize, usize)>,
    /// Position of the last event of this connection.
    position: u64,
}

/// An event without its references.
enum Got {
    Change(i64, u64, Option<ResumeId>),
    Flush(u64, Option<ResumeId>),
    Reset(Option<ResumeId>),
}

impl Follower {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let is_whole = rng.bool();
        Self {
            collection: CollectionId(rng.u16(..COLLECTIONS)),
            ids: (0..KEYS).filter(|_| is_whole || rng.bool()).collect(),
            held: [0; KEYS as usize],
            last: None,
            last_from: None,
            at: None,
            flushes: None,
            position: 0,
        }
    }

    pub(super) fn step(
        &mut self,
        rng: &mut Rng,
        database: &Database,
        instances: &[Instance],
        counts: &mut Counts,
    ) -> Result<(), String> {
        match self.at {
            None => self.open(rng.usize(..instances.len()), database, instances, counts),
            Some(_) if rng.u8(..10) == 0 => {
                self.at = None;
                Ok(())
            }
            Some(_) => self.read(rng.usize(1..4), database, instances, counts).map(drop),
        }
    }

    pub(super) fn catch_up(
        &mut self,
        rng: &mut Rng,
        database: &Database,
        instances: &[Instance],
        counts: &mut Counts,
    ) -> Result<(), String> {
        for _ in 0..10_000 {
            if self.at.is_none() {
                self.open(rng.usize(..instances.len()), database, instances, counts)?;
            }
            if self.read(3, database, instances, counts)? == Progress::Current {
                break;
            }
        }
        let id = self.last.ok_or("no id at the end")?;
        let end = database.log.last().map_or(0, |commit| commit.end);
        if id.position.at < end {
            return Err(format!("it ends at {id}, the log at {end}"));
        }
        Ok(())
    }

    fn open(
        &mut self,
        at: usize,
        database: &Database,
        instances: &[Instance],
        counts: &mut Counts,
    ) -> Result<(), String> {
        let instance = &instances[at];
        let flushed = instance.flushes[usize::from(self.collection.0)];
        let (cursor, opening) =
            instance.log.open(self.collection, self.last).ok_or("it is not followed")?;
        self.at = Some((at, cursor));
        self.position = 0;
        if self.flushes.is_none_or(|(before, _)| before != at) || self.last_from != Some(at) {
            // The instance that gave the id may not have noticed it yet.
            self.flushes = Some((at, flushed));
        }
        match opening {
            Opening::Begin(id) => self.begin(Some(id), database, instances, counts),
            Opening::Reset(id) => {
                counts.resets += 1;
                self.begin(id, database, instances, counts)
            }
            Opening::Resumed => {
                counts.resumed += 1;
                let is_ahead = instance.log.resume_point(self.collection, &cursor).is_none();
                counts.ahead += usize::from(is_ahead);
                Ok(())
            }
        }
    }

    /// Reads all its records.
    fn begin(
        &mut self,
        id: Option<ResumeId>,
        database: &Database,
        instances: &[Instance],
        counts: &mut Counts,
    ) -> Result<(), String> {
        for index in 0..self.ids.len() {
            self.fetch(self.ids[index], database);
        }
        if let Some((at, flushes)) = &mut self.flushes {
            *flushes = instances[*at].flushes[usize::from(self.collection.0)];
        }
        // Without a point to continue at, an old one says what is held.
        match id {
            Some(id) => self.has(id, database, counts),
            None => Ok(()),
        }
    }

    fn fetch(&mut self, id: i64, database: &Database) {
        if let Some(held) = self.held.get_mut(id as usize) {
            *held = database.read(self.collection, id);
        }
    }

    fn read(
        &mut self,
        changes_max: usize,
        database: &Database,
        instances: &[Instance],
        counts: &mut Counts,
    ) -> Result<Progress, String> {
        let Some((at, mut cursor)) = self.at else { return Ok(Progress::Current) };
        let instance = &instances[at];
        let mut got = Vec::new();
        let collection = self.collection;
        let id_of = |name: &Key| (0..KEYS).find(|id| key(collection, *id) == *name);
        let wants = |name: &Key| id_of(name).is_some_and(|id| self.ids.contains(&id));
        let progress =
            instance.log.read(self.collection, &mut cursor, &wants, changes_max, &mut |event| {
                got.push(match event {
                    Event::Change { key, position, id } => {
                        Got::Change(id_of(key).unwrap_or(-1), position.at, id)
                    }
                    Event::Flush { position, id } => Got::Flush(position.at, id),
                    Event::Reset { at } => Got::Reset(at),
                });
            });
        self.at = Some((at, cursor));
        for event in got {
            match event {
                Got::Change(record, position, id) => {
                    counts.changes += 1;
                    self.fetch(record, database);
                    self.check_shown(record, position, database)?;
                    self.passed(position, id, database, counts)?;
                }
                Got::Flush(position, id) => {
                    counts.flushes += 1;
                    for index in 0..self.ids.len() {
                        self.fetch(self.ids[index], database);
                    }
                    self.passed(position, id, database, counts)?;
                }
                Got::Reset(id) => {
                    counts.resets += 1;
                    self.position = 0;
                    self.begin(id, database, instances, counts)?;
                }
            }
        }
        match progress {
            Progress::Overrun => {
                counts.overruns += 1;
                self.at = None;
            }
            Progress::Current => {
                if let Some((at, flushes)) = self.flushes
                    && flushes != instances[at].flushes[usize::from(self.collection.0)]
                    && instance.log.resume_point(self.collection, &cursor).is_some()
                {
                    return Err("a flush outside of the log was missed".to_owned());
                }
                if let Some(id) = instance.log.resume_point(self.collection, &cursor) {
                    self.has(id, database, counts)?;
                }
            }
            Progress::More => {}
        }
        Ok(progress)
    }

    /// Checks that what was read for an event shows the commit at its position.
    fn check_shown(&self, record: i64, position: u64, database: &Database) -> Result<(), String> {
        let exact = database.log.iter().position(|commit| commit.start + 1 == position);
        match exact {
            Some(index) if self.held.get(record as usize).is_none_or(|held| *held <= index) => {
                Err(format!("record {record} was pushed at {position} before it was visible"))
            }
            _ => Ok(()),
        }
    }

    fn passed(
        &mut self,
        position: u64,
        id: Option<ResumeId>,
        database: &Database,
        counts: &mut Counts,
    ) -> Result<(), String> {
        if position < self.position {
            return Err(format!("{position} after {}", self.position));
        }
        self.position = position;
        id.map_or(Ok(()), |id| self.has(id, database, counts))
    }

    /// Takes an id, and checks that it has everything up to there.
    fn has(
        &mut self,
        id: ResumeId,
        database: &Database,
        counts: &mut Counts,
    ) -> Result<(), String> {
        if id.position.incarnation != INCARNATION {
            return Err(format!("{id} is of another log"));
        }
        self.last = Some(id);
        self.last_from = self.at.map(|(at, _)| at);
        counts.checks += 1;
        for (index, commit) in database.log.iter().enumerate() {
            // A position within a commit's record covers the commit.
            if commit.start >= id.position.at {
                break;
            }
            for (collection, row) in &commit.rows {
                let concerned = |own: &&i64| row.is_none_or(|row| row == **own);
                let of_it = self.ids.iter().filter(concerned);
                let stale = of_it
                    .filter(|_| *collection == self.collection)
                    .find(|own| self.held.get(**own as usize).is_some_and(|held| *held <= index));
                if let Some(own) = stale {
                    return Err(format!(
                        "it has {id}, and record {own} as before commit {index} at {}",
                        commit.start
                    ));
                }
            }
        }
        Ok(())
    }
}
