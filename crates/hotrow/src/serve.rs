//! Composes the subsystems: the only place where cache, source and server meet.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use hotrow_cache::Cache;
use hotrow_cache::config::Upkeep;
use hotrow_measure::clock::Nanos;
use hotrow_server::drain::Shutdown;
use hotrow_server::lookups::Calendar;
use hotrow_server::service::Service;
use hotrow_server::shared::Shared;
use hotrow_server::sink::{CacheSink, FeedCounts, Unfollowed};
use hotrow_source::mongodb::{self, Mongo};
use hotrow_source::mysql::{self, Mysql};
use hotrow_source::postgres::{self, Postgres};
use hotrow_source::sqlite::{self, Sqlite};
use hotrow_source::{Sink, Source};
use tokio::sync::watch;

use crate::config::{Resolved, SourceConfig};
use crate::doctor;
use crate::logging;
use crate::open_files::{self, Fit, Wanted};
use crate::signals::Phase;

/// Where the service really listens, known once it does (port 0 asks for any free one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The data API.
    pub data: SocketAddr,
    /// The admin API.
    pub admin: SocketAddr,
}

/// Why serving could not begin, or broke.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The system allows too few open files for any useful number of connections.
    #[error(
        "the limit on open files ({limit}) leaves no room for connections; raise it, for instance with ulimit -n 20000"
    )]
    OpenFiles {
        /// The hard limit.
        limit: u64,
    },
    /// A subsystem failed; its words name the thing and what to do.
    #[error("{0}")]
    Subsystem(String),
}

/// Serves until `phase` says to drain and the drain is done. `ready` is called once, when requests are answered.
///
/// # Errors
/// What kept it from serving.
pub fn run(
    mut resolved: Resolved,
    phase: watch::Receiver<Phase>,
    ready: impl FnOnce(Addresses),
) -> Result<(), ServeError> {
    logging::start(resolved.log);
    for warning in &resolved.warnings {
        tracing::warn!("{warning}");
    }
    fit_connections(&mut resolved)?;
    if let Some(short) = doctor::of_server(hotrow_server::listen::BACKLOG.unsigned_abs().into()) {
        tracing::warn!("{short}");
    }
    compose(resolved, phase, ready)
}

/// Lowers `limits.connections` to what the limit on open files allows, loudly.
fn fit_connections(resolved: &mut Resolved) -> Result<(), ServeError> {
    let connections = resolved.server.limits.connections;
    let wanted = Wanted { connections, workers: resolved.server.workers, readers: resolved.cache.reads_in_flight };
    let limit = open_files::raise_limit();
    match open_files::fit(&wanted, limit) {
        Fit::Fits => {}
        Fit::Fewer(fewer) => {
            tracing::warn!(
                connections,
                serving_at_most = fewer,
                open_files_limit = limit,
                "limits.connections does not fit the limit on open files; raise the limit (ulimit -n) or lower the setting"
            );
            resolved.server.limits.connections = fewer;
        }
        Fit::TooFew => return Err(ServeError::OpenFiles { limit: limit.unwrap_or_default() }),
    }
    Ok(())
}

fn compose(resolved: Resolved, phase: watch::Receiver<Phase>, ready: impl FnOnce(Addresses)) -> Result<(), ServeError> {
    let Resolved { server, cache, collections, source, .. } = resolved;
    // Listeners first: a port in use is told before anything is added to the database.
    let service = Service::bind(&server).map_err(subsystem)?;
    let addresses = Addresses { data: service.data(), admin: service.admin() };
    let (source, follow) = open(source)?;
    let cache = Cache::new(cache, collections);
    let served = source.schemas().iter().map(|schema| schema.collection());
    served.filter(|id| source.has_aliases(*id)).for_each(|id| cache.expect_aliases(id));
    #[cfg(feature = "sabotage")]
    sabotage(&cache);
    let shared = Shared::new(&server, cache, source, calendar()).map_err(subsystem)?;
    let counts = Arc::new(FeedCounts::default());
    let sink: Arc<dyn Sink> = match shared.cache.config().upkeep {
        Upkeep::Feed => Arc::new(CacheSink::new(shared.clone(), counts.clone())),
        Upkeep::TtlOnly => Arc::new(Unfollowed::new(CacheSink::new(shared.clone(), counts.clone()))),
    };
    let stop_feed = Arc::new(AtomicBool::new(false));
    let following = {
        let stop = stop_feed.clone();
        std::thread::Builder::new().name("feed".to_owned()).spawn(move || follow(sink, stop)).map_err(subsystem)?
    };
    let shutdown = Shutdown::new();
    drain_on(phase, shutdown.clone()).map_err(subsystem)?;
    let served = service.run(&server, &shared, counts, &shutdown, || ready(addresses)).map_err(subsystem);
    stop_feed.store(true, Ordering::Release);
    let followed = following.join().map_err(|_| subsystem("the feed panicked; this is a bug in Hotrow"));
    served.and(followed)
}

