//! Listening, connections, and graceful shutdown.

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
use crate::routes;
use crate::service::Service;
use crate::{Config, Model};

/// Concurrently open connections; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 16_384;
/// Longest time for a request head; idle connections are closed after it too.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time for requests in flight at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept, for example for lack of files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Threads of the blocking model beyond its workers, for the runtime's own work such as name
/// resolution.
const SPARE_THREADS: usize = 4;

/// Reasons why the service does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Listening failed.
    #[error(
        "cannot listen on {address}: {cause}; name another address with --listen (port 0 takes a \
         free one)"
    )]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Threads could not be started.
    #[error("cannot start the runtime with {workers} workers: {cause}")]
    Runtime {
        /// The requested number of workers.
        workers: NonZeroUsize,
        /// The system's error.
        cause: io::Error,
    },
}

/// Serves until `stop` is done, then finishes requests in flight for at most 10 s. `ready` receives
/// the address when connections are accepted.
/// # Errors
/// Returns the reason for a failure.
pub fn serve(
    config: &Config,
    stop: impl Future<Output = ()>,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ServeError> {
    let runtime =
        runtime(config).map_err(|cause| ServeError::Runtime { workers: config.workers, cause })?;
    let served = runtime.block_on(async {
        let database = match &config.database {
            Some(of) => Some(Database::open(of, config.model).await?),
            None => None,
        };
        let failed = |cause| ServeError::Listen { address: config.listen, cause };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        ready(listener.local_addr().map_err(failed)?);
        accept(listener, routes::router(Service::new(config, database)), stop).await;
        Ok(())
    });
    // Workers that still sleep or spin are not awaited.
    runtime.shutdown_background();
    served
}

/// Creates the runtime. In the blocking model the workers are its blocking threads, with as many
/// other threads, up to one per core, to move bytes.
fn runtime(config: &Config) -> io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = config.workers.get();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    match config.model {
        Model::Async => builder.worker_threads(workers),
        Model::Blocking => {
            builder.worker_threads(workers.min(cores)).max_blocking_threads(workers + SPARE_THREADS)
        }
    };
    builder.enable_all().build()
}

/// Accepts connections until `stop`, then lets them end.
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
                        // A broken connection concerns only its client.
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
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!(timeout_s = DRAIN_TIMEOUT.as_secs(), "requests in flight were cut off");
    }
}

/// Serves HTTP/1.1 on one connection.
fn connection(
    stream: TcpStream,
    router: Router,
) -> http1::Connection<TokioIo<TcpStream>, TowerToHyperService<Router>> {
    // Small responses must not wait for an acknowledgement; a failure to set the option is
    // harmless.
    let _ = stream.set_nodelay(true);
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
}
