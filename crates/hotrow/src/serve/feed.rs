//! The databases of a service: the reader of each, and the feed that keeps the cache fresh.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
#[cfg(feature = "hub")]
use std::time::Duration;

#[cfg(all(feature = "failpoints", feature = "mongodb"))]
use hotrow_cache::Safeguard;
use hotrow_changes::sink::TtlOnlySink;
use hotrow_config::Config;
#[cfg(feature = "hub")]
use hotrow_hub_nats::config::{HubConfig, tags as hub_tags};
#[cfg(feature = "hub")]
use hotrow_hub_nats::feed::{Bounds, HubCollections, HubFeed};
use hotrow_service::shared::Shared;
use hotrow_source::sources::Sources;
#[cfg(feature = "hub")]
use hotrow_source::spec::{Follow, ServerConfig};
use hotrow_source::{LossCause, Sink, Source};
#[cfg(feature = "mongodb")]
use hotrow_source_mongodb::{self as mongodb, Mongo};
#[cfg(feature = "mysql")]
use hotrow_source_mysql::{self as mysql, Mysql};
#[cfg(feature = "postgres")]
use hotrow_source_postgres::{self as postgres, Postgres};
use hotrow_source_sqlite::{self as sqlite, Hooks, Sqlite};
use hotrow_supervisor::Supervisor;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_types::key::CollectionId;
use hotrow_types::source::SourceId;

use super::error::{ServeError, opening, subsystem};
use super::host::Host;
use crate::config::SourceConfig;
#[cfg(feature = "failpoints")]
use crate::failpoints;
#[cfg(feature = "hub")]
use crate::relay::engine::{self, Opened};

/// Function that runs a feed until everything must end. It may be called again after a failure.
pub(super) type RunFeed = Box<dyn FnMut(Arc<dyn Sink>, &Shutdown) -> io::Result<()> + Send>;

