//! `/status`: the state of the service as JSON.

use std::time::Duration;

use hotrow_cache::config::InvalidationMode;
use hotrow_cache::stats::{Removal, Snapshot};
use hotrow_measure::clock::Nanos;
use hotrow_types::key::CollectionId;
use serde_json::{Map, Value, json};

use super::View;
use crate::lookups::LABELS;

/// Converts to milliseconds, to the microsecond.
pub(crate) fn millis(duration: Duration) -> f64 {
    // Microseconds suffice.
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

impl View {
    /// Returns the whole document.
    pub(super) fn status(&self, now: Nanos) -> Value {
        let shared = &self.shared;
        let cache = &shared.cache;
        let config = cache.config();
        let collections: Map<String, Value> = shared
            .collections
            .all()
            .iter()
            .enumerate()
            .map(|(i, collection)| (collection.name.clone(), self.collection(i)))
            .collect();
        let totals = self
            .snapshots()
            .fold((0, 0), |(entries, bytes), s| (entries + s.entries, bytes + s.bytes));
        let inflight = &shared.admission.inflight;
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "configuration": self.configuration(now),
            "uptime_s": now.since(self.started_at).as_secs(),
            "readiness": self.readiness.report(now).1,
            "admin": { "token_required": self.token.is_some() },
            "cache": {
                "enabled": config.enabled,
                "entries": totals.0,
                "bytes": totals.1,
                "capacity_bytes": cache.capacity_bytes(),
            },
            "sources": { &self.source_name: self.source(now) },
            "requests": {
                "waiting": inflight.waiting.get(), "privileged_waiting": inflight.privileged.get(),
            },
            "connections": self.workers.iter().map(|w| w.open()).sum::<u64>(),
            "redis": self.redis.map(|address| json!({
                "address": address.to_string(),
                "connections": crate::metrics::open_redis(&self.workers),
                "allow_stale": shared.redis_allows_stale,
            })),
            "changes": shared.follows.as_ref().map(|follows| follows.status()),
            "limits": self.limits(),
            "access": self.shared.access.as_ref().map(|access| access.status(now)),
            "budgets": self.budgets(),
            "overload": self.overload_status(now),
            "concurrency": self.concurrency(),
            "warm_start": self.warm_start(),
            "miss_ratio_curve": self.miss_ratio_curve(),
            "collections": collections,
        })
    }

    fn source(&self, now: Nanos) -> Value {
        let cache = &self.shared.cache;
        let config = cache.config();
        let source = &self.shared.fetcher.source;
        let followed = config.invalidation_mode == InvalidationMode::Feed;
        json!({
            "reachable": source.health().is_ok(),
            "queries": source.queries_total(),
            "standbys": self.standbys(),
            "feed": {
                "followed": followed,
                "current": followed.then(|| cache.is_current(now)),
                "staleness_ms": followed.then(|| millis(cache.staleness(now))),
                "max_staleness_ms": followed.then(|| millis(config.max_staleness)),
                "when_stale": followed.then(|| format!("{:?}", config.when_stale).to_lowercase()),
                "position": cache.applied().map(|p| p.to_string()),
                "changes": self.feed.changes_total(),
                "starts": self.feed.starts_total(),
                "gaps": self.feed.losses_total().iter().map(|(_, n)| n).sum::<u64>(),
                "watch": if followed { source.watch() } else { "none" },
            },
        })
    }

    pub(super) fn snapshots(&self) -> impl Iterator<Item = Snapshot> + '_ {
        self.shared.collections.ids().map(|id| self.shared.cache.stats(id))
    }

    pub(super) fn lookups_of(&self, collection: usize) -> [u64; LABELS.len()] {
        let mut sum = [0; LABELS.len()];
        for worker in &self.lookups {
            sum.iter_mut().zip(worker.get(collection)).for_each(|(sum, n)| *sum += n);
        }
        sum
    }

    fn collection(&self, index: usize) -> Value {
        let stats = self.shared.cache.stats(CollectionId(index as u16));
        let followed = self.shared.cache.config().invalidation_mode == InvalidationMode::Feed;
        let [hits, negative, misses, coalesced, stale, bypass, refused] = self.lookups_of(index);
        let evictions: Map<String, Value> = Removal::ALL
            .iter()
            .zip(stats.removed)
            .map(|(cause, n)| (cause.label().into(), n.into()))
            .collect();
        let answered = hits + negative + stale;
        let requested = answered + misses + coalesced + bypass;
        let hit_ratio = (requested > 0).then(|| answered as f64 / requested as f64);
        json!({
            "hits": hits,
            "negative": negative,
            "misses": misses,
            "coalesced": coalesced,
            "stale": stale,
            "bypass": bypass,
            "refused": refused,
            "hit_ratio": hit_ratio,
            "entries": stats.entries,
            "negative_entries": stats.negative_entries,
            "bytes": stats.bytes,
            "evictions": evictions,
            "fills": stats.fills_total,
            "invalidations": stats.invalidations_total,
            "flushes": stats.flushes_total,
            "queries": stats.queries_total, "waiting_keys": stats.waiting_keys,
            "deadline_rejected": stats.deadline_rejected_total,
            "dropped": stats.queue_dropped_total,
            "lifo": stats.lifo == 1,
            "queries_in_flight": stats.queries_in_flight,
            "staleness_ms": followed.then(|| millis(self.shared.cache.staleness(Nanos::now()))),
        })
    }

    fn concurrency(&self) -> Value {
        let limiter = self.shared.fetcher.limiter.view();
        let config = self.shared.cache.config();
        let waited =
            |quantile| limiter.waited_ns.value_at_quantile(quantile).map(|ns| ns as f64 / 1e6);
        json!({
            "kind": limiter.kind.label(),
            "limit": limiter.limit,
            "in_flight": limiter.in_flight,
            "probes": limiter.probes_total,
            "queue": if config.queue.adaptive { "adaptive" } else { "fifo" },
            "queue_wait_ms": { "p50": waited(0.5), "p99": waited(0.99) },
        })
    }

    fn limits(&self) -> Value {
        let limits = &self.shared.limits;
        let config = self.shared.cache.config();
        json!({
            "connections": limits.connections,
            "connections_per_client": limits.connections_per_client,
            "requests_in_flight": limits.requests_in_flight,
            "privileged_waiters": limits.privileged_waiters,
            "checks_per_s": limits.checks_per_s,
            "max_batch": limits.max_batch,
            "header_bytes": limits.header_bytes,
            "headers": limits.headers,
            "target_bytes": limits.target_bytes,
            "body_bytes": limits.body_bytes, "waiting_keys": config.waiting_keys,
            "reads_in_flight": config.reads_in_flight, "query_keys": config.query_keys,
            "query_bytes": config.query_bytes, "drain_rate_min": limits.drain_rate_min,
            "answer_bytes": self.shared.budgets.answer_bytes_max,
            "answers_bytes_total": self.shared.budgets.answers.limit_bytes(),
            "bodies_bytes_total": self.shared.budgets.bodies.limit_bytes(),
            "rows_bytes_total": self.shared.budgets.rows.limit_bytes(),
            "rows_bytes_per_query": self.shared.budgets.query_bytes_max,
            "rate": self.shared.admission.rate.status(),
        })
    }
}
