//! One session of the feed: an open change stream, from its opening to its end.

use std::convert::Infallible;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_types::version::{Position, Version};
use mongodb::Database;
use mongodb::bson::{Document, doc};
use mongodb::error::Error;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};

use super::bson::Timestamp;
use super::config::Tuning;
use super::delivery::{BatchOutcome, Delivery};
use super::error::{Ended, UNAUTHORIZED, code, text};
use super::indexes::{self, Looked};
use super::inspect::Served;
use super::probe::{Probe, Progress};
use super::server::{DeploymentKind, Identity, log_end};
use super::shared::Shared;
use super::stream::{Batch, ChangeStream, NO_TOKEN, Proof, Token};
use hotrow_source::catalog_watermark::CatalogWatermark;
use hotrow_source::feed_loop::{self, BackgroundTask};
use hotrow_source::looks::{self, Looks};
use hotrow_source::{LossCause, Sink};
use hotrow_supervisor as supervisor;

/// Reason for which a sharded cluster answers no strict request.
const SHARDED: &str = "Hotrow-Min-Position: now is not served from a sharded cluster, which cannot \
    prove that each of its servers is still the primary";

pub(crate) struct Session<'a> {
    pub(crate) database: &'a Database,
    pub(crate) identity: &'a Identity,
    pub(crate) tuning: Tuning,
    pub(crate) shared: &'a Shared,
    pub(crate) sink: &'a dyn Sink,
    pub(crate) delivery: Delivery<'a>,
    /// Progress, which continues from session to session of one deployment.
    pub(crate) progress: &'a mut Progress,
    /// Token at which the next session resumes; updated as the stream advances.
    pub(crate) resume: &'a mut Option<Token>,
    /// Token of the server's first answer, for which it has not searched the log.
    pub(crate) first: Option<Token>,
    pub(crate) proof: Proof,
    /// With [`Proof::Answers`]: newest probed operation that a majority had when the request was
    /// sent whose answer comes next. An answer's own time may be later than its look at the log.
    pub(crate) asked_through: u64,
    /// False if the account may not write notes into the log; tested only if a note is needed.
    pub(crate) may_note: &'a mut bool,
    /// Aliases, if there are any.
    pub(crate) aliases: Option<Aliases<'a>>,
    /// Newest progress of the stream, before the age of the indexes limits it.
    pub(crate) reported: Option<(Nanos, u64)>,
}

/// What looks at the indexes of aliases need.
pub(crate) struct Aliases<'a> {
    pub(crate) served: &'a [Served],
    /// Time between two looks.
    pub(crate) look_every: Duration,
    pub(crate) watermark: CatalogWatermark,
}

impl<'a> Session<'a> {
    /// Delivers until the session ends. `first` is the server's answer to the opening.
    pub(crate) async fn run(mut self, stream: &mut ChangeStream, first: &Batch) -> Ended {
        match self.deliver(stream, first).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn deliver(
        &mut self,
        stream: &mut ChangeStream,
        first: &Batch,
    ) -> Result<Infallible, Ended> {
        self.take(first)?;
        let sink = self.sink;
        match self.identity.kind {
            DeploymentKind::Sharded => {
                sink.looks().into_iter().for_each(|looks| looks.refuse(SHARDED))
            }
            _ => sink.looks().into_iter().for_each(Looks::open),
        }
        let database = self.database;
        let tuning = self.tuning;
        let mut probe = BackgroundTask::idle();
        let mut note = BackgroundTask::idle();
        let mut tick =
            interval_at(Instant::now(), tuning.probe_every.max(Duration::from_millis(1)));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = BackgroundTask::idle();
        let look_every = self.aliases.as_ref().map(|aliases| aliases.look_every);
        let mut looks = look_every.map(feed_loop::every);
        let mut answered_at = Instant::now();
        loop {
            supervisor::turn();
            let silent_at = answered_at + tuning.silence_max;
            tokio::select! {
                batch = stream.next() => {
                    answered_at = Instant::now();
                    let closed = || Ended::interrupted("the server closed the change stream");
                    let batch = batch.ok_or_else(closed)?;
                    let batch = batch.map_err(|e| Ended::stream("the change stream", &e))?;
                    self.take(&batch)?;
                }
                answer = probe.done() => self.probed(&answer?)?,
                () = looks::due(sink.looks()), if probe.is_idle() => probe.start(self.probe()),
                looked = look.done() => self.looked(looked?),
                () = next(&mut looks) => {
                    if let (true, Some(aliases)) = (look.is_idle(), &self.aliases) {
                        let served = aliases.served;
                        look.start(indexes::look(database, served, tuning.silence_max));
                    }
                }
                noted = note.done() => *self.may_note = noted?,
                _ = tick.tick() => {
                    if probe.is_idle() {
                        probe.start(self.probe());
                    }
                    if note.is_idle() && self.wants_note() {
                        note.start(write_note(database, tuning.silence_max));
                    }
                }
                // After a suspension of this process, batches that have arrived are taken before
                // this time-out.
                () = tokio::time::sleep_until(silent_at) => {
                    return Err(Ended::silent("the change stream", tuning.silence_max));
                }
            }
        }
    }

    /// Returns a probe, which is a look for the requests that wait now.
    fn probe(&self) -> impl Future<Output = Result<AnsweredProbe, Ended>> + use<'a> {
        let collection = self.delivery.any_collection();
        // In this order: a request that comes in between waits for the next look, because this one
        // may prove nothing for it.
        let sent_at = Nanos::now();
        self.sink.looks().into_iter().for_each(|looks| looks.sent(sent_at));
        let awaited = self.sink.looks().filter(|looks| looks.is_awaited());
        let sought = Sought {
            database: self.database,
            kind: &self.identity.kind,
            by_majority: collection.filter(|_| self.proof == Proof::Answers),
            linearizable: collection.filter(|_| awaited.is_some()),
        };
        send_probe(sought, (sent_at, self.progress.delivered()), self.tuning.silence_max)
    }

