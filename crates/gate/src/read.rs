//! Database reads: executing batches for misses, and waiting for their results.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hotrow_admission::breaker::State;
use hotrow_admission::concurrency::limit::Outcome;
use hotrow_answer::budgets::Budgets;
use hotrow_answer::collections::{Collection, Collections};
use hotrow_answer::context::ReadRequest;
use hotrow_answer::http_error::HttpError;
use hotrow_answer::shed::LoadShedder;
use hotrow_cache::flight::{Waited, Waiter};
use hotrow_cache::{Answers, BatchLoader, Fetched, LookupError, Record};
use hotrow_measure::clock::Nanos;
use hotrow_source::looks::Looks;
use hotrow_source::{ReadFailure, ReadSet, Row, Source, SourceError};
use hotrow_supervisor::TaskGuard;
use hotrow_telemetry::query_log::{EndedQuery, QueryLog, Traces, WaitingTrace};
use hotrow_telemetry::traces::{self, QuerySpan, ReadKind, TraceSlot, Tracer, WaitingRequest};
use hotrow_types::key::{CollectionId, Key};
use hotrow_types::source::SourceId;
use hotrow_types::version::Version;

use crate::admission::breaker::SourceBreaker;
use crate::admission::concurrency::{ConcurrencyLimiter, Query};
use crate::cache_in_force::CacheInForce;
use crate::feed_counts::FeedCounts;
use crate::feed_progress::FeedProgress;
use crate::rows::convert_row;
use crate::standby::{self, Primary, StandbyReads};

/// Reads of the databases, and the cache that gets the rows.
pub struct Fetcher {
    /// The cache, under the settings in force.
    pub cache: CacheInForce,
    /// The served collections.
    pub collections: Arc<Collections>,
    /// In the order of their numbers.
    pub sources: Box<[SourceReads]>,
    /// Memory of rows, and their mean sizes.
    pub budgets: Arc<Budgets>,
    /// Log of slow queries, and traces that wait.
    pub query_log: QueryLog,
    /// Traces, if they are configured.
    pub tracer: Option<Arc<Tracer>>,
}

/// Reads of one database: its source, what protects it, and how far its feed is.
pub struct SourceReads {
    /// Number of the source.
    pub id: SourceId,
    /// Name in the configuration.
    pub name: String,
    /// The database.
    pub source: Arc<dyn Source>,
    /// Limiter that each query passes on its way to the source.
    pub limiter: ConcurrencyLimiter,
    /// Circuit breaker of the database.
    pub breaker: SourceBreaker,
    /// Reads of standbys.
    pub standbys: StandbyReads,
    /// Progress of the feed, for requests with a minimal position.
    pub progress: Arc<FeedProgress>,
    /// Looks at the end of the log, for strict requests.
    pub looks: Looks,
    /// Counters of the feed.
    pub feed: FeedCounts,
    /// Refusals under load of what needs this database.
    pub load_shedder: Arc<LoadShedder>,
}

impl Fetcher {
    /// Returns the reads of the database that a collection is read from.
    pub fn of(&self, collection: CollectionId) -> &SourceReads {
        &self.sources[self.collections.get(collection).source.index()]
    }

    /// Begins the trace of a request, if it waits for `keys` from now on; `None`: it is not traced.
    pub fn trace(
        &self,
        request: &ReadRequest<'_>,
        keys: &[&Key],
        kind: ReadKind,
    ) -> Option<WaitingRequest> {
        self.tracer.as_ref().filter(|_| request.is_traced)?.wait(request.headers, keys, kind)
    }

    /// Returns a place for the trace of a request that may begin to wait for keys later; `None`:
    /// none is traced.
    pub fn trace_slot(&self) -> Option<TraceSlot> {
        self.tracer.as_ref().map(|_| TraceSlot::default())
    }

    /// Reports a query to the traced requests that wait for it, before they get its rows.
    fn traced(&self, query: &traces::EndedQuery<'_>) -> Option<QuerySpan> {
        self.tracer.as_ref()?.query_ended(query)
    }
}

impl SourceReads {
    fn primary<'a>(&'a self, cache: &'a CacheInForce) -> Primary<'a> {
        let Self { id, standbys, progress, .. } = self;
        Primary { id: *id, source: &*self.source, standbys, progress, cache }
    }

