//! The feed: sessions in sequence until shutdown.

use std::cell::Cell;
use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use hotrow_measure::clock::Nanos;
use hotrow_types::key::KeySchema;
use hotrow_types::landmark::Landmark;
use hotrow_types::version::Position;
use mysql_async::Conn;

use super::Finding;
use super::config::{Config, Tuning};
use super::connect::{self, Settings, driver_error};
use super::delivery::{ChangeReceivers, Delivery, Origin};
use super::dump::{Dump, StreamOptions};
use super::error::ConnectError;
use super::hub::{self, HubSink};
use super::inspect::{self, Refused, Table};
use super::landmark::{self, Landmarks};
use super::place::LogPosition;
use super::probe::{self, LogEnd, Progress};
use super::resume_rules::ResumeRule;
use super::server::Identity;
use super::session::{CatalogCheck, CatalogWatcher, FeedPlace, Session, watched};
use super::shared::Shared;
use super::start;
use super::target::Target;
use super::xa_commits::XaCommits;
use hotrow_source::catalog_watermark::CatalogWatermark;
use hotrow_source::feed_loop::{self, Ended, Sessions, every, timely};
use hotrow_source::looks;
use hotrow_source::origin::Origins;
use hotrow_source::place::Place;
use hotrow_source::preflight::{self, PreflightErrors};
use hotrow_source::spec::Follow;
use hotrow_source::{FlushCause, LossCause, Sink};
use hotrow_supervisor::{self as supervisor, shutdown::Shutdown};

/// Change feed of the database.
#[derive(Debug)]
pub struct MysqlFeed {
    pub(crate) config: Arc<Config>,
    /// Connection target of the feed.
    pub(crate) target: Arc<Target>,
    pub(crate) tuning: Tuning,
    pub(crate) shared: Arc<Shared>,
    pub(crate) schemas: Arc<[KeySchema]>,
}

impl MysqlFeed {
    /// Returns the receiver of a change hub's changes for this database, which are passed on to
    /// `sink`.
    pub fn hub_sink(&self, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        Arc::new(HubSink { shared: Arc::clone(&self.shared), sink })
    }

    /// Runs until everything must end. Blocks: use a dedicated thread. It may run again after an
    /// error or a panic, once a loss was reported to the sink.
    ///
    /// # Errors
    /// Fails if the system cannot create an event loop. Nothing was delivered then.
    // Owned, because the feed must be the last to drop the sink.
    #[allow(clippy::needless_pass_by_value)]
    pub fn run(&mut self, sink: Arc<dyn Sink>, shutdown: &Shutdown) -> std::io::Result<()> {
        feed_loop::run(shutdown, self.follow(&*sink, None))
    }

    /// Returns where the feed reports the server that its sessions lead to.
    pub fn origins(&self) -> Arc<Origins> {
        Arc::clone(&self.shared.origins)
    }

    /// Returns the keys of the collections, in the order of the configuration.
    pub fn schemas(&self) -> &[KeySchema] {
        &self.schemas
    }

    /// Follows on the caller's event loop, without end. With a `place` the end of a session is no
    /// loss while the log has the place.
    pub async fn follow(&self, sink: &dyn Sink, place: Option<&dyn Place>) -> Infallible {
        let (server, newest_end, salt) = (None, Cell::new(0), 0);
        let mut feed_loop = FeedLoop { feed: self, sink, place, server, newest_end, salt };
        feed_loop::follow(&mut feed_loop, sink).await
    }
}

/// State across sessions.
struct FeedLoop<'a> {
    feed: &'a MysqlFeed,
    sink: &'a dyn Sink,
    /// Where the feed's place outlives its sessions.
    place: Option<&'a dyn Place>,
    /// Server of the last session.
    server: Option<Identity>,
    /// Highest observed end of the server's log.
    newest_end: Cell<u64>,
    /// Salt of positions since the log went back, see [`Identity::renewed`].
    salt: u64,
}

