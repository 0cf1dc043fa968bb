//! Loaders: queries of the cache's batch loaders at the simulated database.
//!
//! A query takes its snapshot at one moment between being sent and being answered, and its answer
//! may arrive before or after that of an earlier query. It may fail, time out, or end before all
//! keys were read.

use std::time::Duration;

use hotrow_cache::{Answers, BatchLoader, Fetched};
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::version::{Position, Version};

use crate::admission::{CIRCUIT_OPEN, NotNow, Permit};
use crate::engine::VersionKind;
use crate::queue::{InstanceEvent, LoaderEvent};
use crate::slab::SlabId;
use crate::standby::StandbyQuery;
use crate::world::World;

/// Pause between two checks of whether a read sees what it has to wait for.
const VISIBLE_CHECK_EVERY: Duration = Duration::from_micros(500);
/// Bytes copied before other events have their turn.
const BYTES_PER_TURN: usize = 64;

pub(crate) struct Loader {
    pub(crate) batches: BatchLoader<ReadFailure>,
    pub(crate) collection: CollectionId,
    pub(crate) query: Option<Query>,
    /// Keys of the last query, if not all of them were read.
    pub(crate) suspects: Vec<Key>,
}

/// A query in flight.
pub(crate) struct Query {
    pub(crate) keys: Vec<Key>,
    pub(crate) sent_at: Nanos,
    /// `None`: a standby is read.
    permit: Option<Permit>,
    before: Before,
    answer: Option<Result<Answers<ReadFailure>, ReadFailure>>,
    /// State of a read of a standby.
    pub(crate) standby: StandbyQuery,
}

/// State of the database as it was known when the query was sent.
enum Before {
    Nothing,
    /// A read sees at least this.
    Visible(Version),
    /// A read waits until it sees the log up to here.
    Floor {
        incarnation: u64,
        at: u64,
    },
}

/// Returns whether not all keys of a query were read.
pub(crate) fn is_cut_short(rows: &[Fetched<ReadFailure>], keys: usize) -> bool {
    let is_read = |row: &Fetched<_>| matches!(row, Fetched::Found(_) | Fetched::Missing);
    rows.len() < keys || !rows.iter().all(is_read)
}

impl World {
    /// Starts a loader of the collection if a key waits and the cache grants one.
    pub(crate) fn lead(&mut self, i: usize, collection: CollectionId) {
        let Some(batches) = self.instances[i].cache.batch_loader(collection) else { return };
        let loader = Loader { batches, collection, query: None, suspects: Vec::new() };
        let id = self.instances[i].loaders.insert_with(|_| loader);
        let after = self.random.latency(self.settings.typical.task);
        self.push_loader(i, id, after, LoaderEvent::NextBatch);
    }

    pub(crate) fn loader_event(&mut self, i: usize, id: SlabId, event: LoaderEvent) {
        match event {
            LoaderEvent::NextBatch => self.next_batch(i, id),
            LoaderEvent::Snapshot => self.snapshot(i, id),
            LoaderEvent::Standby(statement) => self.standby_statement(i, id, statement),
            LoaderEvent::StandbyArrived => self.standby_arrived(i, id),
            LoaderEvent::Arrived => self.arrived(i, id),
            LoaderEvent::AnswerSome => self.answer_some(i, id),
        }
    }

    pub(crate) fn push_loader(
        &mut self,
        i: usize,
        id: SlabId,
        after: Duration,
        event: LoaderEvent,
    ) {
        self.push(i, after, InstanceEvent::Loader(id, event));
    }

    /// Sends the next query of a loader, or ends the loader.
    fn next_batch(&mut self, i: usize, id: SlabId) {
        let (now, random) = (self.now, self.random.number());
        let instance = &mut self.instances[i];
        let Some(loader) = instance.loaders.get_mut(id) else { return };
        let permit = match instance.admission.ask(now) {
            Ok(permit) => permit,
            Err(NotNow::Busy) => return instance.admission.waiting.push(id),
            Err(NotNow::CircuitOpen) => {
                let collection = loader.collection;
                instance.cache.give_up(collection, &CIRCUIT_OPEN);
                instance.loaders.remove(id);
                return;
            }
        };
        if self.random.one_in(32) {
            loader.batches.limit_keys(1 + self.random.below(4));
        }
        let Some(keys) = loader.batches.next_batch(now) else {
            instance.admission.give_back(permit, now, random);
            instance.loaders.remove(id);
            return self.admit_waiting(i);
        };
        let config = instance.cache.config();
        if keys.len() > config.query_keys || instance.admission.in_flight() > config.reads_in_flight
        {
            let detail = format!("{} keys, limit {}", keys.len(), config.query_keys);
            return self.violated("a query exceeds its limits", &detail);
        }
        self.counts.queries += 1;
        if let Some(floor) = loader.batches.standby_floor() {
            instance.admission.give_back(permit, now, random);
            let standby = StandbyQuery::new(floor);
            let before = Before::Nothing;
            let query = Query { keys, sent_at: now, permit: None, before, answer: None, standby };
            loader.query = Some(query);
            self.admit_waiting(i);
            return self.send_to_standby(i, id);
        }
        let before = match self.settings.engine.version {
            VersionKind::Unknown | VersionKind::Sequence | VersionKind::Snapshot => Before::Nothing,
            VersionKind::BinlogPoint => {
                Before::Visible(Version::Log(self.database.position(self.database.visible_end())))
            }
            VersionKind::GtidSet => Before::Visible(self.database.executed()),
            VersionKind::ClusterTime => {
                let (incarnation, at) = self.instances[i].feed.reached;
                Before::Floor { incarnation, at }
            }
        };
        let (permit, standby) = (Some(permit), StandbyQuery::default());
        let query = Query { keys, sent_at: now, permit, before, answer: None, standby };
        if let Some(loader) = self.instances[i].loaders.get_mut(id) {
            loader.query = Some(query);
        }
        let after = self.random.latency(self.settings.typical.query);
        self.push_loader(i, id, after, LoaderEvent::Snapshot);
    }