    /// Returns whether the database may be read for no request: not in place of a probe of the
    /// breaker, and not under load.
    pub fn may_read_in_background(&self, now: Nanos) -> bool {
        self.breaker.state(now) == State::Closed && self.load_shedder.load().is_none()
    }
}

/// Sends the queued queries of the collection on this worker's runtime, if a batch loader is free.
pub fn lead(fetcher: &Arc<Fetcher>, collection: CollectionId) {
    if let Some(loader) = fetcher.cache.get().batch_loader(collection) {
        let fetcher = Arc::clone(fetcher);
        let guard = TaskGuard::new();
        tokio::spawn(async move {
            let _guard = guard;
            run_batches(&fetcher, loader).await;
        });
    }
}

/// Bytes of records copied before the other tasks of the thread get their loader: some tenths of a
/// millisecond.
const RECORD_BYTES_PER_TURN: usize = 256 << 10;

/// Sends the queued queries of the loader's collection until no key waits.
pub(crate) async fn run_batches(fetcher: &Fetcher, mut loader: BatchLoader<ReadFailure>) {
    let mut pause = standby::PAUSE.start;
    let reads = fetcher.of(loader.collection());
    loop {
        let limiter_permit = reads.limiter.enter().await;
        loader.follow(fetcher.cache.get());
        let now = Nanos::now();
        let breaker_permit = match reads.breaker.ask(now) {
            Ok(breaker_permit) => breaker_permit,
            // A key queued after this finds no leader, and leads itself.
            Err(failure) => return reads.breaker.give_up(loader.collection(), failure),
        };
        let id = loader.collection();
        loader.limit_keys(fetcher.budgets.query_keys_max(id));
        let Some(keys) = loader.next_batch(now) else { return };
        let count = keys.len();
        let first_key = keys.first().cloned();
        let traces = fetcher.query_log.traces_of(&keys);
        let traced_keys = fetcher.tracer.as_ref().map(|_| keys.clone());
        let interest = loader.interest();
        let rows = fetcher.budgets.query(move || interest.is_wanted());
        let (permits, result) = match loader.standby_floor() {
            None => {
                let query = limiter_permit.send(id, count, loader.waited(), now);
                let result = reads.source.read_within(id, keys, rows.clone()).await;
                (Some((query, breaker_permit)), result)
            }
            Some(floor) => {
                // A standby is subject to neither limit nor breaker, and teaches them nothing.
                drop((limiter_permit, breaker_permit));
                match reads
                    .primary(&fetcher.cache)
                    .read_standby(id, keys, rows.clone(), floor)
                    .await
                {
                    Some(read) => (None, Ok(read)),
                    None => {
                        loader.read_primary();
                        continue;
                    }
                }
            }
        };
        let sent_at = now;
        let now = Nanos::now();
        let ended = EndedQuery {
            collection: id,
            keys: count,
            waited: loader.waited(),
            took: now.since(sent_at),
            has_failed: result.is_err(),
            traces: &traces,
        };
        fetcher.query_log.ended(&ended);
        let span = traced_keys.and_then(|keys| {
            fetcher.traced(&traces::EndedQuery {
                collection: id,
                keys: &keys,
                sent_at,
                ended_at: now,
                result: &result,
            })
        });
        reads.breaker.note_failed_key(first_key, &result);
        if let Some((query, breaker_permit)) = permits {
            breaker_permit.record(&result, now);
            record(query, &result, now);
        }
        result.iter().for_each(|read| learn_sizes(&fetcher.budgets, id, read));
        let collection = fetcher.collections.get(id);
        // What is stored from now on is stored by the settings in force.
        loader.follow(fetcher.cache.get());
        if !(matches!(result, Err(SourceError::Data { .. })) && loader.split()) {
            loader.arrived(convert_result(result, count, collection, &traces), now);
        }
        while loader.answer_some(RECORD_BYTES_PER_TURN, now) {
            tokio::task::yield_now().await;
        }
        if let (Some(tracer), Some(span)) = (&fetcher.tracer, span) {
            tracer.record_query(span, loader.fills());
        }
        // All rows have been taken.
        drop(rows);
        if loader.fills().hidden > 0 {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(standby::PAUSE.end);
        } else {
            pause = standby::PAUSE.start;
        }
    }
}

