//! Sources on the admin side: the database of each, its feed, and what protects it. Metrics of a
//! source have its name as the label `source`.
//!
//! Reference `metrics`: Reads of the database
//!
//! - `hotrow_fills_total` (`collection`): Keys queued for a read.
//! - `hotrow_coalesced_total` (`collection`): Requests that joined a read.
//! - `hotrow_queries_total` (`collection`): Queries sent, those to standbys included.
//! - `hotrow_slow_queries_total` (`collection`): Queries that took at least
//!   [`source.slow_query`](logs.md#slow-queries).
//! - `hotrow_batch_keys_total` (`collection`): Keys in the queries sent.
//! - `hotrow_merged_queries_total` (`collection`, `keys_up_to`): Queries by keys (`1`, `4`, …
//!   `1024`, `more`), not cumulative.
//! - `hotrow_failed_keys_total` (`collection`): Keys whose read failed. **Any**: see the log.
//! - `hotrow_fills_discarded_total` (`collection`): Results answered and not kept: a change came
//!   between or was not visible.
//! - `hotrow_fills_not_admitted_total` (`collection`): Results answered and not kept: [scanning
//!   clients](design.md#scans) only.
//! - `hotrow_fill_retries_total` (`collection`): Reads repeated because a newer answer existed.
//! - `hotrow_keys_refused_total` (`collection`): Keys refused at `limits.waiting_keys`. **Any**:
//!   the database is too slow.
//! - `hotrow_deadline_rejected_total` (`collection`): Keys unread because [too
//!   late](overload.md#concurrency).
//! - `hotrow_queue_dropped_total` (`collection`): Keys dropped from a standing queue. **Any**: too
//!   many cold reads.
//! - `hotrow_queue_lifo` (`collection`): 1: newest keys first.
//! - `hotrow_queue_wait_seconds` (`source`): Histogram, longest wait of a key per query.
//! - `hotrow_query_limit` (`source`): Queries allowed at once, over its collections. Below
//!   `source.reads_in_flight`: the database slows down.
//! - `hotrow_query_limit_used` (`source`): Queries that count against `hotrow_query_limit`.
//! - `hotrow_query_limit_probes_total` (`source`): Measurements of queries alone.
//! - `hotrow_waiting_keys` (`collection`): Keys waiting for a query.
//! - `hotrow_queries_in_flight` (`collection`): Queries at the database.
//! - `hotrow_requests_waiting`: Requests waiting for database or feed.
//! - `hotrow_privileged_waiting`: Waiting `no-cache` and `Hotrow-Min-Position` requests.
//! - `hotrow_requests_refused_total` (`limit`): Requests refused: `requests_in_flight` or
//!   `privileged_waiters` reached.
//! - `hotrow_source_queries_total` (`source`): Statements, counted at the source.
//! - `hotrow_source_reachable` (`source`): 1: the database answers.
//! - `hotrow_standby_reads_total` (`source`, `standby`): Queries that a [standby](replicas.md)
//!   answered. This and the next three only with `source.read_urls`.
//! - `hotrow_standby_refusals_total` (`source`, `reason`): Queries sent to the primary, because no
//!   standby could answer.
//! - `hotrow_standby_lag_bytes` (`source`, `standby`): Log that it had not replayed when it was
//!   read last; NaN before.
//! - `hotrow_standby_usable` (`source`, `standby`): 0: it is not asked now.
//!
//! Reference `metrics`: Freshness
//!
//! - `hotrow_feed_followed` (`source`): 0 with `source.feed = "none"`; the next two are then
//!   absent.
//! - `hotrow_feed_staleness_seconds` (`source`): Time for which a change may be unseen.
//! - `hotrow_feed_current` (`source`): 1: within `cache.max_staleness`. 0: `when_stale` applies.
//! - `hotrow_feed_position` (`source`, `log`): Point handled in this incarnation of the log. Absent
//!   without positions. Standstill under writes: see the log.
//! - `hotrow_feed_changes_total` (`source`): Changes delivered.
//! - `hotrow_feed_starts_total` (`source`): Starts of the feed.
//! - `hotrow_feed_reconnects_total` (`source`): Starts after the first. **Any**: the database was
//!   away.
//! - `hotrow_feed_gaps_total` (`source`, `cause`): Changes may have been missed: `log_pruned`,
//!   `other_log`, `other_database`, `unavailable`, `not_watched`, `feed_failed` (a panic, or a log
//!   that cannot be read), `hub` ([change hub](hub.md)). **Any**: see the log.
//! - `hotrow_feed_flushes_total` (`source`, `cause`): Collections flushed: `bulk` (too many changes
//!   to list), `schema`, `unlisted` (`watch = "none"`), `gap` (changes may be missing).
//! - `hotrow_feed_epochs_total` (`source`): Every entry of the source became stale: losses and
//!   starts.
//! - `hotrow_strict_looks_total` (`source`): Looks at the log's end for [strict
//!   requests](consistency.md). At `strict_looks_per_s`: they wait for their turn.
//! - `hotrow_strict_wait_seconds` (`source`): Histogram, wait of strict requests for a look.
//! - `hotrow_strict_look_seconds` (`source`): Histogram, from a look for strict requests until the
//!   feed has passed it.
//! - `hotrow_checked_answers_total`: Answers [checked](verify.md#the-check-in-every-server).
//! - `hotrow_inconsistent_answers_total`: Checked answers that differed from the database. **Any**:
//!   a change [not in the feed](consistency.md#what-no-feed-shows), or a bug.

