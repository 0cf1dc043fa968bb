//! The configuration of a run.

use std::sync::Arc;
use std::time::Duration;

use hotrow_transport::target::Address;
use hotrow_transport::tls::{HttpVersion, Tls};

pub use crate::http2::STREAMS_MAX;
use crate::plan::Plan;
use crate::request::RequestMix;
pub use crate::tally::ExpectedStatus;

/// Maximum number of connections.
pub const CONNECTIONS_MAX: usize = 1_000_000;
/// Maximum number of threads.
pub const THREADS_MAX: usize = 1024;
/// Maximum number of requests in flight on one connection.
pub const PIPELINE_MAX: usize = 1000;

/// Returns the total run-queue wait of a thread by its kernel id; `None` when unknown.
pub type RunqueueWait = Arc<dyn Fn(i32) -> Option<Duration> + Send + Sync>;

/// The resolved and checked configuration of a run.
#[derive(Clone)]
pub struct Config {
    /// Destination of the connections.
    pub address: Address,
    /// TLS, when the target uses it.
    pub tls: Option<Tls>,
    /// The requests.
    pub requests: RequestMix,
    /// The schedule.
    pub plan: Plan,
    /// Connections, 1 to [`CONNECTIONS_MAX`].
    pub connections: usize,
    /// Threads, 1 to [`THREADS_MAX`] and to the number of connections.
    pub threads: usize,
    /// True if a connection serves more than one request.
    pub keepalive: bool,
    /// Version of HTTP; `tls` must offer it.
    pub version: HttpVersion,
    /// Requests in flight on one connection: the depth of the pipeline, 1 to [`PIPELINE_MAX`], or
    /// with HTTP/2 the streams, 1 to [`STREAMS_MAX`].
    pub depth: usize,
    /// A request times out after this time from its send.
    pub timeout: Duration,
    /// A connection attempt, TLS included, times out after this time.
    pub connect_timeout: Duration,
    /// The expected status codes.
    pub expect: ExpectedStatus,
    /// Seed of the ids and of the choice between URLs.
    pub seed: u64,
    /// Source of run-queue waits, where available.
    pub runqueue_wait: Option<RunqueueWait>,
    /// CPU time burned per response, to test whether the rate follows; zero except in such trials.
    pub burn_per_request: Duration,
}
