//! `/metrics`: everything that is counted, for Prometheus.

use hotrow_cache::config::Upkeep;
use hotrow_cache::stats::{QUERY_KEYS_BOUNDS, Removal, Snapshot};
use hotrow_measure::clock::Nanos;

use super::View;
use crate::admit::pressure::resident_bytes;
use crate::lookups::LABELS;
use crate::metrics::{self, Exposition, Labels, Scale};

/// A field of a collection's counters: name, help, reader.
type Field = (&'static str, &'static str, fn(&Snapshot) -> u64);

const GAUGES: [Field; 6] = [
    ("hotrow_cache_entries", "Entries held, those for missing records included.", |s| s.entries),
    ("hotrow_cache_negative_entries", "Entries that say that there is no such record.", |s| s.negative_entries),
    ("hotrow_cache_bytes", "Bytes that entries count for: keys, bodies and bookkeeping.", |s| s.bytes),
    ("hotrow_waiting_keys", "Keys that wait for a query.", |s| s.waiting_keys),
    ("hotrow_queries_in_flight", "Queries at the database.", |s| s.queries_in_flight),
    ("hotrow_queue_newest_first", "1 while the newest keys are read first, because the queue stands.", |s| {
        s.newest_first
    }),
];

const COUNTERS: [Field; 14] = [
    ("hotrow_fills_total", "Reads queued because nobody was reading the key.", |s| s.fills_total),
    ("hotrow_waits_total", "Requests that joined a read under way.", |s| s.waits_total),
    ("hotrow_queries_total", "Queries sent.", |s| s.queries_total),
    ("hotrow_queried_keys_total", "Keys in the queries sent.", |s| s.queried_keys_total),
    ("hotrow_failed_keys_total", "Keys whose read failed.", |s| s.failed_keys_total),
    (
        "hotrow_dead_leases_total",
        "Answers given but not kept, because a change came between or was not visible to them yet.",
        |s| s.dead_leases_total,
    ),
    (
        "hotrow_passing_answers_total",
        "Answers given but not kept, because only clients that read everything alike asked for them.",
        |s| s.passing_total,
    ),
    ("hotrow_rereads_total", "Reads repeated because a newer answer had been given.", |s| s.rereads_total),
    ("hotrow_invalidations_total", "Changes reported by the feed.", |s| s.invalidations_total),
    ("hotrow_hot_refreshes_total", "Hot records queued to be read again because they changed.", |s| {
        s.hot_refreshes_total
    }),
    ("hotrow_flushes_total", "Flushes of the whole collection.", |s| s.flushes_total),
    ("hotrow_keys_overdue_total", "Keys refused unread because the answer would have come after the deadline.", |s| {
        s.overdue_total
    }),
    ("hotrow_keys_displaced_total", "Keys refused unread because the queue stood and newer ones went first.", |s| {
        s.displaced_total
    }),
    ("hotrow_keys_refused_total", "Keys refused because too many were waiting.", |s| s.refused_total),
];

impl View {
    /// The whole page.
    pub(super) fn metrics_text(&self, now: Nanos) -> String {
        let mut out = Exposition::default();
        metrics::expose(&self.workers, self.shared.calendar.day(now), &mut out);
        self.expose_collections(&mut out);
        self.expose_gate(&mut out);
        self.expose_feed(now, &mut out);
        self.shared.rate.expose(&mut out);
        self.expose_overload(now, &mut out);
        self.expose_process(&mut out);
        out.into_text()
    }

    fn expose_collections(&self, out: &mut Exposition) {
        let names: Vec<&str> = self.shared.collections.iter().map(|c| c.name.as_str()).collect();
        let stats: Vec<Snapshot> = self.snapshots().collect();
        let labels: Vec<[(&str, &str); 1]> = names.iter().map(|name| [("collection", *name)]).collect();
        let series = |read: fn(&Snapshot) -> u64| -> Vec<(Labels<'_>, u64)> {
            labels.iter().zip(&stats).map(|(l, s)| (&l[..], read(s))).collect()
        };
        GAUGES.iter().for_each(|(name, help, read)| out.gauge(name, help, &series(*read)));
        COUNTERS.iter().for_each(|(name, help, read)| out.counter(name, help, &series(*read)));
        let lookups = two(&names, &LABELS, "result", |i| self.lookups_of(i).to_vec());
        out.counter("hotrow_lookups_total", "Keys looked up, by what it came to.", &flat(&lookups));
        let causes = Removal::ALL.map(Removal::label);
        let evictions = two(&names, &causes, "cause", |i| stats[i].removed.to_vec());
        out.counter("hotrow_cache_evictions_total", "Entries that left, by cause.", &flat(&evictions));
        let sizes: Vec<String> = QUERY_KEYS_BOUNDS.iter().map(u64::to_string).chain(["more".to_owned()]).collect();
        let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
        let merged = two(&names, &sizes, "keys_up_to", |i| stats[i].query_keys.to_vec());
        out.counter(
            "hotrow_merged_queries_total",
            "Queries by number of keys (each counted in one class).",
            &flat(&merged),
        );
    }

