//! A follower with its copies of the records, and the check of them.

use hotrow_push::{Cursor, Event, Opening, Progress, ResumeId};
use hotrow_types::key::{CollectionId, Key};

use super::followers::{IDS, Instance, Surroundings, end_of};
use crate::database::{COLLECTIONS, Database};
use crate::random::Random;

pub(super) struct Follower {
    collection: CollectionId,
    /// Rows that it follows.
    rows: Vec<usize>,
    /// Number of the newest commit that its copy of a record shows, by row.
    held: [u64; IDS * COLLECTIONS as usize],
    last: Option<ResumeId>,
    /// The instance that gave it.
    last_from: Option<usize>,
    /// The instance that it follows, and its place there.
    at: Option<(usize, Cursor)>,
    /// The instance that it followed last, and the flushes there when it last read everything.
    flushes: Option<(usize, usize)>,
    /// Position of the last event of this connection.
    position: u64,
    round_trip: u64,
    /// Events whose records are being read, the end of these reads, and what the log said then.
    reading: Option<(u64, Vec<Got>, Progress)>,
}

/// An event without its references.
#[derive(Clone, Copy, Debug)]
enum Got {
    Change(Option<usize>, u64, Option<ResumeId>),
    Flush(u64, Option<ResumeId>),
    Reset(Option<ResumeId>),
}

impl Follower {
    pub(super) fn new(random: &mut Random, round_trip: u64) -> Self {
        let is_whole = random.one_in(2);
        let collection = random.below(usize::from(COLLECTIONS));
        let rows = (collection * IDS..(collection + 1) * IDS)
            .filter(|_| is_whole || random.one_in(2))
            .collect();
        Self {
            collection: CollectionId(collection as u16),
            rows,
            held: [0; IDS * COLLECTIONS as usize],
            last: None,
            last_from: None,
            at: None,
            flushes: None,
            position: 0,
            round_trip,
            reading: None,
        }
    }

    pub(super) fn step(&mut self, around: &mut Surroundings) -> Result<(), String> {
        match self.at {
            None => {
                let at = around.random.below(around.instances.len());
                self.open(at, around)
            }
            Some(_)
                if around.random.one_in(10) && self.round_trip == 0
                    || around.random.one_in(100) =>
            {
                self.at = None;
                self.reading = None;
                Ok(())
            }
            Some(_) => {
                let most = 1 + around.random.below(3);
                self.read(most, around).map(drop)
            }
        }
    }

    pub(super) fn catch_up(&mut self, around: &mut Surroundings) -> Result<(), String> {
        self.round_trip = 0;
        if let Some((ends_at, ..)) = &mut self.reading {
            *ends_at = around.now;
            self.read(1, around)?;
        }
        for _ in 0..10_000 {
            if self.at.is_none() {
                let at = around.random.below(around.instances.len());
                self.open(at, around)?;
            }
            if self.read(3, around)? == Progress::Current {
                break;
            }
        }
        let id = self.last.ok_or("no id at the end")?;
        let end = end_of(around.database.log.len());
        match id.position.at < end {
            true => Err(format!("it ends at {id}, the log at {end}")),
            false => Ok(()),
        }
    }

    /// Returns the flushes outside of the log at an instance.
    fn flushed(&self, instance: &Instance) -> usize {
        instance.flushes[usize::from(self.collection.0)]
    }

    fn open(&mut self, at: usize, around: &mut Surroundings) -> Result<(), String> {
        let instance = &around.instances[at];
        let flushed = self.flushed(instance);
        let (cursor, opening) =
            instance.log.open(self.collection, self.last).ok_or("it is not followed")?;
        self.at = Some((at, cursor));
        self.position = 0;
        if self.flushes.is_none_or(|(before, _)| before != at) || self.last_from != Some(at) {
            // The instance that gave the id may not have noticed it yet.
            self.flushes = Some((at, flushed));
        }
        match opening {
            Opening::Begin(id) => self.begin(Some(id), around),
            Opening::Reset(id) => {
                around.tally.note("resets");
                self.begin(id, around)
            }
            Opening::Resumed => {
                around.tally.note("resumed");
                let is_ahead = instance.log.resume_point(self.collection, &cursor).is_none();
                around.tally.note_if(is_ahead, "ahead");
                Ok(())
            }
        }
    }

    /// Reads all its records.
    fn begin(&mut self, id: Option<ResumeId>, around: &mut Surroundings) -> Result<(), String> {
        self.fetch_all(&around.database);
        if let Some((at, _)) = self.flushes {
            self.flushes = Some((at, self.flushed(&around.instances[at])));
        }
        // Without a point to continue at, an old one says what is held.
        id.map_or(Ok(()), |id| self.has(id, around))
    }

