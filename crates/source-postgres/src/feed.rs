//! The feed: one session after another, for the lifetime of the process.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::{CollectionId, KeySchema};
use hotrow_types::version::Position;
use parking_lot::Mutex;
use tokio_postgres::Client;

use super::config::{Config, Follow, KeptSlot, Tuning};
use super::error::{sql_error, timely};
use super::kept_slot::Taking;
use super::link::{self, Connector};
use super::publication::Repair;
use super::server::Identity;
use super::session::{CatalogCheck, CatalogWatcher, CheckResult, Session, SessionStart};
use super::shared::Shared;
use super::survey::Survey;
use super::survey::fingerprint::{Fingerprint, Scanner, Surveyed};
use super::target::Target;
use super::wire::deadline;
use super::wire::replication::{Lsn, SlotName};
use super::{Finding, PreflightErrors};
use hotrow_source::catalog_watermark::{CatalogWatermark, check_interval};
use hotrow_source::feed_loop::{self, Ended, Sessions, every};
use hotrow_source::looks;
use hotrow_source::origin::{Origin, Origins};
use hotrow_source::place::Place;
use hotrow_source::{FlushCause, LossCause, Sink, preflight};
use hotrow_supervisor::{self as supervisor, shutdown::Shutdown};

/// Follows the database and delivers its changes.
#[derive(Debug)]
pub struct PostgresFeed {
    pub(crate) config: Arc<Config>,
    /// Server and role of the feed's sessions.
    pub(crate) target: Arc<Target>,
    pub(crate) tuning: Tuning,
    pub(crate) shared: Arc<Shared>,
    pub(crate) schemas: Arc<[KeySchema]>,
}

impl PostgresFeed {
    /// Runs until everything must end. Blocks; call it on a thread of its own. After an error or a
    /// panic it may be run again once the sink has been informed of the loss: it starts anew.
    ///
    /// # Errors
    /// The system has no event loop left. Nothing was delivered in that case.
    // The feed owns the sink and is the last to drop it.
    #[allow(clippy::needless_pass_by_value)]
    pub fn run(&mut self, sink: Arc<dyn Sink>, shutdown: &Shutdown) -> std::io::Result<()> {
        feed_loop::run(shutdown, self.follow(&*sink, None))
    }

    /// Returns where the feed reports the database that its sessions lead to.
    pub fn origins(&self) -> Arc<Origins> {
        Arc::clone(&self.shared.origins)
    }

    /// Returns the keys of the collections, in the order of the configuration.
    pub fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    /// Follows on the caller's event loop, without end. With a `place` and a configured slot the
    /// end of a session is no loss.
    pub async fn follow(&self, sink: &dyn Sink, place: Option<&dyn Place>) -> Infallible {
        let kept = place.zip(self.config.slot.as_ref());
        let mut feed_loop = FeedLoop {
            feed: self,
            sink,
            kept,
            server: None,
            incarnation: None,
            gaps: Mutex::default(),
            published: Mutex::default(),
        };
        feed_loop::follow(&mut feed_loop, sink).await
    }
}

/// State that outlives a session.
struct FeedLoop<'a> {
    feed: &'a PostgresFeed,
    sink: &'a dyn Sink,
    /// Slot that outlives the sessions, and what it confirms.
    kept: Option<(&'a dyn Place, &'a KeptSlot)>,
    server: Option<Identity>,
    /// Incarnation of that session's positions.
    incarnation: Option<u64>,
    /// Collections whose gaps the last session opened.
    gaps: Mutex<Vec<CollectionId>>,
    /// OIDs of the tables that were published before. They are not added again.
    published: Mutex<Vec<u32>>,
}

