//! Metrics of the HTTP side. Each worker writes its own [`WorkerMetrics`] with plain stores; a
//! scrape adds them up.
//!
//! Reference `metrics`: Requests
//!
//! - `hotrow_http_requests_total` (`status`, `cache`): By status and outcome of the lookup (`none`
//!   without one). `stale`: the feed is behind.
//! - `hotrow_http_request_duration_seconds` (`cache`): Histogram, end of the head to the answer:
//!   slow `hit`: too few cores; slow `miss`: the database.
//! - `hotrow_snapshots_total` (`way`): [Snapshot batches](http.md#snapshot-batches) answered:
//!   `memory`; `awaited` the feed; `reread` changed records; `transaction` of the database.
//! - `hotrow_http_refused_total` (`limit`): Refused before handling, by limit or `malformed`.
//! - `hotrow_http_sent_bytes_total`: Bytes taken by clients, heads included.
//! - `hotrow_distinct_ids` (`day`): Ids `today` and `yesterday` (UTC), within 1.6 %. Above
//!   `hotrow_cache_entries`: the working set does not fit.
//! - `hotrow_access_total` (`outcome`): Requests with [`[access]`](access.md): `key`,
//!   `certificate`, `known_token`, `token` (signature checked), `anonymous`; `missing`, `refused`
//!   (401), `limited` (429), `no_keys` (503), `forbidden` (403, with a good credential). **Any**
//!   `no_keys`: no JWKS was usable for `jwks_max_age`.
//! - `hotrow_jwks_reads_total` (`result`): Reads of the JWKS, from its file or URL: `ok`, `failed`.
//! - `hotrow_jwks_keys`: Keys of tokens in force.
//! - `hotrow_jwks_age_seconds`: Since the keys were confirmed. **Above several `refresh`**: tokens
//!   end at `jwks_max_age`.
//! - `hotrow_grants_reloads_total` (`result`): Changed files of grants: `reloaded`, `refused`. With
//!   `access.grants_file`.
//!
//! Reference `metrics`: Connections
//!
//! - `hotrow_http_connections`: Open connections.
//! - `hotrow_http_send_bytes`: Held by the kernel for clients that take nothing, 256 KiB each. Near
//!   `limits.send_bytes`: the slowest are reset.
//! - `hotrow_http_connections_accepted_total`: Connections served. As many as requests: no
//!   keep-alive.
//! - `hotrow_http_connections_closed_total` (`cause`): Connections ended: `finished`, `broken`,
//!   time-outs, `drain_rate` (answer taken too slowly), `send_bytes`, `refused`, `handshake` (TLS
//!   or a proxy's header refused), `drained`, `reclaimed` (slot needed: low `limits.connections`,
//!   or flood), `cut` (without a stop: bug).
//! - `hotrow_tls_certificate_expiry_timestamp_seconds` (`listener`): End of the certificate's
//!   validity. With TLS. Listeners: `data`, `admin`.
//! - `hotrow_tls_reloads_total` (`listener`, `result`): Changed certificate files: `reloaded`,
//!   `refused`. With TLS.
//! - `hotrow_http_accept_errors_total`: **Any**: out of descriptors or memory.

mod access;
mod ids;
mod redis;
mod snapshots;
mod totals;

pub use self::access::expose as expose_access;
pub use self::access::{AccessCounts, AccessOutcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hotrow_measure::counter::Counter;
use hotrow_measure::histogram::{Histogram, SharedHistogram};
use hotrow_measure::sketch::Sketch;
use hotrow_telemetry::exposition::{Exposition, Scale};
use hotrow_telemetry::outcome::{CacheOutcome, OUTCOMES};

pub use self::ids::DistinctIds;
pub use self::redis::{RedisMetrics, RedisOutcome};
pub use self::redis::{expose as expose_redis, open as open_redis};
pub use self::snapshots::{SnapshotCounts, SnapshotWay};
pub use self::totals::Totals;
use crate::activity::KERNEL_BYTES_MAX;
use crate::pace::LoopPace;
use crate::rejection::Rejection;
use crate::shed::ShedCounts;

/// Statuses counted separately; others are counted together.
const STATUSES: [(u16, &str); 15] = [
    (200, "200"),
    (304, "304"),
    (400, "400"),
    (401, "401"),
    (403, "403"),
    (404, "404"),
    (405, "405"),
    (408, "408"),
    (413, "413"),
    (414, "414"),
    (429, "429"),
    (431, "431"),
    (500, "500"),
    (503, "503"),
    (504, "504"),
];

/// Cause of a connection's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// By HTTP: the client closed between requests, or one side sent `Connection: close`.
    Finished,
    /// The connection broke, or its input was not HTTP.
    Broken,
    /// `idle_timeout`.
    Idle,
    /// `header_timeout`.
    HeaderTimeout,
    /// `body_timeout`.
    BodyTimeout,
    /// `write_timeout`.
    WriteTimeout,
    /// Its client took an answer more slowly than `drain_rate_min`.
    DrainRate,
    /// The kernel held more than `send_bytes`, and its client was among the slowest.
    SendBytes,
    /// A limit or the framing rules, before a service saw the request.
    Refused,
    /// What precedes the first request was refused: a proxy's header, or the TLS handshake.
    Handshake,
    /// `handshake_timeout`.
    HandshakeTimeout,
    /// Idle at the drain.
    Drained,
    /// Idle for `idle_reclaim` when another connection needed room.
    Reclaimed,
    /// Cut off at the end of the drain, or a fault of ours.
    Cut,
}