fn learn_sizes(budgets: &Budgets, id: CollectionId, read: &ReadSet) {
    let found = read.rows.iter().filter_map(|row| match row {
        Row::Found(body) | Row::Uncacheable(Some(body)) => Some(body.len() as u64),
        Row::Missing | Row::Uncacheable(None) | Row::NotRead | Row::NoRoom | Row::Unreadable(_) => {
            None
        }
    });
    let (rows, bytes) = found.fold((0, 0), |(rows, sum), bytes| (rows + 1, sum + bytes));
    budgets.learn(id, rows, bytes);
}

/// Reports the end of a query to the limiter. A query that cannot succeed says nothing about the
/// database: a dropped table must not lower the limit for all other collections.
pub(crate) fn record(query: Query<'_>, result: &Result<ReadSet, SourceError>, now: Nanos) {
    let outcome = match result {
        // An incomplete read says nothing about the cost of its keys.
        Ok(read) if read.rows.iter().any(|row| matches!(row, Row::NotRead | Row::NoRoom)) => return,
        Ok(_) => Outcome::Answered,
        Err(SourceError::Timeout { .. }) => Outcome::TimedOut,
        Err(SourceError::Unavailable { .. }) => Outcome::Failed,
        Err(SourceError::Broken { .. } | SourceError::Data { .. }) => return,
    };
    query.ended(outcome, now);
}

/// Converts a result of the source for the cache. Causes are logged here only.
pub(crate) fn convert_result(
    result: Result<ReadSet, SourceError>,
    keys: usize,
    collection: &Collection,
    traces: &Traces,
) -> Result<Answers<ReadFailure>, ReadFailure> {
    let Collection { name: collection, tenancy, alias, .. } = collection;
    let found = |body: Vec<u8>| match alias {
        None => Some(body),
        Some(alias) => convert_row(alias, &body),
    };
    let unreadable = || match tenancy {
        None => Fetched::Failed(ReadFailure::Unreadable),
        // An error would tell everybody that the record exists.
        Some(_) => Fetched::Missing,
    };
    let read = result.or_else(|error| {
        hotrow_telemetry::throttle::QUERY_FAILED.warn(|suppressed| {
            let trace_ids = traces.text();
            tracing::warn!(collection, keys, suppressed, trace_ids, %error, "query failed");
        });
        match (&error, tenancy) {
            // As for a row without a form: an error would show that the record exists.
            (SourceError::Data { .. }, Some(_)) if keys == 1 => {
                let rows = vec![Row::Uncacheable(None)];
                Ok(ReadSet { version: Version::Unknown, position: None, rows })
            }
            _ => Err(ReadFailure::from(&error)),
        }
    })?;
    let rows = read.rows.into_iter().map(|row| match row {
        Row::Found(body) => found(body).map_or_else(unreadable, Fetched::Found),
        Row::Missing => Fetched::Missing,
        Row::Uncacheable(body) => Fetched::Uncacheable(body.and_then(found)),
        Row::NotRead => Fetched::NotRead,
        Row::NoRoom => Fetched::Failed(ReadFailure::NoRoom),
        Row::Unreadable(cause) => {
            hotrow_telemetry::throttle::ROW_UNREADABLE.warn(|suppressed| {
                let trace_ids = traces.text();
                tracing::warn!(
                    collection,
                    suppressed,
                    trace_ids,
                    cause,
                    "record cannot be turned into JSON"
                );
            });
            unreadable()
        }
    });
    Ok(Answers { version: read.version, position: read.position, rows: rows.collect() })
}

/// Waits for a read that was joined or queued; takes the lead if its reader was cancelled.
pub async fn wait(
    fetcher: &Arc<Fetcher>,
    collection: CollectionId,
    mut waiter: Waiter<ReadFailure>,
) -> Result<Record, LookupError<ReadFailure>> {
    loop {
        match (&mut waiter).await {
            Waited::Done(result) => return result,
            Waited::Lead => lead(fetcher, collection),
        }
    }
}