    fn take(&mut self, batch: &Batch) -> Result<(), Ended> {
        let taken = self.delivery.take(batch)?;
        if let BatchOutcome::Invalidated(token) = taken {
            *self.resume = token;
            return match self.resume {
                Some(_) => Err(Ended::interrupted("the database was dropped")),
                None => Err(Ended::Lost(
                    LossCause::OtherLog,
                    "the stream ended without a token to resume at".into(),
                )),
            };
        }
        let token = batch.token().ok_or_else(|| Ended::Malformed(NO_TOKEN.into()))?;
        let through = match self.proof {
            Proof::Tokens => self.through_token(&token, &taken),
            Proof::Answers => through_answer(batch.operation_time(), self.asked_through, &taken),
        };
        // The next request is sent when the next answer is awaited.
        self.asked_through = self.progress.newest_end();
        self.progress.deliver(through);
        *self.resume = Some(token);
        self.report_progress();
        Ok(())
    }

    /// Returns the time up to which everything is delivered after a batch with this token.
    ///
    /// A token may belong to one of several events of its time. Only when a replica set's server
    /// found no more events has it searched that whole time. This does not hold for the token of
    /// the first answer, for which it has not searched, nor for a mongos, whose token is that of
    /// the shard furthest behind.
    fn through_token(&self, token: &Token, taken: &BatchOutcome) -> u64 {
        let at = token.at.unwrap_or(0);
        let has_looked = *taken == BatchOutcome::Nothing && self.first.as_ref() != Some(token);
        let is_set = matches!(self.identity.kind, DeploymentKind::ReplicaSet(_));
        if has_looked && is_set { at } else { at.saturating_sub(1) }
    }

    fn probed(&mut self, answered: &AnsweredProbe) -> Result<(), Ended> {
        // The log's end is never before a delivered event, unless the deployment was replaced or
        // restored to an earlier state.
        if answered.probe.end < answered.delivered_before {
            let detail = format!(
                "the log ends at {}, and {} had been delivered",
                answered.probe.end, answered.delivered_before
            );
            return Err(Ended::Lost(LossCause::OtherLog, detail));
        }
        self.shared.outage.feed_answered();
        if answered.is_of_primary {
            // A read instead of the feed reflects it too, also what a majority does not have yet.
            self.shared.raise(answered.probe.end);
        }
        self.progress.probed(answered.probe);
        self.report_progress();
        Ok(())
    }

    /// Takes over the indexes that were found.
    fn looked(&mut self, looked: Looked) {
        let Some(aliases) = &mut self.aliases else { return };
        let sent_at = looked.sent_at;
        looked.apply(self.shared, aliases.served, self.sink);
        aliases.watermark.confirm(sent_at);
        self.advance();
    }

    fn report_progress(&mut self) {
        if let Some(progress) = self.progress.advance() {
            self.reported = Some(progress);
            self.advance();
        }
    }

    fn advance(&self) {
        let Some((sent_at, at)) = self.reported else { return };
        let watermark = self.aliases.as_ref().map(|aliases| aliases.watermark);
        let sent_at = watermark.map_or(sent_at, |watermark| watermark.effective(sent_at));
        let position = Position { incarnation: self.identity.incarnation(), at };
        // Every read sent from now on requires this position.
        self.sink.advance(sent_at, Some(position), Some(&Version::Log(position)));
        // Strict answers depend on no look at the indexes.
        if let Some((looked_at, _)) = self.reported {
            self.sink.looks().into_iter().for_each(|looks| looks.passed(looked_at));
        }
    }

    /// Returns whether a note is needed. A shard without writes holds the stream of a mongos back
    /// until its next write; by itself it writes every 10 s.
    fn wants_note(&self) -> bool {
        let before =
            Nanos(Nanos::now().0.saturating_sub(self.tuning.probe_every.as_nanos() as u64));
        self.identity.kind == DeploymentKind::Sharded
            && *self.may_note
            && self.progress.waits_since(before)
    }
}

