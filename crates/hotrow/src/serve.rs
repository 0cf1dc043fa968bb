//! Composes the subsystems: the only place where cache, source and server meet.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hotrow_cache::Cache;
use hotrow_config::{Config, Limits};
use hotrow_measure::clock::Nanos;
use hotrow_net::listen::inherited::{Holder, Inherited};
use hotrow_server::reload::{ReloadRequest, Reloads};
use hotrow_server::service::{Process, Service};
use hotrow_service::in_force::InForce;
use hotrow_service::shared::Shared;
use hotrow_source_sqlite as sqlite;
use hotrow_supervisor::shutdown::{Shutdown, Stage};
use hotrow_supervisor::{self as supervisor, Supervisor};
use hotrow_telemetry::access_log::AccessLog;
use hotrow_telemetry::lookups::Calendar;
use hotrow_types::key::CollectionId;
use tokio::sync::{mpsc, watch};

use crate::accept_queue;
use crate::catalog_checks;
use crate::config::{Resolved, SourceConfig};
#[cfg(feature = "failpoints")]
use crate::failpoints::Failpoints;
use crate::fit;
use crate::handover::give::{self, Offer};
use crate::handover::take::{self, Predecessor};
use crate::logging;
use crate::reload::{self, ConfigFile, Reloader, Triggers};
use crate::service_manager;
use hotrow_cli::signals::Phase;

pub use self::error::ServeError;
use self::error::subsystem;
use self::feed::{open_all, start_feeds};
pub use self::host::Host;

pub(crate) mod error;
mod feed;
pub(crate) mod host;

/// Time beyond the limits of the drain until the process has ended.
const STOP_SLACK: Duration = Duration::from_secs(5);

/// Addresses that the service listens on. With port 0 the system chooses a free port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The data API.
    pub data: SocketAddr,
    /// The admin API.
    pub admin: SocketAddr,
    /// The Redis protocol, if it is served.
    pub redis: Option<SocketAddr>,
}

/// Serves until the host's phase is draining and the drain has ended. Calls `ready` once, when
/// requests are answered. `file`: where the configuration comes from, if it may be read again.
///
/// # Errors
/// Returns the cause if serving could not start or could not continue.
pub fn run(
    resolved: Resolved,
    file: Option<ConfigFile>,
    host: Host,
    ready: impl FnOnce(Addresses),
) -> Result<(), ServeError> {
    let log_dropped_total = Arc::default();
    logging::start(resolved.log, &host.supervisor, Arc::clone(&log_dropped_total))
        .map_err(subsystem)?;
    let process = Process { supervisor: host.supervisor.clone(), log_dropped_total };
    let supervisor = host.supervisor.clone();
    // No replacement: this thread owns the composition of all subsystems.
    let served = supervisor.run_once("main", || {
        supervisor::turn();
        prepare(resolved, file, host, process, ready)
    });
    logging::flush();
    served.unwrap_or(Err(ServeError::Panic))
}

fn prepare(
    mut resolved: Resolved,
    file: Option<ConfigFile>,
    host: Host,
    process: Process,
    ready: impl FnOnce(Addresses),
) -> Result<(), ServeError> {
    for warning in &resolved.warnings {
        tracing::warn!("{warning}");
    }
    fit::connections(&mut resolved)?;
    fit::cache(&mut resolved, 0);
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
    let somaxconn = somaxconn.ok().and_then(|text| text.trim().parse().ok());
    if let Some(short) = somaxconn.and_then(accept_queue::warning) {
        tracing::warn!("{short}");
    }
    compose(resolved, file, host, process, ready)
}