impl Sessions for FeedLoop<'_> {
    async fn session(&mut self, random: u64) -> Result<Ended, Ended> {
        let PostgresFeed { config, target, tuning, shared, schemas } = self.feed;
        let connector = Connector { config, target, tuning };
        let sql = connector.connect_sql().await?;
        self.record_server(&sql.identity);
        let client = &sql.client;
        self.check_log(client, sql.incarnation, random).await?;
        let origin = Origin {
            name: format!("{}, run {:x}", sql.identity, sql.incarnation),
            incarnation: sql.incarnation ^ shared.history(),
        };
        // A row of another database than the feed's must not be read.
        if let Some(why) = shared.origins.refusal(&origin.name) {
            shared.published.down(&why);
            return Err(Ended::new(LossCause::OtherDatabase, why));
        }
        let prepared = Scanner::prepare(client, config);
        let scanner = timely(tuning.silence_max, "preparing the catalogue check", prepared).await?;
        let check_sent_at = Nanos::now();
        let print = self.scan(client, &scanner).await?;
        let survey = self.complete(client).await?;
        // Readers first: they can answer, by policy, while the feed waits for its start.
        shared.publish(sql.identity, &preflight::readable(&survey.tables));
        shared.confirm_shapes(check_sent_at);
        if !survey.findings.is_empty() {
            return Err(Ended::new(LossCause::NotWatched, describe_all(&survey.findings)));
        }
        let name = origin.name.clone();
        shared.origins.found(origin);
        if config.server.follow != Follow::Changes {
            self.sink.started(None);
            let identity = sql.identity;
            let surveyed = Mutex::new(Surveyed::once(print));
            let survey = Mutex::new(survey);
            let catalogue = Catalogue { feed_loop: self, identity, scanner, surveyed, survey };
            return Ok(tokio::select! {
                ended = catalogue.watch(client) => ended,
                why = shared.origins.refused(&name) => {
                    shared.published.down(&why);
                    Ended::new(LossCause::OtherDatabase, why)
                }
            });
        }
        let mut wire = connector.connect_replication(&sql.host, &sql.identity).await?;
        let layout = link::log_layout(client, tuning).await?;
        let (start, snapshot) = match self.kept {
            None => {
                let slot = SlotName::Temporary(random);
                let start = link::slot(&mut wire, client, &slot, &target.user, tuning).await?;
                let snapshot = link::listing_snapshot(client, tuning).await?;
                link::fence(client, &snapshot, tuning).await?;
                let limit = deadline(tuning.silence_max);
                wire.start_replication(&slot, &config.publication, limit).await?;
                (start, snapshot)
            }
            Some((place, slot)) => {
                let (publication, user) = (&config.publication, &target.user);
                let wire = &mut wire;
                Taking { wire, client, slot, publication, user, place, tuning }.start().await?
            }
        };
        let incarnation = sql.incarnation ^ shared.history();
        tracing::info!(
            host = %sql.host,
            server = %sql.identity,
            position = %start,
            "the change feed starts"
        );
        // The start of this session closes the gaps of the last one.
        self.gaps.get_mut().drain(..).for_each(|collection| self.sink.close_gap(collection));
        let watched = survey.watched();
        let position = Position { incarnation, at: start.0 };
        match self.kept {
            None => self.sink.started(Some(position)),
            Some((place, _)) => place.resumed(position, watched),
        }
        let place = self.kept.map(|(place, _)| place);
        let catalog =
            CatalogWatermark::new(tuning.schema_poll, tuning.max_staleness, check_sent_at);
        let wire = &mut wire;
        let session_start = SessionStart {
            client,
            wire,
            incarnation,
            layout,
            start,
            snapshot,
            catalog,
            place,
            watched,
        };
        let followed = survey.followed();
        let surveyed = Mutex::new(Surveyed::once(print));
        let catalogue = Catalogue {
            feed_loop: self,
            identity: sql.identity,
            scanner,
            surveyed,
            survey: Mutex::new(survey),
        };
        let session = Session::new(session_start, tuning, schemas, self.sink, shared, followed);
        Ok(session.run(&catalogue).await)
    }

    fn explain(&self, why: &str) {
        self.feed.shared.published.explain(why);
    }

    fn keeps_place(&self, cause: LossCause) -> bool {
        self.kept.is_some() && cause == LossCause::Unavailable
    }

    fn lost(&mut self, _: LossCause) {
        self.feed.shared.origins.gone();
    }
}

