//! The worker threads: each has its own listener, its own single-threaded runtime and its own connections, and shares nothing per
//! request with the others.

use std::io;
use std::net::{IpAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::Duration;

use hotrow_measure::clock::Nanos;
use hyper::server::conn::http1;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::LocalOptions;
use tokio::task::{spawn_local, yield_now};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::config::{Config, Limits};
use crate::connection::{Clients, LEAVING_MAX, Registry, SWEEP_INTERVAL, Serve, builder, serve, turn_away};
use crate::drain::Shutdown;
use crate::guard::Shared;
use crate::guard::refusal::Refusal;
use crate::listen::Listeners;
use crate::metrics::WorkerMetrics;

/// How long a worker does not accept after it ran out of file descriptors or memory. Connections wait in the kernel.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often at most that is logged.
const ACCEPT_LOG_PERIOD: Duration = Duration::from_secs(10);
/// Connections over the limit that one worker answers at once; more are closed without an answer.
const TURNED_AWAY_MAX: usize = 32;
/// Connections that a worker may have open beyond its part of the limit: those it turns away, and those that make room.
pub const BEYOND_LIMIT_MAX: usize = TURNED_AWAY_MAX + LEAVING_MAX;
/// Connections that a worker accepts in one turn. Then those that are open have theirs, however many wait to be accepted.
const ACCEPTS_PER_TURN: usize = 32;

/// Turns of connections after which a worker looks which others have become ready. At tokio's 61, and hyper's 16 requests in a turn, a
/// few floods of pipelined requests would have a thousand answered before anybody else's one.
const TURNS_PER_LOOK: u32 = 16;

/// What a worker is.
#[derive(Clone, Debug)]
pub struct Worker {
    /// From 0.
    pub index: usize,
    /// Where it counts.
    pub metrics: Arc<WorkerMetrics>,
}

/// Worker threads that run.
#[derive(Debug)]
pub struct Workers {
    threads: Vec<JoinHandle<io::Result<()>>>,
    metrics: Vec<Arc<WorkerMetrics>>,
}

/// Why serving ended other than by [`Shutdown`].
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A thread or its runtime could not be made.
    #[error("cannot start worker {index}: {source}; raise the limit on threads or open files, or lower `workers`")]
    Start {
        /// The worker.
        index: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// A worker's thread panicked: a bug. The other workers were told to drain.
    #[error("worker {index} panicked; this is a bug in Hotrow")]
    Panic {
        /// The worker.
        index: usize,
    },
}

/// Starts one thread per socket of `listeners`. Each makes its service with `make_service`, on its own thread. They run until
/// `shutdown`: at its first stage they stop to accept, take what the kernel still holds, finish what is in flight within
/// `drain_timeout` and then cut the rest off; at its second everything is cut off.
pub fn run_workers<F, S>(
    config: &Config,
    listeners: Listeners,
    make_service: F,
    shutdown: &Shutdown,
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
        let (limits, open) = (config.limits.clone(), (Arc::clone(&open), clients.clone()));
        let (make_service, shutdown_worker) = (Arc::clone(&make_service), shutdown.clone());
        let thread = std::thread::Builder::new().name(format!("hotrow-http-{index}")).spawn(move || {
            // However this thread ends, the others must not serve on with a listener missing.
            let _drain = DrainOnDrop(shutdown_worker.clone());
            run_worker(worker, socket, limits, open, &*make_service, &shutdown_worker)
        });
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
    /// The workers' counts, for [`crate::metrics::expose`].
    #[must_use]
    pub fn metrics(&self) -> &[Arc<WorkerMetrics>] {
        &self.metrics
    }

    /// Blocks until all have ended, which only [`Shutdown`] or a fault makes them do. The first fault is told.
    pub fn join(self) -> Result<(), WorkerError> {
        let mut result = Ok(());
        for (index, thread) in self.threads.into_iter().enumerate() {
            let ended = match thread.join() {
                Ok(Ok(())) => Ok(()),
                Ok(Err(source)) => Err(WorkerError::Start { index, source }),
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
    socket: StdListener,
    limits: Limits,
    (open, clients): (Arc<AtomicUsize>, Option<Arc<Clients>>),
    make_service: &(impl Fn(Worker) -> S + ?Sized),
    shutdown: &Shutdown,
) -> io::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().event_interval(TURNS_PER_LOOK).build_local(LocalOptions::default())?;
    let drain_timeout = limits.drain_timeout;
    let metrics = Arc::clone(&worker.metrics);
    let shared = Rc::new(Shared::new(limits, Arc::clone(&worker.metrics), Nanos::now()));
    runtime.block_on(async {
        let acceptor = Acceptor {
            builder: Rc::new(builder(&shared.limits)),
            registry: Registry::new(Rc::clone(&shared)),
            service: Rc::new(make_service(worker)),
            turned_away: Rc::default(),
            shared,
            open,
            clients,
        };
        let registry = Rc::clone(&acceptor.registry);
        spawn_local(async move { sweep(&registry, &metrics).await });
        tokio::select! {
            biased;
            () = shutdown.ending() => {}
            drained = acceptor.run(socket, shutdown, drain_timeout) => drained?,
        }
        Ok(())
    })
    // Dropping the runtime drops whatever is still open.
}

async fn sweep(registry: &Registry, metrics: &WorkerMetrics) {
    /// However the loop ends, nobody is to wait for its next sweep.
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
        let now = Nanos::now();
        metrics.pace.swept(due.elapsed(), now);
        registry.sweep(now);
    }
}

struct Acceptor<S> {
    builder: Rc<http1::Builder>,
    registry: Rc<Registry>,
    service: Rc<S>,
    /// One clone of it per connection that is being turned away.
    turned_away: Rc<()>,
    shared: Rc<Shared>,
    open: Arc<AtomicUsize>,
    /// Counts connections by client, where they are limited.
    clients: Option<Arc<Clients>>,
}

impl<S: Serve> Acceptor<S> {
    /// Accepts until the drain begins, and returns when every connection has ended or the drain's time is over.
    async fn run(&self, socket: StdListener, shutdown: &Shutdown, drain_timeout: Duration) -> io::Result<()> {
        let listener = TcpListener::from_std(socket)?;
        tokio::select! {
            biased;
            () = shutdown.draining() => {}
            () = self.accept(&listener) => {}
        }
        self.take_queue(listener.into_std()?);
        self.registry.drain(Nanos::now());
        let drained = async {
            while !self.registry.is_empty() || Rc::strong_count(&self.turned_away) > 1 {
                sleep(DRAIN_LOOK).await;
            }
        };
        if timeout(drain_timeout, drained).await.is_err() {
            tracing::warn!(?drain_timeout, "drain timed out; connections that are still open are cut off");
        }
        Ok(())
    }

    async fn accept(&self, listener: &TcpListener) {
        let (mut logged, mut accepted) = (None::<Nanos>, 0_usize);
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    self.admit(stream, peer.ip());
                    accepted += 1;
                    if accepted.is_multiple_of(ACCEPTS_PER_TURN) {
                        yield_now().await;
                    }
                }
                // The client gave up while it waited, or its packet was refused: nothing of ours.
                Err(error) if is_of_one_client(&error) => {}
                Err(error) => {
                    self.shared.metrics.accept_errors.increment();
                    let now = Nanos::now();
                    if logged.is_none_or(|before| now.since(before) >= ACCEPT_LOG_PERIOD) {
                        logged = Some(now);
                        tracing::warn!(%error, "cannot accept connections; raise the limit on open files (ulimit -n) or lower limits.connections");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream, peer: IpAddr) {
        // Without it small answers wait for the acknowledgement of the one before. A socket that refuses is broken and shows.
        let _ = stream.set_nodelay(true);
        let Ok(place) = self.clients.as_ref().map(|clients| clients.enter(peer).ok_or(())).transpose() else {
            return self.turn_away(stream, Refusal::ClientConnections);
        };
        let Some(registered) = self.registry.enter(&self.open, self.shared.limits.connections) else {
            return self.turn_away(stream, Refusal::Connections);
        };
        let (builder, service) = (Rc::clone(&self.builder), Rc::clone(&self.service));
        spawn_local(async move {
            let _place = place;
            serve(stream, peer, &builder, service, registered).await;
        });
    }

    fn turn_away(&self, stream: TcpStream, refusal: Refusal) {
        self.shared.metrics.refused(refusal);
        if Rc::strong_count(&self.turned_away) > TURNED_AWAY_MAX {
            return;
        }
        let (ticket, shared) = (Rc::clone(&self.turned_away), Rc::clone(&self.shared));
        spawn_local(async move {
            turn_away(stream, refusal, &shared.limits).await;
            drop(ticket);
        });
    }

    /// Accepts every connection that the kernel has finished for us, then closes the listener at once: the kernel resets what it
    /// finishes after that.
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

/// How often the drain looks whether it is over.
const DRAIN_LOOK: Duration = Duration::from_millis(10);

fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionAborted | Kind::ConnectionReset | Kind::ConnectionRefused | Kind::Interrupted
    )
}
