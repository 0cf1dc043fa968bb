//! One session of the feed: from a made slot to whatever ends it.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use hotrow_cache::key::KeySchema;
use hotrow_cache::version::{Position, Snapshot, Version};
use hotrow_measure::clock::Nanos;
use tokio::time::{Instant, sleep_until};
use tokio_postgres::{Client, Error};

use super::connect::full_text;
use super::delivery::{Delivery, DeliveryError, Followed, Taken};
use super::probe::{Advance, LogLayout, Probe, Progress};
use super::stream::Stream;
use super::tuning::Tuning;
use super::visibility::parse_snapshot;
use super::wire::replication::{Lsn, ReplyWanted, Streamed};
use super::wire::{Frame, Wire, WireError, deadline};
use crate::life::{Job, every};
use crate::{LossCause, Sink};

/// The longest time between two status messages, which also ask the server whether it is there.
const STATUS_EVERY_MAX: Duration = Duration::from_secs(1);
const STATUS_EVERY_MIN: Duration = Duration::from_millis(5);

/// Why a session ended or could not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) cause: LossCause,
    pub(crate) detail: String,
}

impl Ended {
    pub(crate) fn new(cause: LossCause, detail: impl Into<String>) -> Self {
        Self { cause, detail: detail.into() }
    }

    /// The SQL connection failed.
    pub(crate) fn sql(doing: &str, error: &Error) -> Self {
        Self::new(LossCause::Unavailable, format!("{doing}: {}", full_text(error)))
    }

    /// A part of the server did not answer.
    pub(crate) fn silent(what: &str, after: Duration) -> Self {
        Self::new(LossCause::Unavailable, format!("{what} has not answered for {after:?}"))
    }
}

impl From<WireError> for Ended {
    fn from(e: WireError) -> Self {
        let cause = match e.code() {
            // Undefined object: the publication.
            Some("42704") => LossCause::NotWatched,
            // Undefined file: a segment of the log. Object not in prerequisite state: an invalidated slot.
            Some("58P01" | "55000") => LossCause::LogPruned,
            _ => LossCause::Unavailable,
        };
        Self::new(cause, e.to_string())
    }
}

impl From<DeliveryError> for Ended {
    fn from(e: DeliveryError) -> Self {
        let cause = match e {
            DeliveryError::TooManyTables => LossCause::NotWatched,
            _ => LossCause::Unavailable,
        };
        Self::new(cause, e.to_string())
    }
}

/// What a session stands on.
pub(crate) struct Ground<'a> {
    pub(crate) client: &'a Client,
    pub(crate) wire: &'a mut Wire<Stream>,
    pub(crate) incarnation: u64,
    pub(crate) layout: LogLayout,
    /// From here on every commit is delivered.
    pub(crate) start: Lsn,
    /// Taken after the slot was made.
    pub(crate) snapshot: Snapshot,
}

/// What a look at the catalogue brought.
pub(crate) enum Looked {
    /// Nothing that matters to the feed.
    Same,
    /// Other tables belong to the collections now.
    Follow(Vec<Option<Followed>>),
    /// Changes may have been missed.
    Ended(Ended),
}

/// Looks at the catalogue from time to time.
pub(crate) trait Watcher {
    /// Looks once, tells readers and sink what changed, and gives what the feed must know.
    fn look<'a>(&'a self, client: &'a Client) -> Pin<Box<dyn Future<Output = Looked> + 'a>>;
}

/// A running session.
pub(crate) struct Session<'a> {
    ground: Ground<'a>,
    tuning: &'a Tuning,
    sink: &'a dyn Sink,
    delivery: Delivery<'a>,
    progress: Progress,
    told: Option<(Nanos, Lsn)>,
    /// Status messages sent since the server was heard last. Counted, not timed: after this process was stopped, the
    /// server gets a chance to answer.
    unanswered: u32,
    look_now: bool,
    /// How far the log was flushed when it was probed last.
    flushed: Lsn,
    /// When to flush it, unless the feed gets on before.
    flush_at: Option<Instant>,
}

