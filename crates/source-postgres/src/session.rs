//! One session of the feed, from its slot to its end.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, KeySchema};
use hotrow_types::version::{Position, Snapshot, Version};
use tokio::time::Instant;
use tokio_postgres::Client;

use super::config::Tuning;
use super::delivery::{Delivery, Effect, Followed};
use super::error::{full_text, sql_error, timely};
use super::gap::Gaps;
use super::link;
use super::probe::{Advance, LogLayout, Probe, Progress};
use super::shared::Shared;
use super::stream::Stream;
use super::visibility::parse_snapshot;
use super::wire::replication::{Lsn, ReplyWanted, Streamed};
use super::wire::{Frame, Wire, deadline};
use hotrow_source::catalog_watermark::{CatalogWatermark, check_interval};
use hotrow_source::feed_loop::{BackgroundTask, EarlyProbe, Ended, every, wait_until};
use hotrow_source::looks::{self, Looks};
use hotrow_source::place::Place;
use hotrow_source::{LossCause, Sink};
use hotrow_supervisor as supervisor;

/// Longest time between two status messages, which also request a reply of the server.
const STATUS_EVERY_MAX: Duration = Duration::from_secs(1);
const STATUS_EVERY_MIN: Duration = Duration::from_millis(5);
/// Time for which the log's end may stay unflushed while requests wait for a look, before it is
/// flushed: most commits are flushed by then.
const AWAITED_FLUSH_AFTER: Duration = Duration::from_millis(2);
/// Shortest time between two flushes for them.
const AWAITED_FLUSH_EVERY: Duration = Duration::from_millis(10);

/// Connections and positions at the start of a session.
pub(crate) struct SessionStart<'a> {
    pub(crate) client: &'a Client,
    pub(crate) wire: &'a mut Wire<Stream>,
    pub(crate) incarnation: u64,
    pub(crate) layout: LogLayout,
    /// Position from which every commit is delivered.
    pub(crate) start: Lsn,
    /// Snapshot taken after the slot was created.
    pub(crate) snapshot: Snapshot,
    /// Time at which the shapes were last confirmed.
    pub(crate) catalog: CatalogWatermark,
    /// Where the place of the feed is kept, if the slot outlives the session.
    pub(crate) place: Option<&'a dyn Place>,
    /// See [`Place::watching`].
    pub(crate) watched: u64,
}

pub(crate) struct CatalogCheck {
    /// Time at which it was sent: it shows everything committed before.
    pub(crate) sent_at: Nanos,
    pub(crate) result: CheckResult,
}

/// Result of a catalogue check.
pub(crate) enum CheckResult {
    /// No change that matters to the feed.
    Same,
    /// The collections have other tables now.
    Follow {
        followed: Vec<Followed>,
        /// Collections whose changes may have been missed; the sink is informed.
        gaps: Vec<CollectionId>,
        /// See [`hotrow_source::place::Place::watching`].
        watched: u64,
    },
    /// Changes may have been missed.
    Ended(Ended),
}

/// Periodic check of the catalogue.
pub(crate) trait CatalogWatcher {
    /// Checks once, informs readers and sink of changes, and returns the result for the feed.
    fn check<'a>(&'a self, client: &'a Client) -> Pin<Box<dyn Future<Output = CatalogCheck> + 'a>>;
}

pub(crate) struct Session<'a> {
    start: SessionStart<'a>,
    tuning: &'a Tuning,
    sink: &'a dyn Sink,
    shared: &'a Shared,
    delivery: Delivery<'a>,
    progress: Progress,
    gaps: Gaps<'a>,
    reported: Option<(Nanos, Lsn)>,
    /// Status messages sent since the server's last message. Counted, not timed: after a suspension
    /// of this process the server gets a chance to answer.
    unanswered: u32,
    check_now: bool,
    /// Flushed position of the log at the last probe.
    flushed: Lsn,
    /// Time at which to flush the log, unless the feed advances before.
    flush_at: Option<Instant>,
    /// Time of the last flush, and whether the role may flush.
    flushed_at: Option<Instant>,
    may_flush: bool,
    /// Earliest time of a probe beside those that are due.
    early_probe: EarlyProbe,
}

