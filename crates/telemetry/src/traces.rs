//! Traces for a collector of OpenTelemetry: why a request missed, and how long the database took.
//!
//! Reading order: here (which requests are traced), `request` (spans of a request), `waiting`
//! (traced requests by the keys that they wait for), `query` (the span of a query), `feed` (spans
//! of the feed), `export` (the thread that sends them), `headers` (credentials for the collector).
//!
//! A request is traced if its caller records it, or by chance; the number per second is bounded. Of
//! the requests that memory answers, only those have a span that the caller records: their decision
//! reads a header and the rest pays one branch. Spans go to a bounded queue, so that a collector
//! that is slow or down delays no request.
//!
//! Reference `metrics`: Traces
//!
//! Of the export of [traces](traces.md), with `trace.endpoint`.
//!
//! - `hotrow_trace_spans_total` (`outcome`): Spans that left the queue: `exported`, `rejected` by
//!   the collector, `failed` with their message.
//! - `hotrow_trace_spans_dropped_total` (`reason`): Not recorded: spans at a full queue
//!   (`queue_full`), requests over `trace.max_per_s` (`rate`) or while 256 traced ones wait
//!   (`in_flight`).
//! - `hotrow_trace_export_failures_total`: Attempts to send a message that failed. The log has the
//!   cause.
//! - `hotrow_trace_queue_bytes`: Bytes of spans that wait.
//!
//! Reference `logs`: Spans
//!
//! In parentheses: the kind.
//!
//! - `GET /products/{id}`, `POST /products`… (server): a traced request that waits; from memory, if
//!   the caller records it
//! - `wait for position` (internal): the wait of `Hotrow-Min-Position` for the feed
//! - `wait for query` (internal): until a query with its keys was sent, of several that follow each
//!   other before each: the queue and the [concurrency limit](overload.md)
//! - `SELECT products` (`find products`) (client): the query, from its sending to its result
//! - `shared query` (internal): a query whose own span is below another request, with a link to it
//! - `feed start`, `feed gap`, `feed stale` (internal): traces of their own: the start of the feed,
//!   a loss until it follows again or changes of one collection that may be missed, staleness above
//!   `cache.max_staleness`
//!
//! Reference `logs`: Attributes of spans
//!
//! By the semantic conventions: `http.request.method`, `http.route`, `http.response.status_code`,
//! `url.path`, `url.scheme`, `network.protocol.version`, `error.type`; `db.system.name`,
//! `db.namespace`, `db.collection.name`, `db.operation.name`, `db.operation.batch.size` (from two
//! keys), `db.query.summary`, `db.response.returned_rows`. Of Hotrow's own:
//!
//! - `hotrow.cache`: as in [`Hotrow-Cache`](http.md#response-headers); `none` for refusals.
//! - `hotrow.read`: `normal`, `revalidate` (`no-cache`) or `min_position`.
//! - `hotrow.fill.kept`, `.discarded`, `.not_admitted`, `.repeated`: rows of the query by what
//!   became of them; see [`hotrow_fills_discarded_total`](reference/metrics.md) and its neighbours.
//! - `hotrow.query.keys`, `hotrow.position.passed`, `hotrow.feed.loss_cause`, `hotrow.collection`:
//!   as their names say.
//! - `hotrow.source`: the [source](configuration.md#several-databases) whose feed the span is of.

mod export;
mod feed;
mod headers;
mod query;
mod request;
#[cfg(test)]
mod tests;
mod waiting;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::SystemTime;

use hotrow_config::trace::Trace;
use hotrow_http1::fields::Fields;
use hotrow_measure::clock::Nanos;
use hotrow_otel::context::{RandomIds, SpanContext, SpanId, TraceParent};
use hotrow_otel::recorder::{DropReason, Recorder};
use hotrow_otel::sampling::{PerSecond, Sampler};
use hotrow_otel::span::Span;
use hotrow_source::database_name::DatabaseName;
use hotrow_supervisor::Supervisor;
use hotrow_supervisor::shutdown::Shutdown;
use hotrow_types::key::Key;
use tokio::sync::Notify;

