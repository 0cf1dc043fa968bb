//! Feed session: from the start of the stream to its end.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::pin;

use hotrow_measure::clock::Nanos;
use hotrow_types::version::{Position, Version};
use mysql_async::Conn;
use mysql_async::binlog::events::Event as Raw;
use tokio::sync::{Notify, mpsc};

use super::binlog::Event;
use super::config::Tuning;
use super::delivery::{Delivery, DeliveryError};
use super::dump::Dump;
use super::inspect::Table;
use super::landmark::{Landmarks, mysql_gtid};
use super::probe::{self, Advance, Probe, Progress};
use super::recent::Recent;
use super::server::Identity;
use super::xa_commits::{XaCommits, prepares};
use hotrow_source::catalog_watermark::CatalogWatermark;
use hotrow_source::feed_loop::{EarlyProbe, Ended, every, wait_until};
use hotrow_source::place::Place;
use hotrow_source::{LossCause, Sink};
use hotrow_supervisor as supervisor;

/// Number of silence checks of the stream per `silence_max`.
const SILENCE_CHECKS: u32 = 8;

impl From<DeliveryError> for Ended {
    fn from(e: DeliveryError) -> Self {
        let cause = match e {
            DeliveryError::Incident => LossCause::LogPruned,
            DeliveryError::Anonymous | DeliveryError::TooManyTables => LossCause::NotWatched,
            DeliveryError::File => LossCause::OtherLog,
            // Another session at the same place would read the same.
            DeliveryError::Decode(_)
            | DeliveryError::OutsideGroup(_)
            | DeliveryError::Unended
            | DeliveryError::Undescribed(_) => LossCause::FeedFailed,
        };
        Self::new(cause, e.to_string())
    }
}

/// Result of a catalogue check.
pub(crate) enum CatalogCheck {
    /// No change that concerns the feed.
    Unchanged,
    /// New tables of the collections.
    Changed(Vec<Option<Table>>),
}

/// Returns a digest of the tables' definitions as the feed depends on them, equal in every process;
/// `None` if one is unknown.
pub(crate) fn watched(tables: &[Option<Table>]) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    for table in tables {
        for table in table.as_ref()?.followed() {
            let columns = format!("{:?}", table.columns);
            (&table.name, columns, &table.index, table.has_foreign_keys).hash(&mut hasher);
            if let Some(view) = &table.view {
                format!("{view:?}").hash(&mut hasher);
            }
        }
    }
    Some(hasher.finish())
}

/// Reply of a catalogue check.
struct CatalogReply {
    /// [`Delivery::rechecks`] at the time of the request.
    rechecks: u64,
    /// Time before the first query of the check.
    sent_at: Nanos,
    outcome: CatalogCheck,
}

/// Checker of the catalogue.
pub(crate) trait CatalogWatcher {
    /// Checks once, reports changes to readers and sink, and returns those that concern the feed.
    fn check(&mut self) -> impl Future<Output = Result<CatalogCheck, Ended>>;
}

pub(crate) struct Session<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) tuning: &'a Tuning,
    pub(crate) sink: &'a dyn Sink,
    pub(crate) recent: &'a Recent,
    pub(crate) dump: Dump,
    pub(crate) delivery: Delivery<'a>,
    pub(crate) progress: Progress,
    pub(crate) xa_commits: XaCommits,
    /// Freshness of the known table definitions.
    pub(crate) catalog: CatalogWatermark,
    /// Log end by the newest probe, for later sessions.
    pub(crate) newest_end: &'a Cell<u64>,
    pub(crate) kept: FeedPlace<'a>,
}

/// Place of the feed that outlives its session.
pub(crate) struct FeedPlace<'a> {
    pub(crate) place: Option<&'a dyn Place>,
    pub(crate) landmarks: Landmarks,
    /// Digest of the tables' definitions; `None` if some are unknown.
    pub(crate) watched: Option<u64>,
    /// Start of the session in the log. Changes before it may be invisible until a probe has seen
    /// it.
    pub(crate) start: u64,
    pub(crate) is_settled: bool,
    /// End of the log when the tables were inspected. A resumed feed is behind it at first, and a
    /// definition of now may not be that of then: no check confirms tables before it.
    pub(crate) inspected_at: u64,
}

