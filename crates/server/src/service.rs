//! The whole HTTP side: data workers, admin worker, and their shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_answer::metrics::WorkerMetrics;
use hotrow_changes::purge;
use hotrow_front::worker::{WorkerError, WorkerName, WorkerThreads, run_workers};
use hotrow_gate::access::jwks;
use hotrow_gate::access::key_source::KeySource;
use hotrow_gate::admission::rate;
use hotrow_gate::read::SourceReads;
use hotrow_gate::warm_start::{self, Warmer};
use hotrow_gate::{breaker_probe, refresh};
use hotrow_measure::clock::Nanos;
use hotrow_net::file_watch;
use hotrow_net::listen::inherited::{Holder, Inherited, ListenerKind, SharedHolder, Start};
use hotrow_net::listen::offered::Offered;
use hotrow_net::listen::unix::UnixEndpoint;
use hotrow_net::listen::{ListenError, Listeners};
use hotrow_net::tls::{self, ListenerTls, TlsEndpoint};
use hotrow_representation::compression;
use hotrow_service::admission::pressure;
use hotrow_service::consistency_check::{self, Checker};
use hotrow_service::current::Current;
use hotrow_service::handle::Handler;
use hotrow_service::in_force::InForce;
use hotrow_service::shared::Shared;
use hotrow_supervisor::Supervisor;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_telemetry::history::hot_keys::{KeyRing, KeySampler};
use hotrow_telemetry::history::{self, History};
use hotrow_telemetry::lookups::WorkerLookups;
use hotrow_telemetry::{miss_ratio_curve, traces};

use crate::access_watch::GrantsInForce;
use crate::admin::{Admin, View};
pub use crate::process::Process;
use crate::readiness::Readiness;
use crate::reload::Reloads;
use hotrow_config::{Config, Limits};

/// Longest wait for readiness before listeners of another process are served.
pub const READY_WAIT_MAX: Duration = Duration::from_secs(10);

/// Longest wait for readiness before the listeners of the process before this one are served.
pub const HANDOVER_WAIT_MAX: Duration = Duration::from_secs(60);

/// A service that is served: its progress and its readiness.
#[derive(Clone)]
pub struct Served {
    workers: Vec<Arc<WorkerMetrics>>,
    readiness: Readiness,
}

impl Served {
    /// Returns the time up to which every worker has made progress; zero while one has no event
    /// loop.
    pub fn progress(&self) -> Nanos {
        self.workers.iter().map(|worker| worker.pace.swept_at()).min().unwrap_or(Nanos(0))
    }

    /// Returns a line for operators: whether the instance is ready, or why not.
    pub fn status(&self, now: Nanos) -> String {
        match self.readiness.unmet(now) {
            unmet if unmet.is_empty() => "ready".to_owned(),
            unmet => format!("not ready: {}", unmet.join(", ")),
        }
    }
}

/// Most connections of the admin side.
pub const ADMIN_CONNECTIONS: usize = 64;

/// Both listeners, open and not yet served: connections wait in the kernel.
pub struct Service {
    data: Listeners,
    admin: Listeners,
    /// Begin of serving the listeners of another process, if they are.
    start: Option<Start>,
    admin_shutdown: Shutdown,
    process: Process,
}

impl Service {
    /// Opens the listeners.
    ///
    /// # Errors
    /// The unavailable address, with a remedy.
    pub fn bind(config: &Config) -> Result<Self, ListenError> {
        Self::bind_or_take(config, Inherited::new(Holder::None))
    }

    /// Serves the listeners of another process, and opens those that it lacks.
    ///
    /// # Errors
    /// The unavailable address, with a remedy.
    pub fn bind_or_take(config: &Config, inherited: Inherited) -> Result<Self, ListenError> {
        let Inherited { data, admin, unix, admin_unix, redis, holder, start } = inherited;
        let failed = |address| move |source| ListenError::Other { address, source };
        let Config { transport, admin_transport, .. } = config;
        let unix = UnixEndpoint::bind_or_take(transport.unix.as_ref(), unix, holder)?;
        let admin_unix =
            UnixEndpoint::bind_or_take(admin_transport.unix.as_ref(), admin_unix, holder)?;
        let tls = TlsEndpoint::of(transport).map_err(ListenError::Tls)?;
        let admin_tls = TlsEndpoint::of(admin_transport).map_err(ListenError::AdminTls)?;
        let start = match start {
            // The process before goes on until then, whatever is taken over.
            Start::WhenReady => Some(start),
            // No other process serves an address that is opened here.
            Start::WhenReadyOrLate => (!data.is_empty()).then_some(start),
        };
        let data = match data.is_empty() {
            false => Listeners::taken_over(data, holder).map_err(failed(config.data))?,
            true => Listeners::bind(config.data, config.workers)?,
        };
        let redis = config.transport.redis.map(|configured| match redis.is_empty() {
            false => Listeners::taken_over(redis, holder).map_err(failed(configured.address)),
            true => Listeners::bind(configured.address, config.workers),
        });
        let data = data.with_unix(unix).with_redis(redis.transpose()?).with_tls(tls);
        let admin = match admin {
            Some(admin) => {
                Listeners::taken_over(vec![admin], holder).map_err(failed(config.admin))?
            }
            None => Listeners::bind(config.admin, 1)?,
        };
        let admin = admin.with_unix(admin_unix).with_tls(admin_tls);
        Ok(Self {
            data,
            admin,
            start,
            admin_shutdown: Shutdown::new(),
            process: Process::default(),
        })
    }

