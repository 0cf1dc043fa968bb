//! Resolved settings of the service: every value checked, every default applied.
//!
//! `hotrow` makes them from its file, and the parts of the service receive them. This crate imports
//! the words that settings are made of (`access`, `admission`, `cache`, `types`), and does no I/O:
//! a file or a URL is named here, and read where it is used.

pub mod access;
pub mod cors;
pub mod follow;
pub mod http_url;
pub mod observability;
pub mod purge;
pub mod rate;
pub mod trace;
pub mod transport;

use std::net::SocketAddr;
use std::time::Duration;

use hotrow_admission::concurrency::limit::Kind;
pub use hotrow_cache::ContentCoding;
use hotrow_types::key::CollectionId;
use hotrow_types::source::SourceId;

/// Configuration of the HTTP side.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the data API.
    pub data: SocketAddr,
    /// Address of metrics, health and purge; never the same one.
    pub admin: SocketAddr,
    /// Token that admin requests other than health checks carry as `Authorization: Bearer`.
    pub admin_token: Option<String>,
    /// Host names accepted in admin requests, beside `localhost` and IP addresses.
    pub admin_hosts: Vec<String>,
    /// `true`: lookups are sampled for the list of the most requested keys.
    pub hot_keys: bool,
    /// Conditions of `/readyz`.
    pub ready_when: ReadyWhen,
    /// Sources for which they must hold.
    pub ready_sources: ReadySources,
    /// In the order of their `SourceId`s; at least one.
    pub sources: Vec<Source>,
    /// Worker threads, each with its own listener and runtime; at least 1.
    pub workers: usize,
    /// The limits of one process.
    pub limits: Limits,
    /// Circuit breaker of each source; `None`: disabled.
    pub breaker: Option<hotrow_admission::breaker::Config>,
    /// Load shedding; `None`: disabled.
    pub shed: Option<Shed>,
    /// Concurrency limit of each source.
    pub concurrency: Concurrency,
    /// In the order of their `CollectionId`s.
    pub collections: Vec<Collection>,
    /// Followers of changes.
    pub follow: follow::Follow,
    /// Purges of caches in front.
    pub purge: purge::Purge,
    /// Rate limits.
    pub rate: rate::RateLimits,
    /// `true`: the data listener serves the description of the API too.
    pub describes_on_data: bool,
    /// `true`: parameters of a query that no path knows are ignored; otherwise they are refused.
    pub ignores_unknown_parameters: bool,
    /// Origins of foreign pages that may read answers; `None`: none.
    pub cors: Option<cors::Cors>,
    /// Credentials and grants; `None`: every request is allowed.
    pub access: Option<access::Access>,
    /// What carries data requests besides plain TCP.
    pub transport: transport::Transport,
    /// What carries admin requests besides plain TCP: a Unix socket, and TLS.
    pub admin_transport: transport::Transport,
    /// Reads of hot records after a start; `None`: none.
    pub warm_start: Option<WarmStart>,
    /// What operators see of single requests and queries.
    pub observability: observability::Observability,
    /// `true`: the hit ratio at other capacities is predicted.
    pub miss_ratio_curve: bool,
}

/// A source as the HTTP side sees it.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name in metrics, in `/status` and in the log.
    pub name: String,
    /// Duration from which a query is logged as slow; zero: none is.
    pub slow_query: Duration,
    /// Most looks at the end of its log per second for strict requests.
    pub strict_looks_per_s: u32,
}

impl Source {
    /// Name of a source whose file gives none.
    pub const DEFAULT_NAME: &str = "default";
}

/// Sources for which the conditions of readiness must hold, where there are several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadySources {
    /// One at least: a database that fails takes only its own collections along.
    #[default]
    Any,
    /// All.
    All,
}

impl ReadySources {
    /// Returns the rule by its name in the configuration.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::All => "all",
        }
    }
}

/// Settings of the warm start.
#[derive(Clone, Debug)]
pub struct WarmStart {
    /// File of hot keys.
    pub file: std::path::PathBuf,
    /// Most bytes of the file.
    pub file_bytes_max: u64,
    /// Time between two files.
    pub interval: Duration,
    /// Age from which a file is not used.
    pub age_max: Duration,
    /// Longest time of the reads after a start.
    pub time_limit: Duration,
    /// `true`: not ready before the reads have ended.
    pub before_ready: bool,
}

/// Rule of `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyWhen {
    /// Every answer is within the contract: the feed is current, and reads of the database work.
    Fresh,
    /// Requests for cached records are answered as the policy says.
    Serving,
}

impl ReadyWhen {
    /// Returns the rule by its name in the configuration.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Serving => "serving",
        }
    }
}

/// Settings of load shedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Shed {
    /// Targets and shares.
    pub pressure: hotrow_admission::shed::Config,
    /// Memory that the process may use; `None`: the least limit of its control groups, or the
    /// machine's memory.
    pub memory_limit_bytes: Option<u64>,
    /// `true`: `Hotrow-Priority` in a request counts.
    pub priority_header: bool,
}