impl FeedLoop<'_> {
    /// Records the server's identity. With a server other than the last one everything is stale,
    /// including what was read since the last one was lost.
    fn record_server(&mut self, identity: &Identity) {
        let Some(before) = self.server.replace(*identity).filter(|before| before != identity)
        else {
            return;
        };
        let is_same = before.system == identity.system && before.database == identity.database;
        let cause = if is_same { LossCause::OtherLog } else { LossCause::OtherDatabase };
        let detail = format!("{before} was followed, {identity} answers now");
        tracing::warn!(?cause, %detail, "another server answers; every entry is stale");
        // What its publication lacks was not removed from it by an operator.
        self.published.get_mut().clear();
        // Readers first: a read that begins after the loss must not see the old server's state.
        self.feed.shared.published.down(&detail);
        self.sink.loss(cause, &detail);
    }

    /// Records where the log ends at the start of a session. A log that went backwards without a
    /// restart of the server is another history.
    async fn check_log(
        &mut self,
        client: &Client,
        incarnation: u64,
        random: u64,
    ) -> Result<(), Ended> {
        let PostgresFeed { tuning, shared, .. } = self.feed;
        // In this order: a reader may record a newer end between the two.
        let before = shared.log_end();
        let end = link::log_end(client, tuning).await?.0;
        if self.incarnation.replace(incarnation) != Some(incarnation) {
            // It may be a copy from before the publication.
            self.published.get_mut().clear();
            shared.begin_log(end);
        } else if end < before {
            let detail = format!("its log ended at {} and ends at {} now", Lsn(before), Lsn(end));
            tracing::warn!(%detail, "the server lost the end of its log; every entry is stale");
            shared.published.down(&detail);
            self.published.get_mut().clear();
            shared.begin_history(end, random);
            self.sink.loss(LossCause::OtherLog, &detail);
        }
        Ok(())
    }

    async fn scan(&self, client: &Client, scanner: &Scanner) -> Result<Fingerprint, Ended> {
        timely(
            self.feed.tuning.silence_max,
            "checking the catalogue for changes",
            scanner.scan(client),
        )
        .await
    }

    /// Completes the publication and surveys the catalogue. What an operator took out of the
    /// publication while it was followed stays out.
    async fn complete(&self, client: &Client) -> Result<Survey, Ended> {
        let before = self.published.lock().clone();
        let survey = self.take_survey(client, Repair::Without(&before)).await?;
        let mut published = before;
        published.extend(survey.oids.iter().chain(survey.child_oids.iter().flatten()).flatten());
        published.sort_unstable();
        published.dedup();
        *self.published.lock() = published;
        Ok(survey)
    }

    async fn take_survey(&self, client: &Client, repair: Repair<'_>) -> Result<Survey, Ended> {
        let limit = self.feed.tuning.silence_max;
        match tokio::time::timeout(limit, Survey::take(client, &self.feed.config, repair)).await {
            Ok(Ok(mut survey)) => {
                pin_key_types(&mut survey, &self.feed.schemas, &self.feed.config);
                Ok(survey)
            }
            Ok(Err(e)) => Err(sql_error("reading the catalogue", &e)),
            Err(_) => Err(Ended::silent("the feed's SQL connection", limit)),
        }
    }
}

fn describe_all(findings: &[Finding]) -> String {
    format!("to correct:{}", PreflightErrors(findings.to_vec()))
}

/// Refuses tables whose key has another type than at the start: ids are parsed by the schemas of
/// the start.
fn pin_key_types(survey: &mut Survey, schemas: &[KeySchema], config: &Config) {
    for ((table, schema), spec) in
        survey.tables.iter_mut().zip(schemas).zip(&config.server.collections)
    {
        if table.as_ref().is_ok_and(|t| t.key_schema().types() != schema.types()) {
            let what =
                format!("collection `{}`: the key of `{}` changed its type", spec.name, spec.table);
            *table = Err(vec![Finding::new(what, "restart to use the new type")]);
        }
    }
}

/// The catalogue as last seen by a session.
struct Catalogue<'a> {
    feed_loop: &'a FeedLoop<'a>,
    identity: Identity,
    scanner: Scanner,
    surveyed: Mutex<Surveyed>,
    survey: Mutex<Survey>,
}

