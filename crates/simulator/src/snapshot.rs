//! Snapshots: records of several keys, of both collections, at one point of the log. The steps are
//! those of the server; the decisions are the cache's, and `judge` has the rules.

mod judge;

use std::time::Duration;

use hotrow_cache::{Freshness, Lookup, ReadMode, Record, SnapshotKeys};
use hotrow_measure::clock::Nanos;
use hotrow_source::ReadFailure;
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::source::SourceId;
use hotrow_types::version::{Position, Version};

use crate::database::COLLECTIONS;
use crate::engine::VersionKind;
use crate::oracle::Arrival;
use crate::queue::{InstanceEvent, SnapshotEvent};
use crate::run::StrictMistake;
use crate::slab::SlabId;
use crate::world::World;

/// Times that changed records are read again.
const REREADS_MAX: usize = 2;
/// Pause before a transaction is repeated.
const PAUSE: Duration = Duration::from_millis(1);

/// A snapshot in the making.
pub(crate) struct SnapshotRequest {
    arrivals: Vec<Arrival>,
    /// Rows, which are numbers of keys, by collection and ascending.
    rows: Vec<usize>,
    registered: Option<SnapshotKeys<ReadFailure>>,
    /// Mode of its lookups. A strict one keeps it for what it reads again, so that no standby shows
    /// what a later strict answer would lack.
    mode: ReadMode,
    floor: Option<Position>,
    deadline: Nanos,
    taken: Vec<Option<Taken>>,
    /// Reads that it waits for.
    reads: usize,
    rounds: usize,
    phase: Phase,
}

/// A record of a snapshot.
#[derive(Clone, Copy, Debug)]
struct Taken {
    version: usize,
    /// Upper bound of what it shows.
    position: Option<Position>,
    is_behind: bool,
    is_hit: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Waits for a look.
    Look,
    /// Waits until the feed has passed the least point.
    Floor(Position),
    /// Waits for reads.
    Reads,
    /// Waits until the feed has passed what the records show.
    Feed(Position),
    /// In a read transaction, with what is known of it.
    Transaction(Option<Version>),
    /// Waits until the feed has passed the end of the log that the transaction read last.
    TransactionFeed(Version, Position),
}

impl World {
    /// Sends a request for a snapshot of this row and others.
    pub(crate) fn request_snapshot(&mut self, i: usize, session: usize, first: usize) {
        if !self.settings.engine.has_positions() {
            return;
        }
        self.counts.snapshots += 1;
        self.tick();
        let (now, first) = (self.now, self.keys.row(first));
        let rows: Vec<usize> = (0..self.database.rows())
            .filter(|row| *row == first || self.random.one_in(3))
            .collect();
        let kind = self.random.below(8);
        let floor = self.sessions[session].filter(|_| kind < 2);
        let is_strict = (2..4).contains(&kind);
        let mut arrivals = Vec::new();
        for row in &rows {
            let mut arrival = self.arrival(i, session, *row, ReadMode::Normal, floor);
            arrival.strict_floor = is_strict.then(|| self.strict_floors[*row]);
            arrivals.push(arrival);
        }
        let taken = vec![None; rows.len()];
        let deadline = now.after(self.settings.request_timeout);
        let mut request = SnapshotRequest {
            arrivals,
            rows,
            registered: None,
            mode: ReadMode::Normal,
            floor,
            deadline,
            taken,
            reads: 0,
            rounds: 0,
            phase: Phase::Reads,
        };
        if !is_strict && let Some(point) = self.take_from_memory(i, &mut request) {
            self.counts.snapshots_in_memory += 1;
            return self.give_snapshot(&request, point);
        }
        let (cache, keys) = (&self.instances[i].cache, &self.keys);
        let of = |collection: u16| -> Vec<Key> {
            let all = request.rows.iter().map(|row| keys.get(*row));
            all.filter(|key| key.collection().0 == collection).cloned().collect()
        };
        let parts: Vec<(CollectionId, Vec<Key>)> =
            (0..COLLECTIONS).map(|number| (CollectionId(number), of(number))).collect();
        let parts = parts.iter().map(|(collection, keys)| (*collection, &keys[..]));
        request.registered = Some(cache.register_snapshot(parts));
        request.phase = match floor {
            _ if is_strict => Phase::Look,
            Some(floor) => Phase::Floor(floor),
            None => Phase::Reads,
        };
        let arrival = request.arrivals[0].clone();
        let is_reading = matches!(request.phase, Phase::Reads);
        let id = self.instances[i].snapshots.insert_with(|_| request);
        let timeout = self.settings.request_timeout;
        self.push(i, timeout, InstanceEvent::Snapshot(id, SnapshotEvent::Deadline));
        if is_strict {
            let waits = self.add_request(i, arrival, None, None);
            let look = self.look(i);
            if let Some(request) = self.instances[i].requests.get_mut(waits) {
                (request.look, request.snapshot) = (Some(look), Some((id, 0)));
            }
            self.poll_look(i, waits);
            return self.want_look(i);
        }
        match is_reading {
            true => self.take_all(i, id),
            false => self.snapshot_event(i, id, SnapshotEvent::Step),
        }
    }

