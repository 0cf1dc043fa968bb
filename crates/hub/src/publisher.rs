//! The relay's side: which messages its chain consists of.
//!
//! The feed reports events; the publisher queues them and numbers them when they are taken for
//! publishing. Events are queued before the chain has begun too: a chain that continues another
//! needs all of them. When the queue is full, or a message could not be written, the chain is
//! broken: the next one begins with a loss.

use std::collections::VecDeque;

use hotrow_measure::clock::Nanos;
use hotrow_types::landmark::Landmark;
use hotrow_types::version::Version;

use crate::hidden::Hidden;
use crate::message::{
    Beginning, Body, CHANGES_BYTES_MAX, Event, Generation, HIDDEN_MAX, Loss, Mark, Message, Nonce,
    Predecessor, Visible, Watermark,
};
use crate::nonces::Nonces;
use crate::rules::{Rule, Rules};
use crate::tag::Tag;

/// Most bytes of queued events. A transaction has at most 10,000 keys per collection, so this is
/// reached only while the stream accepts nothing.
pub const QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most messages that are written and not acknowledged.
pub const IN_FLIGHT_MAX: usize = 64;

/// State of one term of a relay.
#[derive(Debug)]
pub struct Publisher {
    rules: Rules,
    /// Collections that the relay follows.
    collections: Vec<Tag>,
    nonces: Nonces,
    hidden: Hidden,
    gaps: Vec<Tag>,
    /// See [`Watermark::watched`].
    watched: Option<u64>,
    /// The feed has lost changes since the last chain began.
    has_lost: bool,
    feed: Feed,
    chain: Chain,
    queue: VecDeque<Queued>,
    queue_bytes: usize,
    /// Events were delivered since the last complete point.
    is_inside_commit: bool,
    complete: u64,
    /// Newest landmark that the feed reported.
    passed: Option<Landmark>,
    /// The one before the complete point.
    landmark: Option<Landmark>,
    /// Written messages without an acknowledgement: counter and point.
    in_flight: VecDeque<(u64, Point)>,
    confirmable: Point,
    #[cfg(any(test, feature = "failpoints"))]
    faults: faults::Faults,
}

#[derive(Debug, PartialEq, Eq)]
enum Feed {
    Stopped,
    Running {
        origin: String,
        /// See [`Beginning::resumed_at`]; `None` also after queued events were dropped.
        resumed_at: Option<u64>,
    },
}

#[derive(Debug)]
enum Chain {
    /// None, for this reason.
    Broken(String),
    Opening(Generation),
    Open {
        generation: Generation,
        next: u64,
    },
}

#[derive(Debug)]
struct Queued {
    body: Body,
    bytes: usize,
    point: Point,
}

/// Complete point of a message, with its landmark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Point {
    complete: u64,
    landmark: Option<Landmark>,
}

impl Publisher {
    /// Creates the state of a relay that follows these collections.
    #[must_use]
    pub fn new(collections: Vec<Tag>, rules: Rules) -> Self {
        Self {
            rules,
            collections,
            nonces: Nonces::new(rules),
            hidden: Hidden::default(),
            gaps: Vec::new(),
            watched: None,
            has_lost: false,
            feed: Feed::Stopped,
            chain: Chain::Broken("the relay starts".to_owned()),
            queue: VecDeque::new(),
            queue_bytes: 0,
            is_inside_commit: false,
            complete: 0,
            passed: None,
            landmark: None,
            in_flight: VecDeque::new(),
            confirmable: Point::default(),
            #[cfg(any(test, feature = "failpoints"))]
            faults: faults::Faults::default(),
        }
    }

    /// Records where the chain before ended, for a feed whose place the stream keeps.
    pub fn resume_from(&mut self, landmark: Option<Landmark>) {
        self.confirmable.landmark = landmark;
    }

    /// Records that the feed has passed a landmark: changes before its end were delivered.
    pub fn passed(&mut self, landmark: Landmark) {
        self.passed = Some(landmark);
    }

    /// Records that a feed starts at `position`. Changes before it may have been missed; all of
    /// them are visible.
    pub fn feed_started(&mut self, origin: String, position: u64) {
        self.confirmable.landmark = None;
        self.start(origin, position, None, "the relay follows the database anew");
        self.watched = None;
        self.hidden.clear();
    }

    /// Records that a feed goes on at `position`, where the database kept its place. Until
    /// [`Self::settled`] changes before it may be invisible. `watched` is the digest of
    /// [`Watermark::watched`].
    pub fn feed_resumed(&mut self, origin: String, position: u64, watched: Option<u64>) {
        // A reported loss may still be in the queue, which is dropped.
        let resumed_at = (!self.has_lost).then_some(position);
        self.start(origin, position, resumed_at, "another relay took over");
        self.watched = watched;
        self.hidden.resume();
        if !self.rules.has(Rule::SettleFirst) {
            self.hidden.settle();
        }
    }

    /// Records what the database delivers from now on, after a change of its catalogue.
    pub fn watching(&mut self, watched: Option<u64>) {
        self.watched = watched;
    }