    /// The database reads the rows of a query.
    fn snapshot(&mut self, i: usize, id: SlabId) {
        let Some(loader) = self.instances[i].loaders.get_mut(id) else { return };
        let Some(mut query) = loader.query.take() else { return };
        let collection = loader.collection;
        let is_late = self.now.since(query.sent_at) > self.settings.query_timeout;
        let is_waiting = matches!(query.before, Before::Floor { incarnation, at }
            if incarnation == self.database.incarnation && self.database.visible_end() < at);
        let answer = if self.database.is_down {
            // The connection is refused, or there is no answer.
            Err(self.random.pick(&[ReadFailure::Unavailable, ReadFailure::Timeout]))
        } else if is_late {
            Err(ReadFailure::Timeout)
        } else if self.is_failing || self.has_faults && self.random.one_in(256) {
            Err(self.random.pick(&[ReadFailure::Unavailable, ReadFailure::Timeout]))
        } else if self.has_faults && self.random.one_in(256) {
            // Of the data of a record, as an engine reports it for a whole statement.
            Err(ReadFailure::Unreadable)
        } else if is_waiting {
            self.put_query(i, id, query);
            return self.push_loader(i, id, VISIBLE_CHECK_EVERY, LoaderEvent::Snapshot);
        } else {
            Ok(self.read(i, collection, &query))
        };
        query.answer = Some(answer);
        self.put_query(i, id, query);
        let after = self.random.latency(self.settings.typical.query);
        self.push_loader(i, id, after, LoaderEvent::Arrived);
    }

    pub(crate) fn put_query(&mut self, i: usize, id: SlabId, query: Query) {
        if let Some(loader) = self.instances[i].loaders.get_mut(id) {
            loader.query = Some(query);
        }
    }

    /// Reads the rows of a query as they are visible now.
    fn read(&mut self, i: usize, _: CollectionId, query: &Query) -> Answers<ReadFailure> {
        let rows = self.rows(i, query, |world, row| world.database.visible(row));
        let (version, position) = self.version_of(&query.before);
        Answers { version, position, rows }
    }

    /// Reads the rows of a query in the versions that `visible` chooses.
    pub(crate) fn rows(
        &mut self,
        i: usize,
        query: &Query,
        visible: impl Fn(&Self, usize) -> usize,
    ) -> Vec<Fetched<ReadFailure>> {
        let is_bad = self.has_faults && self.random.one_in(64);
        let mut rows = Vec::with_capacity(query.keys.len());
        for key in &query.keys {
            let number = self.keys.number(key);
            let row = self.keys.row(number);
            let version = visible(self, row);
            let body = if self.database.version(row, version).state.is_some() {
                Some(self.body(row, version))
            } else {
                // The record of an absence carries no number: it is known by its read.
                self.instances[i].absent.insert((number, query.sent_at), version);
                None
            };
            rows.push(match body {
                body if self.keys.is_alias(number) => Fetched::Uncacheable(body),
                Some(body) => Fetched::Found(body),
                None => Fetched::Missing,
            });
        }
        if is_bad {
            self.counts.queries_cut_short += 1;
            let from = self.random.below(rows.len());
            let kind = self.random.below(4);
            let last = if kind == 0 { from + 1 } else { rows.len() };
            for row in &mut rows[from..last] {
                *row = match kind {
                    0 => Fetched::Failed(ReadFailure::Unreadable),
                    1 => Fetched::Failed(ReadFailure::NoRoom),
                    _ => Fetched::NotRead,
                };
            }
            if kind == 3 {
                rows.truncate(from);
            }
        }
        rows
    }

