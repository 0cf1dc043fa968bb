//! Clients: requests, what they wait for, and what they get.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use hotrow_cache::flight::{Waited, Waiter};
use hotrow_cache::{Freshness, Lookup, LookupError, ReadMode, Record};
use hotrow_source::ReadFailure;
use hotrow_types::key::Key;
use hotrow_types::source::SourceId;
use hotrow_types::version::Position;
use parking_lot::Mutex;

use crate::admission::CIRCUIT_OPEN;
use crate::min_position::AtLeast;
use crate::oracle::{Arrival, Origin};
use crate::queue::{Event, InstanceEvent, RequestEvent};
use crate::run::Mix;
use crate::slab::SlabId;
use crate::strict::Look;
use crate::world::World;

/// Most requests of one group.
const GROUP_MAX: usize = 24;

/// A request that waits.
pub(crate) struct Request {
    pub(crate) arrival: Arrival,
    /// The read that it waits for; none while it waits for the feed or pauses.
    pub(crate) waiter: Option<Waiter<ReadFailure>>,
    pub(crate) waker: Waker,
    pub(crate) at_least: Option<AtLeast>,
    /// The look that a strict request waits for.
    pub(crate) look: Option<Look>,
    /// The snapshot that it is a part of, and its place there.
    pub(crate) snapshot: Option<(SlabId, usize)>,
}

/// Notes which request was woken.
struct Bell {
    id: SlabId,
    woken: Arc<Mutex<Vec<SlabId>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.woken.lock().push(self.id);
    }
}

impl World {
    /// Sends a group of requests, and schedules the next group.
    pub(crate) fn requests(&mut self) {
        if self.is_quiet {
            return;
        }
        let next = self.random.latency(self.settings.typical.requests);
        self.schedule(next, Event::Requests);
        for _ in 0..1 + self.random.below(GROUP_MAX) {
            self.tick();
            self.request();
            if self.violation.is_some() {
                return;
            }
        }
    }

    fn request(&mut self) {
        let i = self.random.below(self.instances.len());
        if self.instances[i].frozen_until > self.now {
            return;
        }
        let now = self.now;
        match self.instances[i].admission.is_within_rate(&self.settings, now) {
            Ok(true) => {}
            Ok(false) => return self.counts.rate_limited += 1,
            Err(detail) => return self.violated("more requests than the rate allows", &detail),
        }
        let session = self.random.below(self.sessions.len());
        let key = self.random.skewed(self.keys.len());
        if self.mix == Mix::Strict {
            match self.random.below(4) {
                0 => return self.request_strict(i, session, key),
                1 => return self.request_snapshot(i, session, key),
                _ => {}
            }
        }
        let mode = match self.random.below(64) {
            0..4 => ReadMode::Revalidate,
            4..10 => ReadMode::NoAdmit,
            10..14 if self.settings.engine.has_positions() => {
                return self.request_at_least(session, key);
            }
            14..20 => return self.request_batch(i, session, key),
            _ => ReadMode::Normal,
        };
        self.request_one(i, session, key, mode);
    }

    pub(crate) fn request_one(&mut self, i: usize, session: usize, key: usize, mode: ReadMode) {
        let now = self.now;
        let arrival = self.arrival(i, session, key, mode, None);
        let (instance, deadline) = (&self.instances[i], arrival.deadline);
        let admit = || {
            if instance.admission.refuses(now) { Err(CIRCUIT_OPEN) } else { Ok(deadline) }
        };
        match instance.cache.lookup_if(self.keys.get(key), mode, now, admit) {
            Ok(lookup) => self.looked_up(i, arrival, lookup),
            Err(_) => {
                self.counts.refused_other += 1;
                self.answer_without_read(i, &arrival);
            }
        }
    }

    fn request_batch(&mut self, i: usize, session: usize, first: usize) {
        self.counts.batches += 1;
        let mode = if self.random.one_in(8) { ReadMode::Revalidate } else { ReadMode::Normal };
        let collection = self.keys.get(first).collection();
        let mut chosen: Vec<usize> = vec![first];
        for number in 0..self.keys.len() {
            let is_of_batch = self.keys.get(number).collection() == collection;
            if is_of_batch && number != first && self.random.one_in(2) {
                chosen.push(number);
            }
        }
        let (now, deadline) = (self.now, self.now.after(self.settings.request_timeout));
        let keys: Vec<Key> = chosen.iter().map(|number| self.keys.get(*number).clone()).collect();
        let arrivals: Vec<Arrival> =
            chosen.iter().map(|number| self.arrival(i, session, *number, mode, None)).collect();
        let instance = &self.instances[i];
        let admit = |_| {
            if instance.admission.refuses(now) { Err(CIRCUIT_OPEN) } else { Ok(deadline) }
        };
        let Ok(lookups) = instance.cache.lookup_batch_if(&keys, mode, now, admit) else {
            return self.counts.refused_other += 1;
        };
        for (arrival, lookup) in arrivals.into_iter().zip(lookups) {
            self.looked_up(i, arrival, lookup);
        }
    }

