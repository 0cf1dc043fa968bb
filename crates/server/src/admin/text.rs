//! `/metrics`: all counters, for Prometheus.
//!
//! Reference `metrics`: Lookups and entries
//!
//! The label `collection` also names [aliases](aliases.md), such as `users/by/email`: a lookup by
//! alias counts there, and for the collection when it looks a record up.
//!
//! - `hotrow_lookups_total` (`collection`, `outcome`): Keys: `hit`, `negative`, `miss`,
//!   `coalesced`, `stale`, `bypass`, `refused`. Hit ratio: the share of the first two.
//! - `hotrow_cache_entries` (`collection`): Entries, missing records included.
//! - `hotrow_cache_negative_entries` (`collection`): Entries for missing records.
//! - `hotrow_cache_bytes` (`collection`): Bytes of keys, bodies and bookkeeping.
//! - `hotrow_cache_capacity_bytes`: Bound on the sum of `hotrow_cache_bytes`.
//! - `hotrow_cache_predicted_hit_ratio` (`capacity_factor`):
//!   [Predicted](production.md#how-much-memory-is-worth-it) hit ratio at 0.25 to 8 times
//!   `hotrow_cache_capacity_bytes`; NaN while unknown.
//! - `hotrow_cache_measured_hit_ratio`: Measured in the same window, to compare with factor 1. NaN
//!   while unknown.
//! - `hotrow_cache_sampling_ratio`: Share of the keys that are sampled; 0 while nothing is
//!   predicted.
//! - `hotrow_cache_samples_total` (`result`): Events of sampled keys: `replayed`, `dropped` (a
//!   queue was full: the interval is wider).
//! - `hotrow_cache_simulation_bytes`: Memory of the copies in which they are replayed, at most 10
//!   MiB.
//! - `hotrow_cache_evictions_total` (`collection`, `cause`): Entries removed: `capacity` (with a
//!   low hit ratio: raise `cache.capacity`), `replaced` (by a newer answer), `invalidated`,
//!   `purged`, `too_large`, `flushed`.
//! - `hotrow_invalidations_total` (`collection`): Changes reported by the feed.
//! - `hotrow_hot_refreshes_total` (`collection`): Records queued by `cache.prefetch_on_change`.
//!   Near `hotrow_queries_total`: as many changes as reads.
//! - `hotrow_flushes_total` (`collection`): Flushes of the collection. `hotrow_feed_flushes_total`
//!   has causes.
//!
//! Reference `metrics`: Process
//!
//! - `hotrow_build_info` (`version`): Always 1, with the running version.
//! - `hotrow_thread_panics_total` (`thread`): Panics of background threads, restarted since.
//!   **Any**: bug.
//! - `hotrow_log_dropped_total`: Log lines lost: standard error full, blocked or closed.
//! - `hotrow_access_log_lines_total`: Lines of the [access log](logs.md#access-log) written. With
//!   `access_log.output`, as the next one.
//! - `hotrow_access_log_dropped_total` (`cause`): Lines lost: `queue_full`, `not_written` (disk
//!   full, pipe closed), `rate` (over 1,000 failed and slow requests a second). **Any**
//!   `not_written`: see the log.
//! - `process_resident_memory_bytes`: Resident memory.
//! - `process_cpu_seconds_total`: User and system time.

use hotrow_answer::memory::resident_bytes;
use hotrow_answer::metrics;
use hotrow_cache::stats::{QUERY_KEYS_BOUNDS, Removal, Snapshot};
use hotrow_measure::clock::Nanos;
use hotrow_telemetry::exposition::{Exposition, Labels};
use hotrow_telemetry::lookups::LABELS;

use super::View;

