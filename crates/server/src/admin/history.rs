//! `/history` and `/hot-keys`, and the reading of the counters behind them.

use hotrow_answer::body::Body;
use hotrow_answer::error_type::ErrorType;
use hotrow_answer::http_error::{HttpError, problem};
use hotrow_answer::memory::resident_bytes;
use hotrow_answer::metrics::Totals;
use hotrow_cache::stats::Removal;
use hotrow_measure::clock::Nanos;
use hotrow_measure::top_keys::{TopKey, TopKeys};
use hotrow_telemetry::history::hot_keys::{HALF_LIFE_S, KEYS_MAX};
use hotrow_telemetry::history::recorder::{CollectionReading, Reading};
use hotrow_telemetry::history::series::Series;
use hotrow_telemetry::history::{Frame, PERIOD};
use hotrow_types::key::CollectionId;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::text::cpu_seconds;
use super::{View, plain};

/// Most keys shown of a collection.
const KEYS_SHOWN_MAX: usize = 20;

impl View {
    /// Answers `/history`.
    pub(super) fn answer_history(
        &self,
        query: Option<&str>,
        now: Nanos,
    ) -> Result<Response<Body>, HttpError> {
        let since = match query {
            None | Some("") => Some(0),
            Some(query) => query.strip_prefix("since=").and_then(|number| number.parse().ok()),
        };
        let Some(since) = since else {
            let what = "the query of /history is since=NUMBER, the `next` of the answer before";
            return Ok(problem(StatusCode::BAD_REQUEST, ErrorType::BadQuery, what));
        };
        let lead_ns = self.shared.calendar.wall_lead_ns();
        let unix_ms = |at: Nanos| at.0.saturating_add(lead_ns) / 1_000_000;
        let frame = Frame {
            wall_lead_ns: lead_ns,
            started_unix_ms: unix_ms(self.started_at),
            now_unix_ms: unix_ms(now),
            period_ms: PERIOD.as_millis() as u64,
        };
        Ok(plain(StatusCode::OK, "application/json", self.history.json(since, frame)))
    }

    /// Returns the document of `/hot-keys`.
    pub(super) fn hot_keys_document(&self) -> Value {
        let shown = self.history.hot_keys(|sketches, seconds, too_long| {
            let collections: Map<String, Value> = sketches
                .iter()
                .filter_map(|(id, sketch)| self.hot_keys_of(*id, sketch, seconds))
                .collect();
            json!({
                "enabled": true,
                "half_life_s": HALF_LIFE_S,
                "too_long_keys": too_long,
                "collections": collections,
            })
        });
        shown.unwrap_or_else(|| json!({ "enabled": false, "collections": {} }))
    }

    /// Returns the name of a collection and its hot keys; `None` if the sketch has no weight.
    fn hot_keys_of(
        &self,
        id: CollectionId,
        sketch: &TopKeys,
        seconds: f64,
    ) -> Option<(String, Value)> {
        let collection = self.shared.collections.all().get(usize::from(id.0))?;
        if sketch.total() <= 0.0 || seconds <= 0.0 {
            return None;
        }
        let share = |weight: f64| (weight / sketch.total() * 1e6).round() / 1e6;
        let key = |entry: &TopKey| {
            let id = collection.schema.id_of(&entry.key)?;
            Some(json!({
                "id": id,
                "share": share(entry.count),
                "share_over": share(entry.over),
                "requests_per_s": (entry.count / seconds * 1e3).round() / 1e3,
            }))
        };
        // A key whose count may be mostly error says nothing.
        let is_known = |entry: &&TopKey| entry.over * 2.0 <= entry.count;
        let top = sketch.top(KEYS_SHOWN_MAX).into_iter().filter(is_known);
        let keys: Vec<Value> = top.filter_map(key).collect();
        let value = json!({ "share_error_max": 1.0 / KEYS_MAX as f64, "keys": keys });
        Some((collection.name.clone(), value))
    }

    /// Reads all counters and gauges of the history at `now`.
    pub(crate) fn reading(&self, now: Nanos) -> Reading {
        let mut reading = Reading::empty();
        self.read_requests(&mut reading);
        self.read_refusals(&mut reading);
        self.read_database(&mut reading);
        self.read_state(&mut reading, now);
        reading
    }

