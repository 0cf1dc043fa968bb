//! Worker threads: each has listeners, usually of its own, its own single-threaded runtime and its
//! own connections, and shares nothing per request with the others.

use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread::JoinHandle;

use hotrow_answer::activity::SWEEP_INTERVAL;
use hotrow_answer::clients::Clients;
use hotrow_answer::metrics::WorkerMetrics;
use hotrow_config::{Config, Limits};
use hotrow_measure::clock::Nanos;
use hotrow_net::listen::unix::SocketFile;
use hotrow_net::listen::{Listeners, WorkerSockets};
use hotrow_supervisor::shutdown::{Shutdown, Stage};
use hotrow_supervisor::{self as supervisor, Supervisor};
use tokio::runtime::LocalOptions;
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::{MissedTickBehavior, interval};

use crate::acceptor::{Acceptor, Endpoint, TURNED_AWAY_MAX};
use crate::connection::serve::Serve;
use crate::connection::worker_context::WorkerContext;
use crate::connection::{LEAVING_MAX, Registry};

/// Most connections that a worker may have open beyond its share of the limit: those it turns away,
/// and those that make room.
pub const BEYOND_LIMIT_MAX: usize = TURNED_AWAY_MAX + LEAVING_MAX;

/// Task polls after which a worker checks for newly ready connections. With tokio's 61, a few
/// floods of pipelined requests would have two thousand answered before one of any other client.
const POLLS_PER_EVENT_CHECK: u32 = 16;

/// Names and supervisor of the threads of one side.
#[derive(Clone, Debug)]
pub struct WorkerThreads {
    /// Name of the only thread, or prefix of the numbered ones.
    pub name: WorkerName,
    /// Restarts them after a panic.
    pub supervisor: Supervisor,
}

/// A thread's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerName {
    /// `hotrow-http-N`.
    Http,
    /// `admin`, the only thread of its side.
    Admin,
}

impl WorkerThreads {
    fn name_of(&self, index: usize) -> String {
        match self.name {
            WorkerName::Http => format!("hotrow-http-{index}"),
            WorkerName::Admin => "admin".to_owned(),
        }
    }
}

/// Identity of a worker.
#[derive(Clone, Debug)]
pub struct Worker {
    /// From 0.
    pub index: usize,
    /// Its counters.
    pub metrics: Arc<WorkerMetrics>,
}

/// Running worker threads.
#[derive(Debug)]
pub struct Workers {
    threads: Vec<JoinHandle<Option<io::Result<()>>>>,
    metrics: Vec<Arc<WorkerMetrics>>,
    /// Removed when the workers have ended.
    socket_file: Option<SocketFile>,
}

/// Reason for which serving ended without [`Shutdown`].
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A thread or its runtime could not be created.
    #[error(
        "cannot start worker {index}: {source}; raise the limit on threads or open files, or lower \
         `workers`"
    )]
    Start {
        /// The worker.
        index: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// The listeners of the process before this one were not taken over.
    #[error(
        "not ready within {limit:?}: {unmet}; the process before this one goes on serving, see the \
         log for the cause"
    )]
    NotReady {
        /// Conditions that do not hold.
        unmet: String,
        /// The time allowed.
        limit: std::time::Duration,
    },
    /// An unsupervised worker thread panicked: a bug. The other workers drain.
    #[error("worker {index} panicked; this is a bug in Hotrow")]
    Panic {
        /// The worker.
        index: usize,
    },
}

/// Starts `config.workers` threads that serve the sockets of `listeners`. Each makes its service
/// with `make_service`, on its own thread. They run until `shutdown`: when it is announced, each
/// answer becomes the last of its connection, and listeners from which the next process accepts are
/// closed; when the drain begins, they stop accepting, take the connections that the kernel still
/// holds, finish requests in flight within `drain_timeout` and then cut off the rest; at its last
/// stage everything is cut off.
///
/// A worker that panics loses its connections and restarts on its listener; the others continue.
pub fn run_workers<F, S>(
    config: &Config,
    listeners: Listeners,
    make_service: F,
    shutdown: &Shutdown,
    threads: &WorkerThreads,
) -> Result<Workers, WorkerError>
where
    F: Fn(Worker) -> S + Send + Sync + 'static,
    S: Serve,
{
    let make_service = Arc::new(make_service);
    let open = Arc::new(AtomicUsize::new(0));
    let clients = Clients::new(config.limits.connections_per_client);
    let blocked = Arc::<AtomicU64>::default();
    let endpoint = Endpoint::new(&config.transport, listeners.tls());
    let (sockets, socket_file) = listeners
        .into_parts(config.workers)
        .map_err(|source| WorkerError::Start { index: 0, source })?;
    let mut workers = Workers { threads: Vec::new(), metrics: Vec::new(), socket_file };
    for (index, sockets) in sockets.into_iter().enumerate() {
        let worker = Worker { index, metrics: Arc::default() };
        workers.metrics.push(Arc::clone(&worker.metrics));
        let limits = config.limits.clone();
        let open = (Arc::clone(&open), Arc::clone(&blocked), clients.clone());
        let endpoint = endpoint.clone();
        let make_service = Arc::clone(&make_service);
        let shutdown_worker = shutdown.clone();
        // However this thread ends, the others must not continue with a listener missing.
        let drain = DrainOnDrop(shutdown.clone());
        let mut sockets = Some(sockets);
        let body = move || {
            let _held = &drain;
            let worker = worker.clone();
            let limits = limits.clone();
            let entry = (open.clone(), endpoint.clone());
            // An error is not a panic: without an event loop the process cannot serve, and ends.
            Ok(run_worker(worker, &mut sockets, limits, entry, &*make_service, &shutdown_worker))
        };
        let ending = shutdown.clone();
        let is_stopping = move || ending.stage() >= Stage::Drain;
        let thread = threads.supervisor.spawn(&threads.name_of(index), is_stopping, || (), body);
        match thread {
            Ok(thread) => workers.threads.push(thread),
            Err(source) => {
                shutdown.now();
                let _ = workers.join();
                return Err(WorkerError::Start { index, source });
            }
        }
    }
    Ok(workers)
}