    /// Returns what the oracle has to know of a request that arrives now.
    pub(crate) fn arrival(
        &mut self,
        i: usize,
        session: usize,
        key: usize,
        mode: ReadMode,
        wanted: Option<Position>,
    ) -> Arrival {
        self.counts.reads += 1;
        self.counts.revalidations += u64::from(mode == ReadMode::Revalidate);
        self.counts.not_admitted += u64::from(mode == ReadMode::NoAdmit);
        let collection = usize::from(self.keys.get(key).collection().0);
        let instance = &self.instances[i];
        let applied = instance.cache.applied(SourceId::FIRST);
        let (changed, flushed, lost) =
            instance.sink.with(|calls| (calls.changed[key], calls.flushed[collection], calls.lost));
        Arrival {
            session,
            key,
            mode,
            at: self.now,
            deadline: self.now.after(self.settings.request_timeout),
            floor: instance.floors[key],
            visible: self.database.visible(self.keys.row(key)),
            changed,
            flushed,
            lost,
            applied,
            wanted,
            log_end: self.database.end(),
            incarnation: self.database.incarnation,
            strict_floor: None,
        }
    }

    fn looked_up(&mut self, i: usize, arrival: Arrival, lookup: Lookup<ReadFailure>) {
        let collection = self.keys.get(arrival.key).collection();
        match lookup {
            Lookup::Hit(record, freshness) | Lookup::Negative(record, freshness) => {
                self.give(i, &arrival, Origin::Entry(freshness), &record);
                if freshness == Freshness::Expired
                    && self.instances[i].cache.refresh(self.keys.get(arrival.key))
                {
                    self.lead(i, collection);
                }
            }
            Lookup::Coalesced(waiter) => {
                self.counts.coalesced += 1;
                self.wait(i, arrival, waiter);
            }
            Lookup::Miss(waiter) | Lookup::Bypass(waiter) => {
                self.wait(i, arrival, waiter);
                self.lead(i, collection);
            }
            Lookup::Refused(refusal) => {
                self.check_refusal(i, arrival.key, &refusal);
                self.answer_without_read(i, &arrival);
            }
        }
    }

    pub(crate) fn check_refusal(
        &mut self,
        i: usize,
        key: usize,
        refusal: &LookupError<ReadFailure>,
    ) {
        let cache = &self.instances[i].cache;
        let config = cache.config();
        let is_right = match refusal {
            LookupError::QueueFull => true,
            // The cache remembers a failure for a while.
            LookupError::Source(_) | LookupError::Abandoned => {
                let failed_at = self.instances[i].failed_at.get(&key);
                failed_at.is_some_and(|at| self.now < at.after(config.error_ttl))
            }
            LookupError::TooLate => config.queue.adaptive,
            // Only waiters learn of it.
            LookupError::Overdue => false,
            LookupError::Behind => {
                self.counts.refused_behind += 1;
                config.when_stale == hotrow_cache::config::WhenStale::Refuse
                    && !cache.is_current(SourceId::FIRST, self.now)
            }
        };
        self.counts.refused_other += u64::from(*refusal != LookupError::Behind);
        if !is_right {
            self.violated("refused without cause", &format!("{refusal:?}"));
        }
    }

    fn wait(&mut self, i: usize, arrival: Arrival, waiter: Waiter<ReadFailure>) {
        let id = self.add_request(i, arrival, Some(waiter), None);
        let after = self.random.latency(self.settings.typical.task);
        self.push(i, after, InstanceEvent::Request(id, RequestEvent::Poll));
    }

    /// Lets a request wait for a fill, and asks for a loader at once, as the server does.
    pub(crate) fn await_fill(&mut self, i: usize, id: SlabId, waiter: Waiter<ReadFailure>) {
        let Some(request) = self.instances[i].requests.get_mut(id) else { return };
        request.waiter = Some(waiter);
        let collection = self.keys.get(request.arrival.key).collection();
        let after = self.random.latency(self.settings.typical.task);
        self.push(i, after, InstanceEvent::Request(id, RequestEvent::Poll));
        self.lead(i, collection);
    }

    pub(crate) fn add_request(
        &mut self,
        i: usize,
        arrival: Arrival,
        waiter: Option<Waiter<ReadFailure>>,
        at_least: Option<AtLeast>,
    ) -> SlabId {
        let instance = &mut self.instances[i];
        let woken = instance.woken.clone();
        let until = arrival.deadline.since(self.now);
        let id = instance.requests.insert_with(|id| Request {
            arrival,
            waiter,
            waker: Waker::from(Arc::new(Bell { id, woken })),
            at_least,
            look: None,
            snapshot: None,
        });
        self.push(i, until, InstanceEvent::Request(id, RequestEvent::Deadline));
        id
    }