/// A finished read, with its caller's tag.
type FinishedRead<T, E> = (T, Result<Record, E>);

/// Waits for several reads at once, so that each result is used at once although another takes
/// longer.
pub struct PendingReads<T> {
    pending: Vec<(T, Waiter<ReadFailure>)>,
    done: VecDeque<FinishedRead<T, LookupError<ReadFailure>>>,
    /// Trace of their request, for the log of queries.
    _logged: Option<WaitingTrace>,
    /// Trace of their request, if it is traced.
    waiting: Option<WaitingRequest>,
}

impl<T> PendingReads<T> {
    /// Takes reads in the order in which they were queued.
    pub fn new(reads: Vec<(T, Waiter<ReadFailure>)>) -> Self {
        Self { pending: reads, done: VecDeque::new(), _logged: None, waiting: None }
    }

    /// Keeps the traces of their request until all are done.
    pub fn traced(self, logged: Option<WaitingTrace>, waiting: Option<WaitingRequest>) -> Self {
        Self { _logged: logged, waiting, ..self }
    }

    /// Returns the trace of their request for its end, if it is traced.
    pub fn trace_slot(&self) -> Option<TraceSlot> {
        self.waiting.as_ref().map(WaitingRequest::slot)
    }

    /// Returns the next finished read, or a time-out for all unfinished ones at the deadline;
    /// `None` after the last.
    pub async fn next(
        &mut self,
        fetcher: &Arc<Fetcher>,
        collection: CollectionId,
        deadline: Nanos,
    ) -> Option<FinishedRead<T, HttpError>> {
        if self.done.is_empty() && !self.pending.is_empty() {
            let left = deadline.since(Nanos::now());
            let some = poll_fn(|cx| self.poll(cx, fetcher, collection));
            if tokio::time::timeout(left, some).await.is_err() {
                let (read, _) = self.pending.remove(0);
                return Some((
                    read,
                    Err(HttpError::Timeout("the database did not answer in time")),
                ));
            }
        }
        let (read, result) = self.done.pop_front()?;
        Some((read, result.map_err(|failure| HttpError::from(&failure))))
    }

    /// Ready when a read is done.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        fetcher: &Arc<Fetcher>,
        collection: CollectionId,
    ) -> Poll<()> {
        let mut still_pending = Vec::with_capacity(self.pending.len());
        for (read, mut waiter) in self.pending.drain(..) {
            loop {
                match Pin::new(&mut waiter).poll(cx) {
                    Poll::Ready(Waited::Done(result)) => self.done.push_back((read, result)),
                    Poll::Ready(Waited::Lead) => {
                        lead(fetcher, collection);
                        continue;
                    }
                    Poll::Pending => still_pending.push((read, waiter)),
                }
                break;
            }
        }
        self.pending = still_pending;
        if self.done.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hotrow_admission::concurrency::limit::{Config, Kind};

    use super::*;

    /// Returns the limit after 50 rounds of queries, at most four at once, that all end with
    /// `error`.
    async fn limit_after(error: &SourceError) -> usize {
        let config = Config {
            kind: Kind::Gradient,
            max: 4,
            tolerance: 2.0,
            probe_interval: Duration::from_secs(3600),
        };
        let limiter = ConcurrencyLimiter::new(config, 1);
        for round in 0..50 {
            let mut queries = Vec::new();
            for _ in 0..limiter.view().limit {
                let sent_at = Nanos(round * 1_000_000_000);
                queries.push(limiter.enter().await.send(
                    CollectionId(0),
                    1,
                    Duration::ZERO,
                    sent_at,
                ));
            }
            let now = Nanos((round + 1) * 1_000_000_000);
            queries.into_iter().for_each(|query| record(query, &Err(error.clone()), now));
        }
        assert_eq!(limiter.view().in_flight, 0);
        limiter.view().limit
    }

    #[tokio::test]
    async fn a_collection_that_cannot_be_read_does_not_throttle_the_others() {
        let detail = || "as the test says".to_owned();
        assert_eq!(limit_after(&SourceError::Broken { detail: detail() }).await, 4);
        assert_eq!(limit_after(&SourceError::Unavailable { detail: detail() }).await, 1);
    }
}