impl FeedPlace<'_> {
    fn settle(&mut self, visible: u64) {
        if !self.is_settled && visible >= self.start {
            self.is_settled = true;
            self.place.into_iter().for_each(Place::settled);
        }
    }

    fn report_watched(&self, is_unverified: bool) {
        if let Some(place) = self.place {
            place.watching(self.watched.filter(|_| !is_unverified));
        }
    }
}

impl Session<'_> {
    /// Delivers changes until the session ends. `probes` is the connection for probes.
    pub(crate) async fn run(self, probes: &mut Conn, watcher: &mut impl CatalogWatcher) -> Ended {
        let (probe_tx, probe_rx) = mpsc::channel(1);
        let (request_tx, request_rx) = mpsc::channel(1);
        let (reply_tx, reply_rx) = mpsc::channel(1);
        let identity = self.identity;
        let tuning = self.tuning;
        let early = Notify::new();
        let looks = self.sink.looks();
        let deliver = pin!(self.deliver(probe_rx, &early, request_tx, reply_rx));
        tokio::select! {
            ended = deliver => match ended {
                Ok(never) => match never {},
                Err(ended) => ended,
            },
            ended = probe::run(probes, identity, tuning, probe_tx, &early, looks) => ended,
            ended = catalog_checks(watcher, request_rx, reply_tx) => ended,
        }
    }

    async fn deliver(
        mut self,
        mut probes: mpsc::Receiver<Probe>,
        early: &Notify,
        requests: mpsc::Sender<u64>,
        mut replies: mpsc::Receiver<CatalogReply>,
    ) -> Result<Infallible, Ended> {
        let mut check_tick = every(self.tuning.catalog_check_every);
        let mut silence_tick = every(self.tuning.silence_max / SILENCE_CHECKS);
        let mut reported = None;
        // Counts ticks, not time: after this process was suspended, buffered events are read first.
        let mut silent = 0;
        let mut is_checking = false;
        let mut early_probe = EarlyProbe::default();
        loop {
            supervisor::turn();
            self.report_progress(&mut reported);
            let is_behind = self.delivery.delivered() < self.kept.inspected_at;
            if !is_checking && !is_behind && self.delivery.needs_check() {
                is_checking = requests.try_send(self.delivery.rechecks()).is_ok();
            }
            let is_wanted = self.sink.wants_visibility()
                || self.delivery.awaits_visibility()
                || self.delivery.held_commit().is_some();
            let early_at = early_probe.due(is_wanted);
            tokio::select! {
                event = self.dump.next(), if self.xa_commits.has_room() => {
                    silent = 0;
                    self.receive(event?)?;
                    while self.xa_commits.has_room()
                        && let Some(event) = self.dump.ready()
                    {
                        self.receive(event?)?;
                    }
                }
                Some(mut probe) = probes.recv() => {
                    self.delivery.mark_visible(&probe.visible);
                    if let Version::Gtids(visible) = &probe.visible {
                        self.recent.mark_visible_gtids(visible);
                    }
                    if let Version::Log(visible) = &probe.visible {
                        self.recent.mark_visible(visible.at);
                        self.kept.settle(visible.at);
                    } else if probe.is_settled {
                        self.kept.settle(u64::MAX);
                    }
                    if self.xa_commits.listed(std::mem::take(&mut probe.prepared)) {
                        self.delivery.flush_visible();
                    }
                    self.take_held()?;
                    let end = probe.end;
                    if !self.progress.probed(probe) {
                        let detail = "the binary log's end went back: it was reset";
                        return Err(Ended::new(LossCause::OtherLog, detail));
                    }
                    self.newest_end.set(end);
                }
                Some(CatalogReply { rechecks, sent_at, outcome }) = replies.recv() => {
                    is_checking = false;
                    match outcome {
                        CatalogCheck::Unchanged => self.delivery.confirm(rechecks),
                        CatalogCheck::Changed(tables) => {
                            self.kept.watched = watched(&tables);
                            self.delivery.follow(tables, rechecks);
                        }
                    }
                    self.kept.report_watched(self.delivery.is_unverified());
                    self.catalog.confirm(sent_at);
                }
                _ = check_tick.tick(), if !is_checking && !is_behind => {
                    is_checking = requests.try_send(self.delivery.rechecks()).is_ok();
                }
                () = wait_until(early_at) => {
                    early_probe.sent();
                    early.notify_one();
                }
                _ = silence_tick.tick() => {
                    self.report_held();
                    silent += u32::from(self.xa_commits.has_room());
                    if silent > SILENCE_CHECKS {
                        return Err(Ended::silent("the feed's stream", self.tuning.silence_max));
                    }
                }
            }
        }
    }

    /// Processes an event, or holds it back behind a commit that the engine has not made.
    fn receive(&mut self, event: Raw) -> Result<(), Ended> {
        let is_free = self.delivery.held_commit().is_none_or(|xid| prepares(&event, xid));
        self.xa_commits.receive(event, Nanos::now());
        if is_free { self.take_held() } else { Ok(()) }
    }

    /// Processes what no commit holds back.
    fn take_held(&mut self) -> Result<(), Ended> {
        loop {
            if let Some(xid) = self.delivery.held_commit() {
                if !self.xa_commits.is_committed(xid) {
                    return Ok(());
                }
                self.delivery.release()?;
                self.pass_landmark();
            }
            let Some(event) = self.xa_commits.take() else { return Ok(()) };
            self.take(&event)?;
        }
    }

    fn report_held(&mut self) {
        if let Some(xid) = self.delivery.held_commit()
            && self.xa_commits.is_overdue(Nanos::now())
        {
            tracing::warn!(
                ?xid,
                "the log has the XA COMMIT of a transaction that the server still lists as \
                 prepared; the feed waits for it"
            );
        }
    }

    fn take(&mut self, raw: &Raw) -> Result<(), Ended> {
        let header = raw.header();
        let kind = header.event_type_raw();
        let was_unverified = self.delivery.is_unverified();
        self.kept.landmarks.begin(raw, self.delivery.position());
        self.delivery.ends_at(header.log_pos());
        let event =
            if Event::is_mysql_gtid(kind) {
                Event::Gtid(mysql_gtid(raw).ok_or_else(|| {
                    Ended::new(LossCause::Unavailable, "a GTID event cannot be read")
                })?)
            } else {
                Event::decode(kind, raw.data()).map_err(DeliveryError::from)?
            };
        self.delivery.take(event)?;
        if self.delivery.is_unverified() && !was_unverified {
            self.kept.report_watched(true);
        }
        self.pass_landmark();
        Ok(())
    }

    fn pass_landmark(&mut self) {
        self.kept.landmarks.delivered(self.delivery.delivered(), self.delivery.position());
        if let Some((place, landmark)) = self.kept.place.zip(self.kept.landmarks.take()) {
            place.passed(landmark);
        }
    }

    fn report_progress(&mut self, reported: &mut Option<(Nanos, u64)>) {
        let delivered = self.delivery.delivered();
        let Some(Advance { sent_at, to, visible }) = self.progress.advance(delivered) else {
            return;
        };
        let looked_at = sent_at;
        let sent_at = self.catalog.effective(sent_at);
        if reported.replace((sent_at, to)) != Some((sent_at, to)) || visible.is_some() {
            let position = Position { incarnation: self.identity.incarnation, at: to };
            self.sink.advance(sent_at, Some(position), visible.as_ref());
            // Strict answers depend on no look at the catalogue.
            self.sink.looks().into_iter().for_each(|looks| looks.passed(looked_at));
        }
    }
}

/// Checks the catalogue on each request. A reply contains the value of its request.
async fn catalog_checks(
    watcher: &mut impl CatalogWatcher,
    mut requests: mpsc::Receiver<u64>,
    replies: mpsc::Sender<CatalogReply>,
) -> Ended {
    while let Some(rechecks) = requests.recv().await {
        let sent_at = Nanos::now();
        match watcher.check().await {
            Ok(outcome) => {
                if replies.send(CatalogReply { rechecks, sent_at, outcome }).await.is_err() {
                    break;
                }
            }
            Err(ended) => return ended,
        }
    }
    Ended::new(LossCause::Unavailable, "the feed ended")
}