    pub(crate) fn request_event(&mut self, i: usize, id: SlabId, event: RequestEvent) {
        match event {
            RequestEvent::Poll => self.poll(i, id),
            RequestEvent::Deadline => self.deadline(i, id),
            RequestEvent::PositionWaitEnds => self.position_wait_ends(i, id),
            RequestEvent::ReadAgain => self.read_at_least(i, id),
        }
    }

    /// Runs the task of a request that was woken.
    fn poll(&mut self, i: usize, id: SlabId) {
        let Some(request) = self.instances[i].requests.get_mut(id) else { return };
        if request.look.is_some() {
            return self.poll_look(i, id);
        }
        let Some(waiter) = &mut request.waiter else { return };
        let collection = self.keys.get(request.arrival.key).collection();
        match Pin::new(waiter).poll(&mut Context::from_waker(&request.waker)) {
            Poll::Pending => {}
            Poll::Ready(Waited::Lead) => {
                self.counts.leads += 1;
                self.lead(i, collection);
                self.push(
                    i,
                    std::time::Duration::ZERO,
                    InstanceEvent::Request(id, RequestEvent::Poll),
                );
            }
            Poll::Ready(Waited::Done(result)) => self.read_ended(i, id, result),
        }
    }

    fn read_ended(
        &mut self,
        i: usize,
        id: SlabId,
        result: Result<Record, LookupError<ReadFailure>>,
    ) {
        let Some(request) = self.instances[i].requests.get_mut(id) else { return };
        request.waiter = None;
        if request.at_least.is_some() {
            return self.read_at_least_ended(i, id, result);
        }
        let Some(request) = self.instances[i].requests.remove(id) else { return };
        if let Some(part) = request.snapshot {
            return self.snapshot_part_read(i, part, result.ok());
        }
        match result {
            Ok(record) => self.give(i, &request.arrival, Origin::Read, &record),
            Err(_) => {
                self.counts.failures += 1;
                self.answer_without_read(i, &request.arrival);
            }
        }
    }

    /// The request's deadline has passed: 504, or an entry in its place.
    fn deadline(&mut self, i: usize, id: SlabId) {
        let Some(request) = self.instances[i].requests.remove(id) else { return };
        self.counts.timeouts += 1;
        let Request { arrival, waiter, at_least, snapshot, .. } = request;
        drop(waiter);
        if at_least.is_none() && snapshot.is_none() {
            self.answer_without_read(i, &arrival);
        }
    }

    /// The client closes its connection.
    pub(crate) fn leave(&mut self, i: usize, id: SlabId) {
        self.counts.clients_left += u64::from(self.instances[i].requests.remove(id).is_some());
    }

    /// Answers with an entry past its TTL where that is allowed (`stale_if_error`).
    fn answer_without_read(&mut self, i: usize, arrival: &Arrival) {
        if arrival.strict_floor.is_some() || arrival.mode == ReadMode::Revalidate {
            return;
        }
        let key = self.keys.get(arrival.key);
        if let Some(record) = self.instances[i].cache.stale_if_error(key, self.now) {
            self.give(i, arrival, Origin::StaleIfError, &record);
        }
    }

    /// Gives a client its answer, after the oracle has judged it.
    pub(crate) fn give(&mut self, i: usize, arrival: &Arrival, origin: Origin, record: &Record) {
        let version = match self.judge(i, arrival, origin, record) {
            Ok(version) => version,
            Err((rule, detail)) => return self.violated(rule, &detail),
        };
        let count = match origin {
            Origin::Entry(Freshness::Fresh) => &mut self.counts.fresh,
            Origin::Entry(Freshness::Stale) => &mut self.counts.stale,
            Origin::Entry(Freshness::Expired) => &mut self.counts.expired,
            Origin::Read => &mut self.counts.read_answers,
            Origin::StaleIfError => &mut self.counts.stale_if_error,
        };
        *count += 1;
        let is_missing = record.presence() == hotrow_cache::Presence::Missing;
        self.counts.negative += u64::from(is_missing);
        let row = self.keys.row(arrival.key);
        let changed_at = self.database.version(row, self.database.visible(row)).visible_at;
        let is_soon = changed_at.after(self.settings.cache.max_staleness) > arrival.at;
        self.counts.soon_after_a_change += u64::from(is_soon);
        // A standby may show a change that no feed shows before the primary does
        // (docs/replicas.md).
        let is_known =
            version <= self.database.visible(row) || self.database.version(row, version).is_shown;
        let floor = &mut self.instances[i].floors[arrival.key];
        *floor = if is_known { version.max(*floor) } else { *floor };
        if arrival.strict_floor.is_some() {
            self.counts.strict_answers += 1;
            self.raise_strict_floor(row, version);
        }
        if let Some(position) = record.position() {
            self.sessions[arrival.session] = Some(position);
        }
        self.record((version as u64) << 16 ^ arrival.key as u64);
    }
}
