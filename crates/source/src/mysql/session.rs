//! One session of the feed: from the stream's start to whatever ends it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use hotrow_cache::version::{Gtid, Position, SourceId, Version};
use hotrow_measure::clock::Nanos;
use mysql_async::binlog::events::{Event as Raw, GtidEvent};
use mysql_async::{Conn, Error};
use tokio::sync::mpsc;

use super::binlog::Event;
use super::connect::full_text;
use super::delivery::{Delivery, DeliveryError};
use super::dump::Dump;
use super::inspect::Table;
use super::probe::{self, Advance, Probe, Progress};
use super::server::Identity;
use super::shared::Recent;
use super::tuning::Tuning;
use crate::life::every;
use crate::{LossCause, Sink};

/// Looks whether the stream is silent, per longest silence.
const SILENCE_CHECKS: u32 = 8;

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

    /// A part of the server did not answer.
    pub(crate) fn silent(what: &str, after: Duration) -> Self {
        Self::new(LossCause::Unavailable, format!("{what} has not answered for {after:?}"))
    }
}

impl From<Error> for Ended {
    fn from(e: Error) -> Self {
        Self::new(LossCause::Unavailable, full_text(&e))
    }
}

impl From<DeliveryError> for Ended {
    fn from(e: DeliveryError) -> Self {
        let cause = match e {
            DeliveryError::Incident => LossCause::LogPruned,
            DeliveryError::Anonymous | DeliveryError::TooManyTables => LossCause::NotWatched,
            DeliveryError::File => LossCause::OtherLog,
            _ => LossCause::Unavailable,
        };
        Self::new(cause, e.to_string())
    }
}

/// What a look at the catalogue brought.
pub(crate) enum Looked {
    /// Nothing that matters to the feed.
    Same,
    /// Other tables belong to the collections now.
    Follow(Vec<Option<Table>>),
}

/// Looks at the catalogue.
pub(crate) trait Watcher {
    /// Looks once, tells readers and sink what changed, and gives what the feed must know.
    fn look(&mut self) -> impl Future<Output = Result<Looked, Ended>>;
}

/// A running session.
pub(crate) struct Session<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) tuning: &'a Tuning,
    pub(crate) sink: &'a dyn Sink,
    pub(crate) recent: &'a Recent,
    pub(crate) dump: Dump,
    pub(crate) delivery: Delivery<'a>,
    pub(crate) progress: Progress,
}

impl Session<'_> {
    /// Delivers until something ends it. `probes` is the connection for probes.
    pub(crate) async fn run(self, probes: &mut Conn, watcher: &mut impl Watcher) -> Ended {
        let (give_probe, take_probe) = mpsc::channel(1);
        let (ask, asked) = mpsc::channel(1);
        let (give_look, take_look) = mpsc::channel(1);
        let (identity, tuning) = (self.identity, self.tuning);
        let deliver = pin!(self.deliver(take_probe, ask, take_look));
        tokio::select! {
            ended = deliver => match ended {
                Ok(never) => match never {},
                Err(ended) => ended,
            },
            ended = probe::run(probes, identity, tuning, give_probe) => ended,
            ended = looks(watcher, asked, give_look) => ended,
        }
    }

    async fn deliver(
        mut self,
        mut probes: mpsc::Receiver<Probe>,
        ask: mpsc::Sender<u64>,
        mut looks: mpsc::Receiver<(u64, Looked)>,
    ) -> Result<Infallible, Ended> {
        let mut look_tick = every(self.tuning.schema_poll);
        let mut silence_tick = every(self.tuning.silence_max / SILENCE_CHECKS);
        let mut told = None;
        // Counted, not timed: after this process was stopped, what has come in meanwhile gets a chance to be read.
        let mut silent = 0;
        let mut is_looking = false;
        loop {
            self.tell(&mut told);
            if !is_looking && self.delivery.is_doubtful() {
                is_looking = ask.try_send(self.delivery.doubts()).is_ok();
            }
            tokio::select! {
                event = self.dump.next() => {
                    silent = 0;
                    self.take(&event?)?;
                    while let Some(event) = self.dump.ready() {
                        self.take(&event?)?;
                    }
                }
                Some(probe) = probes.recv() => {
                    if let Version::Log(visible) = &probe.visible {
                        self.recent.saw(visible.at);
                    }
                    if !self.progress.probed(probe) {
                        return Err(Ended::new(LossCause::OtherLog, "the binary log's end went back: it was reset"));
                    }
                }
                Some((asked_at, looked)) = looks.recv() => {
                    is_looking = false;
                    match looked {
                        Looked::Same => self.delivery.confirm(asked_at),
                        Looked::Follow(tables) => self.delivery.follow(tables, asked_at),
                    }
                }
                _ = look_tick.tick(), if !is_looking => {
                    is_looking = ask.try_send(self.delivery.doubts()).is_ok();
                }
                _ = silence_tick.tick() => {
                    silent += 1;
                    if silent > SILENCE_CHECKS {
                        return Err(Ended::silent("the feed's stream", self.tuning.silence_max));
                    }
                }
            }
        }
    }

    fn take(&mut self, raw: &Raw) -> Result<(), Ended> {
        let header = raw.header();
        let kind = header.event_type_raw();
        self.delivery.ends_at(header.log_pos());
        let event = if Event::is_mysql_gtid(kind) {
            Event::Gtid(gtid(raw).ok_or_else(|| Ended::new(LossCause::Unavailable, "a GTID event cannot be read"))?)
        } else {
            Event::decode(kind, raw.data()).map_err(DeliveryError::from)?
        };
        Ok(self.delivery.take(event)?)
    }

    fn tell(&mut self, told: &mut Option<(Nanos, u64)>) {
        let delivered = self.delivery.delivered();
        let Some(Advance { sent_at, to, visible }) = self.progress.advance(delivered) else { return };
        if told.replace((sent_at, to)) != Some((sent_at, to)) || visible.is_some() {
            let position = Position { incarnation: self.identity.incarnation, at: to };
            self.sink.advance(sent_at, Some(position), visible.as_ref());
        }
    }
}

/// A transaction's number, as the driver reads it.
fn gtid(raw: &Raw) -> Option<Gtid> {
    let event: GtidEvent = raw.read_event().ok()?;
    let tag = event.tag().map(ToString::to_string).unwrap_or_default();
    let source = SourceId::new(u128::from_be_bytes(event.sid()), &tag).ok()?;
    Some(Gtid { source, number: event.gno() })
}

/// Looks whenever it is asked to; each answer comes with what was said when it was asked for.
async fn looks(watcher: &mut impl Watcher, mut asked: mpsc::Receiver<u64>, give: mpsc::Sender<(u64, Looked)>) -> Ended {
    while let Some(asked_at) = asked.recv().await {
        match watcher.look().await {
            Ok(looked) => {
                if give.send((asked_at, looked)).await.is_err() {
                    break;
                }
            }
            Err(ended) => return ended,
        }
    }
    Ended::new(LossCause::Unavailable, "the feed ended")
}

/// Waits for an answer, but not for ever.
pub(crate) async fn timely<T>(
    limit: Duration,
    what: &str,
    answer: impl Future<Output = Result<T, Ended>>,
) -> Result<T, Ended> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(|e| Ended::new(e.cause, format!("{what}: {}", e.detail))),
        Err(_) => Err(Ended::silent(what, limit)),
    }
}
