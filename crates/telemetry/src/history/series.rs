//! The recorded series: name, origin of the values, meaning.

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
        /// A recorded series. Names in `docs/http.md` explain them.
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
        let page = include_str!("../../../../docs/http.md");
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
