//! One session of the feed: an open change stream, until something ends it.

use std::convert::Infallible;
use std::time::Duration;

use hotrow_cache::version::{Position, Version};
use hotrow_measure::clock::Nanos;
use mongodb::Database;
use mongodb::bson::doc;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::delivery::{Delivery, Taken};
use super::error::{Ended, UNAUTHORIZED, code, text};
use super::probe::{Probe, Progress};
use super::server::{Identity, Kind, log_end};
use super::shared::Shared;
use super::stream::{Batch, ChangeStream, Token};
use super::tuning::Tuning;
use crate::life::Job;
use crate::{LossCause, Sink};

/// A running session.
pub(crate) struct Session<'a> {
    pub(crate) database: &'a Database,
    pub(crate) identity: &'a Identity,
    pub(crate) tuning: Tuning,
    pub(crate) shared: &'a Shared,
    pub(crate) sink: &'a dyn Sink,
    pub(crate) delivery: Delivery<'a>,
    /// Goes on from session to session of one deployment.
    pub(crate) progress: &'a mut Progress,
    /// After what a next session takes the stream up; kept as the stream gets on.
    pub(crate) resume: &'a mut Option<Token>,
    /// What the server said first: nothing was looked at for it.
    pub(crate) first: Option<Token>,
    /// Whether the account may write notes into the log; only asked where it helps.
    pub(crate) may_note: &'a mut bool,
}

impl Session<'_> {
    /// Delivers until something ends it. `first` is what the server answered to the opening.
    pub(crate) async fn run(mut self, stream: &mut ChangeStream, first: &Batch) -> Ended {
        match self.deliver(stream, first).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn deliver(&mut self, stream: &mut ChangeStream, first: &Batch) -> Result<Infallible, Ended> {
        self.take(first)?;
        let (database, kind, tuning) = (self.database, &self.identity.kind, self.tuning);
        let (mut probe, mut note) = (Job::idle(), Job::idle());
        let mut tick = interval_at(Instant::now(), tuning.probe_every.max(Duration::from_millis(1)));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        loop {
            let silent_at = heard + tuning.silence_max;
            tokio::select! {
                batch = stream.next() => {
                    heard = Instant::now();
                    let batch = batch.ok_or_else(|| Ended::interrupted("the server closed the change stream"))?;
                    let batch = batch.map_err(|e| Ended::stream("the change stream", &e))?;
                    self.take(&batch)?;
                }
                answer = probe.done() => self.probed(&answer?)?,
                noted = note.done() => *self.may_note = noted?,
                _ = tick.tick() => {
                    if probe.is_idle() {
                        probe.start(ask(database, kind, self.progress.delivered(), tuning.silence_max));
                    }
                    if note.is_idle() && self.wants_note() {
                        note.start(write_note(database, tuning.silence_max));
                    }
                }
                // After this process was stopped, what has come in meanwhile is taken first.
                () = tokio::time::sleep_until(silent_at) => {
                    return Err(Ended::silent("the change stream", tuning.silence_max));
                }
            }
        }
    }

    fn take(&mut self, batch: &Batch) -> Result<(), Ended> {
        let taken = self.delivery.take(batch)?;
        if let Taken::Invalidated(token) = taken {
            *self.resume = token;
            return match self.resume {
                Some(_) => Err(Ended::interrupted("the database was dropped")),
                None => Err(Ended::Lost(LossCause::OtherLog, "the stream ended without a token to go on after".into())),
            };
        }
        if let Some(token) = batch.token() {
            self.progress.deliver(self.certain(&token, &taken));
            *self.resume = Some(token);
        }
        self.tell();
        Ok(())
    }

    /// Up to where everything is delivered when a batch ends with this token.
    ///
    /// A token may stand for one of several events of its time. Only when a replica set's server found nothing more to
    /// send has it looked at that whole time; the token that it began with it has not looked at, and a mongos tells of
    /// the shard that is furthest behind.
    fn certain(&self, token: &Token, taken: &Taken) -> u64 {
        let has_looked = *taken == Taken::Nothing && self.first.as_ref() != Some(token);
        let is_set = matches!(self.identity.kind, Kind::ReplicaSet(_));
        if has_looked && is_set { token.at } else { token.at.saturating_sub(1) }
    }

    fn probed(&mut self, seen: &Seen) -> Result<(), Ended> {
        // The log's end is never before what it has sent; another deployment has taken the place, or went back in time.
        if seen.probe.end < seen.delivered_before {
            let detail =
                format!("the log ends at {}, and {} had been delivered", seen.probe.end, seen.delivered_before);
            return Err(Ended::Lost(LossCause::OtherLog, detail));
        }
        self.shared.answered();
        self.progress.probed(seen.probe);
        self.tell();
        Ok(())
    }

    fn tell(&mut self) {
        let Some((sent_at, at)) = self.progress.advance() else { return };
        let position = Position { incarnation: self.identity.incarnation(), at };
        // Every read that is sent from now on asks for it.
        self.sink.advance(sent_at, Some(position), Some(&Version::Log(position)));
    }

    /// A shard without writes holds a mongos' stream back until it writes something, which by itself it does every 10 s.
    fn wants_note(&self) -> bool {
        let before = Nanos(Nanos::now().0.saturating_sub(self.tuning.probe_every.as_nanos() as u64));
        self.identity.kind == Kind::Sharded && *self.may_note && self.progress.waits_since(before)
    }
}

/// An answered probe, and how far the stream was when the question was sent.
struct Seen {
    probe: Probe,
    delivered_before: u64,
}

/// Asks where the log ends.
async fn ask(database: &Database, kind: &Kind, delivered_before: u64, limit: Duration) -> Result<Seen, Ended> {
    // Before the question is sent: what was acknowledged by now is in the answer.
    let sent_at = Nanos::now();
    match timeout(limit, log_end(database, kind)).await {
        Ok(Ok(Some(end))) => Ok(Seen { probe: Probe { sent_at, end }, delivered_before }),
        Ok(Ok(None)) => Err(Ended::interrupted("the server is not the primary any more")),
        Ok(Err(e)) if code(&e) == Some(UNAUTHORIZED) => {
            Err(Ended::Lost(LossCause::NotWatched, format!("the probe: {}", text(&e))))
        }
        Ok(Err(e)) => Err(Ended::interrupted(format!("the probe: {}", text(&e)))),
        Err(_) => Err(Ended::silent("the probe", limit)),
    }
}

/// What a server says that does not know a command.
const COMMAND_NOT_FOUND: i32 = 59;

/// Writes a note into the log of every shard. `false` when the account may not.
async fn write_note(database: &Database, limit: Duration) -> Result<bool, Ended> {
    let note = doc! { "appendOplogNote": 1, "data": { "msg": "hotrow" } };
    match timeout(limit, database.client().database("admin").run_command(note)).await {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(e)) if matches!(code(&e), Some(UNAUTHORIZED | COMMAND_NOT_FOUND)) => {
            tracing::warn!(
                error = %text(&e),
                "shards without writes hold the change stream back: allow the account `appendOplogNote` on the cluster, or \
                 lower `periodicNoopIntervalSecs` on every shard"
            );
            Ok(false)
        }
        // A shard without a primary, say: another note follows.
        Ok(Err(e)) if code(&e).is_some() => Ok(true),
        Ok(Err(e)) => Err(Ended::interrupted(format!("writing a note: {}", text(&e)))),
        Err(_) => Err(Ended::silent("writing a note", limit)),
    }
}