/// Result of a probe: the log's end, its flushed position, and a snapshot.
struct ProbeResult {
    probe: Probe,
    flushed: Lsn,
    xmax: u64,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        start: SessionStart<'a>,
        tuning: &'a Tuning,
        schemas: &'a [KeySchema],
        sink: &'a dyn Sink,
        shared: &'a Shared,
        followed: Vec<Followed>,
    ) -> Self {
        let delivery = Delivery::new(schemas, sink, followed, start.snapshot.xmax);
        let progress = Progress::new(start.layout, start.start);
        let client = start.client;
        let layout = start.layout;
        Self {
            start,
            tuning,
            sink,
            shared,
            delivery,
            progress,
            gaps: Gaps::new(client, tuning, layout),
            reported: None,
            unanswered: 0,
            check_now: false,
            flushed: Lsn(0),
            flush_at: None,
            flushed_at: None,
            may_flush: true,
            early_probe: EarlyProbe::default(),
        }
    }

    pub(crate) async fn run(mut self, watcher: &dyn CatalogWatcher) -> Ended {
        match self.deliver(watcher).await {
            Ok(never) => match never {},
            Err(ended) => {
                // Changes received so far are valid; their records become fresh earlier with them.
                self.delivery.flush_portion();
                ended
            }
        }
    }

    async fn deliver(
        &mut self,
        watcher: &dyn CatalogWatcher,
    ) -> Result<std::convert::Infallible, Ended> {
        let client = self.start.client;
        let mut probe = BackgroundTask::idle();
        let mut flush = BackgroundTask::idle();
        let mut check = BackgroundTask::idle();
        let mut settling = BackgroundTask::idle();
        if self.start.place.is_some() {
            let (first, tuning) = (self.start.snapshot.clone(), self.tuning);
            settling.start(async move {
                link::visible(client, &first, "servers that are to join", tuning).await
            });
        }
        let mut probe_tick = every(self.tuning.probe_every);
        let mut status_tick =
            every(self.tuning.probe_every.clamp(STATUS_EVERY_MIN, STATUS_EVERY_MAX));
        let mut check_tick = every(check_interval(self.tuning.schema_poll));
        let looks = self.sink.looks();
        looks.into_iter().for_each(Looks::open);
        probe.start(self.probe());
        loop {
            supervisor::turn();
            while let Some(frame) = self.start.wire.buffered()? {
                self.process(&frame).await?;
            }
            self.delivery.flush_portion();
            self.report_progress();
            // One that waits to be passed may prove it.
            let is_probing = self.progress.oldest_waiting().is_some();
            let early_at = self.early_probe.due(!is_probing && self.sink.wants_visibility());
            if std::mem::take(&mut self.check_now) {
                check_tick.reset_immediately();
            }
            tokio::select! {
                frame = self.start.wire.recv() => self.process(&frame?).await?,
                result = probe.done() => self.record_probe(result?).await?,
                () = wait_until(self.flush_at), if flush.is_idle() => {
                    self.flush_at = None;
                    self.flushed_at = Some(Instant::now());
                    flush.start(flush_log(client, self.tuning.silence_max));
                }
                flushed = flush.done() => self.record_flush(flushed?),
                result = check.done() => self.apply_check(result)?,
                bridged = self.gaps.bridged() => bridged?,
                settled = settling.done() => {
                    settled?;
                    self.start.place.into_iter().for_each(Place::settled);
                }
                _ = status_tick.tick() => self.status().await?,
                _ = probe_tick.tick(), if probe.is_idle() => probe.start(self.probe()),
                () = wait_until(early_at), if probe.is_idle() => {
                    self.early_probe.sent();
                    probe.start(self.probe());
                }
                () = looks::due(looks), if probe.is_idle() => probe.start(self.probe()),
                _ = check_tick.tick(), if check.is_idle() => check.start(watcher.check(client)),
            }
        }
    }

    async fn process(&mut self, frame: &Frame) -> Result<(), Ended> {
        self.unanswered = 0;
        match Streamed::parse(frame)? {
            None => {}
            Some(Streamed::Data { bytes, is_cut: true }) => self.delivery.process_front(&bytes)?,
            Some(Streamed::Data { bytes, is_cut: false }) => match self.delivery.process(&bytes)? {
                Effect::Continue => {}
                Effect::Committed(end) => self.progress.deliver(end),
                Effect::Reshaped => self.check_now = true,
            },
            Some(Streamed::KeepAlive { wal_end, wants_reply }) => {
                self.progress.deliver(wal_end);
                if wants_reply == ReplyWanted::Yes {
                    self.confirm(ReplyWanted::No).await?;
                }
            }
        }
        Ok(())
    }

    fn apply_check(&mut self, check: CatalogCheck) -> Result<(), Ended> {
        match check.result {
            CheckResult::Same => {}
            CheckResult::Follow { followed, gaps, watched } => {
                self.delivery.set_followed(followed);
                self.gaps.open(gaps);
                self.start.watched = watched;
                self.report_watched();
            }
            CheckResult::Ended(ended) => return Err(ended),
        }
        self.start.catalog.confirm(check.sent_at);
        Ok(())
    }

    fn report_progress(&mut self) {
        let closed = self.gaps.passed(self.progress.delivered());
        for collection in &closed {
            self.sink.close_gap(*collection);
        }
        if !closed.is_empty() {
            self.report_watched();
        }
        let Some(Advance { sent_at, to, visible }) = self.progress.advance() else { return };
        let looked_at = sent_at;
        let sent_at = self.start.catalog.effective(sent_at);
        if self.progress.oldest_waiting().is_none_or(|oldest| oldest.end <= self.flushed) {
            self.flush_at = None;
        }
        if self.reported.replace((sent_at, to)) != Some((sent_at, to)) || visible.is_some() {
            let position = Position { incarnation: self.start.incarnation, at: to.0 };
            self.sink.advance(sent_at, Some(position), visible.as_ref());
            // Strict answers depend on no look at the catalogue.
            self.sink.looks().into_iter().for_each(|looks| looks.passed(looked_at));
        }
    }

    /// Returns a probe, which is a look for the requests that wait now.
    fn probe(&self) -> impl Future<Output = Result<ProbeResult, Ended>> + use<'a> {
        self.sink.looks().into_iter().for_each(|looks| looks.sent(Nanos::now()));
        send_probe(self.start.client, self.start.incarnation, self.tuning.silence_max)
    }

    fn report_watched(&self) {
        if let Some(place) = self.start.place {
            place.watching((!self.gaps.is_open()).then_some(self.start.watched));
        }
    }

    async fn record_probe(&mut self, result: ProbeResult) -> Result<(), Ended> {
        self.delivery.record_xmax(result.xmax);
        self.flushed = result.flushed;
        self.shared.record_log_end(result.probe.end.0);
        self.progress.probed(result.probe);
        self.report_progress();
        let Some(oldest) = self.progress.oldest_waiting() else { return Ok(()) };
        // The stream ends at the flushed position. An open transaction on an idle server leaves
        // records after it that remain unflushed until a commit; a commit of our own flushes them.
        if oldest.end > self.flushed {
            self.plan_flush();
        }
        // With the request the server reports its position at once, not only with its next message.
        self.confirm(ReplyWanted::Yes).await
    }

    /// Plans a flush: soon for requests that wait for the look, else before the next probe.
    fn plan_flush(&mut self) {
        let now = Instant::now();
        let awaited = self.sink.looks().filter(|looks| looks.is_awaited());
        let at = match awaited {
            // Nothing else passes the look soon: the requests read the database.
            Some(looks) if !self.may_flush => return looks.give_up(),
            Some(_) => {
                let last = self.flushed_at.map_or(now, |last| last + AWAITED_FLUSH_EVERY);
                last.max(now + AWAITED_FLUSH_AFTER)
            }
            None => now + self.tuning.probe_every / 2,
        };
        self.flush_at = Some(self.flush_at.map_or(at, |planned| planned.min(at)));
    }

    fn record_flush(&mut self, flushed: Flushed) {
        self.may_flush = flushed == Flushed::Done;
        if !self.may_flush {
            self.sink.looks().into_iter().for_each(Looks::give_up);
        }
    }

    async fn status(&mut self) -> Result<(), Ended> {
        let every = self.tuning.probe_every.clamp(STATUS_EVERY_MIN, STATUS_EVERY_MAX);
        if every.saturating_mul(self.unanswered) >= self.tuning.silence_max {
            return Err(Ended::silent("the feed's stream", self.tuning.silence_max));
        }
        self.unanswered += 1;
        self.confirm(ReplyWanted::Yes).await
    }

    async fn confirm(&mut self, reply: ReplyWanted) -> Result<(), Ended> {
        let delivered = self.progress.delivered();
        let at = match self.start.place {
            // The rest is stored nowhere but here.
            Some(place) => Lsn(place.confirmable()).min(delivered),
            None => delivered,
        };
        Ok(self.start.wire.confirm(at, reply, deadline(self.tuning.silence_max)).await?)
    }
}

