//! What operators see of queries: the slow ones in the log, and the traces of the requests that
//! wait for a query which is slow or fails. Never a value of a record or an id.
//!
//! A query serves many requests, and is sent by none of them. So a request with a trace enters its
//! key here while it waits, and a query looks its keys up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hotrow_http1::fields::Fields;
use hotrow_otel::context::TraceId;
use hotrow_types::key::{CollectionId, Key};
use parking_lot::Mutex;

use crate::exposition::Exposition;
use crate::names::CollectionNames;
use crate::throttle::SLOW_QUERY;
use crate::trace_context::parent_of;

/// Most keys of a query that are looked up.
const KEYS_MAX: usize = 64;
/// Most traces that a line names.
const TRACES_MAX: usize = 4;

/// Log of queries, and the traces that wait for them.
#[derive(Debug)]
pub struct QueryLog {
    /// Duration from which a query is slow, by source; zero: none is.
    slow: Box<[Duration]>,
    /// Slow queries, by collection.
    slow_total: Box<[AtomicU64]>,
    collections: CollectionNames,
    waiting: Arc<WaitingTraces>,
}

/// Traces by the key that their requests wait for. Bounded by the requests in flight.
#[derive(Debug, Default)]
struct WaitingTraces {
    by_key: Mutex<HashMap<Key, TraceId>>,
    /// Number of keys, so that queries without traces take no lock.
    count: AtomicUsize,
}

/// A trace that waits; it leaves when dropped.
#[derive(Debug)]
pub struct WaitingTrace {
    key: Key,
    waiting: Arc<WaitingTraces>,
}

impl Drop for WaitingTrace {
    fn drop(&mut self) {
        let mut by_key = self.waiting.by_key.lock();
        by_key.remove(&self.key);
        self.waiting.count.store(by_key.len(), Ordering::Release);
    }
}

/// Traces of requests that wait for one query: some of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traces(Vec<TraceId>);

impl Traces {
    /// Returns their ids with commas between; `None` without any.
    pub fn text(&self) -> Option<String> {
        let ids: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        (!ids.is_empty()).then(|| ids.join(","))
    }
}

/// A query that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedQuery<'a> {
    /// The collection that it reads.
    pub collection: CollectionId,
    /// Number of its keys.
    pub keys: usize,
    /// Longest time for which one of them waited for it to be sent.
    pub waited: Duration,
    /// From its begin to its result.
    pub took: Duration,
    /// Whether it has no result.
    pub has_failed: bool,
    /// Traces of requests that wait for it.
    pub traces: &'a Traces,
}

impl QueryLog {
    /// `slow`: duration from which a query is slow, by source; zero: none is.
    pub fn new(slow: impl IntoIterator<Item = Duration>, collections: CollectionNames) -> Self {
        Self {
            slow: slow.into_iter().collect(),
            slow_total: collections.all().map(|_| AtomicU64::new(0)).collect(),
            collections,
            waiting: Arc::default(),
        }
    }

    /// Enters the trace of a request that waits for a key, if it has one. Of several requests for
    /// one key, the first is entered.
    pub fn enter(&self, key: &Key, headers: Fields<'_>) -> Option<WaitingTrace> {
        let trace = parent_of(headers)?.span.trace_id;
        let mut by_key = self.waiting.by_key.lock();
        if by_key.contains_key(key) {
            return None;
        }
        by_key.insert(key.clone(), trace);
        self.waiting.count.store(by_key.len(), Ordering::Release);
        drop(by_key);
        Some(WaitingTrace { key: key.clone(), waiting: Arc::clone(&self.waiting) })
    }

    /// Returns traces of requests that wait for these keys.
    pub fn traces_of(&self, keys: &[Key]) -> Traces {
        if self.waiting.count.load(Ordering::Acquire) == 0 {
            return Traces::default();
        }
        let by_key = self.waiting.by_key.lock();
        let found = keys.iter().take(KEYS_MAX).filter_map(|key| by_key.get(key).copied());
        Traces(found.take(TRACES_MAX).collect())
    }

    /// Logs a query if it was slow.
    pub fn ended(&self, query: &EndedQuery<'_>) {
        let slow = self.slow[self.collections.source(query.collection).index()];
        if slow.is_zero() || query.took < slow {
            return;
        }
        let CollectionId(id) = query.collection;
        self.slow_total[usize::from(id)].fetch_add(1, Ordering::Relaxed);
        SLOW_QUERY.warn(|suppressed| {
            let EndedQuery { keys, has_failed, .. } = *query;
            tracing::warn!(
                collection = self.collections.name(query.collection),
                keys,
                duration_ms = query.took.as_secs_f64() * 1e3,
                waited_ms = query.waited.as_secs_f64() * 1e3,
                has_failed,
                trace_ids = query.traces.text(),
                suppressed,
                "slow query"
            );
        });
    }

    /// Writes the metrics.
    pub fn expose(&self, out: &mut Exposition) {
        let slow = self.collections.all().zip(&self.slow_total);
        out.counter(
            "hotrow_slow_queries_total",
            "Queries that took at least source.slow_query.",
            slow.map(|(name, count)| ([("collection", name)], count.load(Ordering::Relaxed))),
        );
    }
}

#[cfg(test)]
mod tests {
    use hotrow_http1::fields::FieldsBuf;
    use hotrow_types::key::{KeySchema, KeyType};
    use hotrow_types::source::SourceId;

    use super::*;

    fn key(id: u32) -> Key {
        let schema = KeySchema::new(CollectionId(0), vec![KeyType::Integer]);
        schema.parse_url(&id.to_string()).unwrap()
    }

    fn log() -> QueryLog {
        let names = [("c0".to_owned(), SourceId::FIRST)];
        QueryLog::new([Duration::ZERO], names.into_iter().collect())
    }

    fn trace(number: u32) -> FieldsBuf {
        let value = format!("00-{number:032x}-00f067aa0ba902b7-01");
        FieldsBuf::from_iter([("traceparent", value)])
    }

    #[test]
    fn a_query_has_the_traces_that_wait_for_its_keys() {
        let log = log();
        assert!(log.enter(&key(1), FieldsBuf::default().as_fields()).is_none());
        assert_eq!(log.traces_of(&[key(1)]).text(), None);
        let first = log.enter(&key(1), trace(1).as_fields());
        assert!(log.enter(&key(1), trace(2).as_fields()).is_none(), "the first is entered");
        let other = log.enter(&key(2), trace(3).as_fields());
        let text = log.traces_of(&[key(2), key(1), key(9)]).text();
        assert_eq!(text, Some(format!("{:032x},{:032x}", 3, 1)));
        drop(first);
        assert_eq!(log.traces_of(&[key(2), key(1)]).text(), Some(format!("{:032x}", 3)));
        drop(other);
        assert_eq!(log.waiting.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_line_names_some_traces_only() {
        let log = log();
        let waiting: Vec<_> =
            (1..=10).map(|id| log.enter(&key(id), trace(id).as_fields()).unwrap()).collect();
        let keys: Vec<Key> = (1..=10).map(key).collect();
        assert_eq!(log.traces_of(&keys).0.len(), TRACES_MAX);
        drop(waiting);
    }
}
