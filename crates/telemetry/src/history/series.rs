//! The recorded series: name, origin of the values, meaning.
//!
//! Reference `admin`: `/history`
//!
//! One sample a second, of the last ten minutes, from counters kept anyway. With `?since=N`, the
//! `next` of the answer before, only newer ones; all of them after a restart, when
//! `started_unix_ms` is another. A list has one value per sample, `null` where nothing is known.
//!
//! - `at_unix_ms`, `interval_ms`: end and length of the sample. More than 2.5 s: the process was
//!   stopped or suspended.
//! - `series`: rates a second, except where a unit or "present" says otherwise. Their names begin
//!   with one of the prefixes below.
//! - `requests.`: `hit`, `miss`, `coalesced`, `stale`, `bypass`, `none` (without the cache).
//!   [Commands of the Redis protocol](logs.md#commands-of-the-redis-protocol) that read records or
//!   are refused are requests.
//! - `status.`: `2xx`, `3xx`, `4xx`, `5xx`, `other`.
//! - `latency.`: `hit_p50_us`, `hit_p99_us`, `hit_p999_us`, `miss_p50_us`, `miss_p99_us`,
//!   `miss_p999_us`, `all_p50_us`, `all_p99_us`, `all_p999_us`: from the end of the head to the
//!   answer, at most 1.6 % too high.
//! - `lookups.`: `memory`, `database`: keys answered from memory and not; their share is the hit
//!   ratio.
//! - `queue.`: `requests`, `keys` (present), `wait_p99_us`.
//! - `database.`: `queries`, `keys`, `failed_keys`, `in_flight`, `limit` (both present).
//! - `refused.`: `shed`, `rate_limit`, `breaker`, `deadline`, `queue`, `requests_in_flight`,
//!   `memory`, `connections`, `malformed`, `access`: refusals by reason; of `breaker`, `deadline`
//!   and `queue` in keys.
//! - `feed.`: `staleness_ms` (present), `changes`.
//! - `cache.`: `bytes`, `entries` (present), `evictions`.
//! - `connections.`: `open` (present), `accepted`.
//! - `sent_bytes`: bytes taken by clients.
//! - `process.`: `cpu_cores`, `memory_bytes` (present), `pressure` (0 normal, 1 elevated, 2
//!   critical), `ready` (0 or 1).
//! - `heat`: requests by latency, for a heat map: `bounds_us` between the rows; `counts` per
//!   sample: the first row that has any, then the counts from that row on.
//! - `collections`: `memory` and `database` of up to 64 collections, in the order of their first
//!   request; of the others together in `other_collections`.

/// Way in which the values of a series follow from readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeriesKind {
    /// The reading is a count; the value is its growth per second.
    Rate,
    /// The reading is the value.
    Gauge,
    /// Computed from the histograms of the interval.
    Quantile,
}

macro_rules! series {
    ($($name:ident $label:literal $kind:ident,)*) => {
        /// A recorded series. The head of this file explains them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Series {
            $(#[doc = $label] $name,)*
        }

        impl Series {
            /// All series, in the order of a sample's values.
            pub(crate) const ALL: [Self; [$(stringify!($name)),*].len()] = [$(Self::$name),*];

            /// Returns the name in the JSON.
            pub(crate) fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// Returns how its values are made.
            pub(crate) fn kind(self) -> SeriesKind {
                match self { $(Self::$name => SeriesKind::$kind,)* }
            }
        }
    };
}

series! {
    RequestsHit "requests.hit" Rate,
    RequestsMiss "requests.miss" Rate,
    RequestsCoalesced "requests.coalesced" Rate,
    RequestsStale "requests.stale" Rate,
    RequestsBypass "requests.bypass" Rate,
    RequestsNone "requests.none" Rate,
    Status2xx "status.2xx" Rate,
    Status3xx "status.3xx" Rate,
    Status4xx "status.4xx" Rate,
    Status5xx "status.5xx" Rate,
    StatusOther "status.other" Rate,
    HitP50 "latency.hit_p50_us" Quantile,
    HitP99 "latency.hit_p99_us" Quantile,
    HitP999 "latency.hit_p999_us" Quantile,
    MissP50 "latency.miss_p50_us" Quantile,
    MissP99 "latency.miss_p99_us" Quantile,
    MissP999 "latency.miss_p999_us" Quantile,
    AllP50 "latency.all_p50_us" Quantile,
    AllP99 "latency.all_p99_us" Quantile,
    AllP999 "latency.all_p999_us" Quantile,
    QueueWaitP99 "queue.wait_p99_us" Quantile,
    LookupsMemory "lookups.memory" Rate,
    LookupsDatabase "lookups.database" Rate,
    QueueRequests "queue.requests" Gauge,
    QueueKeys "queue.keys" Gauge,
    DatabaseQueries "database.queries" Rate,
    DatabaseKeys "database.keys" Rate,
    DatabaseFailedKeys "database.failed_keys" Rate,
    DatabaseInFlight "database.in_flight" Gauge,
    DatabaseLimit "database.limit" Gauge,
    RefusedShed "refused.shed" Rate,
    RefusedRateLimit "refused.rate_limit" Rate,
    RefusedBreaker "refused.breaker" Rate,
    RefusedDeadline "refused.deadline" Rate,
    RefusedQueue "refused.queue" Rate,
    RefusedInFlight "refused.requests_in_flight" Rate,
    RefusedMemory "refused.memory" Rate,
    RefusedConnections "refused.connections" Rate,
    RefusedMalformed "refused.malformed" Rate,
    RefusedAccess "refused.access" Rate,
    FeedStaleness "feed.staleness_ms" Gauge,
    FeedChanges "feed.changes" Rate,
    CacheBytes "cache.bytes" Gauge,
    CacheEntries "cache.entries" Gauge,
    CacheEvictions "cache.evictions" Rate,
    ConnectionsOpen "connections.open" Gauge,
    ConnectionsAccepted "connections.accepted" Rate,
    SentBytes "sent_bytes" Rate,
    CpuCores "process.cpu_cores" Rate,
    MemoryBytes "process.memory_bytes" Gauge,
    Pressure "process.pressure" Gauge,
    Ready "process.ready" Gauge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_names_every_series() {
        let page = include_str!("../../../../docs/reference/admin.md");
        for series in Series::ALL {
            let (group, member) = series.label().split_once('.').unwrap_or(("", series.label()));
            assert!(
                page.contains(&format!("`{group}")),
                "{}: its group is missing",
                series.label()
            );
            assert!(page.contains(&format!("`{member}`")), "{} is missing", series.label());
        }
    }
}