fn compose(
    resolved: Resolved,
    file: Option<ConfigFile>,
    mut host: Host,
    process: Process,
    ready: impl FnOnce(Addresses),
) -> Result<(), ServeError> {
    let reload = file.map(|file| Reloading::new(file, &resolved));
    #[cfg(feature = "hub")]
    let hub = resolved.hub;
    let Resolved { mut server, cache, cache_sources, collections, sources, .. } = resolved;
    // Listeners first: a port in use is reported before anything is added to the database.
    let inherited = std::mem::replace(&mut host.inherited, Inherited::new(Holder::None));
    let (inherited, predecessor) = take_over(inherited, &server)?;
    let service = Service::bind_or_take(&server, inherited).map_err(subsystem)?.within(process);
    let offer = server.transport.handover.as_ref().map(|_| service.offer()).transpose();
    let offer = offer.map_err(subsystem)?.map(Offer::new);
    let access_log = server.observability.access_log.as_ref();
    let access_log = access_log.map(|config| AccessLog::open(config, server.workers));
    let access_log = access_log.transpose().map_err(subsystem)?;
    if let Some(trace) = &server.observability.trace {
        hotrow_telemetry::traces::check_headers(trace).map_err(subsystem)?;
    }
    let addresses =
        Addresses { data: service.data(), admin: service.admin(), redis: service.redis() };
    // With the port that was taken: the description of the API names it.
    server.data = addresses.data;
    #[cfg(feature = "hub")]
    let hub = (hub, cache.max_staleness);
    #[cfg(not(feature = "hub"))]
    let hub = ();
    let (sources, feeds) = open_all(&server, sources, &hub, &host)?;
    catalog_checks::check(&server, &sources).map_err(subsystem)?;
    let source_of = |CollectionId(id)| server.collections[usize::from(id)].source;
    let cache = Cache::of_sources(cache, collections, &cache_sources, source_of);
    let served = sources.schemas().iter().map(|schema| schema.collection());
    served.filter(|id| sources.of(*id).has_aliases(*id)).for_each(|id| cache.expect_aliases(id));
    #[cfg(feature = "failpoints")]
    disable_safeguards(&host.failpoints, &cache);
    let shared = Shared::new(&server, cache, sources.clone(), calendar()).map_err(subsystem)?;
    let shared = shared.with_access_log(access_log);
    let in_force = InForce::new(server.clone(), shared.clone());
    let shutdown = Shutdown::new();
    let following =
        start_feeds(&shared, &sources, feeds, &shutdown, &host.supervisor).map_err(subsystem)?;
    let end = End::new(&in_force, offer.clone(), shutdown.clone());
    drain_on(host.phase, end.clone(), &host.supervisor).map_err(subsystem)?;
    let reloads = reload.as_ref().map(|reload| Arc::clone(&reload.reloads));
    let started = |served| {
        // A stop requested earlier ended the wait for readiness: the process before goes on.
        let is_running = shutdown.stage() == Stage::Running;
        if let Some(predecessor) = predecessor.filter(|_| is_running) {
            predecessor.succeed();
        }
        let offer = offer.filter(|_| is_running);
        if let (Some(offer), Some(path)) = (offer, &server.transport.handover) {
            let ended = move || end.by_handover();
            let started = give::listen(path).map_err(subsystem).and_then(|endpoint| {
                give::start(offer, endpoint, &shutdown, &host.supervisor, ended).map_err(subsystem)
            });
            if let Err(error) = started {
                tracing::error!(%error, "no process can take over from this one");
            }
        }
        if let Err(error) = service_manager::report(served, &shutdown, &host.supervisor) {
            tracing::error!(%error, "cannot notify the service manager");
        }
        // Behind the first report of readiness, which the end of a reload repeats.
        match reload {
            Some(reload) => reload.start(&in_force, host.hangups, &shutdown, &host.supervisor),
            None => {
                let (hangups, supervisor) = (host.hangups, &host.supervisor);
                if let Err(error) = reload::start_without_file(hangups, &shutdown, supervisor) {
                    tracing::error!(%error, "SIGHUP is ignored");
                }
            }
        }
        ready(addresses);
    };
    let settings = (&in_force, reloads);
    let served = service.run(&server, settings, &shutdown, started).map_err(subsystem);
    shutdown.now();
    // The supervisor catches panics; the shutdown applies between two runs too.
    following.into_iter().for_each(|feed| _ = feed.join());
    served
}

/// Opens the databases as a start does, and checks what the file says of their columns. Nothing is
/// added to a database.
///
/// # Errors
/// The first database that cannot be served or reached.
pub(crate) fn trial(resolved: Resolved) -> Result<(), ServeError> {
    #[cfg(feature = "hub")]
    let hub = (resolved.hub, resolved.cache.max_staleness);
    #[cfg(not(feature = "hub"))]
    let hub = ();
    let mut configs = resolved.sources;
    configs.iter_mut().for_each(SourceConfig::try_only);
    let (sources, _) = open_all(&resolved.server, configs, &hub, &Host::for_trial())?;
    catalog_checks::check(&resolved.server, &sources).map_err(subsystem)
}