/// Bounds on the resources of clients.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most open data connections; more are answered 503 and closed.
    pub connections: usize,
    /// Most open data connections of one client address (of IPv6, one /64); more are answered 429
    /// and closed. 0: unlimited.
    pub connections_per_client: usize,
    /// Most requests in flight; more get 503.
    pub requests_in_flight: usize,
    /// Most bytes of a request's head; more is 431.
    pub header_bytes: usize,
    /// Most header fields of a request; more is 431.
    pub headers: usize,
    /// Most bytes of a request target; more is 414.
    pub target_bytes: usize,
    /// Most bytes of a request's body; more is 413.
    pub body_bytes: usize,
    /// Longest time from a head's first byte to its last.
    pub header_timeout: Duration,
    /// Longest time from the end of the head to the end of the body.
    pub body_timeout: Duration,
    /// Longest time between requests on a kept-alive connection.
    pub idle_timeout: Duration,
    /// Idle time after which a connection may be closed to make room for another.
    pub idle_reclaim: Duration,
    /// Longest time for which a client may take nothing of a waiting answer.
    pub write_timeout: Duration,
    /// From request to answer when the database is needed; then 504.
    pub request_timeout: Duration,
    /// From a stop signal until nothing more is accepted and idle connections are closed.
    pub drain_delay: Duration,
    /// From then until requests in flight are cut off.
    pub drain_timeout: Duration,
    /// Most ids in one batch.
    pub max_batch: usize,
    /// Longest wait of a `Hotrow-Min-Position` request for the feed before it reads the database.
    pub position_wait: Duration,
    /// Most waiting requests with `no-cache` or `Hotrow-Min-Position`; more get 503.
    pub privileged_waiters: usize,
    /// Most answers from memory checked against the database per second; 0: none.
    pub checks_per_s: u32,
    /// Most bytes that the kernel may hold for clients that do not read; the slowest are reset
    /// beyond it. 0: unlimited.
    pub send_bytes: u64,
    /// Limits on the bytes of answers, bodies and rows.
    pub bytes: ByteLimits,
    /// Least bytes per second that a client must take of a waiting answer, measured over
    /// `write_timeout`; 0: unlimited.
    pub drain_rate_min: u64,
}

impl Limits {
    /// Returns small limits, for tests: 512 bytes of head, 16 fields, 64 bytes of target, 1,000 of
    /// body; header 1 s, body 2 s, idle 3 s, write 4 s.
    #[must_use]
    pub fn small() -> Self {
        Self {
            connections: 8,
            connections_per_client: 4,
            requests_in_flight: 8,
            header_bytes: 512,
            headers: 16,
            target_bytes: 64,
            body_bytes: 1_000,
            header_timeout: Duration::from_secs(1),
            body_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(3),
            idle_reclaim: Duration::from_secs(1),
            write_timeout: Duration::from_secs(4),
            request_timeout: Duration::from_secs(5),
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(6),
            max_batch: 10,
            position_wait: Duration::from_secs(1),
            privileged_waiters: 4,
            checks_per_s: 0,
            send_bytes: 0,
            bytes: ByteLimits::default(),
            drain_rate_min: 0,
        }
    }
}

/// Limits in bytes; `None`: derived from the memory of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteLimits {
    /// One answer; more is 413.
    pub answer: Option<u64>,
    /// All answers under construction or waiting to be sent; more is 503.
    pub answers_total: Option<u64>,
    /// All bodies of requests; more is 503.
    pub bodies_total: Option<u64>,
    /// All rows read by queries and not yet taken by a request; more is 503.
    pub rows_total: Option<u64>,
}

/// Concurrency limit of the source: at most the cache's `reads_in_flight`.
#[derive(Clone, Copy, Debug)]
pub struct Concurrency {
    /// Method of finding the limit.
    pub kind: Kind,
    /// Ratio of latency to latency alone up to which the source is healthy; above 1.
    pub tolerance: f64,
    /// Age from which latency alone is measured again.
    pub probe_interval: Duration,
    /// `true`: `Hotrow-Deadline-Ms` is honoured.
    pub deadline_header: bool,
}

/// One collection as the HTTP side sees it.
#[derive(Clone, Debug)]
pub struct Collection {
    /// First path segment.
    pub name: String,
    /// The source that it is read from.
    pub source: SourceId,
    /// `Cache-Control` of answers.
    pub cache_control: String,
    /// `true`: `Cache-Control: no-cache` in a request reads the database.
    pub allow_no_cache: bool,
    /// `true`: `Hotrow-Min-Position` is honoured.
    pub allow_min_position: bool,
    /// `true`: `Hotrow-Min-Position: now` is honoured.
    pub strict: bool,
    /// `true`: `?fields=` selects fields.
    pub allow_fields: bool,
    /// Priority of its requests without a valid header.
    pub priority: hotrow_admission::shed::Priority,
    /// `true`: requests may raise their priority.
    pub allow_high_priority: bool,
    /// Settings of tenants; `None`: who may read the collection sees all its records.
    pub tenancy: Option<Tenancy>,
    /// Compression of its records; `None`: they are sent as they are.
    pub compression: Option<Compression>,
    /// Surrogate keys of its answers; `None`: they have none.
    pub surrogates: Option<purge::Surrogates>,
    /// `true`: it has left the configuration since the start, and is not served.
    pub is_removed: bool,
    /// What makes it an alias of another collection; `None`: it is none.
    pub alias: Option<Alias>,
}

/// Alias of a collection: a collection whose records are keys of that one (`hotrow_cache::alias`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The collection whose keys they are.
    pub of: CollectionId,
    /// Its name.
    pub of_name: String,
    /// The unique columns by which records are looked up.
    pub columns: Vec<String>,
    /// Number of columns of the key: as many members of a row are the key, the others confirm it.
    pub key_columns: usize,
}

/// Settings of a collection whose records belong to tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenancy {
    /// `true`: what memory answers with 404 is read from the database first, so that the time does
    /// not show which records are in memory.
    pub hides_existence: bool,
}

/// Compression of the answers of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The preferred ones first; at least one.
    pub codings: Vec<ContentCoding>,
    /// Least size of a record that is compressed.
    pub bytes_min: u64,
}