    /// Returns the service as a part of `process`.
    #[must_use]
    pub fn within(self, process: Process) -> Self {
        Self { process, ..self }
    }

    /// Returns the data address, with the port that was taken.
    pub fn data(&self) -> SocketAddr {
        self.data.address()
    }

    /// Returns the admin address, with the port that was taken.
    pub fn admin(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Returns the address of the Redis protocol, with the port that was taken.
    pub fn redis(&self) -> Option<SocketAddr> {
        self.data.redis()
    }

    /// Returns duplicates of all listening sockets, for the process after this one.
    ///
    /// # Errors
    /// No more files can be opened.
    pub fn offer(&self) -> io::Result<Offered> {
        let (mut sockets, data) = self.data.duplicates(ListenerKind::Data)?;
        let (admin_sockets, admin) = self.admin.duplicates(ListenerKind::Admin)?;
        sockets.extend(admin_sockets);
        let mut unix = |listeners: &Listeners, kind| match listeners.unix_duplicate()? {
            Some((socket, holder)) => {
                sockets.push((kind, socket));
                Ok(holder)
            }
            None => Ok::<_, io::Error>(SharedHolder::new(Holder::None)),
        };
        let unix_of_data = unix(&self.data, ListenerKind::Unix)?;
        let unix_of_admin = unix(&self.admin, ListenerKind::AdminUnix)?;
        let (redis_sockets, redis) = self.data.redis_duplicates()?;
        sockets.extend(redis_sockets);
        // In the order of the kinds.
        let holders = [data, admin, unix_of_data, unix_of_admin, redis];
        Ok(Offered::new(sockets, holders, self.admin_shutdown.clone()))
    }

    /// Serves until `shutdown`, then drains. The admin side answers until the data side has ended.
    /// `started` is called when both are served.
    ///
    /// Listeners of another process are served when this one is ready, or after
    /// [`READY_WAIT_MAX`]: until then connections wait in their queues instead of being refused.
    ///
    /// # Errors
    /// A thread that cannot be started, or a failed worker.
    pub fn run(
        self,
        config: &Config,
        (in_force, reloads): (&Arc<InForce>, Option<Arc<Reloads>>),
        shutdown: &Shutdown,
        started: impl FnOnce(Served),
    ) -> Result<(), WorkerError> {
        let shared = &in_force.newest().shared;
        _ = shared.ports.set((self.data().port(), self.admin().port()));
        let readiness = Readiness::new(
            Arc::clone(in_force),
            reloads.clone(),
            shutdown.clone(),
            self.admin.holder(),
        );
        let supervisor = self.process.supervisor.clone();
        let failed = |source| WorkerError::Start { index: config.workers, source };
        let helpers = start_before_ready(config, in_force, shutdown, &supervisor);
        let mut helpers = helpers.map_err(failed)?;
        if let Some(access_log) = &shared.access_log {
            access_log.start(&supervisor).map_err(failed)?;
        }
        if let Some(start) = self.start {
            await_readiness(&readiness, start)?;
        }
        let lookups: Vec<_> = (0..config.workers)
            .map(|_| Arc::new(WorkerLookups::new(shared.collections.count())))
            .collect();
        let rings = config.hot_keys.then(|| KeyRing::of_workers(config.workers));
        let history = Arc::new(History::new(rings.clone(), Nanos::now()));
        let counted = lookups.clone();
        let make = {
            let in_force = Arc::clone(in_force);
            let lookups = lookups.clone();
            move |worker: hotrow_front::worker::Worker| {
                let (index, lookups) = (worker.index, lookups[worker.index].clone());
                let ring = rings.as_ref().and_then(|rings| rings.get(index));
                let [seed, _] = rate::seed();
                let sampler = ring.map(|ring| KeySampler::new(ring.clone(), seed));
                let shared = in_force.newest().shared.clone();
                let handler = Handler::new(shared, worker.metrics, lookups, sampler, index);
                Current::new(Arc::clone(&in_force), index, &handler)
            }
        };
        let threads = |name| WorkerThreads { name, supervisor: self.process.supervisor.clone() };
        let tls = ListenerTls { data: self.data.tls(), admin: self.admin.tls() };
        let redis = self.data.redis();
        let workers = run_workers(config, self.data, make, shutdown, &threads(WorkerName::Http))?;
        let view = Arc::new(View {
            shared: shared.clone(),
            workers: workers.metrics().to_vec(),
            lookups,
            token: config.admin_token.clone(),
            is_shedding: config.shed.is_some(),
            hosts: config.admin_hosts.clone(),
            process: self.process.clone(),
            readiness: readiness.clone(),
            tls: tls.clone(),
            redis,
            reloads,
            started_at: Nanos::now(),
            history,
        });
        let viewed = view.clone();
        let admin_shutdown = self.admin_shutdown;
        let in_force_of_admin = Arc::clone(in_force);
        let admin = move |_| Admin::new(view.clone(), Arc::clone(&in_force_of_admin));
        let config_of_admin = admin_config(config);
        let admin = run_workers(
            &config_of_admin,
            self.admin,
            admin,
            &admin_shutdown,
            &threads(WorkerName::Admin),
        );
        let admin = match admin {
            Ok(admin) => admin,
            Err(error) => {
                shutdown.now();
                let _ = workers.join();
                return Err(error);
            }
        };
        let threads = (workers.metrics(), tls, counted);
        let started_threads = start_background_threads(in_force, threads, shutdown, &supervisor)
            .and_then(|started| {
                helpers.extend(started);
                let history = viewed.history.clone();
                let in_force = Arc::clone(in_force);
                let mut late_starts = Default::default();
                let read = move |now| {
                    viewed.readiness.report_late(&mut late_starts, now);
                    viewed.as_of(&in_force.newest()).reading(now)
                };
                helpers.push(history::start(history, read, shutdown, &supervisor)?);
                Ok(())
            });
        match started_threads {
            Ok(()) => {}
            Err(source) => {
                shutdown.now();
                helpers.into_iter().for_each(|thread| _ = thread.join());
                admin_shutdown.now();
                let _ = workers.join();
                return admin.join().and(Err(failed(source)));
            }
        }
        let all_workers = [workers.metrics(), admin.metrics()].concat();
        started(Served { workers: all_workers, readiness });
        let result = workers.join();
        shutdown.now();
        helpers.into_iter().for_each(|thread| _ = thread.join());
        if let Some(access_log) = &shared.access_log {
            access_log.close();
        }
        admin_shutdown.drain();
        result.and(admin.join())
    }
}

/// Waits until the instance is ready, as `start` says.
fn await_readiness(readiness: &Readiness, start: Start) -> Result<(), WorkerError> {
    let limit = match start {
        Start::WhenReadyOrLate => READY_WAIT_MAX,
        Start::WhenReady => HANDOVER_WAIT_MAX,
    };
    match (readiness.wait(limit), start) {
        (Ok(()), _) => Ok(()),
        (Err(unmet), Start::WhenReadyOrLate) => {
            tracing::warn!(?unmet, ?limit, "serving although not ready: the wait is over");
            Ok(())
        }
        (Err(unmet), Start::WhenReady) => {
            Err(WorkerError::NotReady { unmet: unmet.join(", "), limit })
        }
    }
}

/// Starts the threads that readiness may wait for, and those that send what happens from the start
/// on: readers of credentials, warm start, probes of the breaker, purges, traces. If one cannot be
/// started, everything ends.
fn start_before_ready(
    config: &Config,
    in_force: &Arc<InForce>,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<Vec<BackgroundThread>> {
    let shared = &in_force.newest().shared;
    let mut helpers = Vec::new();
    let mut start = || {
        helpers.extend(purge::start(
            (shared.purger.as_ref(), shared.follows.as_ref()),
            shutdown,
            supervisor,
        )?);
        helpers.extend(traces::start(shared.fetcher.tracer.as_ref(), shutdown, supervisor)?);
        start_credential_readers(config, in_force, shutdown, supervisor, &mut helpers)?;
        helpers.extend(start_warmer(config, shared, shutdown, supervisor)?);
        // A reload may enable the breaker.
        for reads in &shared.fetcher.sources {
            let fetcher = shared.fetcher.clone();
            helpers.push(breaker_probe::start(fetcher, reads.id, shutdown, supervisor)?);
        }
        Ok(())
    };
    match start() {
        Ok(()) => Ok(helpers),
        Err(error) => {
            shutdown.now();
            helpers.into_iter().for_each(|thread| _ = thread.join());
            Err(error)
        }
    }
}

/// Starts the threads that keep credentials current, if they come from files or a URL.
fn start_credential_readers(
    config: &Config,
    in_force: &Arc<InForce>,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
    helpers: &mut Vec<BackgroundThread>,
) -> io::Result<()> {
    // A reload may name a file of grants.
    let grants = Arc::new(GrantsInForce(Arc::clone(in_force)));
    helpers.push(file_watch::start("grants", grants, shutdown, supervisor)?);
    let Some(access) = &in_force.newest().shared.access else { return Ok(()) };
    let configured = config.access.as_ref().and_then(|access| access.tokens.as_ref());
    let source = configured.and_then(|tokens| KeySource::of(&tokens.keys));
    if let (Some(tokens), Some(source)) = (access.tokens(), source) {
        helpers.push(jwks::start(tokens.clone(), source, shutdown, supervisor)?);
    }
    Ok(())
}

/// Starts the thread of the warm start, if one is configured.
fn start_warmer(
    config: &Config,
    shared: &Shared,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<Option<BackgroundThread>> {
    let (Some(config), Some(progress)) = (&config.warm_start, &shared.warm_start) else {
        return Ok(None);
    };
    let warmer = Warmer {
        config: config.clone(),
        fetcher: shared.fetcher.clone(),
        calendar: shared.calendar,
        progress: progress.clone(),
    };
    warm_start::start(warmer, shutdown, supervisor).map(Some)
}

/// A supervised thread; it ends on request.
type BackgroundThread = JoinHandle<Option<()>>;

/// Counters of the workers, TLS, and the workers' counts of lookups.
type WatchedParts<'a> = (&'a [Arc<WorkerMetrics>], ListenerTls, Vec<Arc<WorkerLookups>>);

/// Starts the other configured background threads: reload of certificates, prefetch, compression,
/// consistency check, overload detection and the miss-ratio curve. If one cannot be started,
/// everything ends.
fn start_background_threads(
    in_force: &Arc<InForce>,
    parts: WatchedParts<'_>,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<Vec<BackgroundThread>> {
    let mut helpers = Vec::new();
    match start_each(in_force, parts, (shutdown, supervisor), &mut helpers) {
        Ok(()) => Ok(helpers),
        Err(error) => {
            shutdown.now();
            helpers.into_iter().for_each(|thread| _ = thread.join());
            Err(error)
        }
    }
}

fn start_each(
    in_force: &Arc<InForce>,
    (workers, tls, lookups): WatchedParts<'_>,
    (shutdown, supervisor): (&Shutdown, &Supervisor),
    helpers: &mut Vec<BackgroundThread>,
) -> io::Result<()> {
    let shared = &in_force.newest().shared;
    for (_, tls) in tls.named() {
        helpers.push(tls::start(tls.clone(), shutdown, supervisor)?);
    }
    let cache = shared.cache.config();
    if cache.prefetch_on_change {
        helpers.push(refresh::start(
            shared.refresh.clone(),
            shared.fetcher.clone(),
            shutdown,
            supervisor,
        )?);
    }
    let curve = shared.miss_ratio_curve.clone();
    let fetcher = shared.fetcher.clone();
    let newest = move || fetcher.cache.get();
    helpers.extend(miss_ratio_curve::start(curve, newest, lookups, shutdown, supervisor)?);
    // A reload may have a collection compressed.
    if cache.enabled {
        let (compressor, cache) = (shared.compressor.clone(), shared.cache.clone());
        helpers.push(compression::start(compressor, cache, shutdown, supervisor)?);
    }
    // Without a feed there is no promise to check.
    let is_followed = |reads: &SourceReads| shared.cache.is_followed(reads.id);
    if shared.limits.checks_per_s > 0 && shared.fetcher.sources.iter().any(is_followed) {
        let checker = Checker {
            handover: shared.consistency_check.clone(),
            fetcher: shared.fetcher.clone(),
            tracking: shared.tracking.clone(),
        };
        let per_s = shared.limits.checks_per_s;
        helpers.push(consistency_check::start(checker, per_s, shutdown, supervisor)?);
    }
    let (in_force, workers) = (Arc::clone(in_force), workers.to_vec());
    helpers.push(pressure::start(in_force, workers, shutdown, supervisor)?);
    Ok(())
}

/// Returns the admin side's own limits: it must answer when the data side is full, and ends without
/// a drain.
pub(crate) fn admin_config(config: &Config) -> Config {
    let limits = Limits {
        connections: ADMIN_CONNECTIONS,
        drain_timeout: Duration::from_secs(1),
        ..config.limits.clone()
    };
    // All monitoring may come from one host.
    let limits = Limits { connections_per_client: 0, ..limits };
    Config { workers: 1, limits, transport: config.admin_transport.clone(), ..config.clone() }
}