/// Requests the end of the log.
async fn send_probe(
    client: &Client,
    incarnation: u64,
    limit: Duration,
) -> Result<ProbeResult, Ended> {
    const SQL: &str = "SELECT pg_catalog.pg_current_wal_insert_lsn()::text, \
                       pg_catalog.pg_current_wal_flush_lsn()::text, \
         pg_catalog.pg_current_snapshot()::text";
    // Before the request is sent: its answer shows everything committed by now.
    let sent_at = Nanos::now();
    let row = timely(limit, "the probe", client.query_typed(SQL, &[])).await?;
    let row = row
        .first()
        .ok_or_else(|| Ended::new(LossCause::Unavailable, "a probe without an answer"))?;
    let text =
        |i: usize| row.try_get::<_, String>(i).map_err(|e| sql_error("the probe's answer", &e));
    let snapshot = parse_snapshot(&text(2)?)
        .ok_or_else(|| Ended::new(LossCause::Unavailable, "a broken snapshot"))?;
    let end = text(0)?.parse()?;
    let flushed = text(1)?.parse()?;
    let xmax = snapshot.xmax;
    Ok(ProbeResult {
        probe: Probe {
            sent_at,
            end,
            visible: Version::Snapshot { incarnation, snapshot: snapshot.into() },
        },
        flushed,
        xmax,
    })
}

/// Outcome of a flush of the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flushed {
    Done,
    /// The role lacks a right.
    Refused,
}

/// Writes a small message, which no feed requests, into the log and waits until it is on disk.
async fn flush_log(client: &Client, limit: Duration) -> Result<Flushed, Ended> {
    const SQL: &str = "SELECT pg_catalog.pg_logical_emit_message(true, 'hotrow', '')";
    match tokio::time::timeout(limit, client.batch_execute(SQL)).await {
        Ok(Err(e)) if e.as_db_error().is_some() => {
            // The state remains: the policies for a stale cache apply until the next commit.
            tracing::warn!(
                error = %full_text(&e),
                "the log cannot be flushed: EXECUTE on pg_logical_emit_message is needed"
            );
            Ok(Flushed::Refused)
        }
        Ok(answer) => answer.map(|()| Flushed::Done).map_err(|e| sql_error("flushing the log", &e)),
        Err(_) => Err(Ended::silent("flushing the log", limit)),
    }
}