/// Runs a feed until the flag is set.
type RunFeed = Box<dyn FnOnce(Arc<dyn Sink>, Arc<AtomicBool>) + Send>;

fn open(source: SourceConfig) -> Result<(Arc<dyn Source>, RunFeed), ServeError> {
    match source {
        SourceConfig::Sqlite(config) => {
            let Sqlite { source, feed } = sqlite::open(config, sqlite::Hooks::default()).map_err(subsystem)?;
            Ok((source, Box::new(|sink, stop| feed.run(sink, stop))))
        }
        SourceConfig::Postgres(config) => {
            let Postgres { source, feed } = postgres::open(config, postgres::Hooks::default()).map_err(subsystem)?;
            Ok((source, Box::new(|sink, stop| feed.run(sink, stop))))
        }
        SourceConfig::Mysql(config) => {
            let Mysql { source, feed } = mysql::open(config, mysql::Hooks::default()).map_err(subsystem)?;
            Ok((source, Box::new(|sink, stop| feed.run(sink, stop))))
        }
        SourceConfig::Mongodb(config) => {
            let Mongo { source, feed } = mongodb::open(config, mongodb::Hooks::default()).map_err(subsystem)?;
            #[cfg(feature = "sabotage")]
            if is_taken_out("fence") {
                source.take_out_causality();
            }
            Ok((source, Box::new(|sink, stop| feed.run(sink, stop))))
        }
    }
}

/// Begins the drain when the process is asked to stop.
fn drain_on(mut phase: watch::Receiver<Phase>, shutdown: Shutdown) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    std::thread::Builder::new().name("drain".to_owned()).spawn(move || {
        // An error means that the sender is gone: nobody can ask any more.
        if runtime.block_on(phase.wait_for(|phase| *phase == Phase::Draining)).is_ok() {
            tracing::info!("asked to stop: finishing what is in flight");
            shutdown.drain();
        }
    })?;
    Ok(())
}

fn calendar() -> Calendar {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Calendar::new(Nanos::now(), u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX))
}

fn subsystem(error: impl std::fmt::Display) -> ServeError {
    ServeError::Subsystem(error.to_string())
}

/// Test-only: takes fixes out, named with commas between, so that the consistency test can show that they would be missed.
#[cfg(feature = "sabotage")]
fn sabotage(cache: &Cache<hotrow_server::Trouble>) {
    let fixes = [
        ("lease", hotrow_cache::Fix::Lease),
        ("fence", hotrow_cache::Fix::Fence),
        ("epoch", hotrow_cache::Fix::Epoch),
        ("probe", hotrow_cache::Fix::Probe),
    ];
    for (_, fix) in fixes.into_iter().filter(|(name, _)| is_taken_out(name)) {
        tracing::warn!(?fix, "HOTROW_SABOTAGE: a fix is taken out; this is a build for tests");
        cache.take_out(fix);
    }
}

/// Test-only: whether `HOTROW_SABOTAGE` names this fix.
#[cfg(feature = "sabotage")]
fn is_taken_out(fix: &str) -> bool {
    std::env::var("HOTROW_SABOTAGE").is_ok_and(|names| names.split(',').any(|name| name == fix))
}

/// Removes from `database` what `watch = "triggers"` added.
///
/// # Errors
/// What kept it from doing so.
pub fn unwatch(database: &Path) -> Result<sqlite::Removed, String> {
    sqlite::unwatch(database).map_err(|error| error.to_string())
}
