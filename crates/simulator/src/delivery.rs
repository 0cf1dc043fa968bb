//! A session of the feed: delivery of the log, probes, and looks at the catalogue.

use hotrow_measure::clock::Nanos;
use hotrow_source::catalog_watermark::check_interval;
use hotrow_source::{Change, FlushCause, LossCause, Sink};
use hotrow_types::key::CollectionId;
use hotrow_types::version::{ChangeId, Version};

use crate::database::{COLLECTIONS, LoggedChange, Target};
use crate::engine::{FeedKind, VersionKind};
use crate::feed::{Bridge, CatalogueLook, Gap, Probe};
use crate::queue::FeedEvent;
use crate::run::StrictMistake;
use crate::slab::SlabId;
use crate::world::{Instance, World};

/// Most changes delivered at once.
const CHANGES_MAX: usize = 6;
/// Probes within `max_staleness`, as the feeds of the engines send them.
const PROBES_PER_BOUND: u32 = 4;
/// The same while followers wait, which is nearly always with far readers.
const EARLY_PROBES_PER_BOUND: u32 = 100;

impl World {
    /// Delivers what the log holds beyond the feed's place, or a part of it.
    pub(crate) fn deliver(&mut self, i: usize) {
        self.instances[i].feed.is_looking = false;
        if self.instances[i].feed.delivered < self.database.pruned {
            return self.restart(i, LossCause::LogPruned);
        }
        if self.settings.engine.feed == FeedKind::Flushes {
            self.deliver_flushes(i);
        } else {
            self.deliver_changes(i);
        }
        self.report_progress(i);
        let feed = &mut self.instances[i].feed;
        if feed.delivered < self.database.end() {
            feed.is_looking = true;
            let after = self.feed_latency(i);
            self.push_feed(i, after, FeedEvent::Deliver);
        }
    }

    /// The place in the log is gone: everything is stale, and the feed starts at the log's end.
    fn restart(&mut self, i: usize, cause: LossCause) {
        self.lose(i, cause);
        let feed = &mut self.instances[i].feed;
        feed.session += 1;
        self.push_feed(i, std::time::Duration::ZERO, FeedEvent::Connect);
    }

    fn deliver_flushes(&mut self, i: usize) {
        let end = self.database.end();
        let instance = &mut self.instances[i];
        if instance.feed.delivered < end {
            instance.feed.delivered = end;
            for collection in (0..COLLECTIONS).map(CollectionId) {
                instance.sink.flush(collection, FlushCause::Unlisted, None);
            }
        }
    }

    fn deliver_changes(&mut self, i: usize) {
        let mut left = 1 + self.random.below(CHANGES_MAX);
        let instance = &mut self.instances[i];
        let mut batch: Vec<Change> = Vec::new();
        while left > 0 {
            let feed = &mut instance.feed;
            let Some(entry) = self.database.log.get(feed.delivered as usize) else { break };
            let mark = self.database.change_id(feed.delivered + 1, entry.xid);
            let Some(LoggedChange { target, is_shown }) = entry.changes.get(feed.part) else {
                (feed.delivered, feed.part) = (feed.delivered + 1, 0);
                continue;
            };
            feed.part += 1;
            left -= 1;
            if !is_shown {
                continue;
            }
            self.counts.delivered += 1;
            self.counts.delivered_hidden += u64::from(!entry.is_visible);
            let place = (self.database.incarnation, feed.delivered + 1);
            let rows = self.database.targets(*target);
            feed.unproven.extend(rows.map(|row| (row, place, mark)));
            match *target {
                Target::Row(row) => batch.push(Change { key: self.keys.get(row).clone(), mark }),
                Target::Collection(collection, cause) => {
                    instance.sink.changes(&batch);
                    batch.clear();
                    instance.sink.flush(collection, cause, Some(mark));
                }
            }
        }
        if !batch.is_empty() {
            instance.sink.changes(&batch);
        }
        // A commit whose last change was delivered is done.
        let feed = &mut instance.feed;
        let entry = self.database.log.get(feed.delivered as usize);
        if entry.is_some_and(|entry| feed.part >= entry.changes.len()) {
            (feed.delivered, feed.part) = (feed.delivered + 1, 0);
        }
    }

    /// Reports the newest probe that the feed has passed, and the gaps that it has bridged.
    fn report_progress(&mut self, i: usize) {
        self.instances[i].feed.reach();
        let engine = self.settings.engine;
        let mut delivered = self.instances[i].feed.delivered;
        self.close_gaps(i, delivered);
        let feed = &mut self.instances[i].feed;
        if self.planted == Some(StrictMistake::AppliedEarly) {
            delivered += u64::from(feed.part > 0);
        }
        let before = feed.passed;
        let mut visible = None;
        while feed.probes.front().is_some_and(|probe| probe.end <= delivered) {
            let Some(probe) = feed.probes.pop_front() else { break };
            feed.passed = Some(probe.sent_at);
            visible = probe.visible;
        }
        let Some(sent_at) = feed.passed else { return };
        let looked_at = match self.planted {
            Some(StrictMistake::LookJoinedLate) if before != feed.passed => self.now,
            _ => sent_at,
        };
        let sent_at = feed.catalogue.map_or(sent_at, |catalogue| catalogue.effective(sent_at));
        let position = engine.has_positions().then(|| self.database.position(delivered));
        if engine.version == VersionKind::ClusterTime {
            visible = position.map(Version::Log);
        }
        self.instances[i].sink.advance(sent_at, position, visible.as_ref());
        // Strict answers depend on no look at the catalogue.
        self.instances[i].looks.passed(looked_at);
        self.inform_followers(i, visible.as_ref());
    }