    fn version_of(&mut self, before: &Before) -> (Version, Option<Position>) {
        let end = self.database.position(self.database.end());
        match (self.settings.engine.version, before) {
            (VersionKind::Sequence, _) => (Version::Log(end), Some(end)),
            // The log's end is read after the snapshot: it includes commits that are not visible.
            (VersionKind::Snapshot, _) => (self.database.snapshot(), Some(end)),
            (VersionKind::GtidSet, Before::Visible(seen)) => (seen.clone(), Some(end)),
            (VersionKind::BinlogPoint, Before::Visible(Version::Log(from))) => {
                let visible = self.database.position(self.database.visible_end());
                match self.random.below(3) {
                    // A consistent snapshot, and the same with an empty binlog after it.
                    0 => (Version::Span { from: visible, to: end }, Some(end)),
                    1 if visible == end => (Version::Log(end), Some(end)),
                    // The visible point was asked for before the row.
                    _ if from.incarnation == end.incarnation => {
                        (Version::Span { from: *from, to: end }, Some(end))
                    }
                    _ => (Version::Unknown, Some(end)),
                }
            }
            (VersionKind::ClusterTime, Before::Floor { incarnation, at }) => {
                let is_same = *incarnation == end.incarnation;
                let from = self.database.position(if is_same { *at } else { 0 });
                let to = self.database.position(self.database.visible_end().max(from.at));
                (Version::Span { from, to }, Some(to))
            }
            _ => (Version::Unknown, None),
        }
    }

    fn body(&mut self, row: usize, version: usize) -> Vec<u8> {
        let length = 16 + self.random.below(5) * 24;
        let mut body = vec![b' '; length];
        body[..8].copy_from_slice(&(version as u64).to_le_bytes());
        body[8..16].copy_from_slice(&(row as u64).to_le_bytes());
        body
    }

    /// The answer of a query has arrived.
    fn arrived(&mut self, i: usize, id: SlabId) {
        let (now, random) = (self.now, self.random.number());
        let instance = &mut self.instances[i];
        let Some(loader) = instance.loaders.get_mut(id) else { return };
        let Some(query) = loader.query.take() else { return };
        let keys = query.keys.len();
        let result = query.answer.unwrap_or(Err(ReadFailure::Timeout));
        let failure = result.as_ref().err().copied();
        self.counts.queries_failed += u64::from(failure.is_some());
        let is_cut_short = result.as_ref().is_ok_and(|answers| is_cut_short(&answers.rows, keys));
        let is_of_data = failure == Some(ReadFailure::Unreadable);
        let has_failed = failure.is_some() || is_cut_short;
        loader.suspects = if has_failed { query.keys } else { Vec::new() };
        match query.permit {
            None => {}
            Some(permit) if is_cut_short || is_of_data => {
                instance.admission.give_back(permit, now, random)
            }
            Some(permit) => {
                let size = (usize::from(loader.collection.0), keys);
                let has_opened = instance.admission.record(permit, size, failure, now, random);
                self.counts.breaker_openings += u64::from(has_opened);
            }
        }
        if !(is_of_data && loader.batches.split()) {
            loader.batches.arrived(result, now);
        }
        self.admit_waiting(i);
        self.answer_some(i, id);
    }

    /// Copies answers for the waiters, a part at a time.
    pub(crate) fn answer_some(&mut self, i: usize, id: SlabId) {
        let now = self.now;
        let instance = &mut self.instances[i];
        let Some(loader) = instance.loaders.get_mut(id) else { return };
        let failed = loader.suspects.iter().map(|key| (self.keys.number(key), now));
        instance.failed_at.extend(failed);
        let is_done = !loader.batches.answer_some(BYTES_PER_TURN, now);
        let hidden = if is_done { loader.batches.fills().hidden } else { 0 };
        self.counts.hidden_after_standby += hidden as u64;
        let mut after = self.random.latency(self.settings.typical.task);
        if hidden > 0 {
            after += VISIBLE_CHECK_EVERY;
        }
        if is_done {
            self.push_loader(i, id, after, LoaderEvent::NextBatch);
        } else {
            self.push_loader(i, id, after, LoaderEvent::AnswerSome);
        }
    }

    /// Cancels a loader: its task ends, by a panic or with its runtime.
    pub(crate) fn cancel_loader(&mut self, i: usize, id: SlabId) {
        let (now, random) = (self.now, self.random.number());
        let instance = &mut self.instances[i];
        let Some(loader) = instance.loaders.remove(id) else { return };
        self.counts.loaders_cancelled += 1;
        let of_query = loader.query.iter().flat_map(|query| &query.keys);
        let ended = loader.suspects.iter().chain(of_query).map(|key| (self.keys.number(key), now));
        instance.failed_at.extend(ended);
        if let Some(permit) = loader.query.and_then(|query| query.permit) {
            instance.admission.give_back(permit, now, random);
        }
        drop(loader.batches);
        self.admit_waiting(i);
    }

    /// Lets the loaders go on that wait until a query may be sent.
    fn admit_waiting(&mut self, i: usize) {
        for id in std::mem::take(&mut self.instances[i].admission.waiting) {
            let after = self.random.latency(self.settings.typical.task);
            self.push_loader(i, id, after, LoaderEvent::NextBatch);
        }
    }
}