    fn read_requests(&self, reading: &mut Reading) {
        let totals = Totals::of(&self.workers);
        let outcomes = [
            Series::RequestsHit,
            Series::RequestsMiss,
            Series::RequestsCoalesced,
            Series::RequestsStale,
            Series::RequestsBypass,
            Series::RequestsNone,
        ];
        outcomes.into_iter().zip(totals.by_outcome).for_each(|(s, n)| reading.set(s, n as f64));
        let classes = [
            Series::Status2xx,
            Series::Status3xx,
            Series::Status4xx,
            Series::Status5xx,
            Series::StatusOther,
        ];
        classes.into_iter().zip(totals.by_status).for_each(|(s, n)| reading.set(s, n as f64));
        for (series, count) in [
            (Series::RefusedShed, totals.shed),
            (Series::RefusedConnections, totals.refused_connections),
            (Series::RefusedMalformed, totals.refused_requests),
            (Series::RefusedAccess, totals.refused_access),
            (Series::ConnectionsOpen, totals.open),
            (Series::ConnectionsAccepted, totals.accepted),
            (Series::SentBytes, totals.bytes_sent),
        ] {
            reading.set(series, count as f64);
        }
        reading.hits = totals.hits;
        reading.misses = totals.misses;
        let collections = self.shared.collections.all().iter().enumerate();
        reading.collections = collections
            .map(|(i, collection)| {
                let [hits, negative, misses, coalesced, stale, bypass, _] = self.lookups_of(i);
                CollectionReading {
                    name: collection.name.clone(),
                    memory: hits + negative + stale,
                    database: misses + coalesced + bypass,
                }
            })
            .collect();
        let sum = |read: fn(&CollectionReading) -> u64| {
            reading.collections.iter().map(read).sum::<u64>() as f64
        };
        let (memory, database) = (sum(|own| own.memory), sum(|own| own.database));
        reading.set(Series::LookupsMemory, memory);
        reading.set(Series::LookupsDatabase, database);
    }

    fn read_refusals(&self, reading: &mut Reading) {
        let admission = &self.shared.admission;
        let inflight = &admission.inflight;
        let budgets = &self.shared.budgets;
        let breakers = self.sources().iter().map(|reads| reads.breaker.refused_total());
        let no_room = [&budgets.answers, &budgets.bodies, &budgets.rows];
        let no_room: u64 = no_room.iter().map(|budget| budget.refused_total()).sum();
        for (series, count) in [
            (Series::RefusedRateLimit, admission.rate.refused_total()),
            (Series::RefusedBreaker, breakers.sum()),
            (Series::RefusedInFlight, inflight.waiting.refused() + inflight.privileged.refused()),
            (Series::RefusedMemory, no_room),
        ] {
            reading.set(series, count as f64);
        }
    }

    fn read_database(&self, reading: &mut Reading) {
        if let Some(limiter) = self.limiters() {
            reading.set(Series::DatabaseLimit, limiter.limit as f64);
            reading.set(Series::DatabaseInFlight, limiter.in_flight as f64);
            reading.waits = limiter.waited_ns;
        }
        let capacity = Removal::ALL.iter().position(|cause| *cause == Removal::Capacity);
        let mut sums = [0_u64; 9];
        for stats in self.snapshots() {
            let parts = [
                stats.queries_total,
                stats.batch_keys_total,
                stats.failed_keys_total,
                stats.deadline_rejected_total,
                stats.queue_dropped_total + stats.refused_total,
                stats.waiting_keys,
                stats.bytes,
                stats.entries,
                capacity.map_or(0, |capacity| stats.removed[capacity]),
            ];
            sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        }
        let series = [
            Series::DatabaseQueries,
            Series::DatabaseKeys,
            Series::DatabaseFailedKeys,
            Series::RefusedDeadline,
            Series::RefusedQueue,
            Series::QueueKeys,
            Series::CacheBytes,
            Series::CacheEntries,
            Series::CacheEvictions,
        ];
        series.into_iter().zip(sums).for_each(|(s, sum)| reading.set(s, sum as f64));
    }

    fn read_state(&self, reading: &mut Reading, now: Nanos) {
        let cache = &self.shared.cache;
        let followed = self.sources().iter().map(|reads| reads.id);
        let known = followed.filter(|id| cache.is_followed(*id) && cache.has_watermark(*id));
        // Of several sources, that of the one which is furthest behind.
        if let Some(staleness) = known.map(|id| cache.staleness(id, now)).max() {
            reading.set(Series::FeedStaleness, staleness.as_secs_f64() * 1e3);
        }
        let changes = self.sources().iter().map(|reads| reads.feed.changes_total());
        reading.set(Series::FeedChanges, changes.sum::<u64>() as f64);
        let waiting = self.shared.admission.inflight.waiting.get();
        reading.set(Series::QueueRequests, waiting as f64);
        let pressure = self.levels().into_iter().max();
        reading.set(Series::Pressure, f64::from(pressure.unwrap_or_default() as u8));
        reading.set(Series::Ready, f64::from(u8::from(self.readiness.unmet(now).is_empty())));
        if let Ok(seconds) = cpu_seconds() {
            reading.set(Series::CpuCores, seconds);
        }
        if let Some(bytes) = resident_bytes() {
            reading.set(Series::MemoryBytes, bytes as f64);
        }
    }
}