impl CatalogWatcher for Catalogue<'_> {
    fn check<'a>(&'a self, client: &'a Client) -> Pin<Box<dyn Future<Output = CatalogCheck> + 'a>> {
        Box::pin(async move {
            let sent_at = Nanos::now();
            let result = async {
                let print = self.feed_loop.scan(client, &self.scanner).await?;
                if !self.surveyed.lock().needs_survey(print) {
                    return Ok(CheckResult::Same);
                }
                let seen = self.feed_loop.take_survey(client, Repair::No).await?;
                // A problem that cannot be repaired is attempted once, not at every check.
                if seen == *self.survey.lock() {
                    return Ok(CheckResult::Same);
                }
                self.feed_loop.complete(client).await.map(|now| self.compare(now))
            };
            let result = result.await.unwrap_or_else(CheckResult::Ended);
            let shared = &self.feed_loop.feed.shared;
            if !matches!(result, CheckResult::Ended(_)) {
                shared.confirm_shapes(sent_at);
            }
            if matches!(result, CheckResult::Same) {
                shared.restore(&preflight::readable(&self.survey.lock().tables));
            }
            CatalogCheck { sent_at, result }
        })
    }
}

impl Catalogue<'_> {
    /// Checks the catalogue at intervals, for a database whose changes do not come from here, and
    /// looks at the log's end for requests.
    async fn watch(&self, client: &Client) -> Ended {
        let FeedLoop { feed, sink, incarnation, .. } = self.feed_loop;
        let looks = sink.looks();
        let mut tick = every(check_interval(feed.tuning.schema_poll));
        loop {
            supervisor::turn();
            tokio::select! {
                _ = tick.tick() => {
                    if let CheckResult::Ended(ended) = self.check(client).await.result {
                        return ended;
                    }
                }
                () = looks::due(looks) => {
                    let sent_at = Nanos::now();
                    looks.into_iter().for_each(|looks| looks.sent(sent_at));
                    let end = match link::log_end(client, &feed.tuning).await {
                        Ok(end) => end.0,
                        Err(ended) => return ended,
                    };
                    let incarnation = incarnation.unwrap_or_default() ^ feed.shared.history();
                    sink.looked(sent_at, Position { incarnation, at: end });
                }
            }
        }
    }

    fn compare(&self, now: Survey) -> CheckResult {
        let FeedLoop { feed, sink, .. } = self.feed_loop;
        if !now.findings.is_empty() {
            return CheckResult::Ended(Ended::new(
                LossCause::NotWatched,
                describe_all(&now.findings),
            ));
        }
        let mut before = self.survey.lock();
        if now.publication != before.publication {
            return CheckResult::Ended(Ended::new(
                LossCause::NotWatched,
                "the publication changed",
            ));
        }
        if now == *before {
            return CheckResult::Same;
        }
        let gaps = now.gaps_since(&before);
        if let Some((_, why)) = gaps.first().filter(|_| !self.scanner.streams_take_new_tables()) {
            let detail = format!(
                "{why}, and this minor version of PostgreSQL delivers it only in a new stream"
            );
            return CheckResult::Ended(Ended::new(LossCause::NotWatched, detail));
        }
        // Gaps first: what is read from now on is not cached, with the old shape or the new one.
        for (i, why) in &gaps {
            sink.open_gap(feed.schemas[*i].collection(), why);
            self.feed_loop.gaps.lock().push(feed.schemas[*i].collection());
        }
        // Readers first, then the flush: a read that begins after the flush uses the new shape.
        feed.shared.publish(self.identity, &preflight::readable(&now.tables));
        for i in (0..feed.schemas.len()).filter(|i| now.differs(&before, *i)) {
            let name = &feed.config.server.collections[i].name;
            match &now.tables[i] {
                Ok(_) => tracing::info!(collection = %name, "the table changed its shape"),
                Err(why) => {
                    tracing::error!(
                        collection = %name,
                        error = %describe_all(why),
                        "the collection cannot be served any more"
                    );
                }
            }
            sink.flush(feed.schemas[i].collection(), FlushCause::Schema, None);
        }
        let (followed, watched) = (now.followed(), now.watched());
        *before = now;
        CheckResult::Follow {
            followed,
            gaps: gaps.into_iter().map(|(i, _)| feed.schemas[i].collection()).collect(),
            watched,
        }
    }
}
