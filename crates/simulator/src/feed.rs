//! Feed: the connection of one instance to the log, from session to session.
//!
//! The feed reports to its sink as an engine's feed does: changes in the order of the log, flushes,
//! gaps of collections, losses, starts, and how far it is. Probes of the log's end date its
//! progress; looks at the catalogue find what the log does not show. `delivery` has the session;
//! this module has its beginning and its end.

use std::collections::VecDeque;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_source::catalog_watermark::CatalogWatermark;
use hotrow_source::{LossCause, Sink, feed_loop};
use hotrow_types::key::CollectionId;
use hotrow_types::version::{ChangeId, Version};

use crate::database::COLLECTIONS;
use crate::engine::{FeedKind, SchemaChanges};
use crate::queue::{FeedEvent, InstanceEvent};
use crate::slab::SlabId;
use crate::world::World;

/// Pause between two checks of whether the feed may start.
const START_CHECK_EVERY: Duration = Duration::from_millis(2);
/// Most commits that a feed which continues delivers again.
const DUPLICATES_MAX: usize = 4;

/// The feed of one instance.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    /// Number of the session. Events of an older one have no effect.
    pub(crate) session: u32,
    pub(crate) phase: Phase,
    /// The log that it followed last; `None` after a loss.
    pub(crate) incarnation: Option<u64>,
    /// Commits that were delivered.
    pub(crate) delivered: u64,
    /// Incarnation of the newest log that was followed, and the most commits of it that were
    /// delivered: they do not fall when the feed is lost, or delivers again.
    pub(crate) reached: (u64, u64),
    /// Changes of the next commit that were delivered.
    pub(crate) part: usize,
    /// Whether a look for new log entries is pending.
    pub(crate) is_looking: bool,
    /// Delivered changes that clients are not informed of yet: row, place in the log, mark.
    pub(crate) unproven: Vec<(usize, (u64, u64), ChangeId)>,
    pub(crate) probes: VecDeque<Probe>,
    /// Time at which the look for requests was sent that is on its way; [`Nanos::MAX`] before that.
    pub(crate) end_look: Option<Nanos>,
    /// Time of the newest probe that was passed.
    pub(crate) passed: Option<Nanos>,
    pub(crate) catalogue: Option<CatalogWatermark>,
    pub(crate) shapes: [u64; COLLECTIONS as usize],
    pub(crate) withdrawals: [u64; COLLECTIONS as usize],
    pub(crate) gaps: Vec<Gap>,
    /// Attempts since a session lasted.
    attempt: u32,
    began_at: Nanos,
    /// Answers on their way arrive no earlier than this: the connection is held.
    pub(crate) held_until: Nanos,
}

/// Phase of a feed.
#[derive(Debug, Default)]
pub(crate) enum Phase {
    /// Not connected.
    #[default]
    Down,
    /// Connected; it starts when reads see everything up to `start`, and these transactions ended.
    Starting {
        start: u64,
        running: Vec<SlabId>,
    },
    Running,
}

/// A probe of the log's end.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) sent_at: Nanos,
    pub(crate) end: u64,
    /// What a read sent later sees at least.
    pub(crate) visible: Option<Version>,
}

/// Result of a look at the catalogue.
#[derive(Clone, Debug)]
pub(crate) struct CatalogueLook {
    pub(crate) sent_at: Nanos,
    pub(crate) shapes: [u64; COLLECTIONS as usize],
    pub(crate) withdrawals: [u64; COLLECTIONS as usize],
    pub(crate) is_published: [bool; COLLECTIONS as usize],
}

/// A collection whose changes may not all be delivered.
#[derive(Debug)]
pub(crate) struct Gap {
    pub(crate) collection: CollectionId,
    pub(crate) bridge: Bridge,
}

/// Condition for closing a gap.
#[derive(Debug)]
pub(crate) enum Bridge {
    /// Its collection is not published.
    Unpublished,
    /// Transactions that ran when it was published again.
    Running(Vec<SlabId>),
    /// The feed has to pass the end of the log.
    End(u64),
}

impl Feed {
    /// Notes how far it has delivered.
    pub(crate) fn reach(&mut self) {
        if let Some(incarnation) = self.incarnation {
            let is_same = incarnation == self.reached.0;
            let before = if is_same { self.reached.1 } else { 0 };
            self.reached = (incarnation, self.delivered.max(before));
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }
}

impl World {
    pub(crate) fn push_feed(&mut self, i: usize, after: Duration, event: FeedEvent) {
        let session = self.instances[i].feed.session;
        self.push(i, after, InstanceEvent::Feed(session, event));
    }

    /// Carries out an event of a session, unless it has ended.
    pub(crate) fn feed_event(&mut self, i: usize, session: u32, event: FeedEvent) {
        let feed = &self.instances[i].feed;
        if feed.session != session {
            return;
        }
        match event {
            FeedEvent::CutNoticed => self.cut_noticed(i),
            FeedEvent::Connect => self.connect(i),
            FeedEvent::Start => self.start_feed(i),
            _ if !feed.is_running() => {}
            FeedEvent::Deliver => self.deliver(i),
            FeedEvent::ProbeSent => self.probe_sent(i),
            FeedEvent::EndLookSent => self.end_look_sent(i),
            FeedEvent::ProbeRead(at) => self.probe_read(i, at),
            FeedEvent::ProbeArrived(probe) => self.probe_arrived(i, *probe),
            FeedEvent::LookSent => self.look_sent(i),
            FeedEvent::LookRead(at) => self.look_read(i, at),
            FeedEvent::LookArrived(look) => self.look_arrived(i, &look),
        }
    }