    fn expose_gate(&self, out: &mut Exposition) {
        let gate = self.shared.gate.view();
        let one = |value: usize| [(&[] as Labels<'_>, value as u64)];
        out.gauge("hotrow_query_limit", "Queries that may be at the database at once now.", &one(gate.limit));
        out.gauge("hotrow_query_limit_used", "Queries that are, of all collections.", &one(gate.in_flight));
        out.counter(
            "hotrow_query_limit_probes_total",
            "Times that queries went one at a time to measure what they take alone.",
            &[(&[], gate.probes_total)],
        );
        out.histogram(
            "hotrow_queue_wait_seconds",
            "Of each query the longest wait of its keys.",
            Scale::LATENCY,
            &[(&[], &gate.waited_ns)],
        );
    }

    fn expose_feed(&self, now: Nanos, out: &mut Exposition) {
        let cache = &self.shared.cache;
        let one = |value: f64| [(&[] as Labels<'_>, value)];
        let followed = cache.config().upkeep == Upkeep::Feed;
        out.gauge(
            "hotrow_feed_followed",
            "1 when changes are followed, 0 with source.feed = \"none\".",
            &one(f64::from(u8::from(followed))),
        );
        if followed {
            out.gauge(
                "hotrow_feed_staleness_seconds",
                "Time for which a change may have gone unseen.",
                &one(cache.staleness(now).as_secs_f64()),
            );
            out.gauge(
                "hotrow_feed_current",
                "1 while the feed is within max_staleness.",
                &one(f64::from(u8::from(cache.is_current(now)))),
            );
        }
        if let Some(position) = cache.applied() {
            let log = format!("{:016x}", position.incarnation);
            out.gauge("hotrow_feed_position", "Point of the log taken in.", &[(&[("log", log.as_str())], position.at)]);
        }
        out.counter("hotrow_feed_changes_total", "Changes delivered.", &[(&[], self.feed.changes_total())]);
        let starts = self.feed.starts_total();
        out.counter("hotrow_feed_starts_total", "Times that the feed started.", &[(&[], starts)]);
        out.counter("hotrow_feed_reconnects_total", "Starts after the first.", &[(&[], starts.saturating_sub(1))]);
        let by_cause = |name, help, counts: &[(&'static str, u64)], out: &mut Exposition| {
            let labels: Vec<_> = counts.iter().map(|(cause, _)| [("cause", *cause)]).collect();
            let samples: Vec<(Labels<'_>, u64)> = labels.iter().zip(counts).map(|(l, (_, n))| (&l[..], *n)).collect();
            out.counter(name, help, &samples);
        };
        by_cause("hotrow_feed_losses_total", "Times that the feed lost its place.", &self.feed.losses_total(), out);
        by_cause("hotrow_feed_flushes_total", "Collections flushed by the feed.", &self.feed.flushes_total(), out);
        out.counter(
            "hotrow_epoch_bumps_total",
            "Times that every entry went stale at once.",
            &[(&[], cache.losses_total())],
        );
        let sampling = &self.shared.sampling;
        let checks = [
            ("hotrow_checked_answers_total", "Answers checked against the database.", sampling.checked_total()),
            (
                "hotrow_inconsistent_answers_total",
                "Checked answers still served although the database had said otherwise for longer than max_staleness.",
                sampling.inconsistent_total(),
            ),
        ];
        checks.iter().for_each(|(name, help, value)| out.counter(name, help, &[(&[], *value)]));
        let reachable = f64::from(u8::from(self.shared.source.health().is_ok()));
        out.gauge("hotrow_source_reachable", "1 while the source answers.", &one(reachable));
        out.counter(
            "hotrow_source_queries_total",
            "Statements run at the source.",
            &[(&[], self.shared.source.queries_total())],
        );
    }

    fn expose_process(&self, out: &mut Exposition) {
        let shared = &self.shared;
        let one = |value: u64| [(&[] as Labels<'_>, value)];
        out.gauge(
            "hotrow_requests_waiting",
            "Requests that wait for the database or the feed.",
            &one(shared.waiting.get() as u64),
        );
        out.gauge(
            "hotrow_privileged_waiting",
            "Those of them with no-cache or a minimal position.",
            &one(shared.privileged.get() as u64),
        );
        let refused = [
            ([("limit", "requests_in_flight")], shared.waiting.refused()),
            ([("limit", "privileged_waiters")], shared.privileged.refused()),
        ];
        let refused: Vec<(Labels<'_>, u64)> = refused.iter().map(|(l, n)| (&l[..], *n)).collect();
        out.counter("hotrow_requests_refused_total", "Requests refused because too many wait.", &refused);
        out.gauge("hotrow_cache_capacity_bytes", "Bound on the cache.", &one(shared.cache.config().capacity_bytes));
        out.gauge("hotrow_build_info", "The version that runs.", &[(&[("version", env!("CARGO_PKG_VERSION"))], 1_u64)]);
        if let Some(resident) = resident_bytes() {
            out.gauge("process_resident_memory_bytes", "Resident memory.", &one(resident));
        }
        if let Ok(cpu) = cpu_seconds() {
            out.counter("process_cpu_seconds_total", "User and system time.", &[(&[], cpu)]);
        }
    }
}

/// A sample with two labels, owned.
type Pair<'a> = ([(&'a str, &'a str); 2], u64);

fn two<'a>(names: &[&'a str], kinds: &[&'a str], label: &'a str, read: impl Fn(usize) -> Vec<u64>) -> Vec<Pair<'a>> {
    let of = |(i, name): (usize, &&'a str)| -> Vec<Pair<'a>> {
        kinds.iter().zip(read(i)).map(|(kind, n)| ([("collection", *name), (label, *kind)], n)).collect()
    };
    names.iter().enumerate().flat_map(of).collect()
}

fn flat<'a>(pairs: &'a [Pair<'a>]) -> Vec<(Labels<'a>, u64)> {
    pairs.iter().map(|(labels, n)| (&labels[..], *n)).collect()
}

fn cpu_seconds() -> Result<f64, std::num::TryFromIntError> {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(u32::try_from(t.tv_sec).map(f64::from)? + t.tv_nsec as f64 / 1e9)
}
