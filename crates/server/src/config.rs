//! What the server is told at start, resolved: every value checked, every default applied.

pub mod rate;

use std::net::SocketAddr;
use std::time::Duration;

use hotrow_admit::concurrency::limit::Kind;

/// Settings of the HTTP side.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where records are served.
    pub data: SocketAddr,
    /// Where metrics, health and purge are served; never the same address.
    pub admin: SocketAddr,
    /// Token that admin requests other than health checks must carry as `Authorization: Bearer`.
    pub admin_token: Option<String>,
    /// Worker threads, each with its own listener and runtime; at least 1.
    pub workers: usize,
    /// The limits of one process.
    pub limits: Limits,
    /// The circuit breaker of the source; `None`: there is none.
    pub breaker: Option<hotrow_admit::breaker::Config>,
    /// What is refused when the process is past its means; `None`: nothing.
    pub shed: Option<Shed>,
    /// How many queries the source gets at once.
    pub concurrency: Concurrency,
    /// In the order of their `CollectionId`s.
    pub collections: Vec<Collection>,
    /// How often clients may ask.
    pub rate: rate::RateLimits,
}

/// When the process counts as past its means.
#[derive(Clone, Debug)]
pub struct Shed {
    /// Targets and shares.
    pub pressure: hotrow_admit::shed::Config,
    /// Memory that the process may use; `None`: the least limit of its control groups, or the machine's memory.
    pub memory_limit_bytes: Option<u64>,
    /// Whether `Hotrow-Priority` in a request counts.
    pub priority_header: bool,
}

/// Bounds on what clients can take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open data connections; more are answered 503 and closed.
    pub connections: usize,
    /// Open data connections of one client address (of IPv6, one /64); more are answered 429 and closed. 0: any number.
    pub connections_per_client: usize,
    /// Requests being answered at once; more get 503.
    pub requests_in_flight: usize,
    /// Bytes of a request's head; more is 431.
    pub header_bytes: usize,
    /// Header fields of a request; more is 431.
    pub headers: usize,
    /// Bytes of a request target; more is 414.
    pub target_bytes: usize,
    /// Bytes of a request's body; more is 413.
    pub body_bytes: usize,
    /// From a head's first byte to its last.
    pub header_timeout: Duration,
    /// From the end of the head to the end of the body.
    pub body_timeout: Duration,
    /// Between requests on a kept-alive connection.
    pub idle_timeout: Duration,
    /// A connection that has been idle for so long is closed when another one needs its place.
    pub idle_reclaim: Duration,
    /// How long a client may take nothing of a waiting answer.
    pub write_timeout: Duration,
    /// From request to answer when the database is needed; then 504.
    pub request_timeout: Duration,
    /// From SIGTERM until what is in flight is cut off.
    pub drain_timeout: Duration,
    /// Ids in one batch.
    pub max_batch: usize,
    /// How long a `Hotrow-Min-Position` request waits for the feed before it reads the database.
    pub position_wait: Duration,
    /// Requests with `no-cache` or `Hotrow-Min-Position` that may wait at once; more get 503.
    pub privileged_waiters: usize,
    /// Answers from memory that are checked against the database each second, at most; 0: none.
    pub checks_per_s: u32,
}

/// How many queries the source gets at once: at most the cache's `reads_in_flight`.
#[derive(Clone, Copy, Debug)]
pub struct Concurrency {
    /// How the limit is found.
    pub kind: Kind,
    /// Latency over latency alone up to which the source counts as well; above 1.
    pub tolerance: f64,
    /// What is known of latency alone is measured anew when it is older.
    pub probe_interval: Duration,
    /// Whether `Hotrow-Deadline-Ms` is honoured.
    pub deadline_header: bool,
}

/// One collection as the HTTP side sees it.
#[derive(Clone, Debug)]
pub struct Collection {
    /// First path segment.
    pub name: String,
    /// `Cache-Control` of answers.
    pub cache_control: String,
    /// Whether `Cache-Control: no-cache` in a request reads the database.
    pub allow_no_cache: bool,
    /// Whether `Hotrow-Min-Position` is honoured.
    pub allow_min_position: bool,
    /// Priority of its requests unless they say another one that counts.
    pub priority: hotrow_admit::shed::Priority,
    /// Whether requests may raise their priority.
    pub allow_high_priority: bool,
}