    /// Takes all records from memory, if none shows more than the feed has applied. Returns that
    /// point.
    fn take_from_memory(&mut self, i: usize, request: &mut SnapshotRequest) -> Option<Position> {
        // Before the entries are looked up.
        let point = self.instances[i].cache.applied(SourceId::FIRST)?;
        if request.floor.is_some_and(|floor| !point.reaches(&floor)) {
            return None;
        }
        for place in 0..request.rows.len() {
            let key = self.keys.get(request.rows[place]);
            let (record, freshness) = self.instances[i].cache.peek(key, self.now)?;
            let is_within = record.position().is_some_and(|shown| point.reaches(&shown));
            if freshness != Freshness::Fresh || !is_within {
                return None;
            }
            let taken = self.taken(i, &request.arrivals[place], &record, true)?;
            request.taken[place] = Some(taken);
        }
        Some(point)
    }

    fn taken(&mut self, i: usize, of: &Arrival, record: &Record, is_hit: bool) -> Option<Taken> {
        match self.version_of_answer(i, of, record) {
            Ok(version) => {
                let (position, is_behind) = (record.position(), record.is_behind());
                Some(Taken { version, position, is_behind, is_hit })
            }
            Err((rule, detail)) => {
                self.violated(rule, &detail);
                None
            }
        }
    }

    /// The look of a strict snapshot has ended.
    pub(crate) fn snapshot_looked(&mut self, i: usize, id: SlabId, mode: ReadMode) {
        let applied = self.instances[i].cache.applied(SourceId::FIRST);
        let Some(request) = self.instances[i].snapshots.get_mut(id) else { return };
        if !matches!(mode, ReadMode::Strict(_)) || applied.is_none() {
            self.counts.refused_other += 1;
            self.instances[i].snapshots.remove(id);
            return;
        }
        request.floor = applied;
        if self.planted != Some(StrictMistake::StandbyInSnapshot) {
            request.mode = mode;
        }
        self.take_all(i, id);
    }

    fn take_all(&mut self, i: usize, id: SlabId) {
        let Some(request) = self.instances[i].snapshots.get(id) else { return };
        let places = (0..request.rows.len()).collect();
        self.take(i, id, places);
    }

    /// Takes the records at these places from memory, from a read in flight, or from a new one.
    fn take(&mut self, i: usize, id: SlabId, mut places: Vec<usize>) {
        let Some(request) = self.instances[i].snapshots.get_mut(id) else { return };
        request.phase = Phase::Reads;
        // So that it does not go on before all reads have begun.
        request.reads = 1;
        let (arrivals, deadline) = (request.arrivals.clone(), request.deadline);
        let mut modes = vec![request.mode; places.len()];
        while let (Some(place), Some(mode)) = (places.pop(), modes.pop()) {
            let arrival = Arrival { mode, ..arrivals[place].clone() };
            let key = self.keys.get(arrival.key);
            let now = self.now;
            let instance = &self.instances[i];
            if instance.admission.refuses(now) {
                return self.drop_snapshot(i, id);
            }
            match instance.cache.lookup_until(key, mode, now, deadline) {
                Lookup::Hit(_, Freshness::Stale | Freshness::Expired)
                | Lookup::Negative(_, Freshness::Stale | Freshness::Expired) => {
                    places.push(place);
                    modes.push(ReadMode::Revalidate);
                }
                Lookup::Hit(record, _) | Lookup::Negative(record, _) => {
                    let taken = self.taken(i, &arrival, &record, true);
                    if let Some(request) = self.instances[i].snapshots.get_mut(id) {
                        request.taken[place] = taken;
                    }
                }
                Lookup::Coalesced(waiter) | Lookup::Miss(waiter) | Lookup::Bypass(waiter) => {
                    let part = self.add_request(i, arrival, None, None);
                    if let Some(request) = self.instances[i].requests.get_mut(part) {
                        request.snapshot = Some((id, place));
                    }
                    if let Some(request) = self.instances[i].snapshots.get_mut(id) {
                        request.reads += 1;
                    }
                    self.await_fill(i, part, waiter);
                }
                Lookup::Refused(refusal) => {
                    self.check_refusal(i, arrival.key, &refusal);
                    return self.drop_snapshot(i, id);
                }
            }
        }
        self.read_done(i, id);
    }

