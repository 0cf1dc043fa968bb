//! The feed: from session to session, for as long as the process lives.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use hotrow_cache::key::KeySchema;
use hotrow_cache::version::Position;
use mysql_async::Conn;

use super::config::Config;
use super::connect::{self, ConnectError, Settings};
use super::delivery::{Delivery, Origin, Out};
use super::dump::Dump;
use super::error::Finding;
use super::inspect::{self, Refused, Table};
use super::probe::Progress;
use super::server::Identity;
use super::session::{Ended, Looked, Session, Watcher, timely};
use super::shared::Shared;
use super::start;
use super::target::Target;
use super::tuning::Tuning;
use crate::findings::Findings;
use crate::life::{self, Pauses, every};
use crate::spec::Follow;
use crate::{FlushCause, LossCause, Sink};

/// Follows the database and delivers what changes.
#[derive(Debug)]
pub struct MysqlFeed {
    pub(crate) config: Arc<Config>,
    /// Where the feed connects.
    pub(crate) target: Arc<Target>,
    pub(crate) tuning: Tuning,
    pub(crate) shared: Arc<Shared>,
    pub(crate) schemas: Arc<[KeySchema]>,
}

impl MysqlFeed {
    /// Runs until `shutdown` is set. Blocks: it wants a thread of its own. Where the system gives no event loop, that is
    /// told to the sink as a loss, and nothing is delivered.
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
            match life.session().await {
                Ok(ended) => {
                    tracing::warn!(cause = ?ended.cause, detail = %ended.detail, "the change feed lost its place; everything is read anew");
                    sink.loss(ended.cause, &ended.detail);
                    pauses.worked(began_at.elapsed());
                }
                Err(ended) => life.tell(&ended),
            }
            pauses.wait().await;
        }
    }
}

/// What goes on from session to session.
struct Life<'a> {
    feed: &'a MysqlFeed,
    sink: &'a dyn Sink,
    /// The server of the last session.
    server: Option<Identity>,
    /// What the log was told last about an attempt that failed.
    told: String,
}

