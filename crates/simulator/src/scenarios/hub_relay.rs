//! Relay of the hub: a feed, looks at the database, and a [`Publisher`].

use std::collections::VecDeque;

use hotrow_hub::message::{Body, Event, Mark, Message, Nonce};
use hotrow_hub::publisher::Publisher;
use hotrow_hub::rules::{Rule, Rules};
use hotrow_measure::clock::Nanos;
use hotrow_types::landmark::{CommitId, CommitMark, Landmark};
use hotrow_types::version::{Snapshot, Version};

use super::hub_stream::Stream;
use super::hub_wire::{COLLECTION, Kept, origin, travel};
use crate::database::Database;
use crate::random::Random;

pub(super) struct Relay {
    rules: Rules,
    pub(super) is_paused: bool,
    publisher: Publisher,
    feed: Option<Feed>,
    is_leading: bool,
    /// Lease under which it leads.
    pub(super) term: u64,
    /// Questions that came while it was paused.
    backlog: Vec<Nonce>,
    /// Sequence of the chain's beginning.
    began_at: u64,
    /// Acknowledgements under way.
    acks: VecDeque<u64>,
    /// Acknowledgements and requests may be lost.
    pub(super) has_faults: bool,
}

struct Feed {
    timeline: u64,
    /// Version of the publication at its start.
    publication: u64,
    kept: Kept,
    /// It goes on where the chain before ended.
    is_resumed: bool,
    /// Commits of the log that were delivered.
    delivered: u64,
    /// Transactions that ran at the start and must become visible; `None` afterwards.
    waits_for: Option<Vec<u64>>,
    is_started: bool,
    looks: VecDeque<Look>,
    looked_at: Nanos,
}

/// Look at the database: begun, and then with an answer.
struct Look {
    began_at: Nanos,
    answer: Option<(u64, Snapshot)>,
}