    /// A read of a part has ended.
    pub(crate) fn snapshot_part_read(
        &mut self,
        i: usize,
        (id, place): (SlabId, usize),
        record: Option<Record>,
    ) {
        let Some(request) = self.instances[i].snapshots.get(id) else { return };
        let arrival = request.arrivals[place].clone();
        let Some(taken) = record.and_then(|record| self.taken(i, &arrival, &record, false)) else {
            self.counts.failures += 1;
            return self.drop_snapshot(i, id);
        };
        if let Some(request) = self.instances[i].snapshots.get_mut(id) {
            request.taken[place] = Some(taken);
        }
        self.read_done(i, id);
    }

    fn read_done(&mut self, i: usize, id: SlabId) {
        let instance = &mut self.instances[i];
        let Some(request) = instance.snapshots.get_mut(id) else { return };
        request.reads -= 1;
        if request.reads > 0 {
            return;
        }
        let mut largest = request.floor;
        let mut is_bounded = true;
        for (row, taken) in request.rows.iter().zip(&request.taken) {
            let Some(taken) = taken else { continue };
            // No change marks another spelling.
            let collection = self.keys.get(*row).collection();
            is_bounded &= taken.is_hit || !instance.cache.has_several_spellings(collection);
            match (taken.position, largest) {
                (None, _) => is_bounded = false,
                (Some(shown), Some(most)) if shown.incarnation != most.incarnation => {
                    is_bounded = false;
                }
                (Some(shown), Some(most)) if most.reaches(&shown) => {}
                (Some(shown), _) => largest = Some(shown),
            }
        }
        match largest.filter(|_| is_bounded) {
            Some(point) => {
                request.phase = Phase::Feed(point);
                self.snapshot_event(i, id, SnapshotEvent::Step);
            }
            None => self.begin_transaction(i, id),
        }
    }

    pub(crate) fn snapshot_event(&mut self, i: usize, id: SlabId, event: SnapshotEvent) {
        match event {
            SnapshotEvent::Step => self.step_snapshot(i, id),
            SnapshotEvent::Rows => self.read_rows(i, id),
            SnapshotEvent::End => self.read_end(i, id),
            SnapshotEvent::Deadline => {
                let was_waiting = self.instances[i].snapshots.remove(id).is_some();
                self.counts.timeouts += u64::from(was_waiting);
            }
        }
    }

    fn drop_snapshot(&mut self, i: usize, id: SlabId) {
        let was_waiting = self.instances[i].snapshots.remove(id).is_some();
        self.counts.refused_other += u64::from(was_waiting);
    }

    /// The feed has moved: snapshots that waited for it go on.
    pub(crate) fn feed_moved_for_snapshots(&mut self, i: usize) {
        let instance = &self.instances[i];
        let goes_on = |id: &SlabId| {
            let phase = instance.snapshots.get(*id).map(|request| &request.phase);
            matches!(
                phase,
                Some(Phase::Floor(point) | Phase::Feed(point) | Phase::TransactionFeed(_, point))
                    if instance.cache.has_passed(CollectionId(0), point) != Ok(false)
            )
        };
        let ids: Vec<SlabId> = instance.snapshots.ids().into_iter().filter(goes_on).collect();
        for id in ids {
            let after = self.random.latency(self.settings.typical.task);
            self.push(i, after, InstanceEvent::Snapshot(id, SnapshotEvent::Step));
        }
    }

    /// Goes on if the feed has come far enough.
    fn step_snapshot(&mut self, i: usize, id: SlabId) {
        let Some(request) = self.instances[i].snapshots.get(id) else { return };
        let phase = request.phase.clone();
        let (Phase::Floor(point) | Phase::Feed(point) | Phase::TransactionFeed(_, point)) = phase
        else {
            return;
        };
        match self.instances[i].cache.has_passed(CollectionId(0), &point) {
            Err(_) => return self.drop_snapshot(i, id),
            Ok(false) => return,
            Ok(true) => {}
        }
        match phase {
            Phase::Floor(_) => self.take_all(i, id),
            Phase::Feed(point) => self.check_marks(i, id, point),
            Phase::TransactionFeed(version, end) => self.check_fence(i, id, &version, end),
            Phase::Look | Phase::Reads | Phase::Transaction(_) => {}
        }
    }