/// What a probe brings: the log's end, how far the log is flushed, and a snapshot.
struct Seen {
    probe: Probe,
    flushed: Lsn,
    xmax: u64,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        ground: Ground<'a>,
        tuning: &'a Tuning,
        schemas: &'a [KeySchema],
        sink: &'a dyn Sink,
        followed: Vec<Option<Followed>>,
    ) -> Self {
        let delivery = Delivery::new(schemas, sink, followed, ground.snapshot.xmax);
        let progress = Progress::new(ground.layout, ground.start);
        Self {
            ground,
            tuning,
            sink,
            delivery,
            progress,
            told: None,
            unanswered: 0,
            look_now: false,
            flushed: Lsn(0),
            flush_at: None,
        }
    }

    /// Delivers until something ends it.
    pub(crate) async fn run(mut self, watcher: &dyn Watcher) -> Ended {
        match self.deliver(watcher).await {
            Ok(never) => match never {},
            Err(ended) => {
                // What has come in is true, and whoever it is about is better off with it.
                self.delivery.hand_over();
                ended
            }
        }
    }

    async fn deliver(&mut self, watcher: &dyn Watcher) -> Result<std::convert::Infallible, Ended> {
        let client = self.ground.client;
        let (mut probe, mut nudge, mut look) = (Job::idle(), Job::idle(), Job::idle());
        let mut probe_tick = every(self.tuning.probe_every);
        let mut status_tick = every(self.tuning.probe_every.clamp(STATUS_EVERY_MIN, STATUS_EVERY_MAX));
        let mut look_tick = every(self.tuning.schema_poll);
        probe.start(ask(client, self.tuning.silence_max));
        loop {
            while let Some(frame) = self.ground.wire.buffered()? {
                self.take(&frame).await?;
            }
            self.delivery.hand_over();
            self.tell();
            if std::mem::take(&mut self.look_now) {
                look_tick.reset_immediately();
            }
            tokio::select! {
                frame = self.ground.wire.recv() => self.take(&frame?).await?,
                seen = probe.done() => self.probed(seen?).await?,
                () = due(self.flush_at), if nudge.is_idle() => {
                    self.flush_at = None;
                    nudge.start(flush_log(client, self.tuning.silence_max));
                }
                nudged = nudge.done() => nudged?,
                looked = look.done() => match looked {
                    Looked::Same => {}
                    Looked::Follow(followed) => self.delivery.follow(followed),
                    Looked::Ended(ended) => return Err(ended),
                },
                _ = status_tick.tick() => self.status().await?,
                _ = probe_tick.tick(), if probe.is_idle() => probe.start(ask(client, self.tuning.silence_max)),
                _ = look_tick.tick(), if look.is_idle() => look.start(watcher.look(client)),
            }
        }
    }

    async fn take(&mut self, frame: &Frame) -> Result<(), Ended> {
        self.unanswered = 0;
        match Streamed::parse(frame)? {
            None => {}
            Some(Streamed::Data { bytes, is_cut: true }) => self.delivery.take_front(&bytes)?,
            Some(Streamed::Data { bytes, is_cut: false }) => match self.delivery.take(&bytes)? {
                Taken::In => {}
                Taken::Committed(end) => self.progress.deliver(end),
                Taken::Reshaped => self.look_now = true,
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

    fn tell(&mut self) {
        let Some(Advance { sent_at, to, visible }) = self.progress.advance() else { return };
        if self.progress.oldest_waiting().is_none_or(|oldest| oldest.end <= self.flushed) {
            self.flush_at = None;
        }
        if self.told.replace((sent_at, to)) != Some((sent_at, to)) || visible.is_some() {
            let position = Position { incarnation: self.ground.incarnation, at: to.0 };
            self.sink.advance(sent_at, Some(position), visible.as_ref());
        }
    }

    async fn probed(&mut self, seen: Seen) -> Result<(), Ended> {
        self.delivery.saw_xmax(seen.xmax);
        self.flushed = seen.flushed;
        self.progress.probed(seen.probe);
        self.tell();
        let Some(oldest) = self.progress.oldest_waiting() else { return Ok(()) };
        // The stream ends where the log is flushed. An open transaction on an idle server leaves records behind that
        // nobody flushes; a commit of our own does.
        if oldest.end > self.flushed && self.flush_at.is_none() {
            self.flush_at = Some(Instant::now() + self.tuning.probe_every / 2);
        }
        // The server says at once how far it is, instead of when it has something to say.
        self.confirm(ReplyWanted::Yes).await
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
        let at = self.progress.delivered();
        Ok(self.ground.wire.confirm(at, reply, deadline(self.tuning.silence_max)).await?)
    }
}

/// Asks where the log ends.
async fn ask(client: &Client, limit: Duration) -> Result<Seen, Ended> {
    const SQL: &str = "SELECT pg_catalog.pg_current_wal_insert_lsn()::text, pg_catalog.pg_current_wal_flush_lsn()::text, \
         pg_catalog.pg_current_snapshot()::text";
    // Before the question is sent: what was committed by now is seen by the answer.
    let sent_at = Nanos::now();
    let row = timely(limit, "the probe", client.query_typed(SQL, &[])).await?;
    let row = row.first().ok_or_else(|| Ended::new(LossCause::Unavailable, "a probe without an answer"))?;
    let text = |i: usize| row.try_get::<_, String>(i).map_err(|e| Ended::sql("the probe's answer", &e));
    let snapshot = parse_snapshot(&text(2)?).ok_or_else(|| Ended::new(LossCause::Unavailable, "a broken snapshot"))?;
    let (end, flushed, xmax) = (text(0)?.parse()?, text(1)?.parse()?, snapshot.xmax);
    Ok(Seen { probe: Probe { sent_at, end, visible: Version::Snapshot(snapshot.into()) }, flushed, xmax })
}

/// Writes a little message into the log, which no feed asks for, and waits until it is on disk.
async fn flush_log(client: &Client, limit: Duration) -> Result<(), Ended> {
    const SQL: &str = "SELECT pg_catalog.pg_logical_emit_message(true, 'hotrow', '')";
    match tokio::time::timeout(limit, client.batch_execute(SQL)).await {
        Ok(Err(e)) if e.as_db_error().is_some() => {
            // Then it stays as it is: the policies of a stale cache act until somebody else commits.
            tracing::warn!(error = %full_text(&e), "the log cannot be flushed: EXECUTE on pg_logical_emit_message is needed");
            Ok(())
        }
        Ok(answer) => answer.map_err(|e| Ended::sql("flushing the log", &e)),
        Err(_) => Err(Ended::silent("flushing the log", limit)),
    }
}

/// Waits for an answer, but not for ever.
pub(crate) async fn timely<T>(
    limit: Duration,
    what: &'static str,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Ended> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(|e| Ended::sql(what, &e)),
        Err(_) => Err(Ended::silent(what, limit)),
    }
}

/// Never without a time.
async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