impl Relay {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            is_paused: false,
            publisher: Publisher::new(vec![COLLECTION], rules),
            feed: None,
            is_leading: false,
            term: 0,
            backlog: Vec::new(),
            began_at: 0,
            acks: VecDeque::new(),
            has_faults: true,
        }
    }

    pub(super) fn is_leading(&self) -> bool {
        self.is_leading
    }

    pub(super) fn is_on(&self, database: &Database) -> bool {
        self.feed.as_ref().is_some_and(|feed| feed.timeline == database.incarnation)
    }

    pub(super) fn ask(&mut self, nonce: Nonce, now: Nanos) {
        if self.is_paused {
            self.backlog.push(nonce);
        } else {
            self.publisher.ask(nonce, now);
        }
    }

    pub(super) fn crash(&mut self, rules: Rules) {
        *self = Self::new(rules);
    }

    pub(super) fn stand_by(&mut self, rules: Rules) {
        let backlog = std::mem::take(&mut self.backlog);
        *self = Self { backlog, has_faults: self.has_faults, ..Self::new(rules) };
    }

    /// The database ends the session; what is queued stays queued.
    pub(super) fn end_session(&mut self) {
        self.feed = None;
    }

    /// Begins to work with the lease.
    pub(super) fn lead(
        &mut self,
        database: &Database,
        (kept, last): (Kept, Option<&Message>),
        term: u64,
    ) {
        self.is_leading = true;
        self.term = term;
        if kept == Kept::Stream {
            self.publisher.resume_from(last.and_then(|last| last.landmark));
        }
        self.connect(database, kept);
    }

    fn connect(&mut self, database: &Database, kept: Kept) {
        // A new timeline has no place of the old one.
        let kept = if database.incarnation == 1 { kept } else { Kept::Nowhere };
        let found = match kept {
            Kept::Nowhere => None,
            Kept::Slot => Some(database.confirmed),
            Kept::Stream => {
                self.publisher.landmark().map(|l| l.end()).filter(|at| *at >= database.pruned)
            }
        };
        let from = found.unwrap_or_else(|| database.end());
        self.feed = Some(Feed {
            timeline: database.incarnation,
            publication: database.withdrawals[0],
            kept,
            is_resumed: found.is_some(),
            delivered: from,
            waits_for: Some(database.running().running),
            is_started: false,
            looks: VecDeque::new(),
            looked_at: Nanos(0),
        });
    }

    /// Does one thing. Returns whether a chain began.
    pub(super) fn step(
        &mut self,
        database: &mut Database,
        stream: &mut Stream,
        random: &mut Random,
        (now, has_lease): (u64, bool),
    ) -> Result<bool, String> {
        for nonce in std::mem::take(&mut self.backlog) {
            self.publisher.ask(nonce, Nanos(now));
        }
        self.look_at_publication(database);
        self.start(database);
        match random.below(10) {
            0..2 => self.deliver(database),
            2 => self.look(now),
            3 => self.answer_look(database),
            4 => self.advance(),
            5..8 => return self.publish(stream, random, has_lease),
            8 => {
                if self.has_faults && random.one_in(100) {
                    self.acks.clear();
                    self.publisher.failed("an acknowledgement did not come");
                } else if let Some(counter) = self.acks.pop_front() {
                    self.publisher.acknowledged(counter);
                }
            }
            _ => {
                let has_slot = |feed: &Feed| feed.kept == Kept::Slot && feed.is_started;
                if self.feed.as_ref().is_some_and(has_slot) {
                    database.confirmed = database.confirmed.max(self.publisher.confirmable());
                }
            }
        }
        Ok(false)
    }

    /// Ends a session whose publication changed, and begins another.
    fn look_at_publication(&mut self, database: &Database) {
        let Some(feed) = self.feed.as_ref() else { return };
        if feed.publication != database.withdrawals[0] {
            let kept = feed.kept;
            self.publisher.feed_lost(4, "the publication changed");
            self.connect(database, kept);
        }
    }

    /// Reports the start of the feed: at once with a slot, or after the wait for visibility.
    fn start(&mut self, database: &Database) {
        let Some(feed) = self.feed.as_mut() else { return };
        if let Some(waits_for) = &mut feed.waits_for {
            let snapshot = database.running();
            waits_for.retain(|xid| !snapshot.contains(*xid));
        }
        let is_settled = feed.waits_for.as_ref().is_some_and(Vec::is_empty);
        let position = feed.delivered;
        let origin = origin(feed.timeline);
        if !feed.is_started && feed.is_resumed {
            self.publisher.feed_resumed(origin, position, Some(feed.publication));
            feed.is_started = true;
        } else if !feed.is_started && is_settled {
            self.publisher.feed_started(origin, position);
            if feed.kept == Kept::Stream {
                self.publisher.watching(Some(feed.publication));
            }
            feed.is_started = true;
        }
        if feed.is_started && is_settled {
            self.publisher.settled();
            feed.waits_for = None;
        }
    }

    fn deliver(&mut self, database: &Database) {
        let Some(feed) = self.feed.as_mut().filter(|feed| feed.is_started) else { return };
        let Some(entry) = database.log.get(feed.delivered as usize) else { return };
        feed.delivered += 1;
        let (end, xid) = (feed.delivered, entry.xid);
        for change in entry.changes.iter().filter(|change| change.is_shown) {
            for row in database.targets(change.target) {
                self.publisher.deliver(Event::Change {
                    collection: COLLECTION,
                    key: (row as u64).to_be_bytes().into(),
                    mark: Mark::Transaction(xid),
                });
            }
        }
        if feed.kept == Kept::Stream {
            let commit = Some(CommitMark { gtid: CommitId::MariaDb(0, 1, xid), end });
            self.publisher.passed(Landmark { at: end - 1, file_created_s: 0, commit });
        }
        self.publisher.advance(feed.looked_at, end, None);
    }

    fn look(&mut self, now: u64) {
        if let Some(feed) = self.feed.as_mut().filter(|feed| feed.looks.len() < 3) {
            feed.looks.push_back(Look { began_at: Nanos(now), answer: None });
        }
    }

    fn answer_look(&mut self, database: &Database) {
        let Some(feed) = self.feed.as_mut() else { return };
        if let Some(look) = feed.looks.iter_mut().find(|look| look.answer.is_none()) {
            look.answer = Some((database.end(), database.running()));
        }
    }

    /// Reports the oldest look, if the feed has passed its end.
    fn advance(&mut self) {
        let Some(feed) = self.feed.as_mut().filter(|feed| feed.is_started) else { return };
        let Some(Look { began_at, answer: Some((end, snapshot)) }) = feed.looks.front() else {
            return;
        };
        let delivered = feed.delivered;
        if *end > delivered {
            return;
        }
        let version = Version::Snapshot { incarnation: 1, snapshot: snapshot.clone().into() };
        self.publisher.advance(*began_at, delivered, Some(&version));
        feed.looked_at = *began_at;
        feed.looks.pop_front();
    }

    fn publish(
        &mut self,
        stream: &mut Stream,
        random: &mut Random,
        has_lease: bool,
    ) -> Result<bool, String> {
        let has_order = self.rules.has(Rule::CompareAndSet);
        if self.publisher.wants_beginning() {
            self.acks.clear();
            // It reads the stream's end, then looks at the lease, then writes behind that end.
            let end = stream.end();
            if !has_lease {
                self.stand_by(self.rules);
                return Ok(false);
            }
            let identity = random.number();
            let Some(message) = self.publisher.begin(stream.last(), 0, identity) else {
                return Ok(false);
            };
            self.check_continuity(&message.body, stream)?;
            match stream.publish(travel(&message), has_order.then_some(end)) {
                Some(sequence) => {
                    self.began_at = sequence;
                    self.publisher.began();
                    return Ok(true);
                }
                None => return Ok(false),
            }
        }
        let Some(message) = self.publisher.take() else { return Ok(false) };
        let expected = self.began_at + message.counter - 1;
        // A request may be lost on its way.
        let is_lost = self.has_faults && random.one_in(300);
        let written = if is_lost {
            None
        } else {
            stream.publish(travel(&message), has_order.then_some(expected))
        };
        match written {
            Some(_) => self.acks.push_back(message.counter),
            None => {
                self.acks.clear();
                self.publisher.failed("a message was not written");
            }
        }
        Ok(false)
    }

    /// A relay that resumes goes on without a loss, if the stream lost nothing.
    fn check_continuity(&self, body: &Body, stream: &Stream) -> Result<(), String> {
        let Body::Beginning(beginning) = body else { return Ok(()) };
        let is_first = beginning.reason == "another relay took over";
        let has_lost = stream.has_lost || beginning.watched != Some(0);
        if is_first && stream.last().is_some() && !has_lost && beginning.resumed_at.is_none() {
            return Err(format!("a take-over is a loss: {beginning:?}, {:?}", stream.last()));
        }
        Ok(())
    }
}
