//! `/status`: the state of the service as JSON.
//!
//! Reference `admin`: `/status`
//!
//! - `configuration`: the file, its SHA-256, since when, the last reload.
//! - `readiness`: as [`/readyz`](#readyz).
//! - `cache`, `sources`, `requests`, `connections`, `limits`, `budgets`, `overload`, `concurrency`:
//!   state and counts of each.
//! - `redis`: address and connections of the [Redis protocol](redis.md), or null.
//! - `changes`: [followers](changes.md#limits) and their windows, or null.
//! - `purges`: what waits for each [target](purging.md#operation), or null.
//! - `admin`: `token_required`.
//! - `collections`: state of each.
//! - `miss_ratio_curve`: the [hit ratio at other
//!   capacities](production.md#how-much-memory-is-worth-it), with the members below, or `unknown`
//!   with the reason.
//! - `sampling_rate`: share of the keys; `sampled_lookups` and `dropped` since the observation
//!   began; `window_s`.
//! - `current`: `capacity_bytes`, `predicted_hit_ratio`, `measured_hit_ratio`.
//! - `points`: eight, rising: `factor`, `capacity_bytes`, `hit_ratio` with an interval, `low` to
//!   `high`, `database_reads_per_s`.
//! - `collections`: of each, `lookups_per_s`, `measured_hit_ratio` and the `hit_ratios` at the
//!   points.
//! - `sentence`: what follows.
//!
//! Reference `admin`: `/readyz`
//!
//! - `ready`, `ready_when`, `ready_sources`: whether, and by which rules.
//! - `sources`: values of each [source](configuration.md#readiness).
//! - `unmet`: conditions that do not hold.
//! - `process`: `"running"`, `"draining"`, `"handed over"`.
//! - `feed`: `"starting"`, `"caught up"`, `"behind"`, `"none"`.
//! - `staleness_ms`, `source`, `breaker`, `token_keys`, `warm_start`: the worst value of each.
//! - `reload`: `"ok"`, `"failed"`, `"none"` without a file.

use hotrow_answer::units::millis;
use hotrow_cache::stats::{Removal, Snapshot};
use hotrow_gate::admission::concurrency;
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::lookups::LABELS;
use hotrow_types::key::CollectionId;
use serde_json::{Map, Value, json};

use super::View;

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
            "sources": self.sources_status(now),
            "requests": {
                "waiting": inflight.waiting.get(), "privileged_waiting": inflight.privileged.get(),
            },
            "connections": self.workers.iter().map(|w| w.open()).sum::<u64>(),
            "redis": self.redis.map(|address| json!({
                "address": address.to_string(),
                "connections": hotrow_answer::metrics::open_redis(&self.workers),
                "allow_stale": shared.redis_allows_stale,
            })),
            "changes": shared.follows.as_ref().map(|follows| follows.status()),
            "purges": shared.purger.as_ref().map(|purger| purger.status()),
            "limits": self.limits(),
            "access": self.shared.access.as_ref().map(|access| access.status(now)),
            "budgets": self.budgets(),
            "overload": self.overload_status(now),
            "concurrency": self.limiters().map(|all| self.concurrency_of(&all)),
            "warm_start": self.warm_start(),
            "miss_ratio_curve": self.miss_ratio_curve(),
            "collections": collections,
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
        let cache = &self.shared.cache;
        let source = cache.source_of(CollectionId(index as u16));
        let followed = cache.is_followed(source);
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
            "source": self.sources()[source.index()].name,
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
            "staleness_ms": followed.then(|| millis(cache.staleness(source, Nanos::now()))),
        })
    }

    /// Returns the state of a concurrency limit.
    pub(super) fn concurrency_of(&self, limiter: &concurrency::View) -> Value {
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
        let cache = &self.shared.cache;
        let config = cache.config();
        let sources: Vec<_> =
            self.sources().iter().map(|reads| *cache.source_settings(reads.id)).collect();
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
            "reads_in_flight": sources.iter().map(|own| own.reads_in_flight).sum::<usize>(),
            "query_keys": sources.iter().map(|own| own.query_keys).max(),
            "query_bytes": sources.iter().map(|own| own.query_bytes).max(),
            "send_bytes": limits.send_bytes,
            "drain_rate_min": limits.drain_rate_min,
            "answer_bytes": self.shared.budgets.answer_bytes_max,
            "answers_bytes_total": self.shared.budgets.answers.limit_bytes(),
            "bodies_bytes_total": self.shared.budgets.bodies.limit_bytes(),
            "rows_bytes_total": self.shared.budgets.rows.limit_bytes(),
            "rows_bytes_per_query": self.shared.budgets.query_bytes_max,
            "rate": self.shared.admission.rate.status(),
        })
    }
}