const CLOSE_CAUSES: [(CloseCause, &str); 14] = [
    (CloseCause::Finished, "finished"),
    (CloseCause::Broken, "broken"),
    (CloseCause::Idle, "idle_timeout"),
    (CloseCause::HeaderTimeout, "header_timeout"),
    (CloseCause::BodyTimeout, "body_timeout"),
    (CloseCause::WriteTimeout, "write_timeout"),
    (CloseCause::DrainRate, "drain_rate"),
    (CloseCause::SendBytes, "send_bytes"),
    (CloseCause::Refused, "refused"),
    (CloseCause::Handshake, "handshake"),
    (CloseCause::HandshakeTimeout, "handshake_timeout"),
    (CloseCause::Drained, "drained"),
    (CloseCause::Reclaimed, "reclaimed"),
    (CloseCause::Cut, "cut"),
];

const LIMITS: [&str; 9] = [
    "malformed",
    "header_bytes",
    "headers",
    "target_bytes",
    "body_bytes",
    "header_timeout",
    "body_timeout",
    "connections",
    "connections_per_client",
];

/// Counters of one worker. Only its thread writes; any thread reads.
#[derive(Debug, Default)]
pub struct WorkerMetrics {
    /// Indexed by status, then by outcome.
    requests: [[Counter; OUTCOMES.len()]; STATUSES.len() + 1],
    /// From the end of the head to the answer, in nanoseconds, of requests answered from memory.
    pub hit_latency_ns: SharedHistogram,
    /// The same for requests that needed the database.
    pub miss_latency_ns: SharedHistogram,
    /// Requested ids, by day.
    pub ids: DistinctIds,
    /// Bytes taken by clients, heads included.
    pub bytes_sent: Counter,
    /// Connections accepted and served.
    pub accepted: Counter,
    /// Failed accepts (no file descriptors, no memory).
    pub accept_errors: Counter,
    closed: [Counter; CLOSE_CAUSES.len()],
    /// Clients that take nothing at present.
    pub unread_clients: AtomicU64,
    refused: [Counter; LIMITS.len()],
    /// Checks of credentials.
    pub access: AccessCounts,
    /// Requests refused under load.
    pub shed: ShedCounts,
    /// Snapshot batches answered.
    pub snapshots: SnapshotCounts,
    /// Commands of the Redis protocol.
    pub redis: RedisMetrics,
    /// Lateness of the worker's event loop.
    pub pace: LoopPace,
}

impl WorkerMetrics {
    /// Counts one answer.
    #[inline]
    pub fn answered(&self, status: u16, outcome: CacheOutcome) {
        let status = STATUSES.iter().position(|(s, _)| *s == status).unwrap_or(STATUSES.len());
        self.requests[status][outcome as usize].increment();
    }

    /// Counts one refusal by its limit.
    pub fn refused(&self, refusal: Rejection) {
        let limit = match refusal {
            Rejection::Malformed(_) => 0,
            Rejection::HeadBytes => 1,
            Rejection::HeadFields => 2,
            Rejection::TargetBytes => 3,
            Rejection::BodyBytes => 4,
            Rejection::HeadTime => 5,
            Rejection::BodyTime => 6,
            Rejection::Connections => 7,
            Rejection::ClientConnections => 8,
        };
        self.refused[limit].increment();
    }

    /// Counts the end of one connection.
    pub fn closed(&self, cause: CloseCause) {
        self.closed[cause as usize].increment();
    }

    /// Returns the number of connections that ended for `cause`.
    pub fn closed_count(&self, cause: CloseCause) -> u64 {
        self.closed[cause as usize].get()
    }