impl Sessions for FeedLoop<'_> {
    async fn session(&mut self, _: u64) -> Result<Ended, Ended> {
        let MysqlFeed { config, target, tuning, shared, schemas } = self.feed;
        let settings = settings(config, tuning);
        let mut probes =
            connect::primary(target, settings, None).await.map_err(|e| unreachable(&e))?;
        self.record_server(&probes.identity);
        let identity = probes.identity.clone().renewed(self.salt);
        let mut catalog_session = connect::session(target, &probes.host, settings)
            .await
            .map_err(|e| unreachable(&[e]))?;
        let raw = timely(tuning.silence_max, "connecting the stream", async {
            connect::raw(target, &probes.host).await.map_err(|e| unreachable(&[e]))
        });
        let raw = raw.await?;
        if !catalog_session.identity.is_same_process(&identity) {
            return Err(Ended::new(
                LossCause::OtherDatabase,
                format!("{} leads to different servers", probes.host),
            ));
        }
        let privileges = timely(tuning.silence_max, "reading the privileges", async {
            connect::privileges(&mut catalog_session.conn).await.map_err(driver_error)
        });
        let privileges = privileges.await?;
        let origin = hub::origin(&probes.identity, &identity);
        let origin_name = origin.name.clone();
        // A row of another database than the feed's must not be read.
        if let Some(why) = shared.origins.refusal(&origin_name) {
            shared.published.down(&why);
            return Err(Ended::new(LossCause::OtherDatabase, why));
        }
        if config.server.follow != Follow::Changes {
            let check_sent_at = Nanos::now();
            let tables = self.inspect_tables(&mut catalog_session.conn, &identity).await?;
            shared.publish(identity.clone(), &preflight::readable(&tables));
            shared.origins.confirm_shapes(check_sent_at);
            shared.origins.found(origin);
            self.sink.started(None);
            let conn = catalog_session.conn;
            let mut catalogue = Catalogue { feed_loop: self, identity, conn, tables, privileges };
            return Ok(tokio::select! {
                ended = catalogue.watch() => ended,
                why = shared.origins.refused(&origin_name) => {
                    shared.published.down(&why);
                    Ended::new(LossCause::OtherDatabase, why)
                }
                () = shared.went_back.notified() => {
                    let detail = "the binary log's end went back, as the change hub reports";
                    Ended::new(LossCause::OtherLog, detail)
                }
            });
        }
        // Log position first, catalogue second, so that every schema change after this check is
        // delivered.
        let end = log_end(&mut probes.conn, &identity, tuning).await?;
        if end.point < self.newest_end.get() {
            return Ok(Ended::new(
                LossCause::OtherLog,
                "the binary log's end went back while it was not followed",
            ));
        }
        self.newest_end.set(end.point);
        let catalog_sent_at = Nanos::now();
        let tables = self.inspect_tables(&mut catalog_session.conn, &identity).await?;
        // Readers first, so that they can answer by policy while the feed still starts.
        let recent = shared.publish(identity.clone(), &preflight::readable(&tables));
        // Of a time after the inspection.
        let inspected_at = match self.place {
            None => 0,
            Some(_) => log_end(&mut probes.conn, &identity, tuning).await?.point,
        };
        let (dump, position, landmark) =
            self.start_stream(raw, &mut probes, &identity, &end).await?;
        let point = position.point();
        tracing::info!(
            host = %probes.host,
            server = %identity,
            file = %position.file_name(&end.file),
            offset = position.offset(),
            is_resumed = landmark.is_some(),
            "the change feed starts"
        );
        shared.origins.found(origin);
        let tables_of_feed = followed(&tables);
        let watched = watched(&tables_of_feed);
        let started = Position { incarnation: identity.incarnation, at: point };
        match self.place.filter(|_| landmark.is_some()) {
            // Without a digest no chain continues the one before.
            Some(place) => place.resumed(started, watched.unwrap_or_default()),
            None => self.sink.started(Some(started)),
        }
        self.place.into_iter().for_each(|place| place.watching(watched));
        let kept = FeedPlace {
            place: self.place,
            landmarks: Landmarks::new(landmark, config.resume_rules),
            watched,
            start: point,
            is_settled: false,
            inspected_at,
        };
        let origin =
            Origin { incarnation: identity.incarnation, names_any_case: identity.names_any_case };
        let rules = config.embedded_rules;
        let out = ChangeReceivers { schemas, sink: self.sink, recent: &recent, rules };
        let delivery = Delivery::new(out, origin, tables_of_feed, position);
        let newest_end = &self.newest_end;
        let catalog = CatalogWatermark::new(
            config.server.schema_poll,
            config.server.max_staleness,
            catalog_sent_at,
        );
        let conn = catalog_session.conn;
        let mut catalogue =
            Catalogue { feed_loop: self, identity: identity.clone(), conn, tables, privileges };
        let session = Session {
            identity: &identity,
            tuning,
            sink: catalogue.feed_loop.sink,
            recent: &recent,
            dump,
            delivery,
            progress: Progress::new(point),
            xa_commits: XaCommits::new(end.prepared.xids),
            catalog,
            newest_end,
            kept,
        };
        Ok(session.run(&mut probes.conn, &mut catalogue).await)
    }

    fn explain(&self, why: &str) {
        self.feed.shared.published.explain(why);
    }

    fn keeps_place(&self, cause: LossCause) -> bool {
        self.place.is_some() && cause == LossCause::Unavailable
    }

    fn lost(&mut self, cause: LossCause) {
        self.feed.shared.origins.gone();
        if cause == LossCause::OtherLog {
            self.renumber();
        }
    }
}