pub use self::feed::FeedTrace;
pub use self::headers::{HeadersError, check_headers};
use self::query::DatabaseTexts;
pub use self::query::{EndedQuery, QuerySpan};
pub use self::request::{AnsweredRequest, ReadKind, RequestTrace, TraceSlot};
pub use self::waiting::WaitingRequest;
use self::waiting::WaitingRequests;
use crate::exposition::Exposition;
use crate::names::CollectionNames;
use crate::outcome::CacheOutcome;
use crate::trace_context::parent_of;

/// Most memory of traces: waiting requests, and spans on their way to the collector.
pub const MEMORY_BYTES_MAX: usize =
    hotrow_otel::recorder::MEMORY_BYTES_MAX + waiting::MEMORY_BYTES_MAX;
const _: () = assert!(MEMORY_BYTES_MAX <= 1 << 20);

/// What became of spans that left the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpanOutcome {
    /// The collector has them.
    Exported,
    /// The collector refused them in a message that it accepted.
    Rejected,
    /// Their message was refused, or not delivered in time.
    Failed,
}

const SPAN_OUTCOMES: [(SpanOutcome, &str); 3] = [
    (SpanOutcome::Exported, "exported"),
    (SpanOutcome::Rejected, "rejected"),
    (SpanOutcome::Failed, "failed"),
];

/// Traces of the process.
#[derive(Debug)]
pub struct Tracer {
    config: Trace,
    collections: CollectionNames,
    /// By source.
    databases: Box<[DatabaseTexts]>,
    /// Whether requests over TCP are over TLS.
    is_tls: bool,
    sampler: Sampler,
    per_second: PerSecond,
    ids: RandomIds,
    waiting: WaitingRequests,
    recorder: Recorder,
    /// Notified when a message is full.
    is_full: Notify,
    /// By [`SpanOutcome`].
    spans: [AtomicU64; SPAN_OUTCOMES.len()],
    /// Attempts to send a message that failed.
    failed_attempts: AtomicU64,
}

impl Tracer {
    /// Creates the traces of the process. `is_tls`: requests over TCP are over TLS.
    pub fn new(
        trace: &Trace,
        is_tls: bool,
        collections: CollectionNames,
        databases: impl IntoIterator<Item = DatabaseName>,
    ) -> Arc<Self> {
        Arc::new(Self {
            collections,
            databases: databases.into_iter().map(Into::into).collect(),
            is_tls,
            sampler: Sampler::new(trace.sample),
            per_second: PerSecond::new(trace.requests_per_s_max),
            config: trace.clone(),
            ids: RandomIds::default(),
            waiting: WaitingRequests::default(),
            recorder: Recorder::default(),
            is_full: Notify::new(),
            spans: Default::default(),
            failed_attempts: AtomicU64::new(0),
        })
    }

    /// Begins the trace of a request that waits for `keys`; `None`: it is not traced.
    #[cold]
    pub fn wait(
        self: &Arc<Self>,
        headers: Fields<'_>,
        keys: &[&Key],
        kind: ReadKind,
    ) -> Option<WaitingRequest> {
        let parent = parent_of(headers);
        self.sampler.reason(parent.as_ref(), || self.ids.number())?;
        let now = Nanos::now();
        if !self.may_record(now) {
            return None;
        }
        let (span, parent_id) = self.span_under(parent);
        let trace = RequestTrace::new(span, parent_id, kind, now);
        let joins = kind == ReadKind::Normal;
        let waiting = WaitingRequest::enter(self, trace, keys, joins);
        if waiting.is_none() {
            self.recorder.count_dropped(DropReason::InFlight);
        }
        waiting
    }