    /// The feed has passed all that the records may show.
    fn check_marks(&mut self, i: usize, id: SlabId, point: Position) {
        let instance = &mut self.instances[i];
        let Some(request) = instance.snapshots.get_mut(id) else { return };
        let Some(registered) = &mut request.registered else { return };
        // Before the marks are taken.
        let applied = instance.cache.applied(SourceId::FIRST);
        let changed = registered.take_changed();
        let mut missing: Vec<usize> = Vec::new();
        let mut first = 0;
        for (collection, places) in (0..COLLECTIONS).map(CollectionId).zip(changed) {
            missing.extend(places.into_iter().map(|place| first + place));
            let is_of_it = |row: &&usize| self.keys.get(**row).collection() == collection;
            first += request.rows.iter().filter(is_of_it).count();
        }
        for (place, taken) in request.taken.iter().enumerate() {
            if taken.is_none_or(|taken| taken.is_behind) && !missing.contains(&place) {
                missing.push(place);
            }
        }
        let applied = applied.filter(|applied| applied.reaches(&point));
        if let Some(point) = applied.filter(|_| missing.is_empty()) {
            let rounds = request.rounds;
            let Some(request) = instance.snapshots.remove(id) else { return };
            self.counts.snapshots_awaited += u64::from(rounds == 0);
            self.counts.snapshots_reread += u64::from(rounds > 0);
            return self.give_snapshot(&request, point);
        }
        request.rounds += 1;
        if request.rounds > REREADS_MAX {
            return self.begin_transaction(i, id);
        }
        self.take(i, id, missing);
    }

    fn begin_transaction(&mut self, i: usize, id: SlabId) {
        let Some(request) = self.instances[i].snapshots.get_mut(id) else { return };
        if let Some(registered) = &mut request.registered {
            registered.transaction_sent();
        }
        // MySQL's consistent snapshot has no set of its own: one is read before.
        let before = match self.settings.engine.version {
            VersionKind::GtidSet => Some(self.database.executed()),
            _ => None,
        };
        request.phase = Phase::Transaction(before);
        let after = self.random.latency(self.settings.typical.query);
        self.push(i, after, InstanceEvent::Snapshot(id, SnapshotEvent::Rows));
    }

    /// The transaction opens its snapshot, and reads the rows.
    fn read_rows(&mut self, i: usize, id: SlabId) {
        let database = &self.database;
        let Some(request) = self.instances[i].snapshots.get_mut(id) else { return };
        let Phase::Transaction(before) = &request.phase else { return };
        if database.is_down {
            return self.drop_snapshot(i, id);
        }
        let visible = database.position(database.visible_end());
        let version = match (self.settings.engine.version, before.clone()) {
            (VersionKind::Snapshot, _) => database.snapshot(),
            (VersionKind::GtidSet, Some(executed)) => executed,
            _ => Version::Log(visible),
        };
        for (row, taken) in request.rows.iter().zip(&mut request.taken) {
            let version = database.visible(*row);
            *taken = Some(Taken { version, position: None, is_behind: false, is_hit: false });
        }
        // The point of a cluster time and of a sequence is that of the snapshot itself.
        let is_exact = matches!(
            self.settings.engine.version,
            VersionKind::ClusterTime | VersionKind::Sequence | VersionKind::Unknown
        );
        request.phase = match is_exact {
            true => Phase::TransactionFeed(version, visible),
            false => Phase::Transaction(Some(version)),
        };
        let event = if is_exact { SnapshotEvent::Step } else { SnapshotEvent::End };
        let after = self.random.latency(self.settings.typical.query);
        self.push(i, after, InstanceEvent::Snapshot(id, event));
    }

    /// The transaction reads the log's end.
    fn read_end(&mut self, i: usize, id: SlabId) {
        let end = self.database.position(self.database.end());
        let Some(request) = self.instances[i].snapshots.get_mut(id) else { return };
        let Phase::Transaction(Some(version)) = &request.phase else { return };
        // A connection to a server that is gone is gone too.
        let is_gone = self.database.is_down || self.database.replaced_at > request.arrivals[0].at;
        if is_gone {
            return self.drop_snapshot(i, id);
        }
        request.phase = Phase::TransactionFeed(version.clone(), end);
        let after = self.random.latency(self.settings.typical.query);
        self.push(i, after, InstanceEvent::Snapshot(id, SnapshotEvent::Step));
    }

    /// The feed has passed the end of the transaction.
    fn check_fence(&mut self, i: usize, id: SlabId, version: &Version, end: Position) {
        let instance = &mut self.instances[i];
        let Some(request) = instance.snapshots.get_mut(id) else { return };
        let Some(registered) = &mut request.registered else { return };
        let is_late = request.floor.is_some_and(|floor| !end.reaches(&floor));
        if registered.lacks(version, &end) || is_late {
            self.counts.snapshot_repeats += 1;
            registered.transaction_sent();
            let before = match self.settings.engine.version {
                VersionKind::GtidSet => Some(self.database.executed()),
                _ => None,
            };
            request.phase = Phase::Transaction(before);
            return self.push(i, PAUSE, InstanceEvent::Snapshot(id, SnapshotEvent::Rows));
        }
        let Some(request) = instance.snapshots.remove(id) else { return };
        self.counts.snapshot_transactions += 1;
        self.give_snapshot(&request, end);
    }
}