    /// Ends the session; the instance notices it `noticed_after`.
    pub(crate) fn cut(&mut self, i: usize, noticed_after: Duration) {
        let feed = &mut self.instances[i].feed;
        if matches!(feed.phase, Phase::Down) {
            return;
        }
        feed.session += 1;
        feed.phase = Phase::Down;
        self.push_feed(i, noticed_after, FeedEvent::CutNoticed);
    }

    fn cut_noticed(&mut self, i: usize) {
        if !self.settings.engine.resumes {
            self.lose(i, LossCause::Unavailable);
        }
        let lasted = self.now.since(self.instances[i].feed.began_at);
        if lasted > feed_loop::PAUSE_MAX {
            self.instances[i].feed.attempt = 0;
        }
        self.reconnect(i);
    }

    /// Marks the feed's place as lost and everything in the cache as stale.
    pub(crate) fn lose(&mut self, i: usize, cause: LossCause) {
        let feed = &mut self.instances[i].feed;
        feed.incarnation = None;
        feed.unproven.clear();
        self.instances[i].sink.loss(cause, "simulated");
        self.instances[i].looks.close();
    }

    /// Connects after the pause that the back-off asks for.
    fn reconnect(&mut self, i: usize) {
        let random = self.random.number();
        let feed = &mut self.instances[i].feed;
        let pause = feed_loop::pause(feed.attempt, random);
        feed.attempt = feed.attempt.saturating_add(1);
        self.push_feed(i, pause, FeedEvent::Connect);
    }

    fn connect(&mut self, i: usize) {
        if self.database.is_down || self.database.is_published.contains(&false) {
            self.instances[i].feed.session += 1;
            return self.reconnect(i);
        }
        let incarnation = self.database.incarnation;
        let known = self.instances[i].feed.incarnation;
        if known.is_some_and(|known| known != incarnation) {
            self.lose(i, LossCause::OtherDatabase);
        }
        let feed = &self.instances[i].feed;
        if feed.incarnation.is_some() && feed.delivered < self.database.pruned {
            self.lose(i, LossCause::LogPruned);
        }
        let again = self.random.below(DUPLICATES_MAX + 1) as u64;
        let (shapes, withdrawals) = (self.database.shapes, self.database.withdrawals);
        let (schema_poll, bound) = (self.settings.schema_poll, self.settings.cache.max_staleness);
        let (now, pruned) = (self.now, self.database.pruned);
        let feed = &mut self.instances[i].feed;
        (feed.began_at, feed.shapes, feed.withdrawals) = (now, shapes, withdrawals);
        if self.settings.engine.schema == SchemaChanges::InCatalogue {
            feed.catalogue = Some(CatalogWatermark::new(schema_poll, bound, now));
        }
        feed.probes.clear();
        feed.part = 0;
        if feed.incarnation.is_some() {
            let from = feed.delivered.saturating_sub(again).max(pruned);
            self.counts.duplicates += feed.delivered - from;
            self.counts.resumptions += 1;
            feed.delivered = from;
            return self.run_feed(i);
        }
        let start = self.database.end();
        let is_running = |id: &SlabId| self.is_running(*id);
        let running = self.database.transactions.ids().into_iter().filter(is_running).collect();
        let feed = &mut self.instances[i].feed;
        feed.passed = None;
        feed.phase = Phase::Starting { start, running };
        self.push_feed(i, Duration::ZERO, FeedEvent::Start);
    }

    /// Returns whether the transaction has neither become visible nor been rolled back.
    pub(crate) fn is_running(&self, id: SlabId) -> bool {
        self.database.transactions.get(id).is_some_and(|transaction| !transaction.is_visible)
    }

    /// Starts the feed once every read sees all that it will not deliver.
    fn start_feed(&mut self, i: usize) {
        let feed = &self.instances[i].feed;
        let Phase::Starting { start, running } = &feed.phase else { return };
        let start = *start;
        let waits =
            self.database.visible_end() < start || running.iter().any(|id| self.is_running(*id));
        if waits {
            return self.push_feed(i, START_CHECK_EVERY, FeedEvent::Start);
        }
        let position = self.settings.engine.has_positions().then(|| self.database.position(start));
        let instance = &mut self.instances[i];
        // The start of this session bridges the gaps of the last one.
        for gap in instance.feed.gaps.drain(..) {
            instance.sink.close_gap(gap.collection);
        }
        instance.sink.started(position);
        instance.feed.incarnation = Some(self.database.incarnation);
        instance.feed.delivered = start;
        self.run_feed(i);
    }

    fn run_feed(&mut self, i: usize) {
        let feed = &mut self.instances[i].feed;
        feed.phase = Phase::Running;
        feed.end_look = None;
        feed.reach();
        feed.is_looking = true;
        self.push_feed(i, Duration::ZERO, FeedEvent::Deliver);
        self.push_feed(i, Duration::ZERO, FeedEvent::ProbeSent);
        if self.settings.engine.schema == SchemaChanges::InCatalogue {
            self.push_feed(i, Duration::ZERO, FeedEvent::LookSent);
        }
        if self.settings.engine.has_positions() {
            self.instances[i].looks.open();
        }
    }

    /// Wakes the feeds because the log has grown.
    pub(crate) fn log_grew(&mut self) {
        self.wake_standbys();
        if self.settings.engine.feed == FeedKind::Off {
            return;
        }
        for i in 0..self.instances.len() {
            let feed = &mut self.instances[i].feed;
            if feed.is_running() && !feed.is_looking {
                feed.is_looking = true;
                let after = self.feed_latency(i);
                self.push_feed(i, after, FeedEvent::Deliver);
            }
        }
    }

    /// Returns the time that something takes on the feed's connection.
    pub(crate) fn feed_latency(&mut self, i: usize) -> Duration {
        let held = self.instances[i].feed.held_until.since(self.now);
        held + self.random.latency(self.settings.typical.feed)
    }
}
