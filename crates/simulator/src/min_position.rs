//! Requests with a minimal position: the steps of the server around the decisions of the cache.

use std::time::Duration;

use hotrow_cache::{Freshness, Lookup, LookupError, NotReached, ReadMode, Record};
use hotrow_source::ReadFailure;
use hotrow_types::version::Position;

use crate::oracle::Origin;
use crate::queue::{InstanceEvent, RequestEvent};
use crate::slab::SlabId;
use crate::world::World;

/// Pauses between reads that lack a delivered change: the first, and the longest.
const PAUSE: std::ops::Range<Duration> = Duration::from_millis(1)..Duration::from_millis(50);

/// Progress of a request with a minimal position.
#[derive(Debug)]
pub(crate) struct AtLeast {
    wanted: Position,
    has_passed: bool,
    waits_for_feed: bool,
    pause: Duration,
}

impl World {
    /// Sends a request for the session's token, or for an invented position.
    pub(crate) fn request_at_least(&mut self, session: usize, key: usize) {
        let i = self.random.below(self.instances.len());
        let Some(token) = self.sessions[session] else { return };
        if self.instances[i].frozen_until > self.now {
            return;
        }
        let wanted = match self.random.below(32) {
            0 => Position { at: token.at + 1 + self.random.below(4) as u64, ..token },
            1 => Position { incarnation: token.incarnation + 7, ..token },
            _ => token,
        };
        self.counts.min_position += 1;
        self.tick();
        let now = self.now;
        let arrival = self.arrival(i, session, key, ReadMode::Normal, Some(wanted));
        let cache = &self.instances[i].cache;
        if let Some((record, freshness)) = cache.peek_at_least(self.keys.get(key), &wanted, now) {
            self.counts.min_position_answers += 1;
            return self.give(i, &arrival, Origin::Entry(freshness), &record);
        }
        let has_passed = match cache.has_passed(self.keys.get(key).collection(), &wanted) {
            Ok(has_passed) => has_passed,
            Err(_) => return self.counts.min_position_refusals += 1,
        };
        let at_least =
            AtLeast { wanted, has_passed, waits_for_feed: !has_passed, pause: PAUSE.start };
        let id = self.add_request(i, arrival, None, Some(at_least));
        if has_passed {
            self.read_at_least(i, id);
        } else {
            self.instances[i].position_waiters.push(id);
            let wait = self.settings.position_wait.min(self.settings.request_timeout);
            self.push(i, wait, InstanceEvent::Request(id, RequestEvent::PositionWaitEnds));
        }
    }

    /// The feed's position has moved: those that wait for it look again.
    pub(crate) fn feed_moved(&mut self, i: usize) {
        self.feed_moved_for_snapshots(i);
        for id in std::mem::take(&mut self.instances[i].position_waiters) {
            let instance = &mut self.instances[i];
            let Some(request) = instance.requests.get_mut(id) else { continue };
            let Some(at_least) = &mut request.at_least else { continue };
            if !at_least.waits_for_feed {
                continue;
            }
            let collection = self.keys.get(request.arrival.key).collection();
            match instance.cache.has_passed(collection, &at_least.wanted) {
                Ok(false) => instance.position_waiters.push(id),
                Ok(true) => {
                    (at_least.waits_for_feed, at_least.has_passed) = (false, true);
                    let after = self.random.latency(self.settings.typical.task);
                    self.push(i, after, InstanceEvent::Request(id, RequestEvent::ReadAgain));
                }
                Err(_) => {
                    instance.requests.remove(id);
                    self.counts.min_position_refusals += 1;
                }
            }
        }
    }

    /// The feed did not pass the position in time: the database is read.
    pub(crate) fn position_wait_ends(&mut self, i: usize, id: SlabId) {
        let Some(request) = self.instances[i].requests.get_mut(id) else { return };
        if request.look.take().is_some() {
            return self.read_strictly(i, id, ReadMode::Revalidate);
        }
        let Some(at_least) = &mut request.at_least else { return };
        if std::mem::take(&mut at_least.waits_for_feed) {
            self.read_at_least(i, id);
        }
    }

    /// Reads once for a request with a minimal position.
    pub(crate) fn read_at_least(&mut self, i: usize, id: SlabId) {
        let now = self.now;
        let instance = &mut self.instances[i];
        let Some(request) = instance.requests.get_mut(id) else { return };
        let Some(at_least) = &request.at_least else { return };
        let (number, deadline) = (request.arrival.key, request.arrival.deadline);
        let key = self.keys.get(number);
        let collection = key.collection();
        let mode = instance.cache.mode_at_least(collection, at_least.has_passed, now);
        // From here on the answer has to be what this mode promises.
        request.arrival.mode = mode;
        if instance.admission.refuses(now) {
            instance.requests.remove(id);
            return self.counts.refused_other += 1;
        }
        let lookup = instance.cache.lookup_until(key, mode, now, deadline);
        match lookup {
            Lookup::Hit(record, freshness) | Lookup::Negative(record, freshness) => {
                self.answer_at_least(i, id, Origin::Entry(freshness), &record);
            }
            Lookup::Coalesced(waiter) | Lookup::Miss(waiter) | Lookup::Bypass(waiter) => {
                self.await_fill(i, id, waiter);
            }
            Lookup::Refused(refusal) => {
                instance.requests.remove(id);
                self.check_refusal(i, number, &refusal);
            }
        }
    }

    pub(crate) fn read_at_least_ended(
        &mut self,
        i: usize,
        id: SlabId,
        result: Result<Record, LookupError<ReadFailure>>,
    ) {
        let instance = &mut self.instances[i];
        let Some(request) = instance.requests.get_mut(id) else { return };
        let Some(at_least) = &mut request.at_least else { return };
        let Ok(record) = result else {
            instance.requests.remove(id);
            return self.counts.failures += 1;
        };
        let reached = match request.arrival.mode {
            ReadMode::Normal | ReadMode::NoAdmit | ReadMode::Strict(_) => Ok(()),
            ReadMode::Revalidate => record.check_reached(&at_least.wanted),
        };
        match reached {
            Err(NotReached::OtherLog | NotReached::Beyond | NotReached::NoPositions) => {
                instance.requests.remove(id);
                self.counts.min_position_refusals += 1;
            }
            Ok(()) if record.is_behind() => {
                let pause = at_least.pause;
                at_least.pause = (pause * 2).min(PAUSE.end);
                self.counts.min_position_retries += 1;
                self.push(i, pause, InstanceEvent::Request(id, RequestEvent::ReadAgain));
            }
            Ok(()) => self.answer_at_least(i, id, Origin::Read, &record),
        }
    }

    fn answer_at_least(&mut self, i: usize, id: SlabId, origin: Origin, record: &Record) {
        let Some(request) = self.instances[i].requests.remove(id) else { return };
        self.counts.min_position_answers += 1;
        if origin == Origin::Entry(Freshness::Stale) {
            return self.violated("a stale entry for a minimal position", "");
        }
        self.give(i, &request.arrival, origin, record);
    }
}