    fn fetch_all(&mut self, database: &Database) {
        self.rows.iter().for_each(|row| self.held[*row] = database.seen(*row));
    }

    fn read(&mut self, most: usize, around: &mut Surroundings) -> Result<Progress, String> {
        let Some((at, mut cursor)) = self.at else { return Ok(Progress::Current) };
        if self.reading.is_none() {
            let Surroundings { database, instances, now, .. } = around;
            let wants =
                |name: &Key| database.row_of(name).is_some_and(|row| self.rows.contains(&row));
            let mut got = Vec::new();
            let mut take = |event: Event<'_>| {
                got.push(match event {
                    Event::Change { key, position, id } => {
                        Got::Change(database.row_of(key), position.at, id)
                    }
                    Event::Flush { position, id } => Got::Flush(position.at, id),
                    Event::Reset { at } => Got::Reset(at),
                });
            };
            let log = &instances[at].log;
            let progress = log.read(self.collection, &mut cursor, &wants, most, &mut take);
            self.at = Some((at, cursor));
            let trip = if got.is_empty() { 0 } else { self.round_trip };
            self.reading = Some((*now + trip, got, progress));
        }
        let Some((_, got, progress)) = self.reading.take_if(|own| own.0 <= around.now) else {
            return Ok(Progress::More);
        };
        got.into_iter().try_for_each(|event| self.take(event, around))?;
        self.end_read(progress, around)?;
        Ok(progress)
    }

    fn take(&mut self, event: Got, around: &mut Surroundings) -> Result<(), String> {
        match event {
            Got::Change(row, position, id) => {
                around.tally.note("changes");
                let row = row.ok_or("a change of no record")?;
                self.held[row] = around.database.seen(row);
                self.check_shown(row, position, &around.database)?;
                self.passed(position, id, around)
            }
            Got::Flush(position, id) => {
                around.tally.note("flushes");
                self.fetch_all(&around.database);
                self.passed(position, id, around)
            }
            Got::Reset(id) => {
                around.tally.note("resets");
                self.position = 0;
                self.begin(id, around)
            }
        }
    }

    /// Acts on how far the log was read.
    fn end_read(&mut self, progress: Progress, around: &mut Surroundings) -> Result<(), String> {
        let Some((at, cursor)) = self.at else { return Ok(()) };
        match progress {
            Progress::Overrun => {
                around.tally.note("overruns");
                self.at = None;
            }
            // The log may have grown while records were read.
            Progress::Current if self.round_trip == 0 => {
                let instance = &around.instances[at];
                let point = instance.log.resume_point(self.collection, &cursor);
                let has_missed = self
                    .flushes
                    .is_some_and(|(at, flushes)| flushes != self.flushed(&around.instances[at]));
                if has_missed && point.is_some() {
                    return Err("a flush outside of the log was missed".to_owned());
                }
                return point.map_or(Ok(()), |id| self.has(id, around));
            }
            Progress::Current | Progress::More => {}
        }
        Ok(())
    }

    /// Checks that what was read for an event shows the commit at its position.
    fn check_shown(&self, row: usize, position: u64, database: &Database) -> Result<(), String> {
        let commit = (0..database.log.len()).find(|commit| end_of(*commit) + 1 == position);
        match commit {
            Some(commit) if self.held[row] <= commit as u64 => {
                Err(format!("record {row} was pushed at {position} before it was visible"))
            }
            _ => Ok(()),
        }
    }

    fn passed(
        &mut self,
        position: u64,
        id: Option<ResumeId>,
        around: &mut Surroundings,
    ) -> Result<(), String> {
        if position < self.position {
            return Err(format!("{position} after {}", self.position));
        }
        self.position = position;
        id.map_or(Ok(()), |id| self.has(id, around))
    }

    /// Takes an id, and checks that it has everything up to there.
    fn has(&mut self, id: ResumeId, around: &mut Surroundings) -> Result<(), String> {
        if id.position.incarnation != 1 {
            return Err(format!("{id} is of another log"));
        }
        self.last = Some(id);
        self.last_from = self.at.map(|(at, _)| at);
        around.tally.note("checks");
        let database = &around.database;
        // A position within a commit's record covers the commit.
        let covered = (0..database.log.len()).take_while(|commit| end_of(*commit) < id.position.at);
        for commit in covered {
            let changes = database.log[commit].changes.iter();
            let mut rows = changes.flat_map(|change| database.targets(change.target));
            let is_stale =
                |row: &usize| self.rows.contains(row) && self.held[*row] <= commit as u64;
            if let Some(row) = rows.find(is_stale) {
                return Err(format!("it has {id}, and record {row} as before commit {commit}"));
            }
        }
        Ok(())
    }
}
