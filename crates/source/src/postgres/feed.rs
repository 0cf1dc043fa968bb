//! The feed: from session to session, for as long as the process lives.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use hotrow_cache::key::KeySchema;
use hotrow_cache::version::Position;
use parking_lot::Mutex;
use tokio_postgres::Client;

use super::config::{Config, Follow};
use super::error::{Finding, Findings};
use super::inspect::{Refused, Table};
use super::link::{self, Reach};
use super::publication::Mend;
use super::server::Identity;
use super::session::{Ended, Ground, Looked, Session, Watcher, timely};
use super::shared::Shared;
use super::survey::Survey;
use super::survey::fingerprint::{Fingerprint, Scanner, Surveyed};
use super::target::Target;
use super::tuning::Tuning;
use super::wire::deadline;
use super::wire::replication::SlotName;
use crate::life::{self, Pauses};
use crate::{FlushCause, LossCause, Sink};

/// Follows the database and delivers what changes.
#[derive(Debug)]
pub struct PostgresFeed {
    pub(crate) config: Arc<Config>,
    /// Where the feed connects.
    pub(crate) target: Arc<Target>,
    pub(crate) tuning: Tuning,
    pub(crate) shared: Arc<Shared>,
    pub(crate) schemas: Arc<[KeySchema]>,
}

impl PostgresFeed {
    /// Runs until `shutdown` is set. Blocks: it wants a thread of its own.
    ///
    /// # Errors
    /// When the system gives no event loop; then nothing was delivered.
    // Both are handed over for good: the feed is the last to let go of them.
    #[allow(clippy::needless_pass_by_value)]
    pub fn run(self, sink: Arc<dyn Sink>, shutdown: Arc<AtomicBool>) {
        life::run(&*sink, &shutdown, self.follow(&*sink));
    }

    async fn follow(&self, sink: &dyn Sink) -> Infallible {
        let mut life = Life { feed: self, sink, server: None, told: String::new() };
        let mut pauses = Pauses::new();
        loop {
            let began_at = Instant::now();
            match life.session(pauses.random()).await {
                Lived { ended, began: Began::Yes } => {
                    tracing::warn!(cause = ?ended.cause, detail = %ended.detail, "the change feed lost its place; everything is read anew");
                    sink.loss(ended.cause, &ended.detail);
                    pauses.worked(began_at.elapsed());
                }
                Lived { ended, began: Began::No } => life.tell(&ended),
            }
            pauses.wait().await;
        }
    }
}

/// A session's end.
struct Lived {
    ended: Ended,
    began: Began,
}

/// Whether the sink was told that a feed starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Began {
    Yes,
    No,
}

/// What goes on from session to session.
struct Life<'a> {
    feed: &'a PostgresFeed,
    sink: &'a dyn Sink,
    /// The server of the last session.
    server: Option<Identity>,
    /// What the log was told last about an attempt that failed.
    told: String,
}

impl Life<'_> {
    /// One session, from the connection to its end.
    async fn session(&mut self, random: u64) -> Lived {
        match self.try_session(random).await {
            Ok(ended) => Lived { ended, began: Began::Yes },
            Err(ended) => Lived { ended, began: Began::No },
        }
    }

    async fn try_session(&mut self, random: u64) -> Result<Ended, Ended> {
        let PostgresFeed { config, target, tuning, shared, schemas } = self.feed;
        let reach = Reach { config, target, tuning };
        let sql = reach.sql().await?;
        self.meet(&sql.identity);
        let client = &sql.client;
        let prepared = Scanner::prepare(client, config);
        let scanner = timely(tuning.silence_max, "preparing to look at the catalogue", prepared).await?;
        let print = self.scan(client, &scanner).await?;
        let survey = self.look(client, Mend::Yes).await?;
        // First the readers: they can answer, by policy, while the feed waits for its start.
        shared.publish(sql.identity, &readable(&survey));
        if !survey.findings.is_empty() {
            return Err(Ended::new(LossCause::NotWatched, told_together(&survey.findings)));
        }
        if config.follow == Follow::Nothing {
            self.told.clear();
            self.sink.started(None);
            let (identity, surveyed, survey) = (sql.identity, Mutex::new(Surveyed::once(print)), Mutex::new(survey));
            return Ok(Catalogue { life: self, identity, scanner, surveyed, survey }.watch(client).await);
        }
        let mut wire = reach.wire(&sql.host, &sql.identity).await?;
        let layout = link::log_layout(client, tuning).await?;
        let slot = SlotName::new(random);
        let start = link::slot(&mut wire, client, &slot, &target.user, tuning).await?;
        let snapshot = link::listing_snapshot(client, tuning).await?;
        link::fence(client, &snapshot, tuning).await?;
        wire.start_replication(&slot, &config.publication, deadline(tuning.silence_max)).await?;
        let incarnation = sql.identity.incarnation();
        tracing::info!(host = %sql.host, server = %sql.identity, position = %start, "the change feed starts");
        self.told.clear();
        self.sink.started(Some(Position { incarnation, at: start.0 }));
        let ground = Ground { client, wire: &mut wire, incarnation, layout, start, snapshot };
        let followed = survey.followed();
        let surveyed = Mutex::new(Surveyed::once(print));
        let catalogue = Catalogue { life: self, identity: sql.identity, scanner, surveyed, survey: Mutex::new(survey) };
        let session = Session::new(ground, tuning, schemas, self.sink, followed);
        Ok(session.run(&catalogue).await)
    }

    /// Another server than last time: everything is stale, also what was read since that one was lost.
    fn meet(&mut self, identity: &Identity) {
        let Some(before) = self.server.replace(*identity).filter(|before| before != identity) else { return };
        let is_same = before.system == identity.system && before.database == identity.database;
        let cause = if is_same { LossCause::OtherLog } else { LossCause::OtherDatabase };
        let detail = format!("{before} was followed, {identity} answers now");
        tracing::warn!(?cause, %detail, "another server; everything is read anew");
        // First the readers: a read that begins after the loss must not see what is gone.
        self.feed.shared.down(&detail);
        self.sink.loss(cause, &detail);
    }

    async fn scan(&self, client: &Client, scanner: &Scanner) -> Result<Fingerprint, Ended> {
        timely(self.feed.tuning.silence_max, "looking whether the catalogue changed", scanner.scan(client)).await
    }

    async fn look(&self, client: &Client, mend: Mend) -> Result<Survey, Ended> {
        let limit = self.feed.tuning.silence_max;
        match tokio::time::timeout(limit, Survey::take(client, &self.feed.config, mend)).await {
            Ok(Ok(mut survey)) => {
                hold_to(&mut survey, &self.feed.schemas, &self.feed.config);
                Ok(survey)
            }
            Ok(Err(e)) => Err(Ended::sql("looking at the catalogue", &e)),
            Err(_) => Err(Ended::silent("the feed's SQL connection", limit)),
        }
    }

    /// Tells the log and the readers why there is no feed, once for each reason.
    fn tell(&mut self, ended: &Ended) {
        if self.told != ended.detail {
            tracing::error!(error = %ended.detail, "the change feed cannot start; trying again");
            self.feed.shared.explain(&ended.detail);
            self.told.clone_from(&ended.detail);
        }
    }
}

