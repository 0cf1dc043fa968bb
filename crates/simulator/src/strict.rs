//! Strict requests: the look at the log's end that they wait for, and the read after it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hotrow_cache::{Freshness, Lookup, ReadMode};
use hotrow_measure::clock::Nanos;
use hotrow_source::looks::LookEnd;

use crate::engine::FeedKind;
use crate::oracle::Origin;
use crate::queue::{FeedEvent, InstanceEvent, RequestEvent};
use crate::run::StrictMistake;
use crate::slab::SlabId;
use crate::world::World;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// Wait of a request for a look.
pub(crate) type Look = Pin<Box<dyn Future<Output = LookEnd>>>;

impl World {
    /// Sends a strict request.
    pub(crate) fn request_strict(&mut self, i: usize, session: usize, key: usize) {
        self.counts.strict += 1;
        self.tick();
        let mode = ReadMode::Revalidate;
        let mut arrival = self.arrival(i, session, key, mode, None);
        arrival.strict_floor = Some(self.strict_floors[self.keys.row(key)]);
        let id = self.add_request(i, arrival, None, None);
        if self.settings.engine.feed != FeedKind::Changes {
            return self.read_strictly(i, id, mode);
        }
        let look = self.look(i);
        if let Some(request) = self.instances[i].requests.get_mut(id) {
            request.look = Some(look);
        }
        let wait = self.settings.position_wait.min(self.settings.request_timeout);
        self.push(i, wait, InstanceEvent::Request(id, RequestEvent::PositionWaitEnds));
        self.poll_look(i, id);
        self.want_look(i);
    }

    /// Returns the wait for a look that is sent from now on, once it is polled.
    pub(crate) fn look(&self, i: usize) -> Look {
        let (looks, now) = (Arc::clone(&self.instances[i].looks), self.now);
        Box::pin(async move { looks.wait(now).await })
    }

    /// Looks whether the feed has passed the look of a request.
    pub(crate) fn poll_look(&mut self, i: usize, id: SlabId) {
        let Some(request) = self.instances[i].requests.get_mut(id) else { return };
        let Some(look) = &mut request.look else { return };
        let ended = match look.as_mut().poll(&mut Context::from_waker(&request.waker)) {
            Poll::Pending => return,
            Poll::Ready(ended) => ended,
        };
        request.look = None;
        let mode = self.mode_after(ended);
        let request = self.instances[i].requests.get(id);
        if let Some((snapshot, _)) = request.and_then(|request| request.snapshot) {
            self.instances[i].requests.remove(id);
            return self.snapshot_looked(i, snapshot, mode);
        }
        self.read_strictly(i, id, mode);
    }

    /// Returns the mode of the lookups after a look.
    pub(crate) fn mode_after(&mut self, ended: LookEnd) -> ReadMode {
        match ended {
            LookEnd::Passed(_) if self.planted == Some(StrictMistake::OldFlightJoined) => {
                ReadMode::Strict(Nanos::ZERO)
            }
            LookEnd::Passed(since) => {
                self.counts.strict_looks += 1;
                ReadMode::Strict(since)
            }
            LookEnd::NotFollowed | LookEnd::Refused(_) => ReadMode::Revalidate,
        }
    }

    /// A strict answer has shown a version. What no feed shows binds no other answer.
    pub(crate) fn raise_strict_floor(&mut self, row: usize, version: usize) {
        let is_shown = |version: &usize| self.database.version(row, *version).is_shown;
        let shown = (0..=version).rev().find(is_shown).unwrap_or(0);
        self.strict_floors[row] = self.strict_floors[row].max(shown);
    }

    /// Reads for a strict request.
    pub(crate) fn read_strictly(&mut self, i: usize, id: SlabId, mode: ReadMode) {
        let now = self.now;
        let instance = &mut self.instances[i];
        let Some(request) = instance.requests.get_mut(id) else { return };
        request.arrival.mode = mode;
        let (number, deadline) = (request.arrival.key, request.arrival.deadline);
        let key = self.keys.get(number);
        if instance.admission.refuses(now) {
            instance.requests.remove(id);
            return self.counts.refused_other += 1;
        }
        match instance.cache.lookup_until(key, mode, now, deadline) {
            Lookup::Hit(record, freshness) | Lookup::Negative(record, freshness) => {
                let Some(request) = instance.requests.remove(id) else { return };
                if freshness != Freshness::Fresh {
                    self.violated("a strict answer that is not fresh", &format!("{freshness:?}"));
                }
                self.counts.strict_hits += 1;
                self.give(i, &request.arrival, Origin::Entry(freshness), &record);
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

    /// Sends a look at the log's end if requests wait for one and none is on its way.
    pub(crate) fn want_look(&mut self, i: usize) {
        let instance = &mut self.instances[i];
        let is_wanted = instance.looks.is_awaited() && instance.feed.is_running();
        if is_wanted && instance.feed.end_look.is_none() {
            instance.feed.end_look = Some(Nanos::MAX);
            self.push_feed(i, LOOK_EVERY, FeedEvent::EndLookSent);
        }
    }

    pub(crate) fn end_look_sent(&mut self, i: usize) {
        self.counts.end_looks += 1;
        self.instances[i].feed.end_look = Some(self.now);
        self.send_probe(i);
    }

    /// Sends a probe, which is a look for the requests that wait now.
    pub(crate) fn send_probe(&mut self, i: usize) {
        let (now, after): (Nanos, Duration) = (self.now, self.feed_latency(i));
        self.instances[i].looks.sent(now);
        self.push_feed(i, after, FeedEvent::ProbeRead(now));
    }
}