/// Starts the thread of each feed. A failure of a feed is a gap: every entry of its source becomes
/// stale, and no other one.
pub(super) fn start_feeds(
    shared: &Shared,
    sources: &Sources,
    feeds: Vec<RunFeed>,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<Vec<JoinHandle<Option<()>>>> {
    let start = |(source, follow): (SourceId, RunFeed)| {
        let sink = shared.sink(source);
        let name = shared.thread_name("feed", source);
        let sink: Arc<dyn Sink> = match shared.cache.is_followed(source) {
            true => Arc::new(sink),
            false => Arc::new(TtlOnlySink::new(sink)),
        };
        let sink = sources.sink(source, sink);
        start_feed(&name, follow, sink, shutdown.clone(), supervisor)
    };
    (0..).map(SourceId).zip(feeds).map(start).collect()
}

fn start_feed(
    name: &str,
    mut follow: RunFeed,
    sink: Arc<dyn Sink>,
    shutdown: Shutdown,
    supervisor: &Supervisor,
) -> io::Result<JoinHandle<Option<()>>> {
    let ending = shutdown.clone();
    let losing = sink.clone();
    supervisor.spawn(
        name,
        move || ending.is_ending(),
        move || losing.loss(LossCause::FeedFailed, "the feed failed; it starts again"),
        move || follow(sink.clone(), &shutdown),
    )
}

/// Opens every database of `server`, and returns what reads and what follows each.
///
/// # Errors
/// The first database that cannot be opened, by name where there are several.
pub(super) fn open_all(
    server: &Config,
    configs: Vec<SourceConfig>,
    hub: &Hub,
    host: &Host,
) -> Result<(Sources, Vec<RunFeed>), ServeError> {
    #[cfg(feature = "failpoints")]
    failpoints::reads::check(&host.failpoints.reads, &configs).map_err(subsystem)?;
    let is_only = configs.len() == 1;
    let (mut sources, mut feeds) = (Vec::new(), Vec::new());
    for ((id, config), named) in (0..).map(SourceId).zip(configs).zip(&server.sources) {
        #[cfg(feature = "failpoints")]
        let hooks = failpoints::reads::hooks(&host.failpoints.reads, &config).map_err(subsystem)?;
        #[cfg(not(feature = "failpoints"))]
        let hooks = Hooks::default();
        let (source, feed) = match open(config, hub, hooks, host) {
            Ok(opened) => opened,
            Err(error) if is_only => return Err(error),
            Err(ServeError::Unreachable(error)) => {
                return Err(ServeError::Unreachable(format!("source {}: {error}", named.name)));
            }
            Err(error) => return Err(subsystem(format!("source {}: {error}", named.name))),
        };
        let numbered = (0..).map(CollectionId).zip(&server.collections);
        let own = numbered.filter(|(_, collection)| collection.source == id);
        sources.push((source, own.map(|(id, _)| id).collect()));
        feeds.push(feed);
    }
    Ok((Sources::new(sources), feeds))
}

/// The change hub, if changes come from one, and the bound on staleness.
#[cfg(feature = "hub")]
pub(super) type Hub = (Option<HubConfig>, Duration);
/// A build without the hub.
#[cfg(not(feature = "hub"))]
pub(super) type Hub = ();

#[cfg_attr(not(feature = "hub"), allow(unused_variables, reason = "there is no hub"))]
fn open(
    source: SourceConfig,
    hub: &Hub,
    hooks: Hooks,
    host: &Host,
) -> Result<(Arc<dyn Source>, RunFeed), ServeError> {
    match source {
        SourceConfig::Sqlite(config) => {
            let Sqlite { source, mut feed } =
                sqlite::open(config, hooks, &host.supervisor).map_err(opening)?;
            Ok((source, Box::new(move |sink, shutdown| feed.run(sink, shutdown))))
        }
        #[cfg(feature = "postgres")]
        SourceConfig::Postgres(config) => {
            #[cfg(feature = "hub")]
            if config.server.follow == Follow::Hub {
                let own = config.server.clone();
                let opened = engine::open_postgres(config, hooks, &host.supervisor);
                return behind_hub(opened.map_err(opening)?, &own, hub, host);
            }
            let Postgres { source, mut feed } =
                postgres::open(config, hooks, &host.supervisor).map_err(opening)?;
            Ok((source, Box::new(move |sink, shutdown| feed.run(sink, shutdown))))
        }
        #[cfg(feature = "mysql")]
        SourceConfig::Mysql(config) => {
            #[cfg(feature = "failpoints")]
            let config = mysql::config::Config {
                embedded_rules: host.failpoints.embedded_rules_in_force(),
                ..config
            };
            #[cfg(feature = "hub")]
            if config.server.follow == Follow::Hub {
                let own = config.server.clone();
                let opened = engine::open_mysql(config, hooks, &host.supervisor);
                return behind_hub(opened.map_err(opening)?, &own, hub, host);
            }
            let Mysql { source, mut feed } =
                mysql::open(config, hooks, &host.supervisor).map_err(opening)?;
            Ok((source, Box::new(move |sink, shutdown| feed.run(sink, shutdown))))
        }
        #[cfg(feature = "mongodb")]
        SourceConfig::Mongodb(config) => {
            let Mongo { source, mut feed } =
                mongodb::open(config, hooks, &host.supervisor).map_err(opening)?;
            #[cfg(feature = "failpoints")]
            if host.failpoints.disables(Safeguard::Fence) {
                source.disable_causality();
            }
            Ok((source, Box::new(move |sink, shutdown| feed.run(sink, shutdown))))
        }
    }
}

/// Returns the reader of an opened database, and the feed from the hub.
#[cfg(feature = "hub")]
#[cfg_attr(not(feature = "failpoints"), allow(unused_variables, reason = "there are none"))]
fn behind_hub(
    (source, watch): Opened,
    own: &ServerConfig,
    (hub, max_staleness): &Hub,
    host: &Host,
) -> Result<(Arc<dyn Source>, RunFeed), ServeError> {
    // The configuration has a hub if a source follows one.
    let hub = hub.clone().ok_or_else(|| subsystem("there is no change hub to follow"))?;
    #[cfg(feature = "failpoints")]
    let hub = HubConfig { rules: host.failpoints.rules_in_force(), ..hub };
    let bounds = Bounds { max_staleness: *max_staleness, schema_poll: own.schema_poll };
    let collections = HubCollections {
        names: own.collections.iter().map(|collection| collection.name.clone()).collect(),
        tags: hub_tags(&own.collections, watch.schemas()),
        schemas: watch.schemas().to_vec(),
    };
    let mut feed = HubFeed::new(hub, collections, watch.origins(), bounds);
    let run = move |sink, shutdown: &Shutdown| feed.run(watch.hub_sink(sink), &watch, shutdown);
    Ok((source, Box::new(run)))
}
