//! Worker threads: each has its own listener, its own single-threaded runtime and its own
//! connections, and shares nothing per request with the others.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpListener as StdListener};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hotrow_supervisor::shutdown::{Shutdown, Stage};
use hotrow_supervisor::{self as supervisor, Supervisor, TaskGuard};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::LocalOptions;
use tokio::task::spawn_local;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::accept_budget::AcceptBudget;
use crate::config::{Config, Limits};
use crate::connection::rejection::Rejection;
use crate::connection::serve::Serve;
use crate::connection::worker_context::WorkerContext;
use crate::connection::{Clients, LEAVING_MAX, Registry, SWEEP_INTERVAL, serve, turn_away};
use crate::listen::Listeners;
use crate::metrics::WorkerMetrics;

/// Pause of a worker's accepting after it ran out of file descriptors or memory. Connections wait
/// in the kernel.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Least interval of logging that.
const ACCEPT_LOG_PERIOD: Duration = Duration::from_secs(10);
/// Most connections over the limit that one worker answers at once; more are closed without an
/// answer.
const TURNED_AWAY_MAX: usize = 32;
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
    /// An unsupervised worker thread panicked: a bug. The other workers drain.
    #[error("worker {index} panicked; this is a bug in Hotrow")]
    Panic {
        /// The worker.
        index: usize,
    },
}

/// Starts one thread per socket of `listeners`. Each makes its service with `make_service`, on its
/// own thread. They run until `shutdown`: at its first stage they stop accepting, take the
/// connections that the kernel still holds, finish requests in flight within `drain_timeout` and
/// then cut off the rest; at its second stage everything is cut off.
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
    let mut workers = Workers { threads: Vec::new(), metrics: Vec::new() };
    for (index, socket) in listeners.into_sockets().into_iter().enumerate() {
        let worker = Worker { index, metrics: Arc::default() };
        workers.metrics.push(Arc::clone(&worker.metrics));
        let limits = config.limits.clone();
        let open = (Arc::clone(&open), clients.clone());
        let make_service = Arc::clone(&make_service);
        let shutdown_worker = shutdown.clone();
        // However this thread ends, the others must not continue with a listener missing.
        let drain = DrainOnDrop(shutdown.clone());
        let mut socket = Some(socket);
        let body = move || {
            let _held = &drain;
            let worker = worker.clone();
            let limits = limits.clone();
            let open = open.clone();
            // An error is not a panic: without an event loop the process cannot serve, and ends.
            Ok(run_worker(worker, &mut socket, limits, open, &*make_service, &shutdown_worker))
        };
        let ending = shutdown.clone();
        let is_stopping = move || ending.stage() > Stage::Running;
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
    /// Returns the workers' counters, for [`crate::metrics::expose`].
    #[must_use]
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
        result
    }
}

struct DrainOnDrop(Shutdown);

impl Drop for DrainOnDrop {
    fn drop(&mut self) {
        self.0.drain();
    }
}