    /// Records that all changes before the place of the resumed feed are visible.
    pub fn settled(&mut self) {
        self.hidden.settle();
    }

    fn start(&mut self, origin: String, position: u64, resumed_at: Option<u64>, reason: &str) {
        self.clear_queue();
        self.in_flight.clear();
        self.is_inside_commit = false;
        self.complete = position;
        self.confirmable.complete = position;
        self.landmark = self.confirmable.landmark;
        self.passed = self.landmark;
        self.feed = Feed::Running { origin, resumed_at };
        self.chain = Chain::Broken(reason.to_owned());
    }

    /// Records that the feed may have missed changes; it starts again later.
    pub fn feed_lost(&mut self, cause: u8, detail: &str) {
        self.feed = Feed::Stopped;
        self.has_lost = true;
        (self.passed, self.landmark, self.confirmable.landmark) = (None, None, None);
        let detail = crate::message::cut(detail);
        self.push(Body::Loss(Loss { cause, detail }), 0);
    }

    /// Records an event of the feed.
    pub fn deliver(&mut self, event: Event) {
        match &event {
            Event::Change { mark, .. } | Event::Flush { mark: Some(mark), .. } => {
                self.hidden.delivered(*mark);
            }
            Event::Flush { mark: None, .. } => {}
            Event::OpenGap { collection, .. } => {
                if !self.gaps.contains(collection) {
                    self.gaps.push(*collection);
                }
            }
            Event::CloseGap { collection } => self.gaps.retain(|open| open != collection),
        }
        if self.feed == Feed::Stopped {
            return;
        }
        #[cfg(any(test, feature = "failpoints"))]
        if self.drops(&event) {
            return;
        }
        self.is_inside_commit = true;
        let bytes = event.bytes_max();
        match self.queue.back_mut() {
            Some(Queued { body: Body::Changes(events), bytes: used, .. })
                if *used < CHANGES_BYTES_MAX =>
            {
                events.push(event);
                *used += bytes;
                self.queue_bytes += bytes;
            }
            _ => self.push(Body::Changes(vec![event]), bytes),
        }
        if self.queue_bytes > QUEUE_BYTES_MAX {
            self.break_chain("more changes wait to be published than the relay keeps");
        }
    }

    fn push(&mut self, body: Body, bytes: usize) {
        self.queue_bytes += bytes;
        let point = self.point();
        self.queue.push_back(Queued { body, bytes, point });
    }

    fn point(&self) -> Point {
        Point { complete: self.complete, landmark: self.landmark }
    }

    /// Records that every change committed before `look_at` was delivered, up to `position`.
    /// `visible` is what the look saw, if it is a new one.
    pub fn advance(&mut self, look_at: Nanos, position: u64, visible: Option<&Version>) {
        let Feed::Running { origin, .. } = &self.feed else { return };
        let origin = origin.clone();
        self.complete = self.complete.max(position);
        self.landmark = self.passed;
        let point = self.point();
        let was_inside = std::mem::take(&mut self.is_inside_commit);
        match self.queue.back_mut() {
            Some(last) => last.point = point,
            // The changes were taken before their commit was complete.
            None if was_inside && visible.is_none() => self.push(Body::Changes(Vec::new()), 0),
            None => {}
        }
        let Some(version) = visible else { return };
        let visible = Visible::of(version);
        if let Some(visible) = &visible {
            self.hidden.seen(visible);
        }
        let hidden = self.hidden.list(HIDDEN_MAX).filter(|_| visible.is_some());
        let watermark = Watermark {
            answers: self.nonces.answered_by(look_at).iter().map(|nonce| nonce.question).collect(),
            end: position,
            visible,
            hidden,
            gaps: self.gaps.clone(),
            collections: self.collections.clone(),
            watched: self.watched,
            origin,
        };
        // A watermark that was not taken is replaced only by a chain's end: its bytes count.
        let bytes = 128 + 16 * (watermark.answers.len() + watermark.collections.len());
        self.push(Body::Watermark(Box::new(watermark)), bytes);
        if self.queue_bytes > QUEUE_BYTES_MAX {
            self.break_chain("more watermarks wait to be published than the relay keeps");
        }
    }

    /// Records a question of a server.
    pub fn ask(&mut self, nonce: Nonce, arrived_at: Nanos) {
        self.nonces.ask(nonce, arrived_at);
    }

    /// Returns whether a chain must begin before anything can be taken.
    pub fn wants_beginning(&self) -> bool {
        self.feed != Feed::Stopped && !matches!(self.chain, Chain::Open { .. })
    }