    /// Clients are informed of the delivered changes that are proven visible.
    fn inform_followers(&mut self, i: usize, visible: Option<&Version>) {
        let Instance { feed, floors, .. } = &mut self.instances[i];
        feed.unproven.retain(|(row, place, mark)| {
            let is_proven = matches!(mark, ChangeId::Log(_))
                || visible.is_some_and(|version| version.contains(mark));
            if is_proven && let Some(version) = self.database.visible_at(*row, *place) {
                self.counts.followed += 1;
                for key in (0..self.keys.len()).filter(|key| self.keys.row(*key) == *row) {
                    floors[key] = version.max(floors[key]);
                }
            }
            !is_proven
        });
    }

    fn close_gaps(&mut self, i: usize, delivered: u64) {
        let mut gaps = std::mem::take(&mut self.instances[i].feed.gaps);
        gaps.retain_mut(|gap| {
            if let Bridge::Running(running) = &gap.bridge
                && !running.iter().any(|id| self.is_running(*id))
            {
                gap.bridge = Bridge::End(self.database.end());
            }
            let is_bridged = matches!(gap.bridge, Bridge::End(end) if end <= delivered);
            if is_bridged {
                self.instances[i].sink.close_gap(gap.collection);
            }
            !is_bridged
        });
        self.instances[i].feed.gaps = gaps;
    }

    pub(crate) fn probe_sent(&mut self, i: usize) {
        self.send_probe(i);
        let is_far = self.settings.engine.is_far;
        let probes = if is_far { EARLY_PROBES_PER_BOUND } else { PROBES_PER_BOUND };
        let every = self.settings.cache.max_staleness / probes;
        self.push_feed(i, every, FeedEvent::ProbeSent);
    }

    pub(crate) fn probe_read(&mut self, i: usize, sent_at: Nanos) {
        if self.database.is_down {
            return;
        }
        let mut end = self.database.end();
        if self.planted == Some(StrictMistake::LookAtOtherServer) {
            end = end.saturating_sub(2);
        }
        let visible = self.database.visible_version();
        let after = self.feed_latency(i);
        let probe = Box::new(Probe { sent_at, end, visible });
        self.push_feed(i, after, FeedEvent::ProbeArrived(probe));
    }

    pub(crate) fn probe_arrived(&mut self, i: usize, probe: Probe) {
        // Answers can overtake one another; an older one proves nothing more.
        let feed = &mut self.instances[i].feed;
        feed.end_look = feed.end_look.filter(|sent_at| *sent_at > probe.sent_at);
        if feed.probes.back().is_none_or(|last| last.sent_at < probe.sent_at)
            && feed.passed.is_none_or(|passed| passed < probe.sent_at)
        {
            feed.probes.push_back(probe);
        }
        self.report_progress(i);
        self.want_look(i);
    }

    pub(crate) fn look_sent(&mut self, i: usize) {
        let (now, after) = (self.now, self.feed_latency(i));
        self.push_feed(i, after, FeedEvent::LookRead(now));
    }

    pub(crate) fn look_read(&mut self, i: usize, sent_at: Nanos) {
        if self.database.is_down {
            return;
        }
        let look = Box::new(CatalogueLook {
            sent_at,
            shapes: self.database.shapes,
            withdrawals: self.database.withdrawals,
            is_published: self.database.is_published,
        });
        let after = self.feed_latency(i);
        self.push_feed(i, after, FeedEvent::LookArrived(look));
    }

    /// Takes in what a look found, confirms the shapes, and sends the next look in time.
    pub(crate) fn look_arrived(&mut self, i: usize, look: &CatalogueLook) {
        for collection in (0..COLLECTIONS).map(CollectionId) {
            let c = usize::from(collection.0);
            if self.instances[i].feed.withdrawals[c] != look.withdrawals[c] {
                self.open_gap(i, collection, look.is_published[c]);
            } else if look.is_published[c] {
                self.bridge(i, collection);
            }
            let instance = &mut self.instances[i];
            if instance.feed.shapes[c] != look.shapes[c] {
                instance.sink.flush(collection, FlushCause::Schema, None);
            }
        }
        let feed = &mut self.instances[i].feed;
        (feed.shapes, feed.withdrawals) = (look.shapes, look.withdrawals);
        if let Some(catalogue) = &mut feed.catalogue {
            catalogue.confirm(look.sent_at);
        }
        self.report_progress(i);
        let every = check_interval(self.settings.schema_poll);
        self.push_feed(i, every, FeedEvent::LookSent);
    }

    fn open_gap(&mut self, i: usize, collection: CollectionId, is_published: bool) {
        let instance = &mut self.instances[i];
        instance.sink.open_gap(collection, "simulated");
        // A gap that is open begins anew.
        instance.feed.gaps.retain(|gap| gap.collection != collection);
        instance.feed.gaps.push(Gap { collection, bridge: Bridge::Unpublished });
        if is_published {
            self.bridge(i, collection);
        }
    }

    /// The collection is published again: its gap waits for the transactions that run now.
    fn bridge(&mut self, i: usize, collection: CollectionId) {
        let ids: Vec<SlabId> = self.database.transactions.ids();
        let running: Vec<SlabId> = ids.into_iter().filter(|id| self.is_running(*id)).collect();
        for gap in &mut self.instances[i].feed.gaps {
            if gap.collection == collection && matches!(gap.bridge, Bridge::Unpublished) {
                gap.bridge = Bridge::Running(running.clone());
            }
        }
    }
}