fn told_together(findings: &[Finding]) -> String {
    format!("to mend:{}", Findings(findings.to_vec()))
}

/// The tables as readers want them.
fn readable(survey: &Survey) -> Vec<Result<Table, String>> {
    let why = |findings: &Refused| findings.iter().map(|f| f.what.clone()).collect::<Vec<_>>().join("; ");
    survey.tables.iter().map(|table| table.clone().map_err(|findings| why(&findings))).collect()
}

/// Ids are parsed by the schemas of the start; a table whose key is of another type now cannot be served by them.
fn hold_to(survey: &mut Survey, schemas: &[KeySchema], config: &Config) {
    for ((table, schema), spec) in survey.tables.iter_mut().zip(schemas).zip(&config.collections) {
        if table.as_ref().is_ok_and(|t| t.key_schema().types() != schema.types()) {
            let what = format!("collection `{}`: the key of `{}` changed its type", spec.name, spec.table);
            *table = Err(vec![Finding::new(what, "restart to serve it by the new one")]);
        }
    }
}

/// The catalogue as a session saw it last.
struct Catalogue<'a> {
    life: &'a Life<'a>,
    identity: Identity,
    scanner: Scanner,
    surveyed: Mutex<Surveyed>,
    survey: Mutex<Survey>,
}

impl Watcher for Catalogue<'_> {
    fn look<'a>(&'a self, client: &'a Client) -> Pin<Box<dyn Future<Output = Looked> + 'a>> {
        Box::pin(async move {
            let looked = async {
                let print = self.life.scan(client, &self.scanner).await?;
                if !self.surveyed.lock().wants_another(print) {
                    return Ok(Looked::Same);
                }
                let seen = self.life.look(client, Mend::No).await?;
                // What cannot be mended is tried once, not at every look.
                if seen == *self.survey.lock() {
                    return Ok(Looked::Same);
                }
                self.life.look(client, Mend::Yes).await.map(|now| self.compare(now))
            };
            looked.await.unwrap_or_else(Looked::Ended)
        })
    }
}

impl Catalogue<'_> {
    /// Looks again and again, where there is no feed beside it.
    async fn watch(&self, client: &Client) -> Ended {
        loop {
            tokio::time::sleep(self.life.feed.tuning.schema_poll).await;
            if let Looked::Ended(ended) = self.look(client).await {
                return ended;
            }
        }
    }

    fn compare(&self, now: Survey) -> Looked {
        let Life { feed, sink, .. } = self.life;
        if !now.findings.is_empty() {
            return Looked::Ended(Ended::new(LossCause::NotWatched, told_together(&now.findings)));
        }
        let mut before = self.survey.lock();
        if let Some(gap) = now.gap_since(&before) {
            return Looked::Ended(Ended::new(LossCause::NotWatched, gap));
        }
        if now == *before {
            return Looked::Same;
        }
        // First the readers, then the flush: a read that begins after it reads by the new shape.
        feed.shared.publish(self.identity, &readable(&now));
        for i in (0..feed.schemas.len()).filter(|i| now.differs(&before, *i)) {
            let name = &feed.config.collections[i].name;
            match &now.tables[i] {
                Ok(_) => tracing::info!(collection = %name, "the table changed its shape"),
                Err(why) => {
                    tracing::error!(collection = %name, error = %told_together(why), "the collection cannot be served any more");
                }
            }
            sink.flush(feed.schemas[i].collection(), FlushCause::Schema, None);
        }
        let followed = now.followed();
        *before = now;
        Looked::Follow(followed)
    }
}