/// Returns the time up to which everything is delivered after an answer of a replica set, by the
/// answer alone; 0 if it proves nothing.
///
/// A majority had the operation `asked_through` when the request was sent, so an empty answer has
/// looked past it. The answer's own time excludes a server that does not have the operation: the
/// stream stays with its server when another one has become primary.
fn through_answer(operation_time: Option<u64>, asked_through: u64, taken: &BatchOutcome) -> u64 {
    match taken {
        // More events of this time may follow.
        BatchOutcome::Events(at) => at.saturating_sub(1),
        BatchOutcome::Nothing if operation_time >= Some(asked_through) => asked_through,
        BatchOutcome::Nothing | BatchOutcome::Invalidated(_) => 0,
    }
}

/// Waits for the next tick; without an interval, for ever.
async fn next(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}

/// Answered probe, and the progress of the stream when the probe was sent.
struct AnsweredProbe {
    probe: Probe,
    delivered_before: u64,
    /// A majority followed the server after it had named the end.
    is_of_primary: bool,
}

/// Deployment of a probe, and collections of it.
struct Sought<'a> {
    database: &'a Database,
    kind: &'a DeploymentKind,
    /// By which it waits until a majority has the newest operation; without one it does not wait.
    by_majority: Option<&'a str>,
    /// By which it has the server prove that a majority follows it.
    linearizable: Option<&'a str>,
}

/// Sends a probe at or after `sent_at`: operations acknowledged by then are in the answer.
async fn send_probe(
    sought: Sought<'_>,
    (sent_at, delivered_before): (Nanos, u64),
    limit: Duration,
) -> Result<AnsweredProbe, Ended> {
    let Sought { database, kind, by_majority, linearizable } = sought;
    let is_of_primary = linearizable.is_some();
    let answer = async {
        let end = log_end(database, kind).await?;
        if let (Some(collection), Some(end)) = (by_majority, end) {
            await_majority(database, collection, end).await?;
        }
        if let Some(collection) = linearizable {
            prove_primary(database, collection, limit).await?;
        }
        Ok(end)
    };
    match timeout(limit, answer).await {
        Ok(Ok(Some(end))) => {
            let probe = Probe { sent_at, end };
            Ok(AnsweredProbe { probe, delivered_before, is_of_primary })
        }
        Ok(Ok(None)) => Err(Ended::interrupted("the server is not the primary any more")),
        Ok(Err(e)) if code(&e) == Some(UNAUTHORIZED) => {
            Err(Ended::Lost(LossCause::NotWatched, format!("the probe: {}", text(&e))))
        }
        Ok(Err(e)) => Err(Ended::interrupted(format!("the probe: {}", text(&e)))),
        Err(_) => Err(Ended::silent("the probe", limit)),
    }
}

/// Waits until a majority of the set has the operation, by a read that must see it.
async fn await_majority(database: &Database, collection: &str, end: u64) -> Result<(), Error> {
    let time = mongodb::bson::Timestamp::from(Timestamp::from_at(end));
    let mut find = find_one(collection);
    find.insert("readConcern", doc! { "level": "majority", "afterClusterTime": time });
    database.run_command(find).await.map(drop)
}

/// Has the server prove that a majority still follows it: one that was replaced may not know, and
/// would name an old end of the log. Source: MongoDB manual, "Read Concern linearizable".
async fn prove_primary(
    database: &Database,
    collection: &str,
    limit: Duration,
) -> Result<(), Error> {
    let mut find = find_one(collection);
    find.insert("readConcern", doc! { "level": "linearizable" });
    find.insert("maxTimeMS", i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
    database.run_command(find).await.map(drop)
}

/// Returns a query of at most one document, by the index that every collection has.
fn find_one(collection: &str) -> Document {
    doc! {
        "find": collection,
        "filter": { "_id": 0 },
        "projection": { "_id": 1 },
        "limit": 1,
        "singleBatch": true,
    }
}

/// Code of a command that the server does not know.
const COMMAND_NOT_FOUND: i32 = 59;

/// Writes a note into the log of every shard. Returns `false` if the account may not.
async fn write_note(database: &Database, limit: Duration) -> Result<bool, Ended> {
    let note = doc! { "appendOplogNote": 1, "data": { "msg": "hotrow" } };
    match timeout(limit, database.client().database("admin").run_command(note)).await {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(e)) if matches!(code(&e), Some(UNAUTHORIZED | COMMAND_NOT_FOUND)) => {
            tracing::warn!(
                error = %text(&e),
                "shards without writes hold the change stream back: \
                 allow the account `appendOplogNote` on the cluster, or \
                 lower `periodicNoopIntervalSecs` on every shard"
            );
            Ok(false)
        }
        // For example a shard without a primary: another note follows.
        Ok(Err(e)) if code(&e).is_some() => Ok(true),
        Ok(Err(e)) => Err(Ended::interrupted(format!("writing a note: {}", text(&e)))),
        Err(_) => Err(Ended::silent("writing a note", limit)),
    }
}