/// Reload of the configuration, before the service runs.
struct Reloading {
    file: ConfigFile,
    resolved: Resolved,
    reloads: Arc<Reloads>,
    requests: mpsc::Receiver<ReloadRequest>,
}

impl Reloading {
    fn new(file: ConfigFile, resolved: &Resolved) -> Self {
        let (name, hash) = (file.path.display().to_string(), file.hash.clone());
        let (reloads, requests) = Reloads::new(name, hash, Nanos::now());
        Self { file, resolved: resolved.clone(), reloads, requests }
    }

    /// Starts the thread. Without it the service runs, and cannot be reloaded.
    fn start(
        self,
        in_force: &Arc<InForce>,
        hangups: watch::Receiver<u64>,
        shutdown: &Shutdown,
        supervisor: &Supervisor,
    ) {
        let Self { file, resolved, reloads, requests } = self;
        let in_force = Arc::clone(in_force);
        let reloader = Reloader::new(file, &resolved, in_force, reloads, shutdown.clone());
        if let Err(error) = reload::start(reloader, Triggers { hangups, requests }, supervisor) {
            tracing::error!(%error, "the configuration cannot be reloaded");
        }
    }
}

/// Takes the sockets of the process before this one, unless the service manager passed some.
fn take_over(
    passed: Inherited,
    server: &Config,
) -> Result<(Inherited, Option<Predecessor>), ServeError> {
    let Some(path) = &server.transport.handover else { return Ok((passed, None)) };
    if !passed.is_empty() {
        return Ok((passed, None));
    }
    match take::take(path, server).map_err(subsystem)? {
        Some((inherited, predecessor)) => Ok((inherited, Some(predecessor))),
        None => Ok((passed, None)),
    }
}

/// Orderly end of the service: it is announced, then the drain begins after the delay.
#[derive(Clone)]
struct End {
    in_force: Arc<InForce>,
    offer: Option<Offer>,
    shutdown: Shutdown,
}

impl End {
    fn new(in_force: &Arc<InForce>, offer: Option<Offer>, shutdown: Shutdown) -> Self {
        Self { in_force: Arc::clone(in_force), offer, shutdown }
    }

    fn by_signal(&self) {
        let Limits { drain_delay: delay, drain_timeout, .. } = self.in_force.config().limits;
        tracing::info!(?delay, "stop requested: not ready; later the drain begins");
        self.shutdown.leave();
        service_manager::stopping(delay + drain_timeout + STOP_SLACK);
        self.drain_after(delay);
    }

    fn by_handover(&self) {
        self.shutdown.leave();
        self.drain_after(self.in_force.config().limits.drain_delay);
    }

    fn drain_after(&self, delay: Duration) {
        if self.shutdown.pause(delay) {
            // Before the workers take their queues and close.
            drop(self.offer.as_ref().map(Offer::take));
            tracing::info!("draining: finishing requests in flight");
            self.shutdown.drain();
        }
    }
}

/// Ends the service when the process receives a stop signal.
fn drain_on(
    mut phase: watch::Receiver<Phase>,
    end: End,
    supervisor: &Supervisor,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let body = move || {
        supervisor::turn();
        // An error means that the sender is gone: no stop request can arrive.
        if runtime.block_on(phase.wait_for(|phase| *phase == Phase::Draining)).is_ok() {
            end.by_signal();
        }
        Ok(())
    };
    supervisor.spawn("drain", || false, || (), body)?;
    Ok(())
}

fn calendar() -> Calendar {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Calendar::new(Nanos::now(), u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX))
}

/// Disables safeguards, so that the consistency test can prove that it detects their absence.
#[cfg(feature = "failpoints")]
fn disable_safeguards(failpoints: &Failpoints, cache: &Cache<hotrow_source::ReadFailure>) {
    for safeguard in &failpoints.safeguards {
        tracing::warn!(?safeguard, "a safeguard is disabled; this is a build for tests");
        cache.disable(*safeguard);
    }
}

/// Removes from `database` what `watch = "triggers"` added.
///
/// # Errors
/// Returns the reason if the database could not be opened or changed.
pub fn uninstall_triggers(database: &Path) -> Result<sqlite::Removed, String> {
    sqlite::uninstall_triggers(database).map_err(|error| error.to_string())
}