impl Workers {
    /// Returns the workers' counters, for [`hotrow_answer::metrics::expose`].
    pub fn metrics(&self) -> &[Arc<WorkerMetrics>] {
        &self.metrics
    }

    /// Blocks until all have ended, which only [`Shutdown`] or a fault causes. Returns the first
    /// fault.
    pub fn join(self) -> Result<(), WorkerError> {
        let mut result = Ok(());
        for (index, thread) in self.threads.into_iter().enumerate() {
            let ended = match thread.join() {
                // `None`: it was stopped while it waited to restart.
                Ok(Some(Ok(())) | None) => Ok(()),
                Ok(Some(Err(source))) => Err(WorkerError::Start { index, source }),
                Err(_) => Err(WorkerError::Panic { index }),
            };
            result = result.and(ended);
        }
        drop(self.socket_file);
        result
    }
}

struct DrainOnDrop(Shutdown);

impl Drop for DrainOnDrop {
    fn drop(&mut self) {
        self.0.drain();
    }
}

/// What all workers count: open connections, clients that take nothing, connections by client.
type Counts = (Arc<AtomicUsize>, Arc<AtomicU64>, Option<Arc<Clients>>);

fn run_worker<S: Serve>(
    worker: Worker,
    sockets: &mut Option<WorkerSockets>,
    limits: Limits,
    ((open, blocked, clients), endpoint): (Counts, Endpoint),
    make_service: &(impl Fn(Worker) -> S + ?Sized),
    shutdown: &Shutdown,
) -> io::Result<()> {
    let mut settings = tokio::runtime::Builder::new_current_thread();
    let runtime = settings
        .enable_all()
        .event_interval(POLLS_PER_EVENT_CHECK)
        .build_local(LocalOptions::default())?;
    let metrics = Arc::clone(&worker.metrics);
    let context = WorkerContext::new(limits, Arc::clone(&worker.metrics), Nanos::now());
    let context = Rc::new(context.with(endpoint.http2, blocked));
    let run = async {
        let acceptor = Rc::new(Acceptor {
            registry: Registry::new(Rc::clone(&context)),
            service: Rc::new(make_service(worker)),
            turned_away: Rc::default(),
            context,
            open,
            clients,
            endpoint,
            handshake_turns: Semaphore::new(1),
            proxy_failures: Rc::default(),
        });
        let registry = Rc::clone(&acceptor.registry);
        let sweeping = spawn_local(async move { sweep(&registry, &metrics).await });
        let attending = Rc::clone(&acceptor.service).attend(Rc::clone(&acceptor.context));
        tokio::select! {
            biased;
            () = shutdown.ending() => {}
            never = attending => match never {},
            drained = acceptor.run(sockets, shutdown) => drained?,
            swept = sweeping => match swept {
                Ok(never) => match never {},
                // Without the sweep no time-out is enforced.
                Err(failed) if failed.is_panic() => resume_unwind(failed.into_panic()),
                Err(_) => {}
            },
        }
        Ok(())
    };
    let ran = catch_unwind(AssertUnwindSafe(|| runtime.block_on(run)));
    // Drops everything still open; not while a panic unwinds, because a second panic would abort
    // the process.
    drop(runtime);
    ran.unwrap_or_else(|panic| resume_unwind(panic))
}

async fn sweep(registry: &Registry, metrics: &WorkerMetrics) -> Infallible {
    /// However the loop ends, its next sweep must not be awaited.
    struct Ending<'a>(&'a WorkerMetrics);
    impl Drop for Ending<'_> {
        fn drop(&mut self) {
            self.0.pace.ended();
        }
    }
    let _ending = Ending(metrics);
    let mut ticks = interval(SWEEP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let due = ticks.tick().await;
        supervisor::turn();
        let now = Nanos::now();
        metrics.pace.swept(due.elapsed(), now);
        registry.sweep(now);
    }
}