    /// Returns the beginning of a chain, to be written only if the stream still ends with `last`.
    /// `None` while no feed runs. Its number is `number_min` at least, which grows too: the stream
    /// may have been emptied. `identity` is random.
    pub fn begin(
        &mut self,
        last: Option<&Message>,
        number_min: u64,
        identity: u64,
    ) -> Option<Message> {
        let Feed::Running { origin, resumed_at } = &self.feed else { return None };
        let next = last.map_or(0, |last| last.generation.number).saturating_add(1);
        let generation = Generation { number: next.max(number_min), identity };
        let is_within =
            |at: u64, last: &Message| !self.rules.has(Rule::ResumeWithin) || at <= last.complete;
        // The chain before may have lost its end, or ended with a loss.
        let continued = last
            .filter(|last| !matches!(last.body, Body::Loss(_)))
            .zip(*resumed_at)
            .filter(|(last, at)| is_within(*at, last));
        let reason = match &self.chain {
            Chain::Broken(reason) => reason.clone(),
            Chain::Opening(_) | Chain::Open { .. } => "the relay begins anew".to_owned(),
        };
        let beginning = Beginning {
            predecessor: last
                .map(|last| Predecessor { generation: last.generation, counter: last.counter }),
            resumed_at: continued.map(|(_, at)| at),
            watched: self.watched,
            origin: origin.clone(),
            reason,
        };
        let start = continued.map(|(last, _)| last.complete).or(*resumed_at);
        let complete = start.unwrap_or(self.complete);
        let landmark = continued.map_or(self.landmark, |(last, _)| last.landmark);
        self.chain = Chain::Opening(generation);
        let body = Body::Beginning(beginning);
        Some(Message { generation, counter: 0, complete, landmark, body })
    }

    /// Records that the beginning was written and acknowledged.
    pub fn began(&mut self) {
        if let Chain::Opening(generation) = self.chain {
            self.chain = Chain::Open { generation, next: 1 };
            // Nothing was lost since the beginning was made.
            self.has_lost &= self.feed == Feed::Stopped;
        }
    }

    /// Returns the next message to write, if one waits and not too many are under way.
    pub fn take(&mut self) -> Option<Message> {
        if self.in_flight.len() >= IN_FLIGHT_MAX || !matches!(self.chain, Chain::Open { .. }) {
            return None;
        }
        #[cfg(any(test, feature = "failpoints"))]
        self.reorder();
        #[cfg(any(test, feature = "failpoints"))]
        if self.holds() {
            return None;
        }
        let Queued { body, bytes, point } = self.queue.pop_front()?;
        self.queue_bytes = self.queue_bytes.saturating_sub(bytes);
        let Chain::Open { generation, next } = &mut self.chain else { return None };
        let Point { complete, landmark } = point;
        let (generation, counter) = (*generation, *next);
        let message = Message { generation, counter, complete, landmark, body };
        *next += 1;
        if !self.rules.has(Rule::ConfirmAfterAck) {
            self.confirm(point);
        }
        self.in_flight.push_back((message.counter, point));
        Some(message)
    }

    /// Records the acknowledgement of a message and of all before it.
    pub fn acknowledged(&mut self, counter: u64) {
        while let Some((first, point)) = self.in_flight.front().copied() {
            if first > counter {
                break;
            }
            self.confirm(point);
            self.in_flight.pop_front();
        }
    }

    fn confirm(&mut self, point: Point) {
        self.confirmable.complete = self.confirmable.complete.max(point.complete);
        self.confirmable.landmark = point.landmark;
    }

    /// Records that a message was not written, or that this is unknown.
    pub fn failed(&mut self, reason: &str) {
        self.break_chain(reason);
    }

    fn break_chain(&mut self, reason: &str) {
        self.clear_queue();
        self.in_flight.clear();
        if let Feed::Running { resumed_at, .. } = &mut self.feed {
            *resumed_at = None;
        }
        self.chain = Chain::Broken(reason.to_owned());
    }

    fn clear_queue(&mut self) {
        self.queue.clear();
        self.queue_bytes = 0;
    }

    /// Returns the point of the log before which the stream has acknowledged every change, for a
    /// feed whose place the database keeps.
    pub fn confirmable(&self) -> u64 {
        self.confirmable.complete
    }

    /// Returns where a feed goes on whose place the stream keeps: before it the stream has
    /// acknowledged every change.
    pub fn landmark(&self) -> Option<Landmark> {
        self.confirmable.landmark
    }

    /// Returns the chain that is open.
    pub fn generation(&self) -> Option<Generation> {
        match self.chain {
            Chain::Open { generation, .. } => Some(generation),
            Chain::Broken(_) | Chain::Opening(_) => None,
        }
    }

    /// Returns the bytes of events that wait.
    pub fn queued_bytes(&self) -> usize {
        self.queue_bytes
    }

    /// Returns the number of instances that asked within the last minute.
    pub fn instances(&self, now: Nanos) -> usize {
        self.nonces.instances(now)
    }
}

/// Returns the mark of a change that messages can carry; `None` for those of other engines.
pub fn mark_of(change: hotrow_types::version::ChangeId) -> Option<Mark> {
    use hotrow_types::version::ChangeId;
    match change {
        ChangeId::Transaction { xid, .. } => Some(Mark::Transaction(xid)),
        ChangeId::Commit(position) => Some(Mark::Commit(position.at)),
        ChangeId::Gtid(gtid) => Some(Mark::Gtid(gtid)),
        ChangeId::Log(_) => None,
    }
}

#[cfg(any(test, feature = "failpoints"))]
mod faults;
#[cfg(test)]
mod tests;