/// A field of a collection's counters: name, reader.
type Field = (&'static str, fn(&Snapshot) -> u64);

const GAUGES: [Field; 6] = [
    ("hotrow_cache_entries", |s| s.entries),
    ("hotrow_cache_negative_entries", |s| s.negative_entries),
    ("hotrow_cache_bytes", |s| s.bytes),
    ("hotrow_waiting_keys", |s| s.waiting_keys),
    ("hotrow_queries_in_flight", |s| s.queries_in_flight),
    ("hotrow_queue_lifo", |s| s.lifo),
];

const COUNTERS: [Field; 14] = [
    ("hotrow_fills_total", |s| s.fills_total),
    ("hotrow_coalesced_total", |s| s.coalesced_total),
    ("hotrow_queries_total", |s| s.queries_total),
    ("hotrow_batch_keys_total", |s| s.batch_keys_total),
    ("hotrow_failed_keys_total", |s| s.failed_keys_total),
    ("hotrow_fills_discarded_total", |s| s.fills_discarded_total),
    ("hotrow_fills_not_admitted_total", |s| s.fills_not_admitted_total),
    ("hotrow_fill_retries_total", |s| s.fill_retries_total),
    ("hotrow_invalidations_total", |s| s.invalidations_total),
    ("hotrow_hot_refreshes_total", |s| s.hot_refreshes_total),
    ("hotrow_flushes_total", |s| s.flushes_total),
    ("hotrow_deadline_rejected_total", |s| s.deadline_rejected_total),
    ("hotrow_queue_dropped_total", |s| s.queue_dropped_total),
    ("hotrow_keys_refused_total", |s| s.refused_total),
];

impl View {
    /// Returns the whole page.
    pub(super) fn metrics_text(&self, now: Nanos) -> String {
        let mut out = Exposition::default();
        metrics::expose(&self.workers, self.shared.calendar.day(now), &mut out);
        self.expose_collections(&mut out);
        let fetcher = &self.shared.fetcher;
        fetcher.query_log.expose(&mut out);
        self.expose_gate(&mut out);
        self.expose_feed(now, &mut out);
        self.expose_checks(&mut out);
        self.shared.admission.rate.expose(&mut out);
        metrics::expose_access(&self.workers, &mut out);
        metrics::expose_redis(&self.workers, &mut out);
        if let Some(follows) = &self.shared.follows {
            follows.expose(&mut out);
        }
        if let Some(tracking) = &self.shared.tracking {
            tracking.expose(&mut out);
        }
        if let Some(purger) = &self.shared.purger {
            purger.expose(&mut out);
        }
        if let Some(access) = &self.shared.access {
            access.expose(now, &mut out);
        }
        self.expose_overload(now, &mut out);
        self.expose_budgets(&mut out);
        self.expose_compression(&mut out);
        self.expose_certificates(&mut out);
        self.expose_warm_start(&mut out);
        self.expose_miss_ratio_curve(&mut out);
        self.expose_reloads(&mut out);
        self.expose_process(&mut out);
        self.expose_threads(&mut out);
        if let Some(access_log) = &self.shared.access_log {
            access_log.expose(&mut out);
        }
        if let Some(tracer) = &fetcher.tracer {
            tracer.expose(&mut out);
        }
        out.into_text()
    }

    fn expose_compression(&self, out: &mut Exposition) {
        let compressor = &self.shared.compressor;
        out.counter(
            "hotrow_compressions_total",
            compressor.counts().map(|(outcome, count)| ([("outcome", outcome)], count)),
        );
        out.gauge("hotrow_compression_queue_bytes", [([], compressor.queued_bytes())]);
    }

    fn expose_certificates(&self, out: &mut Exposition) {
        let endpoints = self.tls.named();
        if endpoints.is_empty() {
            return;
        }
        out.gauge(
            "hotrow_tls_certificate_expiry_timestamp_seconds",
            endpoints.iter().map(|(name, tls)| ([("listener", *name)], tls.expires_unix_s())),
        );
        let results = endpoints.iter().flat_map(|(name, tls)| {
            let (reloaded, refused) = tls.reloads();
            [("reloaded", reloaded), ("refused", refused)]
                .map(|(result, count)| ([("listener", *name), ("result", result)], count))
        });
        out.counter("hotrow_tls_reloads_total", results);
    }

    fn expose_collections(&self, out: &mut Exposition) {
        let names: Vec<&str> =
            self.shared.collections.all().iter().map(|c| c.name.as_str()).collect();
        let stats: Vec<Snapshot> = self.snapshots().collect();
        let series = |read: fn(&Snapshot) -> u64| {
            let collections = names.iter().zip(&stats);
            collections.map(move |(name, stats)| ([("collection", *name)], read(stats)))
        };
        GAUGES.iter().for_each(|(name, read)| out.gauge(name, series(*read)));
        COUNTERS.iter().for_each(|(name, read)| out.counter(name, series(*read)));
        let lookups = two(&names, &LABELS, "outcome", |i| self.lookups_of(i).to_vec());
        out.counter("hotrow_lookups_total", lookups);
        let causes = Removal::ALL.map(Removal::label);
        let evictions = two(&names, &causes, "cause", |i| stats[i].removed.to_vec());
        out.counter("hotrow_cache_evictions_total", evictions);
        let sizes: Vec<String> =
            QUERY_KEYS_BOUNDS.iter().map(u64::to_string).chain(["more".to_owned()]).collect();
        let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
        let merged = two(&names, &sizes, "keys_up_to", |i| stats[i].query_keys.to_vec());
        out.counter("hotrow_merged_queries_total", merged);
    }

    fn expose_checks(&self, out: &mut Exposition) {
        let sampling = &self.shared.consistency_check;
        out.counter("hotrow_checked_answers_total", [([], sampling.checked_total())]);
        out.counter("hotrow_inconsistent_answers_total", [([], sampling.inconsistent_total())]);
    }

    fn expose_process(&self, out: &mut Exposition) {
        let inflight = &self.shared.admission.inflight;
        let one = |value: u64| [([], value)];
        out.gauge("hotrow_requests_waiting", one(inflight.waiting.get() as u64));
        out.gauge("hotrow_privileged_waiting", one(inflight.privileged.get() as u64));
        let refused = [
            ([("limit", "requests_in_flight")], inflight.waiting.refused()),
            ([("limit", "privileged_waiters")], inflight.privileged.refused()),
        ];
        out.counter("hotrow_requests_refused_total", refused);
        out.gauge("hotrow_cache_capacity_bytes", one(self.shared.cache.capacity_bytes()));
        out.gauge("hotrow_build_info", [([("version", env!("CARGO_PKG_VERSION"))], 1_u64)]);
        if let Some(resident) = resident_bytes() {
            out.gauge("process_resident_memory_bytes", one(resident));
        }
        if let Ok(cpu) = cpu_seconds() {
            out.counter("process_cpu_seconds_total", [([], cpu)]);
        }
    }
}

fn two<'a>(
    names: &[&'a str],
    kinds: &[&'a str],
    label: &'a str,
    read: impl Fn(usize) -> Vec<u64>,
) -> Vec<(Labels<'a, 2>, u64)> {
    let of = |(i, name): (usize, &&'a str)| -> Vec<_> {
        kinds
            .iter()
            .zip(read(i))
            .map(|(kind, n)| ([("collection", *name), (label, *kind)], n))
            .collect()
    };
    names.iter().enumerate().flat_map(of).collect()
}

pub(super) fn cpu_seconds() -> Result<f64, std::num::TryFromIntError> {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(u32::try_from(t.tv_sec).map(f64::from)? + t.tv_nsec as f64 / 1e9)
}