impl Life<'_> {
    /// One session, from the connection to its end; an error where the sink was not told that it starts.
    async fn session(&mut self) -> Result<Ended, Ended> {
        let MysqlFeed { config, target, tuning, shared, schemas } = self.feed;
        let settings = settings(config, tuning);
        let mut probes = connect::primary(target, settings, None).await.map_err(|e| unreachable(&e))?;
        let identity = probes.identity.clone();
        self.meet(&identity);
        let mut looks = connect::session(target, &probes.host, settings).await.map_err(|e| unreachable(&[e]))?;
        let raw = timely(tuning.silence_max, "connecting the stream", async {
            connect::raw(target, &probes.host).await.map_err(|e| unreachable(&[e]))
        });
        let raw = raw.await?;
        if looks.identity != identity {
            return Err(Ended::new(
                LossCause::OtherDatabase,
                format!("{} is a different server every time", probes.host),
            ));
        }
        if config.follow == Follow::Nothing {
            let tables = self.look(&mut looks.conn, &identity).await?;
            shared.publish(identity.clone(), &readable(&tables));
            self.told.clear();
            self.sink.started(None);
            return Ok(Catalogue { life: self, identity, conn: looks.conn, tables }.watch().await);
        }
        // First where to begin, then what there is: what the log tells of the tables' shapes is not older than this look.
        let end = start::place(&mut probes.conn, &identity, tuning).await?;
        let tables = self.look(&mut looks.conn, &identity).await?;
        // First the readers: they can answer, by policy, while the feed waits for its start.
        let recent = shared.publish(identity.clone(), &readable(&tables));
        let server_id = config.server_id.unwrap_or_else(|| start::random_server_id(&identity));
        let dump = Dump::start(raw, identity.flavor, server_id, &end, tuning.heartbeat, tuning.silence_max).await?;
        let point = end.place.point();
        tracing::info!(host = %probes.host, server = %identity, file = %end.file, offset = end.place.offset(), "the change feed starts");
        self.told.clear();
        self.sink.started(Some(Position { incarnation: identity.incarnation, at: point }));
        let origin = Origin { incarnation: identity.incarnation, names_any_case: identity.names_any_case };
        let out = Out { schemas, sink: self.sink, recent: &recent };
        let delivery = Delivery::new(out, origin, followed(&tables), end.place);
        let mut catalogue = Catalogue { life: self, identity: identity.clone(), conn: looks.conn, tables };
        let session = Session {
            identity: &identity,
            tuning,
            sink: catalogue.life.sink,
            recent: &recent,
            dump,
            delivery,
            progress: Progress::new(point),
        };
        Ok(session.run(&mut probes.conn, &mut catalogue).await)
    }

    /// Looks at the tables.
    async fn look(&self, conn: &mut Conn, identity: &Identity) -> Result<Vec<Result<Table, Refused>>, Ended> {
        let MysqlFeed { config, target, tuning, schemas, .. } = self.feed;
        let looking = async { Ok(inspect::tables(conn, identity, &target.database, &config.collections).await?) };
        let mut tables = timely(tuning.silence_max, "looking at the catalogue", looking).await?;
        // Ids are parsed by the schemas of the start; a table whose key is of another type now cannot be served by them.
        for ((table, schema), spec) in tables.iter_mut().zip(schemas.iter()).zip(&config.collections) {
            if table.as_ref().is_ok_and(|t| t.key_schema().types() != schema.types()) {
                let what = format!("collection `{}`: the key of `{}` changed its type", spec.name, spec.table);
                *table = Err(vec![Finding::new(what, "restart to serve it by the new one")]);
            }
        }
        Ok(tables)
    }

    /// Another server than last time: everything is stale, also what was read since that one was lost.
    fn meet(&mut self, identity: &Identity) {
        let before = self.server.replace(identity.clone());
        let Some(before) = before.filter(|before| before.incarnation != identity.incarnation) else { return };
        let detail = format!("{before} was followed, {identity} answers now");
        tracing::warn!(%detail, "another server; everything is read anew");
        // First the readers: a read that begins after the loss must not see what is gone.
        self.feed.shared.down(&detail);
        self.sink.loss(LossCause::OtherDatabase, &detail);
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

/// What sessions of the feed are set to.
pub(crate) fn settings(config: &Config, tuning: &Tuning) -> Settings {
    Settings { statement_timeout: tuning.silence_max, connect_timeout: config.connect_timeout }
}

pub(crate) fn unreachable(errors: &[ConnectError]) -> Ended {
    let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    Ended::new(LossCause::Unavailable, text)
}

/// The tables as readers want them.
fn readable(tables: &[Result<Table, Refused>]) -> Vec<Result<Table, String>> {
    let why = |findings: &Refused| findings.iter().map(|f| f.what.clone()).collect::<Vec<_>>().join("; ");
    tables.iter().map(|table| table.clone().map_err(|findings| why(&findings))).collect()
}

fn followed(tables: &[Result<Table, Refused>]) -> Vec<Option<Table>> {
    tables.iter().map(|table| table.as_ref().ok().cloned()).collect()
}

/// The catalogue as a session saw it last.
struct Catalogue<'a, 'b> {
    life: &'a Life<'b>,
    identity: Identity,
    conn: Conn,
    tables: Vec<Result<Table, Refused>>,
}

impl Catalogue<'_, '_> {
    /// Looks from time to time, where nothing else is followed.
    async fn watch(&mut self) -> Ended {
        let mut tick = every(self.life.feed.tuning.schema_poll);
        loop {
            tick.tick().await;
            if let Err(ended) = self.look().await {
                return ended;
            }
        }
    }
}

impl Watcher for Catalogue<'_, '_> {
    async fn look(&mut self) -> Result<Looked, Ended> {
        let MysqlFeed { config, shared, schemas, .. } = self.life.feed;
        let now = self.life.look(&mut self.conn, &self.identity).await?;
        if now == self.tables {
            return Ok(Looked::Same);
        }
        // First the readers, then the flush: a read that begins after it reads by the new shape.
        for (i, table) in readable(&now).iter().enumerate() {
            shared.set_table(i, table);
        }
        for (i, (table, before)) in now.iter().zip(&self.tables).enumerate().filter(|(_, (now, before))| now != before)
        {
            let name = &config.collections[i].name;
            match (table, before) {
                (Err(why), _) => {
                    let why = Findings(why.clone());
                    tracing::error!(collection = %name, "the collection cannot be served any more; to mend:{why}");
                }
                (Ok(_), _) => tracing::info!(collection = %name, "the table changed its shape"),
            }
            if let Some(schema) = schemas.get(i) {
                self.life.sink.flush(schema.collection(), FlushCause::Schema, None);
            }
        }
        self.tables = now;
        Ok(Looked::Follow(followed(&self.tables)))
    }
}