fn run_worker<S: Serve>(
    worker: Worker,
    socket: &mut Option<StdListener>,
    limits: Limits,
    (open, clients): (Arc<AtomicUsize>, Option<Arc<Clients>>),
    make_service: &(impl Fn(Worker) -> S + ?Sized),
    shutdown: &Shutdown,
) -> io::Result<()> {
    let mut settings = tokio::runtime::Builder::new_current_thread();
    let runtime = settings
        .enable_all()
        .event_interval(POLLS_PER_EVENT_CHECK)
        .build_local(LocalOptions::default())?;
    let drain_timeout = limits.drain_timeout;
    let metrics = Arc::clone(&worker.metrics);
    let context = Rc::new(WorkerContext::new(limits, Arc::clone(&worker.metrics), Nanos::now()));
    let run = async {
        let acceptor = Acceptor {
            registry: Registry::new(Rc::clone(&context)),
            service: Rc::new(make_service(worker)),
            turned_away: Rc::default(),
            context,
            open,
            clients,
        };
        let registry = Rc::clone(&acceptor.registry);
        let sweeping = spawn_local(async move { sweep(&registry, &metrics).await });
        tokio::select! {
            biased;
            () = shutdown.ending() => {}
            drained = acceptor.run(socket, shutdown, drain_timeout) => drained?,
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

/// A worker's listener while it is served. Unless it was closed it is put back, also by a panic, so
/// that the worker's next run finds it with all waiting connections.
struct Listening<'a> {
    listener: Option<TcpListener>,
    home: &'a mut Option<StdListener>,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        *self.home = self.listener.take().and_then(|listener| listener.into_std().ok());
    }
}

struct Acceptor<S> {
    registry: Rc<Registry>,
    service: Rc<S>,
    /// Cloned once per connection being turned away.
    turned_away: Rc<()>,
    context: Rc<WorkerContext>,
    open: Arc<AtomicUsize>,
    /// Counts connections by client if they are limited.
    clients: Option<Arc<Clients>>,
}

impl<S: Serve> Acceptor<S> {
    /// Accepts until the drain begins. Returns when every connection has ended or the drain's time
    /// is over.
    async fn run(
        &self,
        socket: &mut Option<StdListener>,
        shutdown: &Shutdown,
        drain_timeout: Duration,
    ) -> io::Result<()> {
        // An earlier run has drained, and panicked during the drain.
        let Some(listener) = socket.take() else { return Ok(()) };
        let mut listening =
            Listening { listener: Some(TcpListener::from_std(listener)?), home: socket };
        tokio::select! {
            biased;
            () = shutdown.draining() => {}
            () = self.accept(&listening) => {}
        }
        if let Some(listener) = listening.listener.take() {
            self.take_queue(listener.into_std()?);
        }
        self.registry.drain(Nanos::now());
        let drained = async {
            while !self.registry.is_empty() || Rc::strong_count(&self.turned_away) > 1 {
                sleep(DRAIN_CHECK_INTERVAL).await;
            }
        };
        if timeout(drain_timeout, drained).await.is_err() {
            tracing::warn!(?drain_timeout, "drain timed out; open connections are cut off");
        }
        Ok(())
    }

    async fn accept(&self, listening: &Listening<'_>) {
        let Some(listener) = &listening.listener else { return };
        let mut logged = None::<Nanos>;
        let mut budget = AcceptBudget::new(Nanos::now());
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    self.admit(stream, peer.ip());
                    let now = Nanos::now();
                    if !budget.accepted(now) {
                        yield_to_ready_tasks().await;
                        let served_at = Nanos::now();
                        budget.next_turn(served_at.since(now), served_at);
                    }
                }
                // The client gave up while it waited, or its packet was refused: not a fault of
                // this host.
                Err(error) if is_of_one_client(&error) => {}
                Err(error) => {
                    self.context.metrics.accept_errors.increment();
                    let now = Nanos::now();
                    if logged.is_none_or(|before| now.since(before) >= ACCEPT_LOG_PERIOD) {
                        logged = Some(now);
                        tracing::warn!(
                            %error,
                            "cannot accept connections; raise the limit on open files \
                             (ulimit -n) or lower limits.connections"
                        );
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream, peer: IpAddr) {
        // Without it small answers wait for the acknowledgement of the previous one. A socket that
        // refuses is broken, which shows later.
        let _ = stream.set_nodelay(true);
        let Ok(place) =
            self.clients.as_ref().map(|clients| clients.enter(peer).ok_or(())).transpose()
        else {
            return self.turn_away(stream, Rejection::ClientConnections);
        };
        let Some(registered) = self.registry.enter(&self.open, self.context.limits.connections)
        else {
            return self.turn_away(stream, Rejection::Connections);
        };
        let service = Rc::clone(&self.service);
        spawn_local(async move {
            let _place = place;
            let _guard = TaskGuard::new();
            serve(stream, peer, service, registered).await;
        });
    }

    fn turn_away(&self, stream: TcpStream, refusal: Rejection) {
        self.context.metrics.refused(refusal);
        if Rc::strong_count(&self.turned_away) > TURNED_AWAY_MAX {
            return;
        }
        let ticket = Rc::clone(&self.turned_away);
        let context = Rc::clone(&self.context);
        spawn_local(async move {
            let _guard = TaskGuard::new();
            turn_away(stream, refusal, &context.limits).await;
            drop(ticket);
        });
    }

    /// Accepts every connection that the kernel has completed, then closes the listener at once:
    /// the kernel resets connections completed after that.
    fn take_queue(&self, listener: StdListener) {
        loop {
            match listener.accept() {
                Ok((stream, peer)) => {
                    if stream.set_nonblocking(true).is_ok()
                        && let Ok(stream) = TcpStream::from_std(stream)
                    {
                        self.admit(stream, peer.ip());
                    }
                }
                Err(error) if is_of_one_client(&error) => {}
                Err(_) => break,
            }
        }
        drop(listener);
    }
}

/// Waits until every task that is ready now has had a turn. `yield_now` does not suffice: the
/// runtime returns to its main future after a few tasks, however many are ready, so a worker would
/// accept faster than it serves.
async fn yield_to_ready_tasks() {
    // Queued behind all ready tasks. It cannot panic, and is cancelled only with the runtime.
    _ = spawn_local(async {}).await;
}

/// Interval of checking whether the drain is over.
const DRAIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionAborted
            | Kind::ConnectionReset
            | Kind::ConnectionRefused
            | Kind::Interrupted
    )
}