impl FeedLoop<'_> {
    /// Starts the stream: at the end of the landmark of an earlier session if the log still has it,
    /// else at `end`. Returns the stream with its start, and the landmark that was found.
    async fn start_stream(
        &self,
        mut raw: Conn,
        probes: &mut connect::Session,
        identity: &Identity,
        end: &LogEnd,
    ) -> Result<(Dump, LogPosition, Option<Landmark>), Ended> {
        let MysqlFeed { config, target, tuning, .. } = self.feed;
        let options = || {
            let server_id = config.server_id.unwrap_or_else(|| start::random_server_id(identity));
            StreamOptions::new(identity, server_id, tuning)
        };
        let rules = config.resume_rules;
        let place = self.place.and_then(Place::landmark);
        if let Some(landmark) = place.filter(|_| rules.has(ResumeRule::PlaceOfStream)) {
            match landmark::resume(raw, options(), landmark, &end.file, rules).await {
                Ok((dump, position)) => return Ok((dump, position, Some(landmark))),
                Err(why) => tracing::error!(
                    file = %LogPosition::of_point(landmark.at).file_name(&end.file),
                    error = %why,
                    "the binary log does not have the place up to which changes are published: \
                     changes may be lost, and the feed starts anew"
                ),
            }
            raw = connect::raw(target, &probes.host).await.map_err(|e| unreachable(&[e]))?;
        }
        start::visible(&mut probes.conn, identity, tuning).await?;
        let dump = Dump::start(raw, options(), &end.file, end.position.offset()).await?;
        let pretends = !rules.has(ResumeRule::PlaceOfStream) || !rules.has(ResumeRule::PlaceInLog);
        Ok((dump, end.position, place.filter(|_| pretends)))
    }

    async fn inspect_tables(
        &self,
        conn: &mut Conn,
        identity: &Identity,
    ) -> Result<Vec<Result<Table, Refused>>, Ended> {
        let MysqlFeed { config, target, tuning, schemas, .. } = self.feed;
        let inspection = async {
            inspect::tables(conn, identity, &target.database, &config.server.collections)
                .await
                .map_err(driver_error)
        };
        let mut tables = timely(tuning.silence_max, "inspecting the catalogue", inspection).await?;
        // Ids are parsed by the schemas of the start. They cannot serve a table whose key type
        // changed.
        for ((table, schema), spec) in
            tables.iter_mut().zip(schemas.iter()).zip(&config.server.collections)
        {
            if table.as_ref().is_ok_and(|t| t.key_schema().types() != schema.types()) {
                let what = format!(
                    "collection `{}`: the key of `{}` changed its type",
                    spec.name, spec.table
                );
                *table = Err(vec![Finding::new(what, "restart to serve it by the new one")]);
            }
        }
        Ok(tables)
    }

    /// Records the identity of the server. If it is another server, every entry becomes stale,
    /// including reads since the last session. A restart needs no such step: the end of the last
    /// session was reported as a loss, and readers keep nothing until the next session starts.
    fn record_server(&mut self, identity: &Identity) {
        let before = self.server.replace(identity.clone());
        let Some(before) = before.filter(|before| !before.is_same_process(identity)) else {
            return;
        };
        self.newest_end.set(0);
        self.salt = 0;
        if before.name == identity.name {
            if self.place.is_some() {
                // The end of the last session was reported as an interruption.
                self.sink.loss(LossCause::Unavailable, "the server was restarted");
            }
            tracing::info!(
                server = %identity,
                "the server was restarted; positions from before the restart are not accepted"
            );
            return;
        }
        let detail = format!("{before} was followed, {identity} answers now");
        tracing::warn!(%detail, "another server; everything is read anew");
        // Readers first: a read that begins after the loss must not see the old server.
        self.feed.shared.published.down(&detail);
        self.sink.loss(LossCause::OtherDatabase, &detail);
    }

    /// Changes the incarnation, because the log of a running server went back and its points recur
    /// with another meaning. No other instance and no later process uses the same number.
    fn renumber(&mut self) {
        self.newest_end.set(0);
        // 0 means that the log did not go back.
        self.salt = RandomState::new().hash_one("log went back").max(1);
    }
}

async fn log_end(conn: &mut Conn, identity: &Identity, tuning: &Tuning) -> Result<LogEnd, Ended> {
    timely(tuning.silence_max, "reading the log's end", probe::log_end(conn, identity)).await
}