    /// Records a request that has not waited, if its caller records it.
    pub fn note_at_once<'a>(
        &self,
        headers: Fields<'_>,
        request: impl FnOnce() -> AnsweredRequest<'a>,
    ) {
        let parent = parent_of(headers);
        if parent.is_some_and(|parent| parent.is_sampled) {
            self.record_at_once(parent, &request());
        }
    }

    #[cold]
    fn record_at_once(&self, parent: Option<TraceParent>, request: &AnsweredRequest<'_>) {
        if self.counted(self.per_second.take_of_half(request.now)) {
            let span = self.server_span(&WallClock::read(), self.span_under(parent), request);
            self.record(span);
        }
    }

    /// Records a request whose future has ended. `trace`: its trace, if it has waited and is
    /// traced.
    pub fn note_ended(
        &self,
        trace: Option<&RequestTrace>,
        parent: Option<TraceParent>,
        request: &AnsweredRequest<'_>,
    ) {
        match (trace, request.outcome) {
            (Some(trace), _) => self.record_waited(trace, request),
            // Its body was waited for, and no key.
            (None, CacheOutcome::Hit | CacheOutcome::Stale | CacheOutcome::None) => {
                if parent.is_some_and(|parent| parent.is_sampled) {
                    self.record_at_once(parent, request);
                }
            }
            (None, CacheOutcome::Miss | CacheOutcome::Coalesced | CacheOutcome::Bypass) => {}
        }
    }

    /// Returns the context of a new span below the caller's, or of a new trace, and its parent.
    fn span_under(&self, parent: Option<TraceParent>) -> (SpanContext, Option<SpanId>) {
        match parent {
            Some(TraceParent { span, .. }) => {
                let (trace_id, span_id) = (span.trace_id, self.ids.span_id());
                (SpanContext { trace_id, span_id }, Some(span.span_id))
            }
            None => (self.ids.root(), None),
        }
    }

    /// Takes one of the traces of this second.
    fn may_record(&self, now: Nanos) -> bool {
        self.counted(self.per_second.take(now))
    }

    /// Counts a trace that the second does not permit.
    fn counted(&self, is_permitted: bool) -> bool {
        if !is_permitted {
            self.recorder.count_dropped(DropReason::Rate);
        }
        is_permitted
    }

    fn record(&self, span: Span) {
        if self.recorder.record(span) {
            self.is_full.notify_one();
        }
    }

    fn count(&self, outcome: SpanOutcome, spans: u64) {
        self.spans[outcome as usize].fetch_add(spans, Ordering::Relaxed);
    }

    /// Writes the metrics.
    pub fn expose(&self, out: &mut Exposition) {
        let spans = SPAN_OUTCOMES
            .iter()
            .zip(&self.spans)
            .map(|((_, outcome), count)| ([("outcome", *outcome)], count.load(Ordering::Relaxed)));
        out.counter("hotrow_trace_spans_total", "Spans by what became of them.", spans);
        let dropped = |reason: DropReason| {
            ([("reason", reason.label())], self.recorder.dropped_total(reason))
        };
        out.counter(
            "hotrow_trace_spans_dropped_total",
            "Spans, and requests that would have been traced, that were not recorded.",
            DropReason::ALL.map(dropped),
        );
        out.counter(
            "hotrow_trace_export_failures_total",
            "Attempts to send a message of spans that failed.",
            [([], self.failed_attempts.load(Ordering::Relaxed))],
        );
        out.gauge(
            "hotrow_trace_queue_bytes",
            "Bytes of spans that wait to be exported.",
            [([], self.recorder.queued_bytes() as u64)],
        );
    }
}

/// Starts the thread that exports spans, if any are recorded.
///
/// # Errors
/// The system refuses the thread.
pub fn start(
    tracer: Option<&Arc<Tracer>>,
    shutdown: &Shutdown,
    supervisor: &Supervisor,
) -> io::Result<Option<JoinHandle<Option<()>>>> {
    tracer.map(|tracer| export::start(Arc::clone(tracer), shutdown, supervisor)).transpose()
}

/// Maps readings of the process's clock to Unix time, as the wall clock is at one moment.
struct WallClock {
    now: Nanos,
    unix_ns: u64,
}

impl WallClock {
    fn read() -> Self {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { now: Nanos::now(), unix_ns: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Returns the Unix time of an earlier reading.
    fn unix_ns(&self, at: Nanos) -> u64 {
        let ago = u64::try_from(self.now.since(at).as_nanos()).unwrap_or(u64::MAX);
        self.unix_ns.saturating_sub(ago)
    }
}