use std::sync::atomic::Ordering::Relaxed;

use hotrow_admission::breaker::State;
use hotrow_answer::units::millis;
use hotrow_gate::admission::breaker::badness;
use hotrow_gate::admission::concurrency;
use hotrow_gate::read::SourceReads;
use hotrow_measure::clock::Nanos;
use hotrow_measure::histogram::SharedHistogram;
use hotrow_source::looks::Looks;
use hotrow_telemetry::exposition::{Exposition, Labels, Number, Scale};
use serde_json::{Map, Value, json};

use super::View;

/// Histogram of looks: name, values.
type LookTimes = (&'static str, fn(&Looks) -> &SharedHistogram);

const LOOK_TIMES: [LookTimes; 2] = [
    ("hotrow_strict_wait_seconds", |looks| &looks.waited_ns),
    ("hotrow_strict_look_seconds", |looks| &looks.look_ns),
];

impl View {
    /// Returns the reads of each source.
    pub(super) fn sources(&self) -> &[SourceReads] {
        &self.shared.fetcher.sources
    }

    /// Returns one sample for each source that has a value.
    fn by_source<V>(&self, value: impl Fn(&SourceReads) -> Option<V>) -> Vec<(Labels<'_, 1>, V)> {
        let sample = |reads| Some(([("source", source_name(reads))], value(reads)?));
        self.sources().iter().filter_map(sample).collect()
    }

    /// Writes a gauge of the sources that have a value, if any has one.
    fn source_gauge<V: Into<Number>>(
        &self,
        name: &str,
        out: &mut Exposition,
        value: impl Fn(&SourceReads) -> Option<V>,
    ) {
        let samples = self.by_source(value);
        if !samples.is_empty() {
            out.gauge(name, samples);
        }
    }

    fn source_counter(
        &self,
        name: &str,
        out: &mut Exposition,
        value: impl Fn(&SourceReads) -> u64,
    ) {
        out.counter(name, self.by_source(|reads| Some(value(reads))));
    }

    /// Returns samples with another label beside the source.
    fn by_source_and<'a>(
        &'a self,
        label: &'static str,
        values: impl Fn(&SourceReads) -> Vec<(&'static str, u64)>,
    ) -> impl Iterator<Item = (Labels<'a, 2>, u64)> {
        self.sources().iter().flat_map(move |reads| {
            let source = ("source", source_name(reads));
            values(reads).into_iter().map(move |(value, n)| ([source, (label, value)], n))
        })
    }

    /// Writes the metrics of the concurrency limits.
    pub(super) fn expose_gate(&self, out: &mut Exposition) {
        let views: Vec<_> = self.sources().iter().map(|reads| reads.limiter.view()).collect();
        let view = |reads: &SourceReads| &views[reads.id.index()];
        self.source_gauge("hotrow_query_limit", out, |reads| Some(view(reads).limit as u64));
        self.source_gauge("hotrow_query_limit_used", out, |reads| {
            Some(view(reads).in_flight as u64)
        });
        self.source_counter("hotrow_query_limit_probes_total", out, |reads| {
            view(reads).probes_total
        });
        let waited = self.sources().iter().zip(&views);
        out.histogram(
            "hotrow_queue_wait_seconds",
            Scale::LATENCY,
            waited.map(|(reads, view)| ([("source", source_name(reads))], &view.waited_ns)),
        );
    }

    /// Writes the metrics of the feeds and the databases.
    pub(super) fn expose_feed(&self, now: Nanos, out: &mut Exposition) {
        let cache = &self.shared.cache;
        let is_followed = |reads: &SourceReads| cache.is_followed(reads.id);
        self.source_gauge("hotrow_feed_followed", out, |reads| Some(u64::from(is_followed(reads))));
        self.source_gauge("hotrow_feed_staleness_seconds", out, |reads| {
            is_followed(reads).then(|| cache.staleness(reads.id, now).as_secs_f64())
        });
        self.source_gauge("hotrow_feed_current", out, |reads| {
            is_followed(reads).then(|| u64::from(cache.is_current(reads.id, now)))
        });
        self.expose_positions(out);
        self.source_counter("hotrow_feed_changes_total", out, |reads| reads.feed.changes_total());
        self.source_counter("hotrow_feed_starts_total", out, |reads| reads.feed.starts_total());
        self.source_counter("hotrow_feed_reconnects_total", out, |reads| {
            reads.feed.starts_total().saturating_sub(1)
        });
        out.counter(
            "hotrow_feed_gaps_total",
            self.by_source_and("cause", |reads| reads.feed.losses_total().to_vec()),
        );
        out.counter(
            "hotrow_feed_flushes_total",
            self.by_source_and("cause", |reads| reads.feed.flushes_total().to_vec()),
        );
        self.source_counter("hotrow_feed_epochs_total", out, |reads| {
            cache.feed_epochs_total(reads.id)
        });
        self.source_gauge("hotrow_source_reachable", out, |reads| {
            Some(u64::from(reads.source.health().is_ok()))
        });
        self.source_counter("hotrow_source_queries_total", out, |reads| {
            reads.source.queries_total()
        });
        self.expose_looks(out);
        self.expose_standbys(out);
    }

    /// Writes the metrics of strict requests.
    fn expose_looks(&self, out: &mut Exposition) {
        let looks = |reads: &SourceReads| reads.looks.sent_total.load(Relaxed);
        self.source_counter("hotrow_strict_looks_total", out, looks);
        for (name, of) in LOOK_TIMES {
            let times = self.by_source(|reads| Some(of(&reads.looks).snapshot()));
            let samples = times.iter().map(|(labels, times)| (*labels, times));
            out.histogram(name, Scale::LATENCY, samples);
        }
    }

    fn expose_positions(&self, out: &mut Exposition) {
        let cache = &self.shared.cache;
        let positions: Vec<_> = self
            .sources()
            .iter()
            .filter_map(|reads| {
                let position = cache.applied(reads.id)?;
                Some((&*reads.name, format!("{:016x}", position.incarnation), position.at))
            })
            .collect();
        if !positions.is_empty() {
            let samples = positions
                .iter()
                .map(|(source, log, at)| ([("source", *source), ("log", log.as_str())], *at));
            out.gauge("hotrow_feed_position", samples);
        }
    }

    /// Writes the metrics of the circuit breakers, and of the pressure of each database.
    pub(super) fn expose_breakers(&self, now: Nanos, out: &mut Exposition) {
        let states = |reads: &SourceReads| {
            let state = reads.breaker.state(now);
            State::ALL.map(|one| (one.label(), u64::from(one == state))).to_vec()
        };
        out.gauge("hotrow_breaker_state", self.by_source_and("state", states));
        let entered = |reads: &SourceReads| {
            let entered = State::ALL.into_iter().zip(reads.breaker.transitions_total());
            entered.map(|(state, n)| (state.label(), n)).collect()
        };
        out.counter("hotrow_breaker_transitions_total", self.by_source_and("state", entered));
        self.source_counter("hotrow_breaker_refused_keys_total", out, |reads| {
            reads.breaker.refused_total()
        });
    }

    /// Returns the section `sources` of `/status`.
    pub(super) fn sources_status(&self, now: Nanos) -> Value {
        let named = |reads: &SourceReads| (reads.name.clone(), self.source_status(reads, now));
        self.sources().iter().map(named).collect::<Map<String, Value>>().into()
    }

    fn source_status(&self, reads: &SourceReads, now: Nanos) -> Value {
        let cache = &self.shared.cache;
        let config = cache.config();
        let SourceReads { id, source, feed, breaker, .. } = reads;
        let followed = cache.is_followed(*id);
        json!({
            "reachable": source.health().is_ok(),
            "queries": source.queries_total(),
            "breaker": breaker.state(now).label(),
            "breaker_refused_keys": breaker.refused_total(),
            "level": reads.load_shedder.level().label(),
            "concurrency": self.concurrency_of(&reads.limiter.view()),
            "standbys": super::standbys::status(&**source),
            "feed": {
                "followed": followed,
                "current": followed.then(|| cache.is_current(*id, now)),
                "staleness_ms": followed.then(|| millis(cache.staleness(*id, now))),
                "max_staleness_ms": followed.then(|| millis(config.max_staleness)),
                "when_stale": followed.then(|| format!("{:?}", config.when_stale).to_lowercase()),
                "position": cache.applied(*id).map(|p| p.to_string()),
                "changes": feed.changes_total(),
                "starts": feed.starts_total(),
                "gaps": feed.losses_total().iter().map(|(_, n)| n).sum::<u64>(),
                "strict": strict_status(&reads.looks),
                "watch": if followed { source.watch() } else { "none" },
            },
        })
    }

    /// Returns the state of the concurrency limits of all sources together. There is one at least.
    pub(super) fn limiters(&self) -> Option<concurrency::View> {
        let views = self.sources().iter().map(|reads| reads.limiter.view());
        views.reduce(|mut all, view| {
            all.limit += view.limit;
            all.in_flight += view.in_flight;
            all.probes_total += view.probes_total;
            all.waited_ns.merge(&view.waited_ns);
            all
        })
    }

    /// Returns the worst state of the circuit breakers.
    pub(super) fn worst_breaker(&self, now: Nanos) -> State {
        let states = self.sources().iter().map(|reads| reads.breaker.state(now));
        states.max_by_key(|state| badness(*state)).unwrap_or(State::Closed)
    }
}

fn strict_status(looks: &Looks) -> Value {
    let waited_ns = looks.waited_ns.snapshot();
    json!({
        "looks": looks.sent_total.load(Relaxed),
        "waits": waited_ns.count(),
        "wait_p99_us": waited_ns.value_at_quantile(0.99).map(|ns| ns / 1_000),
    })
}

fn source_name(reads: &SourceReads) -> &str {
    &reads.name
}