pub(crate) fn settings(config: &Config, tuning: &Tuning) -> Settings {
    config.server.session(tuning.silence_max)
}

pub(crate) fn unreachable(errors: &[ConnectError]) -> Ended {
    Ended::new(LossCause::Unavailable, preflight::joined(errors))
}

fn followed(tables: &[Result<Table, Refused>]) -> Vec<Option<Table>> {
    tables.iter().map(|table| table.as_ref().ok().cloned()).collect()
}

/// Catalogue as of a session's last check.
struct Catalogue<'a, 'b> {
    feed_loop: &'a FeedLoop<'b>,
    identity: Identity,
    conn: Conn,
    tables: Vec<Result<Table, Refused>>,
    /// Privileges of the last login of `conn`, see [`connect::privileges`].
    privileges: u64,
}

impl Catalogue<'_, '_> {
    /// Checks the catalogue periodically, for a database whose changes do not come from here, and
    /// looks at the log's end for requests.
    async fn watch(&mut self) -> Ended {
        let FeedLoop { feed, sink, .. } = self.feed_loop;
        let looks = sink.looks();
        let mut tick = every(feed.tuning.catalog_check_every);
        loop {
            supervisor::turn();
            tokio::select! {
                _ = tick.tick() => {
                    let sent_at = Nanos::now();
                    if let Err(ended) = self.check().await {
                        return ended;
                    }
                    feed.shared.origins.confirm_shapes(sent_at);
                }
                () = looks::due(looks) => {
                    let sent_at = Nanos::now();
                    looks.into_iter().for_each(|looks| looks.sent(sent_at));
                    match log_end(&mut self.conn, &self.identity, &feed.tuning).await {
                        Ok(end) => {
                            let incarnation = self.identity.incarnation;
                            sink.looked(sent_at, Position { incarnation, at: end.point });
                        }
                        Err(ended) => return ended,
                    }
                }
            }
        }
    }

    /// Logs in again if the account's privileges changed, so that the check uses the current ones.
    /// Returns true if it did. When the login fails, nothing is served, not even over open
    /// connections.
    async fn refresh_privileges(&mut self) -> Result<bool, Ended> {
        let MysqlFeed { config, tuning, shared, .. } = self.feed_loop.feed;
        let conn = &mut self.conn;
        let refresh = async {
            // An error may mean that the account no longer exists. The login then reports it.
            if connect::privileges(conn).await.is_ok_and(|now| now == self.privileges) {
                return Ok(None);
            }
            connect::log_in_again(conn, settings(config, tuning)).await.map_err(driver_error)?;
            connect::privileges(conn).await.map(Some).map_err(driver_error)
        };
        match timely(tuning.silence_max, "logging in with the current privileges", refresh).await {
            Ok(None) => Ok(false),
            Ok(Some(privileges)) => {
                self.privileges = privileges;
                Ok(true)
            }
            Err(ended) => {
                shared.published.down(&ended.detail);
                Err(ended)
            }
        }
    }
}

impl CatalogWatcher for Catalogue<'_, '_> {
    async fn check(&mut self) -> Result<CatalogCheck, Ended> {
        let MysqlFeed { config, shared, schemas, .. } = self.feed_loop.feed;
        let is_refreshed = self.refresh_privileges().await?;
        let now = self.feed_loop.inspect_tables(&mut self.conn, &self.identity).await?;
        if is_refreshed {
            shared.reconnect();
        }
        let is_unchanged = now == self.tables;
        // Readers first, then the flush: a read that begins after it uses the new definition. A
        // reader may have found a definition that was there between two checks only.
        for (i, table) in preflight::readable(&now).iter().enumerate() {
            if !is_unchanged || shared.is_unreadable(i) {
                shared.set_table(i, table);
            }
        }
        if is_unchanged {
            return Ok(CatalogCheck::Unchanged);
        }
        for (i, (table, before)) in
            now.iter().zip(&self.tables).enumerate().filter(|(_, (now, before))| now != before)
        {
            let name = &config.server.collections[i].name;
            match (table, before) {
                (Err(why), _) => {
                    let why = PreflightErrors(why.clone());
                    tracing::error!(
                        collection = %name,
                        "the collection can no longer be served; to fix:{why}"
                    );
                }
                (Ok(_), _) => {
                    tracing::info!(collection = %name, "the table's definition changed");
                }
            }
            if let Some(schema) = schemas.get(i) {
                self.feed_loop.sink.flush(schema.collection(), FlushCause::Schema, None);
            }
        }
        self.tables = now;
        Ok(CatalogCheck::Changed(followed(&self.tables)))
    }
}
