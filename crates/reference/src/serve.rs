//! Listening, connections, and stopping without cutting anybody off.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::database::{Database, DatabaseError};
use crate::routes::{self, Service};
use crate::{Config, Model};

/// Connections that are open at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 16_384;
/// How long a head may take to arrive; an idle connection is closed after it too.
const HEAD_PATIENCE: Duration = Duration::from_secs(60);
/// How long requests under way have to end when the service is asked to stop.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait when a connection cannot be accepted, for want of files for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Threads of the blocking variant beyond its workers, for what the runtime itself must not do without: looking up names.
const SPARE_THREADS: usize = 4;

/// Why the service does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address.
    #[error("cannot listen on {address}: {cause}; name another address with --listen (port 0 takes a free one)")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Threads and the like.
    #[error("cannot start the runtime with {workers} workers: {cause}")]
    Runtime {
        /// What was asked for.
        workers: NonZeroUsize,
        /// What the system said.
        cause: io::Error,
    },
}

/// Serves until `stop` is done, then finishes what is under way (for 10 s at most). `ready` gets the address, once
/// connections are taken.
///
/// # Errors
/// What kept it from serving.
pub fn serve(
    config: &Config,
    stop: impl Future<Output = ()>,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ServeError> {
    let runtime = runtime(config).map_err(|cause| ServeError::Runtime { workers: config.workers, cause })?;
    let served = runtime.block_on(async {
        let database = match &config.database {
            Some(of) => Some(Database::open(&of.url, of.connections, config.model).await?),
            None => None,
        };
        let failed = |cause| ServeError::Listen { address: config.listen, cause };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        ready(listener.local_addr().map_err(failed)?);
        accept(listener, routes::router(Service::new(config, database)), stop).await;
        Ok(())
    });
    // A worker that still sleeps or spins is not waited for.
    runtime.shutdown_background();
    served
}

/// The runtime. In the blocking variant the workers are its blocking threads, and there are as many others, up to one per
/// core, as move bytes.
fn runtime(config: &Config) -> io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = config.workers.get();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    match config.model {
        Model::Async => builder.worker_threads(workers),
        Model::Blocking => builder.worker_threads(workers.min(cores)).max_blocking_threads(workers + SPARE_THREADS),
    };
    builder.enable_all().build()
}

/// Takes connections until `stop`, then lets them end.
async fn accept(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    let (graceful, room) = (GracefulShutdown::new(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    let mut stop = std::pin::pin!(stop);
    loop {
        let next = async {
            let permit = room.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        tokio::select! {
            (permit, accepted) = next => match accepted {
                Ok((stream, _)) => {
                    let connection = graceful.watch(connection(stream, router.clone()));
                    tokio::spawn(async move {
                        // A connection that breaks is its client's affair.
                        if let Err(error) = connection.await {
                            tracing::debug!(%error, "connection");
                        }
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            () = &mut stop => break,
        }
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_PATIENCE, graceful.shutdown()).await.is_err() {
        tracing::warn!(patience_s = DRAIN_PATIENCE.as_secs(), "requests under way were cut off");
    }
}

/// HTTP/1.1 on one connection.
fn connection(stream: TcpStream, router: Router) -> http1::Connection<TokioIo<TcpStream>, TowerToHyperService<Router>> {
    // Small answers must not wait for the last one's acknowledgement. That it cannot be set is no reason to refuse.
    let _ = stream.set_nodelay(true);
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
}
