//! The whole HTTP side: data workers, admin worker, and how they end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_cache::config::Upkeep;
use hotrow_measure::clock::Nanos;

use crate::admin::{Admin, View};
use crate::admit::pressure;
use crate::config::{Config, Limits};
use crate::drain::Shutdown;
use crate::handle::Handler;
use crate::listen::{ListenError, Listeners};
use crate::lookups::WorkerLookups;
use crate::metrics::WorkerMetrics;
use crate::refresh;
use crate::sampling;
use crate::shared::Shared;
use crate::sink::FeedCounts;
use crate::worker::{WorkerError, run_workers};

/// Connections that the admin side serves at once.
pub const ADMIN_CONNECTIONS: usize = 64;

/// Both listeners, open and not yet served: connections wait in the kernel.
pub struct Service {
    data: Listeners,
    admin: Listeners,
}

impl Service {
    /// Opens the listeners.
    ///
    /// # Errors
    /// Names the address that cannot be had, and what to do.
    pub fn bind(config: &Config) -> Result<Self, ListenError> {
        let data = Listeners::bind(config.data, config.workers)?;
        Ok(Self { data, admin: Listeners::bind(config.admin, 1)? })
    }

    /// The data address, with the port that was taken.
    #[must_use]
    pub fn data(&self) -> SocketAddr {
        self.data.address()
    }

    /// The admin address, with the port that was taken.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Serves until `shutdown`, then drains. The admin side answers until the data side has ended. `started` is called
    /// when both are served.
    ///
    /// # Errors
    /// A thread that cannot be started, or a worker that broke.
    pub fn run(
        self,
        config: &Config,
        shared: &Arc<Shared>,
        feed: Arc<FeedCounts>,
        shutdown: &Shutdown,
        started: impl FnOnce(),
    ) -> Result<(), WorkerError> {
        let lookups: Vec<_> =
            (0..config.workers).map(|_| Arc::new(WorkerLookups::new(shared.collections.len()))).collect();
        let make = {
            let (shared, lookups) = (shared.clone(), lookups.clone());
            move |worker: crate::worker::Worker| Handler {
                shared: shared.clone(),
                metrics: worker.metrics,
                lookups: lookups[worker.index].clone(),
            }
        };
        let workers = run_workers(config, self.data, make, shutdown)?;
        let view = Arc::new(View {
            shared: shared.clone(),
            workers: workers.metrics().to_vec(),
            lookups,
            feed,
            token: config.admin_token.clone(),
            started_at: Nanos::now(),
        });
        let admin_shutdown = Shutdown::new();
        let admin = run_workers(&admin_config(config), self.admin, move |_| Admin(view.clone()), &admin_shutdown);
        let admin = match admin {
            Ok(admin) => admin,
            Err(error) => {
                shutdown.now();
                let _ = workers.join();
                return Err(error);
            }
        };
        let helpers = match start_helpers(shared, workers.metrics()) {
            Ok(helpers) => helpers,
            Err(source) => {
                shutdown.now();
                admin_shutdown.now();
                let _ = workers.join();
                return admin.join().and(Err(WorkerError::Start { index: config.workers, source }));
            }
        };
        started();
        let result = workers.join();
        shared.refresh.end();
        shared.sampling.end();
        shared.shedding.end();
        helpers.into_iter().for_each(|thread| _ = thread.join());
        admin_shutdown.drain();
        result.and(admin.join())
    }
}

/// The threads that read hot records again, check answers, and watch for overload, where that is wanted.
fn start_helpers(shared: &Arc<Shared>, workers: &[Arc<WorkerMetrics>]) -> io::Result<Vec<JoinHandle<()>>> {
    let mut helpers = Vec::new();
    match start_each(shared, workers, &mut helpers) {
        Ok(()) => Ok(helpers),
        Err(error) => {
            shared.refresh.end();
            shared.sampling.end();
            shared.shedding.end();
            helpers.into_iter().for_each(|thread| _ = thread.join());
            Err(error)
        }
    }
}

fn start_each(
    shared: &Arc<Shared>,
    workers: &[Arc<WorkerMetrics>],
    helpers: &mut Vec<JoinHandle<()>>,
) -> io::Result<()> {
    let cache = shared.cache.config();
    if cache.refresh_hot {
        helpers.push(refresh::start(shared.clone())?);
    }
    // Without a feed nothing is promised that could be checked.
    if shared.limits.checks_per_s > 0 && cache.upkeep == Upkeep::Feed {
        helpers.push(sampling::start(shared.clone(), shared.limits.checks_per_s)?);
    }
    if let Some(config) = shared.shedding.config() {
        helpers.push(pressure::start(shared.clone(), workers.to_vec(), config.clone())?);
    }
    Ok(())
}

/// The admin side's own limits: it must answer when the data side is full, and ends without ado.
fn admin_config(config: &Config) -> Config {
    let limits =
        Limits { connections: ADMIN_CONNECTIONS, drain_timeout: Duration::from_secs(1), ..config.limits.clone() };
    // Who watches does so from one host, perhaps.
    let limits = Limits { connections_per_client: 0, ..limits };
    Config { workers: 1, limits, ..config.clone() }
}