    /// Returns the number of clients that took nothing of what waits for them at the last sweep.
    pub fn unread_clients(&self) -> u64 {
        self.unread_clients.load(Ordering::Relaxed)
    }

    /// Returns the approximate number of open connections.
    pub fn open(&self) -> u64 {
        // `closed` is read first: a connection opened in between counts as open, never as minus
        // one.
        let closed: u64 = self.closed.iter().map(Counter::get).sum();
        self.accepted.get().saturating_sub(closed)
    }
}

/// Writes the sum over `workers`. `day` is the number of the present day, as in
/// [`DistinctIds::note`].
pub fn expose(workers: &[Arc<WorkerMetrics>], day: u32, out: &mut Exposition) {
    expose_requests(workers, out);
    expose_connections(workers, out);
    let distinct = |day: u32| {
        let mut sum = Sketch::default();
        workers.iter().filter_map(|w| w.ids.of_day(day)).for_each(|sketch| sum.merge(&sketch));
        sum.estimate()
    };
    out.gauge(
        "hotrow_distinct_ids",
        "Distinct ids requested on a day (UTC), estimated within 1.6 % (standard error).",
        [
            ([("day", "today")], distinct(day)),
            ([("day", "yesterday")], day.checked_sub(1).map_or(0, distinct)),
        ],
    );
}

fn expose_requests(workers: &[Arc<WorkerMetrics>], out: &mut Exposition) {
    let sum = |read: &dyn Fn(&WorkerMetrics) -> u64| workers.iter().map(|w| read(w)).sum::<u64>();
    let statuses = STATUSES.iter().map(|(_, name)| *name).chain(["other"]).enumerate();
    let requests = statuses
        .flat_map(|(i, status)| OUTCOMES.map(|(outcome, cache)| (i, status, outcome, cache)))
        .map(|(i, status, outcome, cache)| {
            let count = sum(&|w: &WorkerMetrics| w.requests[i][outcome as usize].get());
            ([("status", status), ("cache", cache)], count)
        })
        .filter(|(_, count)| *count > 0);
    out.counter(
        "hotrow_http_requests_total",
        "Requests answered, by status and by outcome of the cache.",
        requests,
    );
    let merged = |read: &dyn Fn(&WorkerMetrics) -> Histogram| {
        let mut total = Histogram::default();
        workers.iter().for_each(|w| total.merge(&read(w)));
        total
    };
    out.histogram(
        "hotrow_http_request_duration_seconds",
        "Time from the end of a request's head to its answer, by hit or miss.",
        Scale::LATENCY,
        [
            ([("cache", "hit")], &merged(&|w| w.hit_latency_ns.snapshot())),
            ([("cache", "miss")], &merged(&|w| w.miss_latency_ns.snapshot())),
        ],
    );
    let sent = sum(&|w: &WorkerMetrics| w.bytes_sent.get());
    out.counter(
        "hotrow_http_sent_bytes_total",
        "Bytes taken by clients, heads included.",
        [([], sent)],
    );
    snapshots::expose(workers, out);
    let refused = LIMITS
        .iter()
        .enumerate()
        .map(|(i, limit)| ([("limit", *limit)], sum(&|w: &WorkerMetrics| w.refused[i].get())));
    out.counter(
        "hotrow_http_refused_total",
        "Requests and connections refused at a limit or as malformed.",
        refused,
    );
}

fn expose_connections(workers: &[Arc<WorkerMetrics>], out: &mut Exposition) {
    let sum = |read: &dyn Fn(&WorkerMetrics) -> u64| workers.iter().map(|w| read(w)).sum::<u64>();
    out.gauge("hotrow_http_connections", "Connections open.", [([], sum(&WorkerMetrics::open))]);
    let accepted = sum(&|w: &WorkerMetrics| w.accepted.get());
    out.counter(
        "hotrow_http_connections_accepted_total",
        "Connections accepted and served.",
        [([], accepted)],
    );
    out.gauge(
        "hotrow_http_send_bytes",
        "Bytes that the kernel may hold for clients that take nothing at present.",
        [([], KERNEL_BYTES_MAX * sum(&WorkerMetrics::unread_clients))],
    );
    let closed = CLOSE_CAUSES
        .iter()
        .enumerate()
        .map(|(i, (_, cause))| ([("cause", *cause)], sum(&|w: &WorkerMetrics| w.closed[i].get())));
    out.counter("hotrow_http_connections_closed_total", "Connections ended, by cause.", closed);
    let errors = sum(&|w: &WorkerMetrics| w.accept_errors.get());
    out.counter(
        "hotrow_http_accept_errors_total",
        "Failed accepts of connections.",
        [([], errors)],
    );
}

#[cfg(test)]
mod tests;
